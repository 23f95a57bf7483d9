//! Programs that find one another across several hosts: `mpirun` of Open MPI, in both languages, and a rendezvous over TCP as
//! `torchrun` makes it. The hosts are network namespaces, each with an agent of its own.

use crate::harness::hosts::Hosts;
use crate::harness::{Cluster, skip, until};
use std::process::Command;

const CONF: &str = "\
ClusterName=mpi
SlurmdTimeout=300
KillWait=1 AuthInfo=cred_expire=0
DefMemPerCPU=128
NodeName=node[01-03] CPUs=2 CoresPerSocket=2 RealMemory=2000
PartitionName=main Nodes=node[01-03] Default=YES State=UP
";

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
    let state = until(&format!("{run} has ended"), || {
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
    let end = until("the job ends", || {
        let text = hosts.in_hub(&cluster, &format!("sacct -nXP -j {id} -o State,ExitCode")).stdout;
        (!text.contains("RUNNING") && !text.contains("PENDING")).then_some(text)
    });
    let output = cluster.read("sum.out");
    assert_eq!(end.trim(), "COMPLETED|0:0", "{output}");
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
