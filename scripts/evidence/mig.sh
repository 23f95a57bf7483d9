#!/usr/bin/env bash
# What becomes of the slices of a real GPU (MIG): run as root on a machine whose GPU may be divided, with the program's path.
# It divides the first GPU, and undoes that at the end. Prints a transcript; docs/evidence/mig-h200.md keeps one.
set -u
program=$(realpath "${1:?usage: mig.sh PROGRAM}")
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
chmod 755 "$work"
mkdir -m 1777 "$work/jobs"
mkdir "$work/bin" "$work/conf"
cp "$here/cuda.py" "$work/jobs/"
cp "$program" "$work/bin/sluice"
export SLUICE_STATE=$work/state
"$work/bin/sluice" links "$work/bin" > /dev/null
export PATH=$work/bin:$PATH
exec > >(sed -u "s#$work#WORK#g") 2>&1
cd "$work/jobs" || exit 1

say() { printf '\n## %s\n' "$1"; }
show() { printf '$ %s\n' "$*"; eval "$*" 2>&1; }
await() { for _ in $(seq 300); do eval "$1" > /dev/null 2>&1 && return; sleep 0.2; done; echo "it did not come about: $1"; }
clear_slices() { nvidia-smi mig -dci > /dev/null; nvidia-smi mig -dgi > /dev/null; }
# The script on standard input, in a job that has a slice of this type.
job() {
    { echo '#!/bin/bash'; cat; } > job.sh
    printf '$ sbatch --wait %s <<script\n' "$*"; tail -n +2 job.sh; echo script
    rm -f job.out
    local id
    id=$(sbatch --parsable --wait -o job.out "$@" job.sh 2>&1)
    cat job.out
    echo "-> $(sacct -n -X -P -j "${id%%$'\n'*}" -o JobID,State,ExitCode)"
}

say 'The GPU is divided: a slice of three sevenths and two of one'
nvidia-smi -mig 1 > /dev/null
clear_slices
nvidia-smi mig -cgi 9,19,19 -C > /dev/null
show 'nvidia-smi -L'
show 'nvidia-smi | sed -n "/MIG devices/,/^$/p" | grep -E "^\|  0"'
show 'sluice agent --print-config'

say 'A node that says how many of each it has'
cat > "$work/conf/slurm.conf" <<conf
ClusterName=evidence
GresTypes=gpu
KillWait=2
DefMemPerCPU=500
NodeName=$(hostname -s) CPUs=$(nproc) RealMemory=8000 Gres=gpu:nvidia_h200_3g.71gb:1,gpu:nvidia_h200_1g.18gb:2
PartitionName=main Nodes=ALL Default=YES State=UP
conf
echo 'AutoDetect=nvml' > "$work/conf/gres.conf"
show "grep NodeName $work/conf/slurm.conf; cat $work/conf/gres.conf"
show "sluice up --detach --config $work/conf --listen 127.0.0.1:0 --agents 127.0.0.1:0"
await 'sinfo -h -o %t | grep -q idle'
show 'scontrol show node | grep -E "Gres=|State=|GPU="'

say 'A job has the slice that it asked for, and CUDA sees that one alone'
job --gres=gpu:nvidia_h200_3g.71gb:1 <<'script'
echo "$CUDA_VISIBLE_DEVICES"; python3 cuda.py
for right in /dev/nvidia-caps/nvidia-cap*; do (exec 3< $right) 2>/dev/null && echo "opens $right"; done; true
script
job -n2 --gres=gpu:nvidia_h200_1g.18gb:2 <<'script'
for n in 1 2; do srun -n1 --exact --gres=gpu:1 sh -c 'echo $CUDA_VISIBLE_DEVICES; python3 cuda.py; for right in /dev/nvidia-caps/nvidia-cap*; do (exec 3< $right) 2>/dev/null && echo "opens $right"; done; true' & done; wait
script
job <<'script'
CUDA_VISIBLE_DEVICES=0 python3 cuda.py
for right in /dev/nvidia-caps/nvidia-cap*; do (exec 3< $right) 2>/dev/null && echo "opens $right"; done; true
script

say 'The division changes under a job: the two small slices go, of which one is its own; it and its neighbour go on'
small=$(sbatch --parsable -o small.out --gres=gpu:nvidia_h200_1g.18gb:1 --wrap 'python3 cuda.py; until [ -e go ]; do sleep 0.2; done; python3 cuda.py')
large=$(sbatch --parsable -o large.out --gres=gpu:nvidia_h200_3g.71gb:1 --wrap 'python3 cuda.py; until [ -e go ]; do sleep 0.2; done; python3 cuda.py')
await '[ -s small.out ] && [ -s large.out ]'
for gi in $(nvidia-smi mig -lgi | awk '/1g.18gb/ {print $6}'); do nvidia-smi mig -dci -gi "$gi" > /dev/null; nvidia-smi mig -dgi -gi "$gi" > /dev/null; done
nvidia-smi mig -cgi 14 -C > /dev/null
show 'nvidia-smi -L'
await 'sinfo -h -o %T | grep -q inval'
show 'sinfo -h -N -o "%T|%E"'
await 'grep -q "are gone" small.out'
touch go
await '[ -z "$(squeue -h)" ]'
show 'cat small.out'
show 'cat large.out'
show "sacct -n -X -P -j $small,$large -o JobID,State,ExitCode"

say 'Afterwards the node has less than its line says; when the line fits, it returns'
await 'sinfo -h -N -o %E | grep -v anew | grep -q lower'
show 'sinfo -h -N -o "%T|%E"'
sed -i 's/gpu:nvidia_h200_1g.18gb:2/gpu:nvidia_h200_2g.35gb:1/' "$work/conf/slurm.conf"
show 'scontrol reconfigure'
await 'sinfo -h -o %t | grep -q idle'
show 'sinfo -h -N -o "%T|%E"'
job --gres=gpu:nvidia_h200_2g.35gb:1 <<'script'
echo "$CUDA_VISIBLE_DEVICES"; python3 cuda.py
script

show 'sluice down'
clear_slices
nvidia-smi -mig 0 > /dev/null
cd / && rm -rf "$work"
