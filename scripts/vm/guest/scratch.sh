# Checks of a job's own folder on a file system with project quotas: held to its amount, and no trace of it afterwards.
. /lib.sh
for module in $(cat /lib/modules/order); do insmod "/lib/modules/$module.ko"; done
mkdir -p /scratch /private
cat > /conf/slurm.conf <<'CONF'
ClusterName=vm
KillWait=1 AuthInfo=cred_expire=0
DefMemPerCPU=64
ReturnToService=1
TmpFS=/scratch
JobContainerType=job_container/tmpfs
NodeName=vm CPUs=2 CoresPerSocket=2 RealMemory=800 TmpDisk=200
PartitionName=main Nodes=vm Default=YES State=UP
CONF
cat > /conf/cgroup.conf <<'CONF'
ConstrainRAMSpace=yes
MaxScratch=8
CONF
printf '%s\n' BasePath=/scratch/private AutoBasePath=true Dirs=/private > /conf/job_container.conf

printf '%s\n' '[volumes.shared]' "'/scratch/shared' = 'ALL'" > /conf/sluice.toml

a_file_system_with_quotas() {
  dd if=/dev/zero of=/tmp/image bs=1M count=0 seek=200
  mkfs.ext4 -q -I 256 -N 20000 -O quota,project -E quotatype=prjquota /tmp/image
  mount -t ext4 -o loop,prjquota /tmp/image /scratch
  grep -q '/scratch ext4 .*prjquota' /proc/mounts || wrong "$(cat /proc/mounts)"
  mkdir /scratch/shared
}

nothing_is_missing() {
  scontrol show node > node.out
  absent 'scratch:' node.out
}

# fill FILE MB: how many bytes of so many could be written.
FILL='fill() { dd if=/dev/zero of="$1" bs=64k count=$(($2 * 16)) 2>>/tmp/work/err.$SLURM_JOB_ID; stat -c %s "$1"; }; cd $SLURM_TMPDIR;'

what_was_asked_is_the_limit() {
  neighbour=$(as ben "sbatch --parsable -n1 --tmp=50 -o neighbour.out --wrap '$FILL until [ -e /tmp/work/go.on ]; do sleep 0.1; done; fill own 40'")
  job=$(as ann "sbatch --parsable -n1 --tmp=20 -o asked.out --wrap '$FILL fill big 30; rm big; fill small 10'")
  same "its end" "COMPLETED|0:0" "$(end_of "$job")"
  touch go.on
  set -- $(cat asked.out)
  [ "$1" -gt $((18 << 20)) ] && [ "$1" -le $((20 << 20)) ] || wrong "of 30 MB into 20: $(cat asked.out)"
  same "what fits" $((10 << 20)) "$2"
  grep -q 'Disk quota exceeded' "err.$job" || wrong "the words of the write: $(cat "err.$job")"
  same "the neighbour's end" "COMPLETED|0:0" "$(end_of "$neighbour")"
  same "what the neighbour could write" $((40 << 20)) "$(cat neighbour.out)"
}

the_sites_amount_holds_the_others() {
  job=$(as ann "sbatch --parsable -n1 -o usual.out --wrap '$FILL fill big 30; stat -f -c %b:%S .'")
  same "its end" "COMPLETED|0:0" "$(end_of "$job")"
  set -- $(cat usual.out)
  [ "$1" -gt $((6 << 20)) ] && [ "$1" -le $((8 << 20)) ] || wrong "of 30 MB into the site's 8: $(cat usual.out)"
  same "the size that the folder shows" $((8 << 20)) $((${2%:*} * ${2#*:}))
}

a_task_of_dstacks_language_is_held_too() {
  cat > held.dstack.yml <<'TASK'
type: task
name: held
shell: sh
commands:
  - cd $SLURM_TMPDIR; dd if=/dev/zero of=big bs=64k count=480 2>/dev/null; stat -c %s big
resources: { cpu: 1, memory: 64MB, disk: 20MB.. }
TASK
  as ann "sluice apply -y -f held.dstack.yml" > held.out 2>&1 || wrong "$(cat held.out)"
  wrote=$(grep -x '[0-9]*' held.out)
  [ "$wrote" -gt $((18 << 20)) ] && [ "$wrote" -le $((20 << 20)) ] || wrong "of 30 MB into 20: $(cat held.out)"
}

files_run_out_too() {
  job=$(as ann "sbatch --parsable -n1 -o files.out --wrap 'cd \$SLURM_TMPDIR; n=0; while [ \$n -lt 5000 ]; do true > \$n || break; n=\$((n + 1)); done; echo \$n'")
  end_of "$job"
  [ "$(tail -n 1 files.out)" -lt 4200 ] || wrong "$(tail -n 1 files.out) files"
}

# project_of JOB: the number that its folder counts under.
project_of() {
  lsattr -p -d /scratch/sluice-*/$1.1 | awk '{ print $1 }'
}

two_jobs_have_two_counts() {
  for n in 1 2; do
    as ann "sbatch --parsable -n1 --tmp=20 -o two.$n --wrap '$FILL fill big 15; until [ -e /tmp/work/go.two ]; do sleep 0.1; done'" > two.job.$n
  done
  for n in 1 2; do
    until_true "job $n has written" test -s two.$n
    same "what it could write" $((15 << 20)) "$(cat two.$n)"
  done
  touch go.two
  for n in 1 2; do end_of "$(cat two.job.$n)"; done
}

the_private_folder_counts_with_it() {
  job=$(as ann "sbatch --parsable -n1 --tmp=20 -o both.out --wrap '$FILL fill here 15; fill /private/there 15'")
  same "its end" "COMPLETED|0:0" "$(end_of "$job")"
  set -- $(cat both.out)
  same "in the first" $((15 << 20)) "$1"
  [ "$2" -le $((5 << 20)) ] || wrong "and in the second: $2"
}

# What is used on the disk, in kilobytes: nothing of a job's stays.
used() {
  df -k /scratch | tail -n 1 | awk '{ print $3 }'
}

records_are_freed() {
  until_true "the folders are gone" sh -c '! ls -d /scratch/sluice-*/*.* /scratch/private/sluice-*/*.*'
  sync
  before=$(used)
  # More than fits at once: each must have the room of the one before.
  for n in 1 2 3; do
    job=$(as ann "sbatch --parsable -n1 --tmp=20 -o freed.$n --wrap '$FILL fill big 19'")
    same "its end" "COMPLETED|0:0" "$(end_of "$job")"
    same "what it could write" $((19 << 20)) "$(cat freed.$n)"
  done
  sync
  after=$(used)
  [ "$after" -le $((before + 64)) ] || wrong "$before kB were used, and now $after"
}

limits_outlive_the_agent() {
  job=$(as ann "sbatch --parsable -n1 --tmp=20 -o outlive.out --wrap '$FILL echo; until [ -e /tmp/work/go.outlive ]; do sleep 0.1; done; fill big 30'")
  until_true "it runs" test -s outlive.out
  keeper=$(cat $SLUICE_STATE/keeper.pid 2>/dev/null) && rm -f $SLUICE_STATE/keeper.pid && kill -9 "$keeper"
  pid=$(cat $SLUICE_STATE/agent.pid)
  kill -9 "$pid"
  until_true "the agent is gone" dead "$pid"
  setsid sluice agent --state $SLUICE_STATE --join $SLUICE_STATE/server/local.join >> $SLUICE_STATE/agent.log 2>&1 &
  until_true "the node is back" sh -c 'sinfo -h -o %t | grep -qE "idle|mix|alloc"'
  next=$(as ben "sbatch --parsable -n1 --tmp=20 -o after.out --wrap '$FILL fill big 15'")
  end_of "$next"
  same "what the next could write" $((15 << 20)) "$(cat after.out)"
  touch go.outlive
  end_of "$job"
  wrote=$(tail -n 1 outlive.out)
  [ "$wrote" -gt $((18 << 20)) ] && [ "$wrote" -le $((20 << 20)) ] || wrong "of 30 MB into 20: $wrote"
}

a_lost_supervisor_leaves_no_folder() {
  job=$(as ann "sbatch --parsable --no-requeue -n1 --tmp=20 -o none --wrap 'cd \$SLURM_TMPDIR; dd if=/dev/zero of=big bs=1M count=10; touch /tmp/work/lost; sleep 600'")
  until_true "it has written" test -e lost
  kill -9 "$(grep -lx "sluice:$job.1" /proc/[0-9]*/comm | head -n 1 | cut -d/ -f3)"
  end_of "$job"
  until_true "its folder is gone" sh -c "! ls -d /scratch/sluice-*/$job.1"
}

# A user says of his own folder that it is the neighbour's: his end does not lift the neighbour's limit.
a_lost_job_does_not_lift_anothers_limit() {
  neighbour=$(as ben "sbatch --parsable -n1 --tmp=20 -o kept.out --wrap '$FILL fill here 1; until [ -e /tmp/work/go.kept ]; do sleep 0.1; done; fill big 30'")
  until_true "the neighbour has written" test -s kept.out
  job=$(as ann "sbatch --parsable --no-requeue -n1 --tmp=20 -o none --wrap 'touch /tmp/work/begun; sleep 600'")
  until_true "it runs" test -e begun
  # As its owner could do.
  chattr -p "$(project_of "$neighbour")" /scratch/sluice-*/$job.1
  kill -9 "$(grep -lx "sluice:$job.1" /proc/[0-9]*/comm | head -n 1 | cut -d/ -f3)"
  end_of "$job"
  until_true "its folder is gone" sh -c "! ls -d /scratch/sluice-*/$job.1"
  touch go.kept
  end_of "$neighbour"
  wrote=$(tail -n 1 kept.out)
  [ "$wrote" -gt $((17 << 20)) ] && [ "$wrote" -le $((20 << 20)) ] || wrong "of 30 MB into 20: $wrote"
}

# Somebody else's files are in the project that the next job would begin with.
a_number_that_is_taken_is_nobody_elses() {
  job=$(as ann "sbatch --parsable -n1 --tmp=20 -o first.out --wrap '$FILL fill big 1; until [ -e /tmp/work/go.first ]; do sleep 0.1; done'")
  until_true "it has written" test -s first.out
  taken=$(($(project_of "$job") + 1))
  touch go.first
  end_of "$job"
  mkdir /scratch/stray
  chattr -p $taken /scratch/stray
  next=$(as ann "sbatch --parsable -n1 --tmp=20 -o next.out --wrap '$FILL fill big 19; until [ -e /tmp/work/go.next ]; do sleep 0.1; done'")
  same "the job that comes" $((job + 1)) "$next"
  until_true "it has written" test -s next.out
  same "what it could write" $((19 << 20)) "$(cat next.out)"
  same "its number" $((taken + 1)) "$(project_of "$next")"
  touch go.next
  end_of "$next"
  rmdir /scratch/stray
}

a_volume_is_held_to_its_size() {
  as ann "mkdir /tmp/work/own; sluice volume create kept --shared /scratch/shared --size 10MB"
  job=$(as ann "sbatch --parsable -n1 --volume kept:/tmp/work/own -o volume.out --wrap 'cd /tmp/work/own; dd if=/dev/zero of=big bs=64k count=480 2>/tmp/work/err.volume; stat -c %s big'")
  same "its end" "COMPLETED|0:0" "$(end_of "$job")"
  set -- $(cat volume.out)
  [ "$1" -gt $((8 << 20)) ] && [ "$1" -le $((10 << 20)) ] || wrong "of 30 MB into 10: $(cat volume.out)"
  grep -q 'Disk quota exceeded' err.volume || wrong "the words of the write: $(cat err.volume)"
  as ann "sluice volume delete kept -y"
  same "what is left of it" "" "$(ls -A /scratch/shared/.sluice-volumes)"
}

# The file system's own list, when nobody uses it.
no_record_is_left() {
  until_true "the queue is empty" sh -c '! squeue -h | grep -q .'
  sluice down
  umount /scratch
  debugfs -R 'list_quota project' /tmp/image > records.out 2> records.err
  same "projects with a record" 0 "$(awk '$1 ~ /^[0-9]+$/ { print $1 }' records.out | tr '\n' ' ' | sed 's/ $//')"
}

where_quotas_are_off_the_node_says_so() {
  mount -t ext4 -o loop /tmp/image /scratch
  sluice up --detach --config /conf --listen 127.0.0.1:0 --agents 127.0.0.1:0
  until_true "the node is idle" sh -c 'sinfo -h -o %t | grep -q idle'
  until_true "the node says it" sh -c 'scontrol show node | grep -q "scratch: /scratch: its file system has no project quotas"'
  job=$(as ann "sbatch --parsable -n1 --tmp=20 -o off.out --wrap '$FILL fill big 30'")
  same "its end" "COMPLETED|0:0" "$(end_of "$job")"
  same "what it could write" $((30 << 20)) "$(cat off.out)"
  sluice down
}

check a_file_system_with_quotas
check cluster_up
check nothing_is_missing
check what_was_asked_is_the_limit
check the_sites_amount_holds_the_others
check a_task_of_dstacks_language_is_held_too
check files_run_out_too
check two_jobs_have_two_counts
check the_private_folder_counts_with_it
check records_are_freed
check limits_outlive_the_agent
check a_lost_supervisor_leaves_no_folder
check a_lost_job_does_not_lift_anothers_limit
check a_number_that_is_taken_is_nobody_elses
check a_volume_is_held_to_its_size
check no_record_is_left
check where_quotas_are_off_the_node_says_so
sed 's/^/# agent: /' $SLUICE_STATE/agent.log
