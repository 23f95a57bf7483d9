//! Het jobs, as in Slurm 22.05.

use crate::harness::{Cluster, TWO_NODES, until};

/// A script that runs until it is told to end.
const IDLE: &str = "until [ -e stop ]; do sleep 0.05; done";

#[test]
fn up_het_components_start_together_and_their_steps_run_on_their_own_nodes() {
    let cluster = Cluster::up(TWO_NODES);
    let script = "#!/bin/bash\n#SBATCH -n1 -J lead\n#SBATCH hetjob\n#SBATCH -n2 -J more -w node2\n\
        env | grep HET | sort > env.txt\n\
        srun sh -c 'echo first $SLURM_JOB_ID $SLURM_NTASKS $SLURMD_NODENAME'\n\
        srun --het-group=1 sh -c 'echo second $SLURM_JOB_ID $SLURM_NTASKS $SLURMD_NODENAME'\n";
    cluster.write("job.sh", &format!("{script}{IDLE}\n"));
    let id = cluster.submit(&["-o", "job.out", "job.sh"]);
    let second = id + 1;
    let out = cluster.await_file("job.out", |text| text.lines().count() == 3);
    let of_second = format!("second {id} 2 node2\n");
    assert_eq!(out, format!("first {id} 1 node1\n{of_second}{of_second}"));
    let env = cluster.read("env.txt");
    for line in [
        "SLURM_HET_SIZE=2".to_owned(),
        format!("SLURM_JOB_ID_HET_GROUP_0={id}"),
        format!("SLURM_JOB_ID_HET_GROUP_1={second}"),
        "SLURM_JOB_NODELIST_HET_GROUP_1=node2".to_owned(),
    ] {
        assert!(env.lines().any(|found| found == line), "{line} in {env}");
    }
    let queue = cluster.shell("squeue -h -S i -o '%i %A %j %T'").ok();
    let rows = format!("{id}+0 {id} lead RUNNING\n{id}+1 {second} more RUNNING\n");
    assert_eq!(queue, rows);
    assert_eq!(cluster.shell(&format!("squeue -h -S i -j {id} -o '%i %A %j %T'")).ok(), rows);
    let long = cluster.shell("squeue -h -S i -O HetJobID:8,HetJobIDSet:8,HetJobOffset:4").ok();
    let columns: Vec<&str> = long.split_whitespace().collect();
    let (first, set) = (id.to_string(), format!("{id}-{second}"));
    assert_eq!(columns, [&*first, &*set, "0", &*first, &*set, "1"]);
    let shown = cluster.shell(&format!("scontrol show job {id}+1")).ok();
    let title = format!("JobId={second} HetJobId={id} HetJobOffset=1 JobName=more\n");
    assert!(shown.starts_with(&title), "{shown}");
    assert!(shown.contains(&format!("   HetJobIdSet={id}-{second}\n")), "{shown}");
    cluster.write("stop", "");
    until("both are in the books", || {
        let line = format!("sacct -n -X -P -j {id} -o JobID,JobName,State,ExitCode");
        let wanted = format!("{id}+0|lead|COMPLETED|0:0\n{id}+1|more|COMPLETED|0:0\n");
        (cluster.shell(&line).stdout == wanted).then_some(())
    });
    assert_eq!(cluster.shell("squeue -h").ok(), "");
}

#[test]
fn up_het_components_wait_until_all_can_start_and_are_cancelled_together() {
    let cluster = Cluster::up(TWO_NODES);
    let busy = cluster.submit(&["-o", "/dev/null", "-w", "node2", "-n30", "--wrap", IDLE]);
    cluster.await_state(busy, "RUNNING");
    let first = cluster.submit(&["-o", "/dev/null", "-n32", ":", "-n32", "--wrap", "sleep 600"]);
    let states = |of: u32| {
        let line = format!("squeue -h -S i -j {of},{} -o '%i %T %r'", of + 1);
        cluster.shell(&line).ok()
    };
    let waiting = format!("{first}+0 PENDING Resources\n{first}+1 PENDING Resources\n");
    until("both wait", || (states(first) == waiting).then_some(()));
    let held = format!("{first}+0 PENDING JobHeldAdmin\n{first}+1 PENDING JobHeldAdmin\n");
    cluster.shell(&format!("scontrol hold {first}")).ok();
    let held_by_user = held.replace("Admin", "User");
    assert!([held, held_by_user].contains(&states(first)), "{}", states(first));
    cluster.shell(&format!("scontrol release {first}")).ok();
    let alone = cluster.shell(&format!("scancel {first}+1"));
    let words = "Operation not permitted on individual component of heterogeneous job";
    let line = format!("scancel: error: Kill job error on job id {first}+1: {words}\n");
    assert_eq!((alone.code, alone.stderr), (60, line));
    assert_eq!(states(first).lines().count(), 2);
    // The next number is of another job's component, and no component of the first.
    let wrong = cluster.shell(&format!("scontrol write batch_script {busy}+1 -"));
    let words = format!("job script retrieval failed: Invalid job id specified: {busy}+1");
    assert!(wrong.code != 0 && wrong.stderr.contains(&words), "{wrong:?}");
    cluster.shell(&format!("scontrol write batch_script {first}+0 -")).ok();
    cluster.write("stop", "");
    until("both run", || {
        let rows = states(first);
        (rows.matches("RUNNING").count() == 2).then_some(())
    });
    cluster.shell(&format!("scancel {first}")).ok();
    let cancelled = |id: u32| cluster.await_end(id).starts_with("CANCELLED");
    assert!(cancelled(first) && cancelled(first + 1));
    assert_eq!(cluster.groups(), Vec::<String>::new());
}

#[test]
fn up_cancelling_a_het_component_ends_it_alone_and_the_leader_ends_all() {
    let cluster = Cluster::up(TWO_NODES);
    let args = ["-o", "/dev/null", "-n1", ":", "-n1", ":", "-n1", "--wrap", "sleep 600"];
    let first = cluster.submit(&args);
    cluster.await_state(first + 1, "RUNNING");
    cluster.shell(&format!("scancel {first}+1")).ok();
    assert!(cluster.await_end(first + 1).starts_with("CANCELLED"));
    let rows = format!("{first}+0\n{first}+2\n");
    assert_eq!(cluster.shell("squeue -h -S i -t R -o %i").ok(), rows);
    cluster.shell(&format!("scancel {first}")).ok();
    assert!(cluster.await_end(first + 2).starts_with("CANCELLED"));
    let ids = |args: &str| {
        let line = format!("sacct -n -P {args} -o JobID | grep -v batch");
        cluster.shell(&line).ok().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = [0, 1, 2].map(|at| format!("{first}+{at}"));
    assert_eq!(ids(&format!("-j {first}")), all);
    assert_eq!(ids(&format!("-j {}", first + 1)), all[1..2]);
    assert_eq!(ids(&format!("-j {first} --whole-hetjob=no")), all[..1]);
    assert_eq!(ids(&format!("-j {first}+2 --whole-hetjob")), all);
}

#[test]
fn up_a_bad_het_component_refuses_the_whole_job() {
    let cluster = Cluster::up(TWO_NODES);
    let table = [
        ("-n1 : -p nosuch", "Batch job submission failed: Invalid partition name specified"),
        (
            "-n1 : -N1 -n100",
            "Batch job submission failed: Requested node configuration is not available",
        ),
        ("-a 0-3 -n1 : -n1", "Batch job submission failed: Invalid job array specification"),
        ("-n1 : -a 0-3", "Batch job submission failed: Invalid job array specification"),
    ];
    for (args, words) in table {
        let said = cluster.shell(&format!("sbatch {args} --wrap true"));
        let first = said.stderr.lines().rfind(|line| line.contains("failed")).unwrap_or_default();
        assert_eq!((said.code, first), (1, &*format!("sbatch: error: {words}")), "{args}");
    }
    assert_eq!(cluster.shell("squeue -h -t all").ok(), "", "nothing was submitted");
    let next = cluster.submit(&["-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(next, 1, "no id was spent");
}

#[test]
fn up_salloc_holds_all_het_components() {
    let cluster = Cluster::up(TWO_NODES);
    let line = "salloc -n1 -w node1 : -n1 -w node2 sh -c 'echo $SLURM_HET_SIZE; \
                srun sh -c \"echo \\$SLURMD_NODENAME\"; \
                srun --het-group=1 sh -c \"echo \\$SLURMD_NODENAME\"; srun --het-group=2 true; echo $?'";
    let said = cluster.shell(line);
    assert_eq!(said.stdout, "2\nnode1\nnode2\n1\n", "{}", said.stderr);
    let beyond = "srun: error: Requested het-group offset exceeds highest hetjob index (2 > 1)\n";
    assert!(said.stderr.contains(beyond), "{}", said.stderr);
    until("both have ended", || {
        let rows = cluster.shell("sacct -n -X -P -j 1 -o JobID,State").stdout;
        (rows == "1+0|COMPLETED\n1+1|COMPLETED\n").then_some(())
    });
}

#[test]
fn up_test_only_checks_all_het_components() {
    let cluster = Cluster::up(TWO_NODES);
    let busy = cluster.submit(&["-o", "/dev/null", "-w", "node2", "-n30", "-t60", "--wrap", IDLE]);
    cluster.await_state(busy, "RUNNING");
    let line = |args: &str| {
        let said = cluster.shell(args);
        assert_eq!(said.code, 0, "{}", said.stderr);
        let (job, rest) = said.stderr.split_once(" to start at ").expect("a line for it");
        let (start, rest) = rest.split_once(' ').expect("where");
        (job.to_owned(), start.to_owned(), rest.to_owned())
    };
    let (job, now, rest) = line("sbatch --test-only -n1 -w node1 : -n2 -w node2 --wrap true");
    assert_eq!((&*job, &*rest), ("sbatch: Job 2", "using 3 processors on node[1-2]\n"));
    let (_, later, _) = line("sbatch --test-only -n1 -w node1 : -n3 -w node2 --wrap true");
    assert!(later > now, "{later}: one component has a place and the other has none");
    let (_, start, rest) = line("srun --test-only -n1 -w node1 true : -n2 -w node2 true");
    let second = format!(
        "using 1 processors on nodes node1 in partition gpu\n\
         srun: Job 3 to start at {start} using 2 processors on nodes node2 in partition gpu\n"
    );
    assert_eq!(rest, second);
    let never = cluster.shell("sbatch --test-only -n1 : -N1 -n100 --wrap true");
    let words = "allocation failure: Requested node configuration is not available\n";
    assert!(never.code == 1 && never.stderr.contains(words), "{}", never.stderr);
    assert_eq!(cluster.shell("squeue -h -t PD").ok(), "", "nothing was submitted");
}
