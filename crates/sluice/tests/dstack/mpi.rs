//! Programs that find one another across several hosts: `mpirun` of Open MPI and `torchrun` of PyTorch, in both languages, and a
//! rendezvous over TCP as `torchrun` makes it. The hosts are network namespaces, each with an agent of its own.

use crate::harness::hosts::Hosts;
use crate::harness::{Cluster, TIMEOUT, skip, until, within};
use std::process::Command;
use std::time::Duration;

const CONF: &str = "\
ClusterName=mpi
SlurmdTimeout=300
KillWait=1 AuthInfo=cred_expire=0
DefMemPerCPU=128
NodeName=node[01-03] CPUs=2 CoresPerSocket=2 RealMemory=2000
PartitionName=main Nodes=node[01-03] Default=YES State=UP
";

/// How long a job may take: three hosts that start Python with a large library share one machine.
const JOB_TIMEOUT: Duration = TIMEOUT.saturating_mul(2);

/// The owner of jobs that call `srun`: a node vouches for no root.
const USER: &str = "games";

/// An MPI program: each rank adds its number over all others, by Open MPI's library itself.
const SUM: &str = r#"
import ctypes, os, sys
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
handle = lambda name: ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
world, number, add = (handle(n) for n in ("ompi_mpi_comm_world", "ompi_mpi_int", "ompi_mpi_op_sum"))
mpi.MPI_Init(None, None)
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
own = ctypes.c_int(rank.value + 1)
mpi.MPI_Allreduce(ctypes.byref(own), ctypes.byref(total), 1, number, add, world)
mpi.MPI_Finalize()
sys.stdout.write(f"rank {rank.value} of {size.value} on {os.uname().nodename}: {total.value}\n")
"#;

/// What `torchrun --nnodes=3 --node-rank=$RANK --master-addr=$IP` does first: the master listens, the others come to it, and
/// each learns of all. The wait has a bound.
const RENDEZVOUS: &str = r#"
import os, socket, time
rank, world = int(os.environ["DSTACK_NODE_RANK"]), int(os.environ["DSTACK_NODES_NUM"])
address = (os.environ["DSTACK_MASTER_NODE_IP"], 29500)
if rank == 0:
    server = socket.create_server(address)
    server.settimeout(60)
    found = {0: (None, os.uname().nodename)}
    while len(found) < world:
        peer, _ = server.accept()
        number, name = peer.makefile().readline().split()
        found[int(number)] = (peer, name)
    names = " ".join(found[n][1] for n in sorted(found))
    for peer, _ in found.values():
        if peer:
            peer.sendall(names.encode() + b"\n")
            peer.close()
else:
    until = time.monotonic() + 60
    while True:
        try:
            peer = socket.create_connection(address, timeout=60)
            break
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
    peer.sendall(f"{rank} {os.uname().nodename}\n".encode())
    names = peer.makefile().readline().strip()
print(f"rank {rank}: {names}", flush=True)
"#;

/// The same sum by PyTorch's own library, over the connections that `torchrun` sets up.
const TORCH_SUM: &str = r#"
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {os.uname().nodename}: {total.item():g}", flush=True)
dist.destroy_process_group()
"#;

/// `torchrun` as Debian's package has it, for three nodes of one process each. Without the last two options this version fails on
/// flags of Python 3.11 that it does not know; with them it writes `[default0]:` before each line.
const TORCHRUN: &str =
    "/usr/bin/python3 -m torch.distributed.run --nnodes=3 --nproc_per_node=1 --redirects=1 --tee=1";

fn three_hosts() -> (Cluster, Hosts) {
    let cluster = Cluster::folder(CONF);
    let mut hosts = Hosts::up(3);
    hosts.start(&cluster);
    for host in 1..=3 {
        hosts.join(&cluster, host);
    }
    until("all nodes are idle", || {
        let states = hosts.in_hub(&cluster, "sinfo -h -o '%D %t'").stdout;
        (states.trim() == "3 idle").then_some(())
    });
    (cluster, hosts)
}

fn has_mpi() -> bool {
    let there = Command::new("mpirun").arg("--version").output().is_ok();
    if !there {
        skip("mpi", "no mpirun (Debian: openmpi-bin)");
    }
    there
}

/// The lines of a run that ended well, sorted.
fn log_of(hosts: &Hosts, cluster: &Cluster, run: &str) -> Vec<String> {
    let program = crate::harness::program();
    let state = within(JOB_TIMEOUT, &format!("{run} has ended"), || {
        let all = hosts.in_hub(cluster, &format!("{program} ps -a -n 20")).stdout;
        let line = all.lines().find(|line| line.contains(run))?.to_owned();
        ["exited", "failed", "terminated", "error"]
            .iter()
            .any(|end| line.contains(end))
            .then_some(line)
    });
    let mut lines = Vec::new();
    for rank in 0..3 {
        let said = hosts.in_hub(cluster, &format!("{program} logs {run} --job {rank}"));
        // Open MPI warns of a race of its own with the clients that it starts.
        let own = said.stdout.lines().filter(|line| !line.contains("plm:rsh: Warning: setpgid"));
        lines.extend(own.map(str::to_owned));
    }
    assert!(state.contains("exited (0)"), "{state}\n{}", lines.join("\n"));
    lines.sort();
    lines
}

/// How a batch job ended, from the books: `STATE|CODE`.
fn batch_end(hosts: &Hosts, cluster: &Cluster, id: &str) -> String {
    within(JOB_TIMEOUT, "the job ends", || {
        let text = hosts.in_hub(cluster, &format!("sacct -nXP -j {id} -o State,ExitCode")).stdout;
        let has_ended = !text.contains("RUNNING") && !text.contains("PENDING");
        (has_ended && !text.trim().is_empty()).then(|| text.trim().to_owned())
    })
}

/// What the ranks printed, in their order, of the lines that `torchrun` passed on.
fn torch_lines<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<String> {
    let own = lines.filter_map(|line| line.strip_prefix("[default0]:"));
    let mut own: Vec<String> =
        own.filter(|line| line.starts_with("rank ")).map(str::to_owned).collect();
    own.sort();
    own
}

fn sums() -> Vec<String> {
    (0..3).map(|rank| format!("rank {rank} of 3 on node0{}: 6", rank + 1)).collect()
}

fn task(name: &str, command: &str) -> String {
    format!(
        "type: task\nname: {name}\nnodes: 3\nstartup_order: workers-first\nstop_criteria: master-done\n\
         resources: {{cpu: 1.., memory: 256MB.., disk: 0GB..}}\ncommands:\n  - |\n    {command}\n"
    )
}

#[test]
fn root_mpirun_goes_over_three_hosts_by_the_hostfile_in_a_run() {
    if !has_mpi() {
        return;
    }
    let (cluster, hosts) = three_hosts();
    let program = cluster.write("sum.py", SUM);
    let mpirun = format!(
        "if [ $DSTACK_NODE_RANK = 0 ]; then mpirun --allow-run-as-root --hostfile $DSTACK_MPI_HOSTFILE -n 3 \
         --map-by node python3 {}; else sleep 600; fi",
        program.display()
    );
    cluster.write("sum.dstack.yml", &task("sum", &mpirun));
    let apply = format!("{} apply -f sum.dstack.yml -y -d", crate::harness::program());
    // Root's run, whom no node vouches for, and a user's.
    let said = hosts.in_hub(&cluster, &apply);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(log_of(&hosts, &cluster, "sum"), sums());
}

#[test]
fn root_mpirun_goes_over_three_hosts_by_srun_in_an_allocation() {
    if !has_mpi() {
        return;
    }
    let (cluster, hosts) = three_hosts();
    let program = cluster.write("sum.py", SUM);
    let program = program.display();
    // Open MPI sees the allocation and starts its daemons by `srun`.
    let line = format!(
        "sbatch --parsable -N3 -n3 --ntasks-per-node=1 --mem=256 -o sum.out --wrap 'mpirun python3 {program}'"
    );
    let said = hosts.in_hub_as(USER, &cluster, &line);
    let id = said.stdout.trim().to_owned();
    assert!(!id.is_empty(), "{}", said.stderr);
    let end = batch_end(&hosts, &cluster, &id);
    let output = cluster.read("sum.out");
    assert_eq!(end, "COMPLETED|0:0", "{output}");
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort();
    assert_eq!(lines, sums());
    let steps = hosts.in_hub(&cluster, &format!("sacct -nP -j {id} -o JobName,NNodes")).stdout;
    assert!(steps.lines().any(|line| line.starts_with("orted|")), "{steps}");
}

#[test]
fn root_nodes_of_a_run_find_their_master_by_its_address() {
    let (cluster, hosts) = three_hosts();
    let program = cluster.write("rendezvous.py", RENDEZVOUS);
    let text = task("meet", &format!("python3 {}", program.display()));
    // All of them are to come to their end.
    cluster.write("meet.dstack.yml", &text.replace("master-done", "all-done"));
    let apply = format!("{} apply -f meet.dstack.yml -y -d", crate::harness::program());
    let said = hosts.in_hub(&cluster, &apply);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let wanted: Vec<String> =
        (0..3).map(|rank| format!("rank {rank}: node01 node02 node03")).collect();
    assert_eq!(log_of(&hosts, &cluster, "meet"), wanted);
}

/// PyTorch is 640 MB, so `make soak` installs it and `make test` does not.
#[test]
#[ignore = "needs PyTorch: make soak"]
fn root_soak_torchrun_goes_over_three_hosts_in_both_languages() {
    let has_torch = Command::new("/usr/bin/python3").args(["-c", "import torch"]).status();
    assert!(has_torch.is_ok_and(|status| status.success()), "PyTorch (Debian: python3-torch)");
    let (cluster, hosts) = three_hosts();
    let program = cluster.write("torch_sum.py", TORCH_SUM);
    let program = program.display();
    let run = format!(
        "{TORCHRUN} --node_rank=$DSTACK_NODE_RANK --master_addr=$DSTACK_MASTER_NODE_IP --master_port=29500 {program}"
    );
    let text = task("torch", &run).replace("master-done", "all-done").replace("256MB", "1GB");
    cluster.write("torch.dstack.yml", &text);
    let apply = format!("{} apply -f torch.dstack.yml -y -d", crate::harness::program());
    let said = hosts.in_hub(&cluster, &apply);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let lines = log_of(&hosts, &cluster, "torch");
    assert_eq!(torch_lines(lines.iter().map(String::as_str)), sums(), "{lines:?}");

    cluster.write(
        "torch.sh",
        &format!(
            "#!/bin/sh\n#SBATCH -N3 --ntasks-per-node=1 --mem=1000 -o torch.out\n\
             master=$(scontrol show hostnames | head -n 1)\n\
             srun sh -c \"{TORCHRUN} --node_rank=\\$SLURM_NODEID --master_addr=$master --master_port=29501 {program}\"\n"
        ),
    );
    let said = hosts.in_hub_as(USER, &cluster, "sbatch --parsable torch.sh");
    let id = said.stdout.trim().to_owned();
    assert!(!id.is_empty(), "{}", said.stderr);
    let end = batch_end(&hosts, &cluster, &id);
    let output = cluster.read("torch.out");
    assert_eq!(end, "COMPLETED|0:0", "{output}");
    assert_eq!(torch_lines(output.lines()), sums(), "{output}");
}
