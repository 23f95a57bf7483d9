# Checks of a machine with two sockets of two cores of two threads, a NUMA node each, and a device near each.
. /lib.sh
mknod -m 666 /dev/accel0 c 7 1
mknod -m 666 /dev/accel1 c 7 129
cat > /conf/slurm.conf <<'CONF'
ClusterName=vm
KillWait=1
DefMemPerCPU=20
GresTypes=gpu
TaskPlugin=task/affinity,task/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
NodeName=vm CPUs=8 Sockets=2 CoresPerSocket=2 ThreadsPerCore=2 RealMemory=800 Gres=gpu:2
PartitionName=main Nodes=vm Default=YES State=UP
CONF
cat > /conf/gres.conf <<'CONF'
Name=gpu File=/dev/accel0 Cores=0-1
Name=gpu File=/dev/accel1 Cores=2-3
CONF

LIST='grep Cpus_allowed_list /proc/self/status | grep -o "[0-9,-]*$"'

# lists OPTIONS…: the processors of each task of a step, in order, on one line
lists() {
  srun "$@" sh -c "$LIST" | sort | tr '\n' ' '
}

kernel_shows_the_machine() {
  same nodes "0-3 4-7 " "$(cat /sys/devices/system/node/node[01]/cpulist | tr '\n' ' ')"
  same siblings "0-1" "$(cat /sys/devices/system/cpu/cpu0/topology/core_cpus_list)"
  same "near 21:00.0" 0-3 "$(cat /sys/bus/pci/devices/0000:21:00.0/local_cpulist)"
  same "near 41:00.0" 4-7 "$(cat /sys/bus/pci/devices/0000:41:00.0/local_cpulist)"
}

the_machine_is_detected() {
  sluice agent --print-config > config.out
  grep -q ' CPUs=8 Boards=1 SocketsPerBoard=2 CoresPerSocket=2 ThreadsPerCore=2 ' config.out || wrong "$(cat config.out)"
}

the_node_has_that_shape() {
  scontrol show node vm > node.out
  grep -q 'CoresPerSocket=2' node.out && grep -q 'Sockets=2' node.out && grep -q 'ThreadsPerCore=2' node.out || wrong "$(cat node.out)"
  absent NotEnforced node.out
}

a_task_gets_a_whole_core() {
  job=$(sbatch --parsable -n1 -o core.out --wrap "$LIST; nproc")
  end_of "$job"
  same "its processors" "0-1 2 " "$(tr '\n' ' ' < core.out)"
  same "in the books" 2 "$(sacct -n -X -P -j "$job" -o AllocCPUS)"
}

two_jobs_never_share_a_core() {
  one=$(sbatch --parsable -n1 -o a.out --wrap "$LIST; until [ -s b.out ]; do sleep 0.1; done")
  two=$(sbatch --parsable -n1 -o b.out --wrap "$LIST; until [ -s a.out ]; do sleep 0.1; done")
  end_of "$one"
  end_of "$two"
  a=$(cat a.out) b=$(cat b.out)
  [ "$a" != "$b" ] || wrong "both had $a"
  for list in $a $b; do
    case $list in 0-1 | 2-3 | 4-5 | 6-7) ;; *) wrong "not a core: $list" ;; esac
  done
}

bound_to_cores() { same tasks "0-1 2-3 4-5 6-7 " "$(lists -n4 -c2 --cpu-bind=cores)"; }
bound_to_threads() { same tasks "0 1 2 3 4 5 6 7 " "$(lists -n8 -c1 --cpu-bind=threads)"; }
bound_to_sockets() { same tasks "0-3 4-7 " "$(lists -n2 -c4 --cpu-bind=sockets)"; }
bound_to_ldoms() { same tasks "0-3 4-7 " "$(lists -n2 -c4 --cpu-bind=ldoms)"; }
bound_by_mask() { same tasks "0 5 " "$(lists -N1 --exclusive -n2 --cpu-bind=mask_cpu:0x1,0x20)"; }
not_bound() { same tasks "0-7 0-7 " "$(lists --exclusive -n2 --cpu-bind=none)"; }

# Processors and memory policy of the two tasks.
policies() {
  srun -n2 -c4 --cpu-bind=ldoms "$@" sh -c "echo \$($LIST) \$(head -n 1 /proc/self/numa_maps | cut -d' ' -f2)" | sort | tr '\n' ' '
}

memory_is_where_it_was_bound() {
  same local "0-3 local 4-7 local " "$(policies --mem-bind=local)"
  same rank "0-3 bind:0 4-7 bind:1 " "$(policies --mem-bind=rank)"
  same map "0-3 bind:1 4-7 bind:0 " "$(policies --mem-bind=map_mem:1,0)"
}

# A core's job may have more memory than there is near that core; what is near is taken first, by the kernel's own rule.
memory_of_both_domains_is_the_jobs() {
  job=$(sbatch --parsable -n1 --mem=700 -o far.out --wrap "$LIST; cat /sys/fs/cgroup\$(cut -d: -f3 /proc/self/cgroup)/cpuset.mems.effective; dd if=/dev/zero of=/dev/null bs=560M count=1")
  same "its end" "COMPLETED|0:0" "$(end_of "$job")"
  same "its processors and domains" "0-1 0-1" "$(head -n 2 far.out | tr '\n' ' ' | sed 's/ $//')"
}

# Which device is free decides where the cores are.
devices_bring_near_cores() {
  TRY='for d in /dev/accel0 /dev/accel1; do dd if=$d of=/dev/null bs=1 count=1 2>/dev/null && echo $d; done'
  first=$(sbatch --parsable -n1 --gres=gpu:1 -o g0.out --wrap "$LIST; $TRY; until [ -e go.gpu ]; do sleep 0.1; done")
  until_true "the first runs" test -s g0.out
  second=$(sbatch --parsable -n1 --gres=gpu:1 -o g1.out --wrap "$LIST; $TRY")
  end_of "$second"
  touch go.gpu
  end_of "$first"
  same "near the first" "0-1 /dev/accel0 " "$(tr '\n' ' ' < g0.out)"
  same "near the second" "4-5 /dev/accel1 " "$(tr '\n' ' ' < g1.out)"
}

# The driver's own list is played; the places of the devices are the kernel's.
locality_is_detected() {
  sluice down
  mount -t tmpfs driver /proc/driver
  for pair in 0000:21:00.0=0 0000:41:00.0=1; do
    mkdir -p "/proc/driver/nvidia/gpus/${pair%=*}"
    printf 'Model: \t\t Test 1\nDevice Minor: \t %s\n' "${pair#*=}" > "/proc/driver/nvidia/gpus/${pair%=*}/information"
    mknod -m 666 "/dev/nvidia${pair#*=}" c 7 $((1 + 128 * ${pair#*=}))
  done
  sluice up --detach --state /tmp/found --listen 127.0.0.1:0 --agents 127.0.0.1:0
  export SLUICE_STATE=/tmp/found
  until_true "the node is idle" sh -c 'sinfo -h -o %t | grep -q idle'
  scontrol show node vm > found.out
  grep -q 'Gres=gpu:test_1:2(S:0-1)$' found.out || wrong "$(grep Gres= found.out)"
  job=$(sbatch --parsable -n1 --mem=20 --gres=gpu:1 -o none --wrap 'until [ -e go.near ]; do sleep 0.1; done')
  running "$job"
  same "near the second device" "4-5 " "$(srun -n1 --mem=20 --gres=gpu:1 sh -c "$LIST" | tr '\n' ' ')"
  touch go.near
  end_of "$job"
  sluice down
}

check kernel_shows_the_machine
check the_machine_is_detected
check cluster_up
check the_node_has_that_shape
check a_task_gets_a_whole_core
check two_jobs_never_share_a_core
check bound_to_cores
check bound_to_threads
check bound_to_sockets
check bound_to_ldoms
check bound_by_mask
check not_bound
check memory_is_where_it_was_bound
check memory_of_both_domains_is_the_jobs
check devices_bring_near_cores
check locality_is_detected
sed 's/^/# agent: /' $SLUICE_STATE/agent.log
