#!/usr/bin/env bash
# A CUDA program in a container, with a GPU and without: run as root on a machine with an NVIDIA GPU, nvcc and runc, with
# the program's path and a static busybox. Prints a transcript; docs/evidence/containers-h200.md keeps one.
set -u
program=$(realpath "${1:?usage: containers.sh PROGRAM BUSYBOX}")
busybox=$(realpath "${2:?usage: containers.sh PROGRAM BUSYBOX}")
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
chmod 755 "$work"
mkdir "$work/bin"
cp "$program" "$work/bin/sluice"
export SLUICE_STATE=$work/state
"$work/bin/sluice" links "$work/bin" > /dev/null
export PATH=$work/bin:$PATH
# The folder is another each time.
exec > >(sed -u "s#$work#WORK#g") 2>&1
cd "$work" || exit 1

say() { printf '\n## %s\n' "$1"; }
show() { printf '$ %s\n' "$*"; eval "$*" 2>&1; }
# As an ordinary user.
show_as() { printf '%s$ %s\n' "$1" "$2"; su -s /bin/sh "$1" -c "cd /; export PATH=$PATH SLUICE_STATE=$SLUICE_STATE; $2" 2>&1; }

say 'The machine, and an image with a CUDA program, its C libraries and a shell: nothing of the driver'
show 'uname -r; nvidia-smi --query-gpu=name,driver_version --format=csv,noheader; stat -fc %T /sys/fs/cgroup; runc --version | head -1'
mkdir -p image/{bin,dev,etc,proc,sys,tmp,lib64,lib}
nvcc -o image/bin/add "$here/add.cu"
cp "$busybox" image/bin/busybox
for tool in sh ls id cat; do ln -s busybox "image/bin/$tool"; done
# The driver's libraries need parts of the C library that the program does not.
libcuda=$(ldconfig -p | grep -o '/.*libcuda.so.1$' | head -1)
for file in image/bin/add "$libcuda"; do ldd "$file"; done | grep -o '/[^ ]*' | sort -u |
    while read -r file; do cp -L --parents "$file" image; done
chmod -R a+rX image
show 'find image -type f | sort'
show "sluice up --detach --state $SLUICE_STATE --listen 127.0.0.1:0 --agents 127.0.0.1:0"

say 'What a container with the GPU gets, as the agent found it: a CDI file made by the program, no toolkit'
show 'which nvidia-ctk; ls /etc/cdi /var/run/cdi; sluice agent --print-cdi > cdi.json; grep -e cdiVersion -e kind -e \"path cdi.json; grep -c hostPath cdi.json'

say 'With the GPU: its device, the libraries of the driver, and a sum that the GPU made'
show_as nobody "srun --gres=gpu:1 --container=$work/image sh -c 'id -u; ls /dev; ls /usr/local/nvidia/lib64; add'"
show_as nobody "srun --gres=gpu:1 --container=$work/image nvidia-smi -L"

say 'Without: no device, no driver, and no sum, whatever the variable says'
show_as nobody "srun --container=$work/image sh -c 'ls /dev; ls /usr/local/nvidia; CUDA_VISIBLE_DEVICES=0 add'"

say 'A step without its job'"'"'s GPU, and one with it'
cat > job.sh <<script
#!/bin/bash
srun --gres=none --container=$work/image add
srun --gres=gpu:1 --container=$work/image add
script
show 'cat job.sh; sbatch --wait --gres=gpu:1 -o job.out job.sh; cat job.out'

say 'As root inside'
show_as nobody "srun --gres=gpu:1 --container=$work/image --container-remap-root sh -c 'id -u; add'"

show 'sluice down'
rm -rf "$work"
