#!/usr/bin/env bash
# What is enforced on a machine with a real GPU and cgroup v2: run as root there, with the program's path.
# Prints a transcript; docs/evidence/gpu-h200.md keeps one.
set -u
program=$(realpath "${1:?usage: gpu.sh PROGRAM [TESTS...]}")
here=$(dirname "$(realpath "$0")")
shift
work=$(mktemp -d)
chmod 755 "$work"
mkdir -m 1777 "$work/jobs"
mkdir "$work/bin" "$work/tests"
cp "$here/cuda.py" "$work/jobs/"
cp "$program" "$work/bin/sluice"
for test in "$@"; do cp "$test" "$work/tests/"; done
export SLUICE_STATE=$work/state
"$work/bin/sluice" links "$work/bin" > /dev/null
export PATH=$work/bin:$PATH
# The folder is another each time.
exec > >(sed -u "s#$work#WORK#g") 2>&1
cd "$work/jobs" || exit 1

say() { printf '\n## %s\n' "$1"; }
show() { printf '$ %s\n' "$*"; eval "$*" 2>&1; }
# Submits the script on standard input, waits for its end, prints its output and its state.
job() {
    { echo '#!/bin/bash'; cat; } > job.sh
    printf '$ sbatch --wait %s <<script\n' "$*"; tail -n +2 job.sh; echo script
    rm -f job.out
    local id
    id=$(sbatch --parsable --wait -o job.out "$@" job.sh 2>&1)
    cat job.out
    echo "-> $(sacct -n -X -P -j "${id%%$'\n'*}" -o JobID,State,ExitCode)"
}

say 'The machine'
show 'uname -r; nvidia-smi --query-gpu=name,driver_version --format=csv,noheader; stat -fc %T /sys/fs/cgroup; cat /sys/fs/cgroup/cgroup.controllers; grep nvidia /proc/devices; ls -l /dev/nvidia*'
show "sluice up --detach --state $SLUICE_STATE --listen 127.0.0.1:0 --agents 127.0.0.1:0"
show "sluice doctor"

say 'A job without GPUs cannot open one, nor make one of its own; CUDA finds none'
job <<'script'
exec 3< /dev/nvidia0 || echo "nvidia0: refused"
exec 3< /dev/nvidiactl || echo "nvidiactl: refused"
mknod alias c 195 0 || echo "mknod: refused"
CUDA_VISIBLE_DEVICES=0 python3 cuda.py
python3 cuda.py
script

say 'A job with one can, and CUDA agrees'
job --gres=gpu:1 <<'script'
exec 3< /dev/nvidia0 && echo "nvidia0: opened"
echo "SLURM_JOB_GPUS=$SLURM_JOB_GPUS SLURM_GPUS_ON_NODE=$SLURM_GPUS_ON_NODE"
python3 cuda.py
script

say 'A step without its job'"'"'s GPU, and one with it'
job --gres=gpu:1 <<'script'
srun -n1 --gres=none sh -c '(exec 3< /dev/nvidia0); CUDA_VISIBLE_DEVICES=0 python3 cuda.py'
srun -n1 --gres=gpu:1 python3 cuda.py
script

say 'The same by a slurm.conf that counts the GPU and a gres.conf that leaves it to be found'
show 'sluice down'
mkdir "$work/conf"
cat > "$work/conf/slurm.conf" <<conf
ClusterName=evidence
GresTypes=gpu
NodeName=$(hostname -s) CPUs=$(nproc) RealMemory=8000 Gres=gpu:h200:1
PartitionName=main Nodes=ALL Default=YES State=UP
conf
echo 'AutoDetect=nvml' > "$work/conf/gres.conf"
show 'cat $work/conf/*.conf'
show "sluice up --detach --config $work/conf --state $SLUICE_STATE-2 --listen 127.0.0.1:0 --agents 127.0.0.1:0"
export SLUICE_STATE=$SLUICE_STATE-2
job <<'script'
(exec 3< /dev/nvidia0); python3 cuda.py
script
job --gpus=h200:1 <<'script'
(exec 3< /dev/nvidia0) && echo "nvidia0: opened"; python3 cuda.py
script

say 'Memory: over its limit a job ends OUT_OF_MEMORY, and so does a step over its part'
job --mem=64 <<'script'
head -c 300000000 /dev/zero | tail -n 1 | wc -c
script
job -n2 --mem=400 <<'script'
srun --exact -n1 --mem=60 sh -c 'head -c 150m /dev/zero | tail | wc -c'; echo "small: $?"
srun --exact -n1 --mem=300 sh -c 'head -c 150m /dev/zero | tail | wc -c'; echo "large: $?"
script
show "sacct -n -P -o JobID,State,ExitCode | tail -n 4"

say 'Cores: what was allocated is what is there'
job -n1 -c2 <<'script'
grep Cpus_allowed_list /proc/self/status
srun -n1 -c1 --exact grep Cpus_allowed_list /proc/self/status
cat /proc/self/cgroup
script

say 'Freeze, thaw, and a kill that a daemon does not outlive'
cat > daemon.sh <<'script'
#!/bin/bash
(setsid bash -c 'trap "" TERM HUP INT; while :; do date +%s%N > beat; sleep 0.05; done' > /dev/null 2>&1 &) &
until [ -s beat ]; do sleep 0.05; done
touch ready
sleep 600
script
id=$(sbatch --parsable -o daemon.out daemon.sh)
until [ -e ready ]; do sleep 0.1; done
show "scontrol suspend $id"
until [ "$(squeue -h -o %T -j "$id")" = SUSPENDED ]; do sleep 0.1; done
group=$(find /sys/fs/cgroup -maxdepth 3 -type d -name "job_${id}_1" | head -n 1)
sleep 0.3
show "grep frozen ${group@Q}/cgroup.events"
before=$(cat beat); sleep 1; after=$(cat beat)
[ "$before" = "$after" ] && echo "frozen: the daemon writes nothing"
show "scontrol resume $id"
sleep 1
[ "$after" != "$(cat beat)" ] && echo "thawed: it writes again"
show "scancel $id"
for _ in $(seq 200); do [ -d "$group" ] || break; sleep 0.1; done
[ -d "$group" ] && echo "the group is still there" || echo "the group is gone, and the daemon with it"
show "sacct -n -X -P -j $id -o JobID,State"

show "sluice down"
for test in "$work"/tests/*; do
    [ -x "$test" ] || continue
    say "The tests of $(basename "$test"), on these trees"
    show "$test --test-threads=2"
done
rm -rf "$work"
