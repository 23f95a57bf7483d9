//! Estimated start times: `squeue --start`, `scontrol show job`, `--test-only`.

use crate::harness::{Cluster, TWO_NODES, until};

/// The end of a running job by its limit, as `squeue` prints it.
fn end_of(cluster: &Cluster, job: u32) -> String {
    cluster.shell(&format!("squeue -h -j {job} -o %e")).ok().trim().to_owned()
}

fn add_minutes(time: &str, minutes: i64) -> String {
    let time: jiff::civil::DateTime = time.parse().expect("a time");
    let later = time.checked_add(jiff::Span::new().minutes(minutes)).expect("in range");
    later.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

#[test]
fn up_every_job_that_can_ever_start_has_an_estimate() {
    let cluster = Cluster::up(TWO_NODES);
    let first = cluster.submit_sleeper("-t 60 -w node1 --exclusive");
    let second = cluster.submit_sleeper("-t 120 -w node2 --exclusive");
    cluster.await_state(first, "RUNNING");
    cluster.await_state(second, "RUNNING");
    let third = cluster.submit_sleeper("-t 30 -n 32");
    let fourth = cluster.submit_sleeper("-t 30 -N 2 -n 64");
    let fifth = cluster.submit_sleeper(&format!("-t 30 -d afterany:{fourth}"));
    let held = cluster.submit_sleeper("-H");
    let array = cluster.submit_sleeper("-t 10 --array=1-3 -n 32");
    let (one, two) = (end_of(&cluster, first), end_of(&cluster, second));
    let text = cluster.shell("squeue --start -o '%i|%S|%Y'").ok();
    let expected = format!(
        "JOBID|START_TIME|SCHEDNODES\n\
         {third}|{one}|node1\n\
         {array}_[1-3]|{}|node1\n\
         {fourth}|{two}|node[1-2]\n\
         {fifth}|{}|node1\n\
         {held}|N/A|(null)\n",
        add_minutes(&one, 30),
        add_minutes(&two, 30),
    );
    assert_eq!(text, expected);
    let shown = cluster.shell(&format!("scontrol show job {third}")).ok();
    assert!(
        shown.contains(&format!("StartTime={one} EndTime={}", add_minutes(&one, 30))),
        "{shown}"
    );
    assert!(shown.contains("NodeList= SchedNodeList=node1"), "{shown}");
    let listing = cluster.shell("squeue --start").ok();
    let head = "             JOBID PARTITION     NAME     USER ST          START_TIME  NODES SCHEDNODES           NODELIST(REASON)";
    assert_eq!(listing.lines().next(), Some(head));
    assert_eq!(listing.lines().count(), 6, "{listing}");
    // A plan keeps a place for one task of the array at a time, and an earlier one for a job behind it.
    let last = cluster.submit_sleeper("-t 10 -n 32");
    let start = cluster.shell(&format!("squeue --start -h -j {last} -o %S")).ok();
    let told = cluster.sluice(&["explain", &last.to_string()]).ok();
    assert!(told.contains(&format!("  Expected start: {} on ", start.trim())), "{start} {told}");
    let kept = "  A place is kept for it: jobs behind it may not delay it.\n";
    assert!(told.contains(kept), "{told}");
}

#[test]
fn up_test_only_estimates_a_start_behind_all_pending_jobs() {
    let cluster = Cluster::up(TWO_NODES);
    let said = cluster.shell("sbatch --test-only -n 4 --wrap true");
    assert_eq!(said.code, 0);
    let line = said.stderr.trim();
    assert!(line.starts_with("sbatch: Job 1 to start at 20"), "{line}");
    assert!(line.ends_with("using 4 processors on nodes node1 in partition gpu"), "{line}");
    let first = cluster.submit_sleeper("-t 60 -w node1 --exclusive");
    let second = cluster.submit_sleeper("-t 120 -w node2 --exclusive");
    cluster.await_state(first, "RUNNING");
    cluster.await_state(second, "RUNNING");
    let third = cluster.submit_sleeper("-t 600 -n 32");
    cluster.await_state(third, "PENDING|Resources");
    let two = end_of(&cluster, second);
    for command in ["sbatch --test-only -n 32 --wrap true", "srun --test-only -n 32 true"] {
        let said = cluster.shell(command);
        let name = command.split(' ').next().unwrap();
        let line = format!(
            "{name}: Job 4 to start at {two} using 32 processors on nodes node2 in partition gpu\n"
        );
        assert_eq!((said.code, said.stderr), (0, line), "{command}");
    }
    assert_eq!(cluster.shell("squeue -h -o %i").ok().lines().count(), 3, "nothing was submitted");
    // A job that ends early changes the next estimate.
    cluster.shell(&format!("scancel {second}")).ok();
    until("the estimate follows", || {
        let said = cluster.shell("sbatch --test-only -t 1 -n 32 --wrap true");
        (!said.stderr.contains(&two)).then_some(())
    });
    cluster.shell("scontrol update node=node[1-2] state=drain reason=test").ok();
    let unknown = cluster.shell("sbatch --test-only -p nosuch --wrap true");
    let names = "sbatch: note: partitions that you may use: gpu, debug\n";
    assert!(unknown.code == 1 && unknown.stderr.ends_with(names), "{}", unknown.stderr);
    let never = "allocation failure: Requested node configuration is not available\n\
                 sbatch: note: as things stand it would not start at all: Nodes required for job are \
                 DOWN, DRAINED or reserved for jobs in higher priority partitions\n";
    until("the plan knows that the nodes are drained", || {
        let said = cluster.shell("sbatch --test-only -n 2 --wrap true");
        (said.code == 1 && said.stderr == never).then_some(())
    });
}

#[test]
fn up_start_estimates_account_for_limits_and_licenses() {
    let cluster = Cluster::up(&format!("{TWO_NODES}Licenses=matlab:1\n"));
    let me = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name;
    for line in [
        "add account physics",
        &format!("add user {me} account=physics"),
        "add qos one MaxJobsPerUser=1",
        &format!("modify user {me} set qos+=one"),
    ] {
        cluster.shell(&format!("sacctmgr -i {line}")).ok();
    }
    let first = cluster.submit_sleeper("--qos=one -t 60");
    let licensed = cluster.submit_sleeper("-L matlab -t 45");
    cluster.await_state(first, "RUNNING");
    cluster.await_state(licensed, "RUNNING");
    let second = cluster.submit_sleeper("--qos=one -t 30");
    let third = cluster.submit_sleeper("--qos=one -t 30");
    let another = cluster.submit_sleeper("-L matlab -t 10");
    let (one, two) = (end_of(&cluster, first), end_of(&cluster, licensed));
    let expected = format!("{another}|{two}\n{second}|{one}\n{third}|{}\n", add_minutes(&one, 30));
    assert_eq!(cluster.shell("squeue -h --start -o '%i|%S'").ok(), expected);
    let text = cluster.sluice(&["explain", &another.to_string()]).ok();
    assert!(text.contains("waits: Licenses\n  Not enough licences are free.\n"), "{text}");
    let held = format!("Licence matlab: 0 free, 1 asked.\n    held by job {licensed} ({me}): 1\n");
    assert!(text.contains(&held), "{text}");
}

/// What a job holds of its node is counted as the files are now, not as they were when it started.
#[test]
fn up_head_of_the_queue_keeps_its_place_when_its_partition_gives_no_whole_nodes_any_more() {
    let whole = TWO_NODES.replace("MaxTime", "OverSubscribe=EXCLUSIVE MaxTime");
    assert_ne!(whole, TWO_NODES, "the partition is found");
    let cluster = Cluster::up(&whole);
    let runs = cluster.submit_sleeper("-t 30 -w node1 -n 1");
    cluster.await_state(runs, "RUNNING");
    cluster.write_conf("slurm.conf", TWO_NODES);
    cluster.sluice(&["scontrol", "reconfigure"]).ok();
    let head = cluster.submit_sleeper("-t 5 -N 2 -n 64");
    let later = cluster.submit_sleeper("-t 60 -w node2 -n 1");
    let waits = |job: u32, why: &str| {
        until("it waits", || (cluster.state_of(job) == format!("PENDING|{why}")).then_some(()));
    };
    waits(head, "Resources");
    waits(later, "Priority");
    let start = cluster.shell(&format!("squeue -h --start -j {head} -o %S")).ok();
    assert_eq!(start.trim(), end_of(&cluster, runs));
    let explained = cluster.sluice(&["explain", &head.to_string()]).ok();
    assert!(explained.contains("A place is kept for it"), "{explained}");
}
