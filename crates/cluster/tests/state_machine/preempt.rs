//! Preempted jobs: requeued, cancelled, suspended; with a grace, and over a restart.

use crate::job_builder::{Ask, ask, bob};
use crate::testbed::{World, world_with};
use cluster::command::Preempt;
use cluster::{Command, Event};
use model::change::{JobChange, JobRef};
use model::id::JobId;
use model::partition::Partition;
use model::preempt::{PreemptBy, PreemptMode, PreemptPolicy};
use model::reason::Refusal;
use model::record::RecordState;
use model::run::{JobState, Outcome};
use sched::view::Preemption;

/// One node of eight CPUs in `main`, and in `urgent` of a higher tier.
fn tiers(mode: PreemptMode, grace_s: u32) -> World {
    world_with(1, |config| {
        config.partitions[0].grace_time_s = grace_s;
        let mut urgent = Partition::over("urgent", vec!["n1".into()]);
        urgent.priority_tier = 9;
        config.partitions.push(urgent);
        let by = PreemptBy::Partition;
        config.parameters.preempt = PreemptPolicy { by, mode, ..Default::default() };
    })
}

fn urgent() -> Ask {
    ask().cpus(8).asking(|r| r.partitions = vec!["urgent".into()])
}

/// Plans, and carries all of it out as the server does; what was refused.
fn carry_out(w: &mut World) -> Vec<Refusal> {
    let view = cluster::view::view(&w.state, w.now);
    let plan = sched::plan(&view, w.now, &mut sched::Memo::default());
    let planned = w.now;
    let preempt = |preemption| Command::Preempt(Preempt { preemption, planned });
    let resumes = plan.resumes.into_iter().map(|job| Command::Resume { job });
    let starts = plan.starts.into_iter().map(|start| Command::Start(Box::new(start)));
    let commands = resumes.chain(starts).chain(plan.preemptions.into_iter().map(preempt));
    let all: Vec<Command> = commands.collect();
    all.into_iter().filter_map(|c| w.try_as(crate::job_builder::root(), c).err()).collect()
}

fn state(w: &World, jobs: [JobId; 2]) -> [JobState; 2] {
    jobs.map(|job| w.is(job))
}

#[test]
fn preemption_requeues_a_job_of_a_lower_tier() {
    use JobState::{Completed, Completing, Pending, Running};
    let mut w = tiers(PreemptMode::Requeue, 0);
    let low = w.started(ask().cpus(8).requeue()).job;
    w.pass(10);
    let high = w.submit(urgent());
    assert_eq!(carry_out(&mut w), []);
    assert_eq!(state(&w, [low, high]), [Completing, Pending]);
    // A second plan has nothing more to send away.
    let before = w.events.len();
    assert_eq!(carry_out(&mut w), []);
    assert_eq!(w.events.len(), before, "nobody is sent away twice");
    w.end(low, 0);
    assert_eq!(w.records[0].state, RecordState::Ended(Outcome::Preempted));
    carry_out(&mut w);
    assert_eq!(state(&w, [low, high]), [Pending, Running]);
    assert_eq!(w.job(low).restarts(), 1);
    w.end(high, 0);
    carry_out(&mut w);
    assert_eq!(state(&w, [low, high]), [Running, Completed]);
}

#[test]
fn preempted_job_without_requeue_ends_as_preempted() {
    for (mode, requeue) in [(PreemptMode::Cancel, true), (PreemptMode::Requeue, false)] {
        let mut w = tiers(mode, 0);
        let low = if requeue { ask().requeue() } else { ask() };
        let low = w.started(low.cpus(8)).job;
        w.submit(urgent());
        carry_out(&mut w);
        w.end(low, 0);
        assert_eq!(w.is(low), JobState::Preempted, "{mode:?}");
    }
}

#[test]
fn preemption_grace_survives_a_restart_and_ends_in_time() {
    let mut w = tiers(PreemptMode::Requeue, 20);
    let low = w.started(ask().cpus(8).requeue()).job;
    let high = w.submit(urgent());
    carry_out(&mut w);
    assert_eq!(w.is(low), JobState::Running, "it has its grace");
    let leaving = w.job(low).attempt().and_then(|a| a.preemption_grace).expect("it was told");
    assert_eq!((leaving.by, leaving.until.since(w.now).as_secs()), (high, 20));
    let told = |w: &World| {
        w.events.iter().filter(|e| matches!(e, Event::PreemptionGraceStarted { .. })).count()
    };
    w.pass(10);
    carry_out(&mut w);
    assert_eq!(told(&w), 1, "and is told once");
    w.restart();
    w.pass(9);
    assert_eq!(w.is(low), JobState::Running);
    w.pass(1);
    assert_eq!(w.is(low), JobState::Completing);
    w.end(low, 0);
    carry_out(&mut w);
    assert_eq!(state(&w, [low, high]), [JobState::Pending, JobState::Running]);
}

#[test]
fn overtaken_plan_preempts_no_job() {
    let mut w = tiers(PreemptMode::Cancel, 0);
    let low = w.started(ask().cpus(8)).job;
    let high = w.submit(urgent());
    let preemption = Preemption { victim: low, mode: PreemptMode::Cancel, grace_s: 0, by: high };
    let planned = w.now;
    let preempt = Command::Preempt(Preempt { preemption, planned });
    let mut other = tiers(PreemptMode::Cancel, 0);
    std::mem::swap(&mut w, &mut other);
    // The preempting job is gone.
    let mut gone = other;
    gone.cancel(&[JobRef::whole(high)]);
    let refused = gone.try_as(crate::job_builder::root(), preempt.clone());
    assert_eq!(refused, Err(Refusal::JobNotPending(high)));
    assert_eq!(gone.is(low), JobState::Running);
    // The one that should go has ended, and its number runs again since.
    let low = w.started(ask().cpus(8).requeue()).job;
    let high = w.submit(urgent());
    w.end(low, 0);
    w.change(low, JobChange::Requeue(Default::default())).expect("it runs again");
    w.pass(5);
    w.change(high, JobChange::Hold { by: model::run::Hold::Admin }).expect("held");
    w.plan();
    w.change(high, JobChange::Release).expect("released");
    let refused = w.try_as(crate::job_builder::root(), preempt);
    assert_eq!(refused, Err(Refusal::JobNotRunning(low)));
}

#[test]
fn suspended_job_keeps_its_memory_and_resumes_when_its_cores_are_free() {
    use JobState::{Completed, Running, Suspended};
    let mut w = tiers(PreemptMode::Suspend, 0);
    let low = w.started(ask().cpus(8).of(bob())).job;
    let limit = w.job(low).attempt().and_then(|a| a.end_limit).expect("a limit");
    w.pass(30);
    let high = w.submit(urgent());
    carry_out(&mut w);
    assert_eq!(w.is(low), Suspended);
    let used = &w.state.nodes["n1"].used;
    assert!(used.cpus.is_empty() && used.memory.0 > 0, "{used:?}");
    carry_out(&mut w);
    assert_eq!(state(&w, [low, high]), [Suspended, Running]);
    w.restart();
    w.pass(60);
    // A resume has no effect while another job has the cores.
    w.change(low, JobChange::Resume).expect("root may");
    assert_eq!(w.is(low), Suspended);
    w.end(high, 0);
    carry_out(&mut w);
    assert_eq!(state(&w, [low, high]), [Running, Completed]);
    let attempt = w.job(low).attempt().expect("it runs");
    assert_eq!(attempt.suspended_total_ms(w.now), 60_000);
    assert_eq!(attempt.end_limit.expect("a limit").since(limit).as_secs(), 60);
    w.pass(10);
    w.end(low, 0);
    let booked = w.records.iter().find(|r| r.job == low).expect("a record");
    assert_eq!(booked.suspended_s, 60);
}

#[test]
fn job_suspended_by_hand_frees_its_cores_and_waits_for_them_on_resume() {
    use JobState::{Pending, Running, Suspended};
    let mut w = tiers(PreemptMode::Off, 0);
    let first = w.started(ask().cpus(8)).job;
    let second = w.submit(ask().cpus(8));
    w.change(first, JobChange::Suspend).expect("root may");
    w.change(first, JobChange::Suspend).expect("once more is no fault");
    carry_out(&mut w);
    assert_eq!(state(&w, [first, second]), [Suspended, Running]);
    w.change(first, JobChange::Resume).expect("root may");
    assert_eq!(w.is(first), Suspended, "its cores are another's");
    let third = w.submit(ask().cpus(8));
    w.end(second, 0);
    carry_out(&mut w);
    assert_eq!(state(&w, [first, third]), [Running, Pending], "it comes before those that wait");
    let refused = w.change(first, JobChange::Resume);
    assert_eq!(refused, Err(Refusal::JobNotSuspended(first)));
    assert_eq!(w.change(third, JobChange::Suspend), Err(Refusal::JobNotRunning(third)));
}

#[test]
fn gang_jobs_on_the_same_cores_take_turns() {
    use JobState::{Pending, Running, Suspended};
    let mut w = world_with(1, |config| {
        config.partitions[0].over_subscribe = model::partition::OverSubscribe::Force(2);
        config.parameters.gang_slice_s = Some(30);
    });
    let jobs: Vec<JobId> = (0..3).map(|_| w.submit(ask().cpus(8))).collect();
    w.plan();
    w.tick();
    let now = |w: &World| [w.is(jobs[0]), w.is(jobs[1]), w.is(jobs[2])];
    assert_eq!(now(&w), [Running, Suspended, Pending], "two share, the third waits");
    w.plan();
    assert_eq!(now(&w)[2], Pending, "one that waits for its turn has its place");
    w.pass(29);
    assert_eq!(now(&w), [Running, Suspended, Pending]);
    w.pass(1);
    assert_eq!(now(&w), [Suspended, Running, Pending]);
    w.restart();
    w.pass(30);
    assert_eq!(now(&w), [Running, Suspended, Pending]);
    w.change(jobs[1], JobChange::Resume).expect("its turn comes by itself");
    assert_eq!(now(&w), [Running, Suspended, Pending]);
    w.end(jobs[0], 0);
    w.tick();
    assert_eq!(w.is(jobs[1]), Running, "alone it need not wait");
    w.plan();
    w.tick();
    assert_eq!((w.is(jobs[1]), w.is(jobs[2])), (Running, Suspended));
    // A job that a user suspended gets no time slices.
    w.change(jobs[1], JobChange::Suspend).expect("root may");
    w.tick();
    assert_eq!((w.is(jobs[1]), w.is(jobs[2])), (Suspended, Running));
    w.pass(100);
    assert_eq!((w.is(jobs[1]), w.is(jobs[2])), (Suspended, Running));
}
