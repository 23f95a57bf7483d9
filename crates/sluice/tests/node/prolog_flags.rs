//! `PrologFlags`: which of `salloc`, steps and batch scripts wait for the prolog.

use crate::harness::{Cluster, TWO_NODES, until};
use std::os::unix::fs::PermissionsExt;

/// It writes a file on each node, and on the second it waits for another.
const PROLOG: &str = "#!/bin/sh
cd $(dirname $0)/../work
[ $SLURMD_NODENAME = node1 ] || for i in $(seq 600); do [ -e go ] && break; sleep 0.1; done
touch done.$SLURMD_NODENAME
";

fn up_with(flags: &str) -> Cluster {
    let cluster = Cluster::folder("");
    let path = cluster.path("bin").join("prolog");
    std::fs::write(&path, PROLOG).expect("a program");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let conf = format!("{TWO_NODES}Prolog={}\nPrologFlags={flags}\n", path.display());
    cluster.write_conf("slurm.conf", &conf);
    cluster.start();
    cluster
}

fn await_prolog(cluster: &Cluster) {
    until("the job waits for the prolog", || {
        (cluster.shell("squeue -h -o '%t %r'").ok().trim() == "R Prolog").then_some(())
    });
}

#[test]
fn root_up_salloc_waits_for_the_prolog_on_all_nodes() {
    let cluster = up_with("Alloc");
    let line = "salloc -N2 sh -c 'ls done.*; squeue -h -o \"%t %r\"' > said 2> words";
    let mut salloc = cluster.spawn_shell(line);
    await_prolog(&cluster);
    cluster.await_file("words", |text| text.contains("Waiting for resource configuration"));
    assert_eq!(cluster.read("said"), "", "its shell has not begun");
    cluster.write("go", "");
    assert!(salloc.wait().expect("salloc ends").success());
    assert_eq!(cluster.read("said"), "done.node1\ndone.node2\nR None\n");
    let words = cluster.read("words");
    let words: Vec<&str> = words.lines().collect();
    let [granted, waiting, ready, over] = words[..] else { panic!("{words:?}") };
    assert!(granted.starts_with("salloc: Granted job allocation "), "{words:?}");
    assert_eq!(waiting, "salloc: Waiting for resource configuration");
    assert_eq!(ready, "salloc: Nodes node[1-2] are ready for job");
    assert!(over.starts_with("salloc: Relinquishing job allocation "), "{words:?}");
}

#[test]
fn root_up_with_nohold_salloc_starts_at_once_and_steps_wait() {
    let cluster = up_with("Alloc,NoHold");
    // The prolog of the second node waits for a file that only this shell makes.
    let inner = "touch go; srun -N2 sh -c \"ls done.\\$SLURMD_NODENAME\"";
    let said = cluster.shell(&format!("salloc -N2 sh -c '{inner}' | sort"));
    assert!(!said.stderr.contains("Waiting for resource configuration"), "{said:?}");
    assert_eq!(said.ok(), "done.node1\ndone.node2\n");
}

#[test]
fn root_up_a_batch_script_waits_for_all_prologs_only_with_deferbatch() {
    let cluster = up_with("Alloc");
    let script = "#!/bin/sh\ntouch go\n";
    cluster.write("job.sh", script);
    let id = cluster.submit(&["-N2", "job.sh"]);
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
    drop(cluster);

    let cluster = up_with("Alloc,DeferBatch");
    cluster.write("job.sh", "#!/bin/sh\nls done.*\n");
    let id = cluster.submit(&["-N2", "-o", "out", "job.sh"]);
    await_prolog(&cluster);
    cluster.await_file("done.node1", |_| true);
    // A restarted server starts the deferred script as well.
    cluster.kill("server");
    cluster.start();
    await_prolog(&cluster);
    assert!(!cluster.path("work/out").exists(), "the script has begun");
    cluster.write("go", "");
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
    assert_eq!(cluster.read("out"), "done.node1\ndone.node2\n");
    // On one node there is no other prolog to wait for.
    let id = cluster.submit(&["-N1", "-o", "out", "job.sh"]);
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
}

#[test]
fn root_up_a_deferred_batch_script_can_be_cancelled() {
    let cluster = up_with("Alloc,DeferBatch");
    cluster.write("job.sh", "#!/bin/sh\ntouch ran\n");
    let id = cluster.submit(&["-N2", "job.sh"]);
    await_prolog(&cluster);
    cluster.await_file("done.node1", |_| true);
    cluster.sluice(&["scancel", &id.to_string()]).ok();
    assert!(cluster.await_end(id).starts_with("CANCELLED"));
    assert!(!cluster.path("work/ran").exists(), "the script has run");
    until("nothing of it is left", || cluster.groups().is_empty().then_some(()));
}
