#!/usr/bin/env bash
# What declared GPUs prove, on any machine: the demo's scenes, the variables of jobs, and what a job without GPUs gets. Run with the
# program's path. Prints a transcript; `declared-gpus.sh PROGRAM --record` puts it into docs/evidence/declared-gpus.md.
set -u
program=$(realpath "${1:?usage: declared-gpus.sh PROGRAM [--record]}")
page=$(dirname "$(realpath "$0")")/../../docs/evidence/declared-gpus.md
if [ "${2:-}" = --record ]; then
    transcript=$("$0" "$program") || exit 1
    head=$(sed '/^```text$/,$d' "$page")
    printf '%s\n\n```text\n%s\n```\n' "$head" "$transcript" > "$page"
    exit
fi
work=$(mktemp -d)
chmod 755 "$work"
mkdir "$work/bin" "$work/conf"
cp "$program" "$work/bin/sluice"
export SLUICE_STATE=$work/state
"$work/bin/sluice" links "$work/bin" > /dev/null
export PATH=$work/bin:$PATH
# The folder is another each time.
exec > >(sed -u "s#$work#WORK#g") 2>&1
cd "$work" || exit 1

say() { printf '\n## %s\n' "$1"; }
show() { printf '$ %s\n' "$*"; eval "$*" 2>&1; }

cat > conf/slurm.conf <<'CONF'
ClusterName=declared
SlurmdParameters=config_overrides
GresTypes=gpu
DefMemPerCPU=16
NodeName=gpu[1-2] CPUs=8 RealMemory=4000 Gres=gpu:h100:4
PartitionName=main Nodes=gpu[1-2] Default=YES MaxTime=60
CONF

say 'The machine has no such GPU; the file says that each of two nodes has four'
show 'ls /dev/nvidia* 2>&1; cat conf/slurm.conf'
show 'sluice up --detach --config conf --listen 127.0.0.1:0 --agents 127.0.0.1:0'
show 'sinfo -N -O NodeList,Gres:20,GresUsed:30,StateLong; scontrol show node gpu1 | grep -o "Declared=[A-Z]*"'

say 'They are counted, granted once and shown'
show 'sbatch --wait -o two.out --gres=gpu:2 --wrap "echo \$CUDA_VISIBLE_DEVICES \$SLURM_GPUS_ON_NODE"; cat two.out'
show 'sbatch --wait -o none.out --wrap "echo CUDA_VISIBLE_DEVICES=\${CUDA_VISIBLE_DEVICES-not set}"; cat none.out'
show 'srun -w gpu1 --gpus=4 sh -c "env | grep -E ^SLURM_GPUS\|^CUDA_VIS" | sort'
show 'sbatch --gres=gpu:5 --wrap true'
show 'sacct -X -n -P -o JobID,State,AllocTRES'

say 'They keep no device from anybody: there is none'
show 'srun --gpus=1 sh -c "ls /dev/nvidia0"'

say 'The scenes of the demo'
show 'sluice down --jobs'
unset SLUICE_STATE
show 'sluice demo --out evidence'
rm -rf "$work"
