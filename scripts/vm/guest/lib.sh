# What the guests' checks are made of. A check is a function; its failure is the first command of it that fails.

# Runs the function of this name in a shell of its own and says how it went, on one line.
check() {
  start=$(cut -d. -f1 /proc/uptime)
  # Not as the condition of an `if`: there, a command that fails would not end the function.
  (
    set -e
    "$1"
  ) > /tmp/check.log 2>&1
  if [ $? = 0 ]; then
    echo "ok $1"
    echo "# $(($(cut -d. -f1 /proc/uptime) - start)) s"
  else
    echo "not ok $1: $(tail -n 4 /tmp/check.log | tr '\n' ' ')"
    sed 's/^/# /' /tmp/check.log
  fi
}

# Fails the check with a reason.
wrong() {
  echo "$*"
  exit 1
}

# until WHAT COMMAND…: asks again until the command succeeds. The bound is for what is broken, not for what is slow.
until_true() {
  what=$1
  shift
  for _ in $(seq 300); do
    if "$@" > /dev/null 2>&1; then return 0; fi
    sleep 0.1
  done
  wrong "it did not come about: $what"
}

# same WHAT WANTED FOUND
same() {
  [ "$2" = "$3" ] || wrong "$1: wanted '$2', found '$3'"
}

# absent PATTERN FILE
absent() {
  if grep "$1" "$2"; then wrong "'$1' is in $2"; fi
}

cluster_up() {
  cd /tmp/work
  sluice up --detach --config /conf --listen 127.0.0.1:0 --agents 127.0.0.1:0
  until_true "the node is idle" sh -c 'sinfo -h -o %t | grep -q idle'
}

# Everybody's folder, where jobs write.
mkdir -p /tmp/work /conf /tmp/bin
chmod 1777 /tmp/work
cd /tmp/work
export SLUICE_STATE=/var/lib/sluice
sluice links /tmp/bin > /dev/null
export PATH=/tmp/bin:/bin

as() {
  user=$1
  shift
  su -s /bin/sh -c "export PATH=$PATH SLUICE_STATE=$SLUICE_STATE; cd /tmp/work; $*" "$user"
}

# What the books say of a job when it is over: STATE|CODE
end_of() {
  until_true "job $1 ends" sh -c "sacct -n -X -P -j $1 -o State | grep -vE 'PENDING|RUNNING|SUSPENDED' | grep -q ."
  sacct -n -X -P -j "$1" -o State,ExitCode
}

# A zombie is dead: its parent may be slow to look.
dead() {
  ! grep -q '^State:.[^ZX]' "/proc/$1/status" 2>/dev/null
}

await_death() {
  for pid in $(cat "$1"); do
    until_true "process $pid of $1 is dead" dead "$pid"
  done
}

await_group() {
  until_true "job $1 has a group" has_group "$1"
}

await_no_group() {
  until_true "the group of job $1 is gone" no_group "$1"
}

has_group() {
  [ -n "$(group_of "$1")" ]
}

no_group() {
  [ -z "$(group_of "$1")" ]
}

running() {
  until_true "job $1 runs" sh -c "squeue -h -j $1 -o %T | grep -q RUNNING"
}

# The folder of a job's control group; those of the site's programs are beside it.
group_of() {
  find /sys/fs/cgroup -type d -name "job_$1_*" ! -name '*.*' | head -n 1
}
