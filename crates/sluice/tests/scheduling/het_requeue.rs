//! Requeue of a het job: all components or none, as in Slurm 22.05.

use crate::harness::{Cluster, TWO_NODES, until};

const SCRIPT: &str = "#!/bin/sh\n\
    echo run ${SLURM_RESTART_COUNT:-0} >> runs\n\
    srun --het-group=0,1 -l sh -c 'echo $SLURM_NTASKS $SLURMD_NODENAME' | sort >> runs\n\
    until [ -e stop ]; do sleep 0.05; done\n";

fn started(cluster: &Cluster, options: &str) -> u32 {
    cluster.write("job.sh", SCRIPT);
    let line =
        format!("sbatch --parsable {options} -o /dev/null -n1 -w node1 : -n1 -w node2 job.sh");
    let id = cluster.shell(&line).ok().trim().parse().expect("a number");
    cluster.await_file("runs", |text| text.lines().count() == 3);
    id
}

fn states(cluster: &Cluster, job: u32) -> String {
    cluster.shell(&format!("squeue -h -S i -j {job} -o '%i %T'")).stdout
}

#[test]
fn up_a_requeued_het_job_starts_again_with_all_components() {
    let cluster = Cluster::up(TWO_NODES);
    let id = started(&cluster, "--requeue");
    let alone = cluster.shell(&format!("scontrol requeue {}", id + 1));
    let words = format!("Job not heterogeneous job leader for job {}\n", id + 1);
    assert_eq!((alone.code, &*alone.stderr), (1, &*words));
    assert_eq!(states(&cluster, id), format!("{id}+0 RUNNING\n{id}+1 RUNNING\n"));
    cluster.shell(&format!("scontrol requeue {id}")).ok();
    let one_run = |count: u32| format!("run {count}\n0: 2 node1\n1: 2 node2\n");
    let twice = one_run(0) + &one_run(1);
    assert_eq!(cluster.await_file("runs", |text| text.lines().count() == 6), twice);
    assert_eq!(states(&cluster, id), format!("{id}+0 RUNNING\n{id}+1 RUNNING\n"));
    let shown = cluster.shell(&format!("scontrol show job {id}")).ok();
    assert_eq!(shown.matches("Requeue=1 Restarts=1 ").count(), 2, "{shown}");
    cluster.write("stop", "");
    until("both attempts are in the books", || {
        let line = format!("sacct -n -X -D -P -j {id} -o JobID,State | sort");
        let wanted =
            format!("{id}+0|COMPLETED\n{id}+0|REQUEUED\n{id}+1|COMPLETED\n{id}+1|REQUEUED\n");
        (cluster.shell(&line).stdout == wanted).then_some(())
    });
}

#[test]
fn up_node_failure_under_one_het_component_requeues_or_ends_all() {
    let cluster = Cluster::up(TWO_NODES);
    for options in ["--requeue", "--no-requeue"] {
        cluster.write("runs", "");
        let id = started(&cluster, options);
        cluster.shell("scontrol update nodename=node2 state=down reason=test").ok();
        let after = match options {
            "--requeue" => format!("{id}+0 PENDING\n{id}+1 PENDING\n"),
            _ => String::new(),
        };
        until("what was there has gone", || (states(&cluster, id) == after).then_some(()));
        cluster.shell("scontrol update nodename=node2 state=resume").ok();
        if options == "--requeue" {
            cluster.await_file("runs", |text| text.lines().count() == 6);
            cluster.shell(&format!("scancel {id}")).ok();
        }
        let ended = if options == "--requeue" { "CANCELLED" } else { "NODE_FAIL" };
        for job in [id, id + 1] {
            let end = cluster.await_end(job);
            assert!(end.starts_with(ended), "{options} {job}: {end}");
        }
        until("nothing of it is left", || cluster.groups().is_empty().then_some(()));
    }
}
