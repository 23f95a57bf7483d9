//! Limits that a site sets in slurm.conf: what is at a limit is taken, what is beyond it is refused in Slurm's words, as a real
//! controller (22.05.8) printed them, and leaves no job.

use crate::harness::{Cluster, TWO_NODES};

/// A script of exactly so many bytes.
fn script_of(bytes: usize) -> String {
    let begin = "#!/bin/sh\n#";
    format!("{begin}{}\n", "x".repeat(bytes - begin.len() - 1))
}

#[test]
fn up_tasks_array_script_and_steps_are_held_to_the_sites_limits() {
    let limits = "MaxTasksPerNode=3\nMaxStepCount=2\n\
                  SchedulerParameters=max_array_tasks=4,max_script_size=200\n";
    let cluster = Cluster::up(&format!("{TWO_NODES}{limits}"));
    cluster.write("fits.sh", &script_of(200));
    cluster.write("large.sh", &script_of(201));
    for line in [
        "sbatch -o /dev/null -a 0-3 --wrap true",
        "sbatch -o /dev/null -a 10,20,30,40%2 --wrap true",
        "sbatch -o /dev/null fits.sh",
        // The limit is that of a step, not of a job.
        "sbatch -o /dev/null -N1 -n4 --wrap true",
        "srun -N1 -n3 true",
        "srun -N2 --ntasks-per-node=3 true",
        "salloc -Q sh -c 'srun true && srun true'",
    ] {
        cluster.shell(line).ok();
    }
    let failed = "sbatch: error: Batch job submission failed:";
    let array = format!("{failed} Invalid job array specification\n");
    let tasks = ": Task count specification invalid\n".to_owned();
    let script = format!("{failed} script: \"201 bytes\" is not valid: at most 200 bytes\n");
    for (line, said) in [
        ("sbatch -J beyond -a 0-4 --wrap true", &array),
        ("sbatch -J beyond -a 10,20,30,40,50%2 --wrap true", &array),
        ("sbatch -J beyond large.sh", &script),
        ("srun -N1 -n4 true", &tasks),
        ("srun -N2 -n7 true", &tasks),
        ("salloc -Q -N1 -n3 srun -O -n4 true", &tasks),
        (
            "salloc -Q sh -c 'srun true; srun true; srun true'",
            &": Step limit reached for this job\n".to_owned(),
        ),
    ] {
        let heard = cluster.shell(line);
        assert_eq!(heard.code, 1, "{line}: {heard:?}");
        // A note may follow Slurm's sentence.
        assert!(heard.stderr.contains(said.as_str()), "{line}: {heard:?}");
    }
    assert_eq!(cluster.shell("squeue -h -t all -n beyond").ok(), "");
}

#[test]
fn up_partitions_limits_are_enforced_at_submit_as_the_site_says() {
    let conf = |enforce: &str| {
        format!(
            "EnforcePartLimits={enforce}\n{TWO_NODES}\
             PartitionName=short Nodes=node[1-2] MaxTime=00:10:00 State=UP\n\
             PartitionName=narrow Nodes=node[1-2] MaxNodes=1 State=UP\n"
        )
    };
    let cluster = Cluster::up(&conf("NO"));
    let time = "Requested time limit is invalid (missing or exceeds some limit)";
    let nodes = "Node count specification invalid";
    // For each partition or list of them: what is said with NO, ANY and ALL.
    let table = [
        ("-p gpu -N2 -t 60", ["", "", ""]),
        ("-p short -t 60", ["", time, time]),
        ("-p narrow -N2", ["", nodes, nodes]),
        ("-p short,gpu -t 60", ["", "", time]),
        ("-p gpu,short -t 60", ["", "", time]),
        ("-p narrow,gpu -N2", ["", "", nodes]),
    ];
    for (enforce, column) in [("NO", 0), ("ANY", 1), ("YES", 1), ("ALL", 2)] {
        cluster.write_conf("slurm.conf", &conf(enforce));
        cluster.shell("scontrol reconfigure").ok();
        for (asked, said) in table {
            let heard = cluster.shell(&format!("sbatch -H -J asked {asked} --wrap true"));
            let left = cluster.shell("squeue -h -n asked -o %i").ok();
            if said[column].is_empty() {
                assert_eq!(heard.code, 0, "{enforce}: {asked}: {heard:?}");
                cluster.shell(&format!("scancel {}", left.trim())).ok();
            } else {
                let line = format!("Batch job submission failed: {}\n", said[column]);
                assert_eq!((heard.code, left.as_str()), (1, ""), "{enforce}: {asked}: {heard:?}");
                assert!(heard.stderr.contains(&line), "{enforce}: {asked}: {heard:?}");
            }
        }
    }
}

/// Without `EnforcePartLimits` such a job waits, and says for what.
#[test]
fn up_a_job_beyond_its_partitions_limits_waits_where_they_are_not_enforced() {
    let cluster = Cluster::up(&format!(
        "{TWO_NODES}PartitionName=short Nodes=node1 MaxTime=00:10:00 State=UP\n"
    ));
    let job = cluster.submit(&["-p", "short", "-t", "60", "-o", "/dev/null", "--wrap", "true"]);
    cluster.await_state(job, "PENDING|PartitionTimeLimit");
}

#[test]
fn up_a_partition_for_reservations_refuses_jobs_without_one() {
    let cluster = Cluster::up(&format!(
        "{TWO_NODES}PartitionName=resv Nodes=node[1-2] ReqResv=YES State=UP\n"
    ));
    let denied = "Access/permission denied";
    let note = "note: partition resv takes jobs in reservations alone\n";
    for (line, said) in [
        (
            "sbatch -p resv --wrap true",
            format!("sbatch: error: Batch job submission failed: {denied}\nsbatch: {note}"),
        ),
        (
            "srun -p resv true",
            format!("srun: error: Unable to allocate resources: {denied}\nsrun: {note}"),
        ),
        (
            "salloc -p resv true",
            format!("salloc: error: Job submit/allocate failed: {denied}\nsalloc: {note}"),
        ),
    ] {
        let heard = cluster.shell(line);
        assert_eq!((heard.code, heard.stderr), (1, said), "{line}");
    }
    let user = crate::harness::user_name();
    let line =
        format!("scontrol create reservation=r start=now duration=60 nodes=node1 users={user}");
    cluster.shell(&line).ok();
    cluster.shell("srun -p resv --reservation=r true").ok();
}
