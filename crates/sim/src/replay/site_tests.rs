//! Replays under the configuration of a site: gates that speak of people, jobs beyond limits, nodes that are not there, and several
//! partitions.

use super::*;
use crate::machine::{configured, largest_job};
use crate::trace::Numbering;
use model::amount::Bytes;
use model::node::{AdminState, NodeConfig};
use model::partition::{Access, Partition, PartitionState};
use model::preempt::{PreemptMode, PreemptPolicy};
use model::time::TimeLimit;

/// Two nodes of two CPUs in the partition `main`.
fn site() -> ClusterConfig {
    let names = ["n1", "n2"].map(str::to_owned);
    let mut partition = Partition::over("main", names.to_vec());
    partition.default = true;
    let mut config = ClusterConfig {
        nodes: names.map(|name| NodeConfig::plain(&name, 2, Bytes::from_gib(1))).into(),
        partitions: vec![partition],
        ..ClusterConfig::default()
    };
    config.parameters.select.memory = false;
    config
}

/// A job of its own user on each line: submission, run time and limit, and processors.
fn trace(jobs: &[(i64, u32, u32)]) -> Trace {
    let job = |(line, &(submit_s, run_s, processors)): (u64, &(i64, u32, u32))| TraceJob {
        line,
        submit_s,
        run_s,
        processors,
        estimate_s: run_s,
        user: line as i64,
        ..TraceJob::default()
    };
    Trace { jobs: (1..).zip(jobs).map(job).collect(), ..Trace::default() }
}

fn replayed(trace: &Trace, config: ClusterConfig) -> Result<Outcome, SimError> {
    replay(trace, configured(config, None)?, Measures::default(), |_| {})
}

#[test]
fn gates_that_speak_of_people_let_every_job_of_a_trace_in() {
    let mut config = site();
    let partition = &mut config.partitions[0];
    partition.allow_groups = Access::Only(vec!["physics".to_owned()]);
    partition.allow_accounts = Access::Only(vec!["physics".to_owned()]);
    partition.allow_qos = Access::Except(vec!["normal".to_owned()]);
    partition.qos = Some("of-the-partition".to_owned());
    partition.root_only = true;
    partition.require_reservation = true;
    config.parameters.enforce_associations = true;
    config.parameters.enforce_partition_limits = true;
    let outcome = replayed(&trace(&[(0, 100, 4), (0, 100, 4)]), config).expect("a replay");
    assert_eq!((outcome.figures.jobs, outcome.figures.max_wait_s), (2, 100.0));
    assert_eq!(outcome.beyond, BeyondLimits::default());
}

/// Whether or not the server would refuse them at submission. Jobs 1 and 5 are left.
#[test]
fn jobs_beyond_the_limits_of_their_partition_are_left_out_and_counted() {
    let jobs = trace(&[(0, 100, 2), (0, 3_601, 1), (0, 10, 3), (0, 10, 5), (50, 100, 1)]);
    for enforces in [false, true] {
        let mut config = site();
        config.parameters.enforce_partition_limits = enforces;
        config.partitions[0].max_time = TimeLimit::Minutes(60);
        config.partitions[0].max_nodes = Some(1);
        let Outcome { figures, beyond, .. } = replayed(&jobs, config).expect("a replay");
        assert_eq!((figures.jobs, figures.mean_wait_s, beyond.jobs), (2, 0.0, 3));
        assert_eq!(beyond.first, "line 2: its time limit is beyond its partition's MaxTime");
    }
    // On nodes of one CPU as many nodes are asked for as a job has processors.
    let mut config = site();
    config.nodes.iter_mut().for_each(|node| *node = NodeConfig::plain(&node.name, 1, node.memory));
    let Outcome { figures, beyond, .. } = replayed(&jobs, config).expect("a replay");
    assert_eq!((figures.jobs, beyond.jobs), (3, 2));
    let expected = "line 3: 3 processors: expected at most the 2 that partition main gives one job";
    assert_eq!(beyond.first, expected);
    // A least number of nodes holds back what asks for fewer.
    let mut config = site();
    config.partitions[0].min_nodes = 2;
    config.nodes.iter_mut().for_each(|node| *node = NodeConfig::plain(&node.name, 1, node.memory));
    let Outcome { beyond, .. } = replayed(&jobs, config).expect("a replay");
    let expected = "line 2: its partition does not have or give so many nodes, or so few";
    assert_eq!(beyond.first, expected);
}

#[test]
fn trace_of_which_no_job_could_start_is_refused_with_the_reason() {
    let one = trace(&[(0, 100, 1)]);
    let said = |config| replayed(&one, config).expect_err("nothing starts").to_string();
    let mut config = site();
    config.partitions[0].state = PartitionState::Down;
    assert_eq!(said(config), "no job could ever start; the first, line 1: its partition is DOWN");
    let mut config = site();
    config.partitions[0].state = PartitionState::Drain;
    assert_eq!(
        said(config),
        "no job could ever start; the first, line 1: partition main takes no jobs"
    );
    let mut config = site();
    config.partitions[0].default = false;
    assert!(said(config).starts_with("no partition has Default=YES"));
    let mut config = site();
    config.nodes.iter_mut().for_each(|node| node.initial = Some(AdminState::Down));
    assert!(said(config).starts_with("no node is in service"));
    let wide = Trace { numbering: Numbering::Jobs, ..trace(&[(0, 100, 5)]) };
    let said = replayed(&wide, site()).expect_err("five of four").to_string();
    let why = "5 processors: expected at most the 4 that partition main gives one job";
    assert_eq!(said, format!("no job could ever start; the first, job 1: {why}"));
}

/// Two nodes are in service, whatever stands beside them: a job on all of their four CPUs uses the whole machine.
#[test]
fn nodes_that_are_not_in_service_or_in_another_partition_take_no_part() {
    let mut config = site();
    for (name, initial) in [
        ("down", Some(AdminState::Down)),
        ("drained", Some(AdminState::Drain)),
        ("later", Some(AdminState::Future)),
        ("elsewhere", None),
    ] {
        let node = NodeConfig::plain(name, 2, Bytes::from_gib(1));
        config.nodes.push(NodeConfig { initial, ..node });
    }
    config.partitions[0].nodes.extend(["down", "drained", "later"].map(str::to_owned));
    config.partitions.push(Partition::over("other", vec!["elsewhere".to_owned()]));
    let outcome = replayed(&trace(&[(0, 100, 4)]), config.clone()).expect("a replay");
    assert_eq!((outcome.figures.utilisation, outcome.figures.jobs), (1.0, 1));
    let sizes = |change: fn(&mut Partition)| {
        let mut config = configured(config.clone(), None).expect("a configuration");
        change(&mut config.partitions[0]);
        largest_job(&config, &config.partitions[0])
    };
    assert_eq!(sizes(|_| {}), 4);
    assert_eq!(sizes(|partition| partition.max_nodes = Some(1)), 2);
    assert_eq!(sizes(|partition| partition.max_cpus_per_node = Some(1)), 2);
}

/// Job 1 has all four CPUs from 0. Job 2 goes to the partition that comes first, and has them from 10 to 60; job 1 runs anew from
/// then on, and ends at 160.
#[test]
fn job_of_a_partition_that_comes_first_preempts_one_of_another() {
    let mut config = site();
    let urgent = Partition { priority_tier: 10, default: false, ..config.partitions[0].clone() };
    config.partitions.push(Partition { name: "urgent".to_owned(), ..urgent });
    let (by, mode) = (PreemptBy::Partition, PreemptMode::Requeue);
    config.parameters.preempt = PreemptPolicy { by, mode, ..PreemptPolicy::default() };
    let mut jobs = trace(&[(0, 100, 4), (10, 50, 4)]);
    jobs.jobs[1].partition = Some(0);
    jobs.partitions = vec!["urgent".to_owned()];
    let outcome = replayed(&jobs, config.clone()).expect("a replay");
    assert_eq!((outcome.figures.jobs, outcome.figures.max_wait_s), (2, 60.0));
    jobs.jobs[1].partition = None;
    let alike = replayed(&jobs, config.clone()).expect("a replay");
    assert_eq!(alike.figures.max_wait_s, 90.0, "in one partition the second waits for the first");
    jobs.partitions = vec!["urgnt".to_owned()];
    let said = replayed(&jobs, config).expect_err("a typing error").to_string();
    assert_eq!(said, "partition urgnt does not exist: expected one of main, urgent");
}

/// A job in another partition starts where the first that waits cannot: no moment is taken for one at which nothing can.
#[test]
fn job_starts_in_a_partition_that_is_free_beside_one_that_is_not() {
    let mut config = site();
    config.partitions[0].nodes = vec!["n1".to_owned()];
    config.partitions.push(Partition::over("other", vec!["n2".to_owned()]));
    let mut jobs = trace(&[(0, 100, 2), (10, 100, 2), (20, 100, 2)]);
    jobs.jobs[2].partition = Some(0);
    jobs.partitions = vec!["other".to_owned()];
    let outcome = replayed(&jobs, config).expect("a replay");
    assert_eq!((outcome.figures.max_wait_s, outcome.figures.mean_wait_s), (90.0, 30.0));
}

/// A job of a year, under priorities that are worked out every five minutes.
#[test]
fn progress_is_told_also_while_no_job_ends() {
    let mut config = site();
    config.parameters.priority.multifactor = true;
    config.parameters.priority.calc_period_s = 300;
    let config = configured(config, None).expect("a configuration");
    let mut told = Vec::new();
    let jobs = trace(&[(0, 31_536_000, 1)]);
    replay(&jobs, config, Measures::default(), |progress| told.push(progress)).expect("a replay");
    assert!(told.len() > 10 && told.iter().all(|progress| progress.ended == 0), "{told:?}");
    assert!(told.is_sorted_by_key(|progress| progress.passed), "{told:?}");
}
