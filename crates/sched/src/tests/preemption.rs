//! Preemption: which jobs give way to which.

use crate::testing::*;
use crate::view::{PreemptBy, PreemptPolicy, View};
use crate::{Memo, plan};
use insta::assert_snapshot;
use model::account::Qos;
use model::id::JobId;
use model::preempt::PreemptMode;
use model::request::Sharing;
use model::time::Timestamp;
use std::sync::Arc;

/// Two nodes in a low partition and in an urgent one of a higher tier.
fn tiers(mode: PreemptMode) -> View {
    let mut view = cluster(gpu_nodes(2)).with_partition("urgent", &[0, 1], |p| p.priority_tier = 9);
    view.policy.preempt = PreemptPolicy { by: PreemptBy::Partition, mode, ..Default::default() };
    view
}

/// These jobs run, started one minute after the other, the first longest ago.
fn running(view: View, jobs: impl IntoIterator<Item = crate::view::PendingJob>) -> View {
    let mut view = view.with_jobs(jobs);
    let plan = view.plan();
    view.carry_out(&plan);
    let count = view.running.len() as i64;
    for (at, running) in view.running.iter_mut().enumerate() {
        let before_s = 60 * (count - at as i64);
        Arc::make_mut(running).start = Timestamp::from_secs(NOW.secs() - before_s);
    }
    view
}

fn urgent(id: u32) -> crate::view::PendingJob {
    job(id).with(|w| w.partitions = vec![1])
}

#[test]
fn fewest_and_youngest_jobs_of_a_lower_tier_are_preempted() {
    // node1: 1 and 2, node2: 3, 4 and 5; each can be spared but for what it holds.
    let view = running(
        tiers(PreemptMode::Requeue),
        [job(1).cpus(16), job(2).cpus(16), job(3).cpus(20), job(4).cpus(6), job(5).cpus(6)],
    );
    let ask = |cpus| text(&view.clone().with_jobs([urgent(9).cpus(cpus)]).plan());
    assert_snapshot!(ask(6), @r#"
    9 waits: Resources
    5 makes room for 9: Requeue after 0 s
    9 expected in 0 min on node2
    "#);
    assert_snapshot!(ask(12), @r#"
    9 waits: Resources
    2 makes room for 9: Requeue after 0 s
    9 expected in 0 min on node1
    "#);
    assert_snapshot!(ask(30), @r#"
    9 waits: Resources
    2 makes room for 9: Requeue after 0 s
    1 makes room for 9: Requeue after 0 s
    9 expected in 0 min on node1
    "#);
    let same_tier = view.clone().with_jobs([job(9).cpus(6)]);
    assert_eq!(same_tier.plan().preemptions, vec![]);
}

#[test]
fn ending_jobs_are_not_preempted_again() {
    let mut view = running(tiers(PreemptMode::Cancel), [job(1).cpus(32), job(2).cpus(32)])
        .with_jobs([urgent(8).cpus(4), urgent(9).cpus(4), urgent(10).cpus(4)]);
    assert_snapshot!(text(&view.plan()), @r#"
    8 waits: Resources
    9 waits: Resources
    10 waits: Resources
    2 makes room for 8: Cancel after 0 s
    8 expected in 0 min on node2
    9 expected in 0 min on node2
    10 expected in 0 min on node2
    "#);
    for running in &mut view.running {
        Arc::make_mut(running).is_ending = true;
    }
    assert_snapshot!(text(&view.plan()), @r#"
    8 waits: Resources
    9 waits: Resources
    10 waits: Resources
    8 expected in 0 min on node1
    9 expected in 0 min on node1
    10 expected in 0 min on node1
    "#);
}

#[test]
fn job_of_several_nodes_preempts_one_set_of_victims() {
    let view = running(tiers(PreemptMode::Requeue), [job(1).nodes(2).cpus(20), job(2).cpus(12)])
        .with_jobs([urgent(9).nodes(2).cpus(12)]);
    assert_snapshot!(text(&view.plan()), @r#"
    9 waits: Resources
    2 makes room for 9: Requeue after 0 s
    9 expected in 0 min on node1,node2
    "#);
    let set = view.clone().with_jobs([]);
    let mut set = set;
    set.queue.clear();
    let set = set.with_jobs([urgent(9).asking(|r| r.tasks = Some(64))]);
    assert_snapshot!(text(&set.plan()), @r#"
    9 waits: Resources
    1 makes room for 9: Requeue after 0 s
    2 makes room for 9: Requeue after 0 s
    9 expected in 0 min on node1,node2
    "#);
}

#[test]
fn preemption_follows_grace_time_exempt_time_and_partition_mode() {
    let view = tiers(PreemptMode::Requeue).with_main(|p| {
        (p.grace_time_s, p.preempt_mode) = (120, Some("CANCEL".to_string()));
    });
    let view = running(view, [job(1).cpus(32), job(2).cpus(32)]).with_jobs([urgent(9).cpus(32)]);
    assert_snapshot!(text(&view.plan()), @r#"
    9 waits: Resources
    2 makes room for 9: Cancel after 120 s
    9 expected in 2 min on node2
    "#);
    let mut young = view.clone();
    young.policy.preempt.exempt_s = 90;
    assert_snapshot!(text(&young.plan()), @r#"
    9 waits: Resources
    1 makes room for 9: Cancel after 120 s
    9 expected in 2 min on node1
    "#);
    let never = view.with_main(|p| p.preempt_mode = Some("OFF".to_string()));
    assert_eq!(never.plan().preemptions, vec![]);
}

#[test]
fn preempted_job_without_requeue_is_cancelled() {
    let fixed = job(1).cpus(32).with(|w| Arc::make_mut(&mut w.spec).requeue = false);
    let view = running(tiers(PreemptMode::Requeue), [fixed, job(2).cpus(32)])
        .with_jobs([urgent(9).nodes(2)]);
    assert_snapshot!(text(&view.plan()), @r#"
    9 waits: Resources
    2 makes room for 9: Requeue after 0 s
    1 makes room for 9: Cancel after 0 s
    9 expected in 0 min on node1,node2
    "#);
}

#[test]
fn qos_preempts_jobs_of_the_qos_that_it_names() {
    let mut view = cluster(gpu_nodes(1));
    let mode = PreemptMode::Cancel;
    view.policy.preempt = PreemptPolicy { by: PreemptBy::Qos, mode, ..Default::default() };
    let mut high = Qos::named("high");
    high.preempt = vec!["low".to_string()];
    view.qos = vec![Arc::new(Qos::named("normal")), Arc::new(Qos::named("low")), Arc::new(high)];
    let with = |id, qos: &str| job(id).cpus(16).with(|w| w.qos = qos.to_string());
    let view = running(view, [with(1, "normal"), with(2, "low")]);
    let high = view.clone().with_jobs([with(9, "high")]);
    assert_snapshot!(text(&high.plan()), @r#"
    9 waits: Resources
    2 makes room for 9: Cancel after 0 s
    9 expected in 0 min on node1
    "#);
    assert_eq!(view.with_jobs([with(9, "normal")]).plan().preemptions, vec![]);
}

#[test]
fn suspended_job_keeps_its_devices_and_resumes_when_its_cores_are_free() {
    let view = running(tiers(PreemptMode::Suspend), [job(1).cpus(32), job(2).cpus(32)]);
    let asking = view.clone().with_jobs([urgent(9).cpus(32)]);
    assert_snapshot!(text(&asking.plan()), @r#"
    9 waits: Resources
    2 makes room for 9: Suspend after 0 s
    9 expected in 0 min on node2
    "#);
    let greedy = urgent(9).asking(|r| {
        r.memory = model::request::Memory::PerNode(model::range::Range::exactly(
            model::amount::Bytes::from_mib(128_000),
        ))
    });
    assert_eq!(view.clone().with_jobs([greedy]).plan().preemptions, vec![], "memory stays");

    // Job 2 was suspended on node2; what took its cores is gone, and another waits.
    let mut after = view;
    let victim = Arc::make_mut(&mut after.running[1]);
    (victim.suspended, victim.resume_when_free) = (true, true);
    let used = &mut Arc::make_mut(&mut after.nodes[1]).used;
    (used.cpus, used.jobs) = (Default::default(), 0);
    let after = after.with_jobs([job(20).cpus(4)]);
    let plan = plan(&after, NOW, &mut Memo::default());
    assert_eq!((plan.resumes, plan.starts.len()), (vec![JobId(2)], 0));
    let all = crate::estimates(&after, NOW, &mut Memo::default());
    let told = crate::explain(&after, NOW, &mut Memo::default(), JobId(20));
    let told = told.and_then(|explanation| explanation.expected);
    assert_eq!(told.as_ref(), all.first(), "what resumes is before it in both");
    let first = after.with_jobs([urgent(21).cpus(4)]).plan();
    assert_eq!((first.resumes, first.starts.len()), (vec![], 2), "the higher tier comes first");
}

/// As for the node's other amounts: what searches take for free now does not get less by itself.
#[test]
fn user_of_a_suspended_job_is_not_on_its_node_now_or_later() {
    let jobs = [job(1).cpus(4), job(2).cpus(4).of_user(1001), job(3).cpus(4).for_min(5)];
    let mut view = running(cluster(gpu_nodes(1)), jobs);
    Arc::make_mut(&mut view.running[1]).suspended = true;
    let used = &mut Arc::make_mut(&mut view.nodes[0]).used;
    used.jobs -= 1;
    used.users.retain(|uid| *uid != 1001);
    // Job 3 ends before it does.
    let alone = job(9).cpus(4).for_min(10).asking(|request| request.sharing = Sharing::User);
    let plan = view.with_jobs([alone]).plan();
    assert_eq!(plan.starts.iter().map(|start| start.job).collect::<Vec<_>>(), [JobId(9)]);
}

#[test]
fn preemption_within_a_qos_takes_lower_priorities() {
    let mut view = cluster(gpu_nodes(1));
    let mode = PreemptMode::Cancel;
    view.policy.preempt = PreemptPolicy { by: PreemptBy::Qos, mode, ..Default::default() };
    view.qos = vec![Arc::new(Qos::named("normal"))];
    let with = |id, priority| job(id).cpus(32).with(|w| w.priority = priority);
    let mut view = running(view, [with(1, 5)]);
    Arc::make_mut(&mut view.running[0]).priority = 5;
    let ask =
        |view: &View, priority| view.clone().with_jobs([with(9, priority)]).plan().preemptions;
    assert_eq!(ask(&view, 9).len(), 0, "only where it is said");
    view.policy.preempt.within = true;
    assert_eq!((ask(&view, 9).len(), ask(&view, 5).len()), (1, 0));
    view.policy.preempt.within = false;
    Arc::make_mut(&mut view.qos[0]).preempt_mode = Some("WITHIN,CANCEL".to_string());
    assert_eq!((ask(&view, 9).len(), ask(&view, 4).len()), (1, 0));
}

#[test]
fn nodes_left_by_a_preempted_unlimited_job_are_seen_by_later_jobs() {
    let mut view = tiers(PreemptMode::Requeue);
    view.nodes.truncate(1);
    view.partitions.iter_mut().for_each(|p| p.nodes = vec![0]);
    let mut view = running(view, [job(1).cpus(32)]);
    Arc::make_mut(&mut view.running[0]).end = None;
    let view = view.with_jobs([urgent(9).cpus(32), job(10).cpus(32)]);
    let estimates = view.plan().estimates;
    assert_eq!(estimates.iter().map(|e| e.job).collect::<Vec<_>>(), [JobId(9), JobId(10)]);
}

/// The preemptor's user does not hide the one whose job is still there: what the plan starts, the cluster would refuse.
#[test]
fn user_of_a_job_that_makes_room_keeps_others_off_until_it_has_left() {
    let alone = |request: &mut model::request::Request| request.sharing = Sharing::User;
    let mut view = tiers(PreemptMode::Requeue);
    view.nodes.truncate(1);
    view.partitions.iter_mut().for_each(|p| p.nodes = vec![0]);
    let view = running(view, [job(1).of_user(1).cpus(20).asking(alone)]).with_jobs([
        urgent(8).of_user(2).cpus(28).asking(alone),
        urgent(9).of_user(2).cpus(1).asking(alone).with(|w| w.priority = 1),
    ]);
    let plan = view.plan();
    let leaves: Vec<JobId> = plan.preemptions.iter().map(|one| one.victim).collect();
    assert_eq!((leaves, plan.starts), (vec![JobId(1)], vec![]));
}
