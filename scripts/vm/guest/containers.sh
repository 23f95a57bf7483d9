# Checks of containers on full v2 with crun as their runtime: nothing else is there that could run them.
. /lib.sh
for module in $(cat /lib/modules/order); do insmod "/lib/modules/$module.ko"; done
mknod -m 666 /dev/accel0 c 7 1
mknod -m 666 /dev/accel1 c 7 129
cat > /conf/slurm.conf <<'CONF'
ClusterName=vm
KillWait=1 AuthInfo=cred_expire=0
DefMemPerCPU=64
GresTypes=gpu
NodeName=vm CPUs=2 CoresPerSocket=2 RealMemory=800 Gres=gpu:2
PartitionName=main Nodes=vm Default=YES State=UP
CONF
echo 'Name=gpu File=/dev/accel[0-1]' > /conf/gres.conf
ROOTFS=/var/lib/rootfs

# Images and the state are on a file system of a disk: a container's files are layers over those of its image.
a_file_system_for_images() {
  dd if=/dev/zero of=/tmp/image bs=1M count=0 seek=300
  mkfs.ext4 -q /tmp/image
  mount -t ext4 -o loop /tmp/image /var/lib
  mkdir -p $ROOTFS/bin $ROOTFS/dev $ROOTFS/etc $ROOTFS/proc $ROOTFS/sys $ROOTFS/tmp
  cp /bin/busybox $ROOTFS/bin/busybox
  for tool in sh cat id echo sleep tail grep stat dd; do ln -s busybox $ROOTFS/bin/$tool; done
  echo 'root:x:0:0::/root:/bin/sh' > $ROOTFS/etc/passwd
  echo 'made on the spot' > $ROOTFS/etc/release
}

crun_is_the_only_runtime() {
  crun --version | grep -q '^crun version'
  if command -v runc; then wrong "runc is here"; fi
}

a_step_runs_in_a_container_as_its_user() {
  as ann "srun -n1 --container=$ROOTFS sh -c 'id -u; cat /etc/release; echo x > /tmp/x; exit 4'" > step.out 2> step.err && wrong "no exit code"
  same "what it printed" "1001 made on the spot" "$(tr '\n' ' ' < step.out | sed 's/ $//')"
  grep -q 'Exited with exit code 4' step.err || wrong "$(cat step.err)"
  if [ -e $ROOTFS/tmp/x ]; then wrong "it wrote into its image"; fi
}

a_container_has_its_jobs_memory() {
  job=$(as ann "sbatch --parsable --mem=60 -o hog.out --wrap 'srun -n1 --container=$ROOTFS tail /dev/zero'")
  same "the step's state" OUT_OF_MEMORY "$(end_of "$job" > /dev/null; sacct -n -P -j "$job.0" -o State)"
}

a_container_has_its_jobs_devices() {
  as ann "srun -n1 --gres=gpu:1 --container=$ROOTFS sh -c 'for n in 0 1; do dd if=/dev/accel\$n of=/dev/null bs=1 count=1 2>/dev/null && echo opened \$n; done'" > devices.out || true
  same "what it opened" "opened 0" "$(cat devices.out)"
}

signals_and_the_end_reach_a_container() {
  job=$(as ann "sbatch --parsable -o none --wrap 'srun -n1 --container=$ROOTFS sh -c \"touch /tmp/work/inside; sleep 600\"'")
  until_true "it runs" [ -e inside ]
  scancel "$job"
  end_of "$job" | grep -q '^CANCELLED'
  until_true "its process is gone" sh -c "! ps -o args | grep -q '[s]leep 600'"
}

nothing_of_a_container_is_left() {
  until_true "no group is left" sh -c '[ -z "$(find /sys/fs/cgroup -type d -name "job_*")" ]'
  until_true "no mount is left" sh -c '! grep -q " overlay " /proc/mounts'
  until_true "no folder is left" sh -c '[ -z "$(ls /var/lib/sluice/nodes/vm/containers 2>/dev/null | grep -v "^ids-")" ]'
}

for name in a_file_system_for_images cluster_up crun_is_the_only_runtime a_step_runs_in_a_container_as_its_user \
  a_container_has_its_jobs_memory a_container_has_its_jobs_devices signals_and_the_end_reach_a_container \
  nothing_of_a_container_is_left; do
  check $name
done
