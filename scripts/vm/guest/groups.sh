# Checks of full v2: what a job was allocated is what this kernel lets it have, and when it ends everything ends.
. /lib.sh
# Two devices that every user could open: the text of the first console, and the same with its colours.
mknod -m 666 /dev/accel0 c 7 1
mknod -m 666 /dev/accel1 c 7 129
cat > /conf/slurm.conf <<'CONF'
ClusterName=vm
KillWait=1 AuthInfo=cred_expire=0
DefMemPerCPU=64
GresTypes=gpu
ReturnToService=1
NodeName=vm CPUs=2 CoresPerSocket=2 RealMemory=800 Gres=gpu:2
PartitionName=main Nodes=vm Default=YES State=UP
Prolog=/conf/around
Epilog=/conf/around
CONF
# Before and after a job of that name: more than it may have, and a daemon.
cat > /conf/around <<'PROGRAM'
#!/bin/sh
[ "$SLURM_JOB_NAME" = around ] || exit 0
dd if=/dev/accel0 of=/dev/null bs=1 count=1 || exit 1
dd if=/dev/zero of=/dev/null bs=100M count=1 || exit 1
setsid sleep 600 &
echo $! >> /tmp/work/around.pids
PROGRAM
chmod 755 /conf/around
echo 'Name=gpu File=/dev/accel[0-1]' > /conf/gres.conf

only_v2_is_used() {
  sluice doctor > doctor.out || true
  grep -q '^groups: *V2$' doctor.out || wrong "$(cat doctor.out)"
  absent ' cgroup ' /proc/mounts
  scontrol show node > node.out
  absent NotEnforced node.out
}

memory_is_a_wall() {
  neighbour=$(sbatch --parsable -n1 --mem=100 -o none --wrap 'until [ -e go.on ]; do sleep 0.1; done; exit 7')
  running "$neighbour"
  job=$(as ann 'sbatch --parsable --mem=40 -o hog.out --wrap "cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/memory.max; tail /dev/zero"')
  same "the hog's end" "OUT_OF_MEMORY|0:125" "$(end_of "$job")"
  grep -qi 'oom.kill' hog.out || wrong "$(cat hog.out)"
  same "the neighbour's state" RUNNING "$(squeue -h -j "$neighbour" -o %T)"
  touch go.on
  same "the neighbour's end" "FAILED|7:0" "$(end_of "$neighbour")"
}

memory_limit_is_what_was_allocated() {
  job=$(sbatch --parsable --mem=120 -o none --wrap 'sleep 600')
  running "$job"
  await_group "$job"
  same memory.max $((120 << 20)) "$(cat "$(group_of "$job")/memory.max")"
  # Swap is limited to nothing, whether the machine has any or not.
  same memory.swap.max 0 "$(cat "$(group_of "$job")/memory.swap.max")"
  scancel "$job"
  end_of "$job" | grep -q '^CANCELLED'
}

# A step has less than its job: it falls alone.
memory_of_a_step_is_its_own() {
  job=$(sbatch --parsable -n2 --mem=300 -o step.out --wrap 'srun -n1 --exact --mem=40 tail /dev/zero; srun -n1 --mem=200 dd if=/dev/zero of=/dev/null bs=100M count=1')
  same "the job's end" "COMPLETED|0:0" "$(end_of "$job")"
  same "the step that asks for too much" OUT_OF_MEMORY "$(sacct -n -P -j "$job.0" -o State)"
  peak=$(dmesg | sed -n 's/.*Killed process.*(tail).*anon-rss:\([0-9]*\)kB.*/\1/p' | tail -n 1)
  [ "$peak" -lt 50000 ] || wrong "it fell at $peak kB, beyond the step's 40 MB"
  grep -q '^1+0 records out' step.out || wrong "the next step has its own: $(cat step.out)"
}

cores_are_a_wall() {
  one=$(sbatch --parsable -n1 -o one.out --wrap 'grep Cpus_allowed_list /proc/self/status; until [ -e go.cores ]; do sleep 0.1; done; for c in 0 1; do taskset -c $c true && echo "may use $c"; done')
  two=$(sbatch --parsable -n1 -o two.out --wrap 'grep Cpus_allowed_list /proc/self/status; touch go.cores')
  end_of "$two"
  end_of "$one"
  first=$(grep -o '[0-9]$' one.out | head -n 1)
  second=$(grep -o '[0-9]$' two.out | head -n 1)
  same "their cores" "01" "$(printf '%s\n' "$first" "$second" | sort | tr -d '\n')"
  same "what the first may use" "may use $first" "$(grep may one.out)"
}

# Both run before either ends.
steps_divide_the_jobs_cores() {
  job=$(sbatch --parsable -n2 -o shares.out --wrap 'for other in a b; do
    srun -n1 --exact sh -c "grep Cpus_allowed_list /proc/self/status; touch here.$other; until [ -e here.a ] && [ -e here.b ]; do sleep 0.1; done" &
  done; wait')
  same "its end" "COMPLETED|0:0" "$(end_of "$job")"
  same "the steps' cores" "0 1 " "$(grep -o '[0-9-]*$' shares.out | sort | tr '\n' ' ')"
}

devices_of_others_are_closed() {
  try='for d in /dev/accel0 /dev/accel1; do dd if=$d of=/dev/null bs=1 count=1 2>/dev/null && echo "opened $d"; done; dd if=/dev/zero of=/dev/null count=1 2>/dev/null && echo "opened zero"'
  job=$(as ann "sbatch --parsable -o none.out --wrap '$try'")
  end_of "$job"
  same "a job without devices" "opened zero" "$(cat none.out)"
  job=$(as ann "sbatch --parsable --gres=gpu:1 -o first.out --wrap '$try; until [ -e go.devices ]; do sleep 0.1; done'")
  running "$job"
  until_true "the first job has tried" grep -q zero first.out
  second=$(as ann "sbatch --parsable --gres=gpu:1 -o second.out --wrap '$try'")
  end_of "$second"
  touch go.devices
  end_of "$job"
  same "a job with one device" "opened /dev/accel0 opened zero " "$(tr '\n' ' ' < first.out)"
  same "a job with the other" "opened /dev/accel1 opened zero " "$(tr '\n' ' ' < second.out)"
}

a_device_made_by_the_job_is_closed() {
  # The job is root's: nothing but the group stands in its way.
  job=$(sbatch --parsable -o made.out --wrap 'mknod mine c 7 1; dd if=mine of=/dev/null bs=1 count=1 2>/dev/null && echo opened; echo tried')
  end_of "$job"
  same "what it could do" tried "$(grep -v mknod made.out)"
}

the_number_of_processes_is_limited() {
  job=$(as ann "sbatch --parsable -o none --wrap 'sleep 600'")
  running "$job"
  await_group "$job"
  limit=$(cat "$(group_of "$job")/pids.max")
  scancel "$job"
  end_of "$job"
  [ "$limit" -gt 0 ] || wrong "pids.max is $limit"
}

# Up to its limit and no further; while it stands there, others fork as before.
a_fork_bomb_stays_in_its_job() {
  echo MaxPids=60 > /conf/cgroup.conf
  scontrol reconfigure
  mkfifo -m 666 go.bomb
  job=$(as ann "sbatch --parsable --mem=200 -o none --wrap '(while :; do sleep 600 & done) 2> bomb.err; echo > bomb.full; read x < go.bomb; exit 6'")
  until_true "the bomb has had enough" test -e bomb.full
  grep -q 'fork: Resource temporarily unavailable' bomb.err || wrong "$(cat bomb.err)"
  group=$(group_of "$job")
  same pids.max 60 "$(cat "$group/pids.max")"
  [ "$(cat "$group/pids.current")" -ge 55 ] || wrong "it has $(cat "$group/pids.current") processes"
  other=$(as ben "sbatch --parsable -o none --wrap 'for i in 1 2 3; do /bin/true || exit 1; done; srun true'")
  same "another job meanwhile" "COMPLETED|0:0" "$(end_of "$other")"
  same "the bomb's state" RUNNING "$(squeue -h -j "$job" -o %T)"
  echo > go.bomb
  same "its end" "FAILED|6:0" "$(end_of "$job")"
  await_no_group "$job"
  rm /conf/cgroup.conf
  scontrol reconfigure
}

suspend_freezes() {
  job=$(sbatch --parsable -o none --wrap 'until [ -e go.frozen ]; do sleep 0.1; done; exit 3')
  running "$job"
  await_group "$job"
  scontrol suspend "$job"
  until_true "it is frozen" grep -q 'frozen 1' "$(group_of "$job")/cgroup.events"
  touch go.frozen
  same "its state" SUSPENDED "$(squeue -h -j "$job" -o %T)"
  scontrol resume "$job"
  same "its end" "FAILED|3:0" "$(end_of "$job")"
}

# As ours do when they must not die: out of the session, of the tree, and deaf.
DAEMON='(trap "" TERM HUP INT; setsid sh -c "trap \"\" TERM HUP INT; echo \$\$ >> PIDS; while :; do sleep 600; done" &) & '

daemons_die_with_their_job() {
  job=$(as ann "sbatch --parsable -o none --wrap '$(echo "$DAEMON" | sed s/PIDS/daemons/ | sed "s/'/'\\\\''/g") until [ -s daemons ]; do sleep 0.1; done; exit 0'")
  end_of "$job"
  same "daemons that started" 1 "$(wc -l < daemons)"
  await_death daemons
  await_no_group "$job"
}

a_frozen_job_can_be_killed() {
  job=$(sbatch --parsable -o none --wrap "$(echo "$DAEMON" | sed s/PIDS/frozen/) until [ -s frozen ]; do sleep 0.1; done; sleep 600")
  until_true "the daemon runs" test -s frozen
  scontrol suspend "$job"
  until_true "it is frozen" grep -q 'frozen 1' "$(group_of "$job")/cgroup.events"
  scancel "$job"
  end_of "$job"
  await_death frozen
}

a_requeued_job_has_a_new_group() {
  job=$(sbatch --parsable --requeue -o none --wrap 'cat /proc/self/cgroup >> groups; sleep 600')
  until_true "it runs" test -s groups
  scontrol requeue "$job"
  until_true "it runs again" sh -c '[ $(wc -l < groups) = 2 ]'
  same "its groups" 2 "$(sort -u groups | wc -l)"
  scancel "$job"
  end_of "$job"
}

a_job_cannot_change_its_group() {
  job=$(as ann "sbatch --parsable --mem=60 -o own.out --wrap 'g=/sys/fs/cgroup\$(cut -d: -f3 /proc/self/cgroup); for f in memory.max cpuset.cpus cgroup.kill cgroup.procs ../cgroup.procs; do (echo 1 > \$g/\$f) 2>/dev/null && echo \"wrote \$f\"; done; mkdir \$g/x 2>/dev/null && echo made; echo tried'")
  same "its end" "COMPLETED|0:0" "$(end_of "$job")"
  same "what it could do" tried "$(cat own.out)"
}

jobs_outlive_their_agent() {
  job=$(sbatch --parsable -o none --wrap 'until [ -e go.agent ]; do sleep 0.1; done; exit 5')
  running "$job"
  agent_dies
  touch go.agent
  agent_lives
  same "its end" "FAILED|5:0" "$(end_of "$job")"
}

groups_left_over_are_cleaned() {
  agent_dies
  root=$(find /sys/fs/cgroup -maxdepth 1 -name 'sluice-*-vm')
  mkdir -p "$root/job_9999_1/step_0"
  sh -c 'echo 0 > '"$root"'/job_9999_1/step_0/cgroup.procs; exec sleep 600' &
  echo $! > left.pid
  until_true "it is in the group" grep -q . "$root/job_9999_1/step_0/cgroup.procs"
  agent_lives
  until_true "the group is gone" sh -c "! test -e $root/job_9999_1"
  await_death left.pid
}

a_lost_supervisor_takes_its_job_along() {
  job=$(sbatch --parsable --no-requeue -o none --wrap "$(echo "$DAEMON" | sed s/PIDS/orphans/) until [ -s orphans ]; do sleep 0.1; done; sleep 600")
  until_true "the daemon runs" test -s orphans
  kill -9 "$(pidof_name "sluice:$job.1")"
  end_of "$job"
  await_death orphans
  await_no_group "$job"
}

logins_come_into_their_job() {
  mkdir -p -m 755 /run/sshd
  ssh-keygen -q -t ed25519 -N '' -f /tmp/host.key
  ssh-keygen -q -t ed25519 -N '' -f /tmp/user.key
  for kind in account session; do
    echo "$kind required /lib/pam_sluice.so"
    echo "$kind required /lib/pam_permit.so"
  done > /etc/pam.d/sshd
  printf '%s\n' 'Port 2222' 'ListenAddress 127.0.0.1' 'HostKey /tmp/host.key' 'AuthorizedKeysFile /tmp/user.key.pub' \
    'StrictModes no' 'UsePAM yes' 'PidFile none' > /etc/sshd_config
  /bin/sshd -f /etc/sshd_config -E /tmp/sshd.log
  login ann 'echo in' && wrong "let in without a job"
  grep -q 'Access denied: user ann (uid=1001) has no active jobs on this node' login.err || wrong "$(cat login.err /tmp/sshd.log)"
  job=$(as ann "sbatch --parsable --mem=100 -o none --wrap 'sleep 600'")
  running "$job"
  login ann 'cat /proc/self/cgroup' > login.out || wrong "$(cat login.err /tmp/sshd.log)"
  grep -q "/job_${job}_1" login.out || wrong "$(cat login.out)"
  login ann 'trap "" TERM HUP; echo $$ > /tmp/work/visitor; sleep 600; sleep 600' &
  until_true "the login is there" test -s visitor
  scancel "$job"
  end_of "$job"
  await_death visitor
  await_no_group "$job"
}

login() {
  ssh -F none -i /tmp/user.key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -p 2222 "$1@127.0.0.1" "$2" 2> login.err
}

programs_of_the_site_are_beside_the_job() {
  job=$(as ann "sbatch --parsable -J around --mem=40 -o around.out --wrap 'dd if=/dev/accel0 of=/dev/null bs=1 count=1 2>/dev/null && echo opened; cat /proc/\$(cat around.pids)/cgroup'")
  same "its end" "COMPLETED|0:0" "$(end_of "$job")"
  same "where the prolog's daemon was" "job_${job}_1.prolog" "$(sed 's/.*\///' around.out)"
  until_true "the epilog has run" sh -c '[ $(wc -l < around.pids) = 2 ]'
  await_death around.pids
  until_true "their groups are gone" sh -c "! find /sys/fs/cgroup -name 'job_${job}_*' | grep -q ."
  same "the node" idle "$(sinfo -h -o %T)"
}

use_is_counted() {
  job=$(sbatch --parsable --mem=200 -o none --wrap 'srun dd if=/dev/zero of=/dev/null bs=100M count=1')
  same "its end" "COMPLETED|0:0" "$(end_of "$job")"
  peak=$(sacct -n -P --units=K -j "$job.0" -o MaxRSS | tr -dc 0-9.)
  [ "${peak%.*}" -gt 100000 ] || wrong "MaxRSS of the step: $(sacct -n -P -j "$job" -o JobID,MaxRSS)"
}

nothing_is_left() {
  until_true "the queue is empty" sh -c '! squeue -h | grep -q .'
  until_true "no group is left" sh -c '! find /sys/fs/cgroup -name "job_*" | grep -q .'
  sluice down
  until_true "our root is gone" sh -c '! find /sys/fs/cgroup -name "sluice*" | grep -q .'
}

# without_groups FOLDER: jobs run where no group can be made, their daemons die all the same, and the node says what it
# cannot do.
without_groups() {
  export SLUICE_STATE=/tmp/$1
  sluice up --detach --state "$SLUICE_STATE" --config /conf --listen 127.0.0.1:0 --agents 127.0.0.1:0
  until_true "the node is idle" sh -c 'sinfo -h -o %t | grep -q idle'
  scontrol show node > node.out
  for what in containment memory cpuset devices; do
    grep -q "NotEnforced=$what: \|; $what: \|^ *$what: " node.out || wrong "$what is not told: $(cat node.out)"
  done
  job=$(sbatch --parsable -o none --wrap "$(echo "$DAEMON" | sed "s/PIDS/tracked.$1/") until [ -s tracked.$1 ]; do sleep 0.1; done; exit 4")
  same "its end" "FAILED|4:0" "$(end_of "$job")"
  await_death "tracked.$1"
  sluice down
}

a_read_only_tree_is_told_and_survived() {
  mount -o bind,remount,ro /sys/fs/cgroup
  without_groups readonly
}

a_missing_tree_is_told_and_survived() {
  umount /sys/fs/cgroup
  without_groups missing
}

pidof_name() {
  grep -lx "$1" /proc/[0-9]*/comm | head -n 1 | cut -d/ -f3
}

agent_dies() {
  # Its keeper would start it again.
  keeper=$(cat $SLUICE_STATE/keeper.pid 2>/dev/null) && rm -f $SLUICE_STATE/keeper.pid && kill -9 "$keeper"
  pid=$(cat $SLUICE_STATE/agent.pid)
  kill -9 "$pid"
  until_true "the agent is gone" dead "$pid"
}

agent_lives() {
  setsid sluice agent --state $SLUICE_STATE --join $SLUICE_STATE/server/local.join >> $SLUICE_STATE/agent.log 2>&1 &
  until_true "the node is back" sh -c 'sinfo -h -o %t | grep -qE "idle|mix|alloc"'
}

check cluster_up
check only_v2_is_used
check memory_is_a_wall
check memory_limit_is_what_was_allocated
check memory_of_a_step_is_its_own
check cores_are_a_wall
check steps_divide_the_jobs_cores
check devices_of_others_are_closed
check a_device_made_by_the_job_is_closed
check the_number_of_processes_is_limited
check a_fork_bomb_stays_in_its_job
check suspend_freezes
check daemons_die_with_their_job
check a_frozen_job_can_be_killed
check a_requeued_job_has_a_new_group
check a_job_cannot_change_its_group
check jobs_outlive_their_agent
check groups_left_over_are_cleaned
check a_lost_supervisor_takes_its_job_along
check logins_come_into_their_job
check programs_of_the_site_are_beside_the_job
check use_is_counted
check nothing_is_left
check a_read_only_tree_is_told_and_survived
check a_missing_tree_is_told_and_survived
sed 's/^/# agent: /' $SLUICE_STATE/agent.log
