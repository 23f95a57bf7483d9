//! The groups of a task: components of a het job, each with commands of its own.

use crate::job_builder::{Ask, ask};
use crate::testbed::{World, ended, exited, killed, over, world};
use cluster::command::AttemptReport;
use cluster::{Command, Context, Event};
use model::attempt::EndCause;
use model::change::{JobChange, Requeue};
use model::id::JobId;
use model::reason::{LaunchFault, Reason, Refusal};
use model::run::{JobSpec, JobState, Outcome, StartupOrder};
use std::sync::Arc;
use std::time::Duration;

fn two() -> Ask {
    ask().cpus(8).task().group(ask().cpus(8).task())
}

/// Both groups run.
fn started(w: &mut World, asked: Ask) -> [JobId; 2] {
    let first = w.submit(asked);
    assert_eq!(w.plan().len(), 2);
    [first, JobId(first.0 + 1)]
}

/// The nodes say of what is ending that nothing is left of it.
fn close(w: &mut World, jobs: [JobId; 2]) {
    for job in jobs {
        if w.is(job) == JobState::Completing {
            w.end(job, 0);
        }
    }
}

#[test]
fn run_ends_with_the_reason_when_the_gpus_of_any_group_are_idle() {
    for idle in [0, 1] {
        let mut w = world(2);
        let jobs = started(&mut w, two());
        let attempt = w.job(jobs[idle]).attempt_id().expect("it runs");
        w.run(Command::EndByPolicy { attempt, cause: EndCause::GpusUnderused });
        close(&mut w, jobs);
        for job in jobs {
            let end = w.job(job).ended().expect("it has ended");
            let wanted = (Outcome::Cancelled { by: 0 }, &Reason::GpusUnderused);
            assert_eq!((end.outcome, &end.reason), wanted, "group {idle} is idle");
        }
    }
}

#[test]
fn idle_group_ends_a_run_whose_first_group_is_done() {
    let mut w = world(2);
    let jobs = started(&mut w, two());
    w.end(jobs[0], 0);
    let attempt = w.job(jobs[1]).attempt_id().expect("it runs");
    w.run(Command::EndByPolicy { attempt, cause: EndCause::GpusUnderused });
    close(&mut w, jobs);
    assert_eq!(jobs.map(|job| w.is(job)), [JobState::Completed, JobState::Cancelled]);
}

fn ordered(order: StartupOrder, ends_with_first_node: bool) -> Ask {
    let set = |spec: &mut JobSpec| {
        let launch = Arc::make_mut(&mut spec.launch);
        (launch.startup_order, launch.ends_with_first_node) = (order, ends_with_first_node);
    };
    let group = || ask().cpus(8).task().with(set);
    group().group(group())
}

#[test]
fn groups_wait_for_the_nodes_of_their_run_that_start_first() {
    for (order, first) in [
        (StartupOrder::Any, [false, false]),
        (StartupOrder::MasterFirst, [true, false]),
        (StartupOrder::WorkersFirst, [false, true]),
    ] {
        let mut w = world(2);
        let jobs = started(&mut w, ordered(order, false));
        let awaited =
            jobs.map(|job| !w.job(job).attempt().expect("it runs").preparing_nodes.is_empty());
        assert_eq!(awaited, first, "{order:?}");
    }
}

#[test]
fn run_ends_with_its_first_node_and_not_with_another_where_it_says_so() {
    let done = AttemptReport::ScriptEnded { exit: exited(0), oom: false, timed_out: false };
    for (ends_with_first, group, ends) in [(true, 0, true), (true, 1, false), (false, 0, false)] {
        let mut w = world(2);
        let jobs = started(&mut w, ordered(StartupOrder::Any, ends_with_first));
        let attempt = w.job(jobs[group]).attempt_id().expect("it runs");
        let node = w.nodes_of(jobs[group])[0].clone();
        w.report(&node, attempt, done.clone());
        w.report(&node, attempt, ended(0));
        assert_eq!(w.is(jobs[group]), JobState::Completed);
        let other = jobs[1 - group];
        assert_eq!(w.is(other) == JobState::Completing, ends, "{ends_with_first} {group}");
        let node = w.nodes_of(other)[0].clone();
        let attempt = w.job(other).attempt_id().expect("it is there");
        w.report(&node, attempt, if ends { over(killed(), false, false, false) } else { ended(0) });
        assert_eq!(w.is(other), JobState::Completed);
        assert_eq!(w.job(other).ended().expect("it ended").exit, exited(0));
    }
}

#[test]
fn group_that_cannot_be_launched_cancels_the_others() {
    let mut w = world(2);
    let jobs = started(&mut w, two());
    let second = w.job(jobs[1]).attempt_id().expect("it runs");
    let node = w.nodes_of(jobs[1])[0].clone();
    let what = "no image".to_owned();
    let failed = AttemptReport::LaunchFailed {
        what,
        fault: LaunchFault::Container,
        unfit: None,
        hold: false,
        user: None,
    };
    w.report(&node, second, failed);
    close(&mut w, jobs);
    let outcomes = jobs.map(|job| w.job(job).ended().map(|end| end.outcome));
    assert_eq!(outcomes, [Some(Outcome::Cancelled { by: 0 }), Some(Outcome::LaunchFailed)]);
}

#[test]
fn dependency_on_a_task_waits_for_all_its_groups() {
    // How the first and the second group end, and which job starts then.
    let table = [(0, 0, "afterok"), (0, 3, "afternotok"), (3, 0, "afternotok"), (0, 3, "afterany")];
    for (one, two_ends, kind) in table {
        let mut w = world(3);
        let jobs = started(&mut w, two());
        let next = w.submit(ask().after(&format!("{kind}:{}", jobs[0])));
        let mut ends = [(jobs[0], one), (jobs[1], two_ends)];
        // The one that is done ends first: a failure ends both.
        ends.sort_by_key(|(_, code)| *code);
        w.end(ends[0].0, ends[0].1);
        assert_eq!(w.plan(), [], "{kind} with {one} and {two_ends}: a group still runs");
        w.end(ends[1].0, ends[1].1);
        let plan: Vec<JobId> = w.plan().iter().map(|attempt| attempt.job).collect();
        assert_eq!(plan, [next], "{kind} with {one} and {two_ends}");
    }
}

#[test]
fn failed_group_fails_the_dependency_and_its_record_stays_with_it() {
    let mut w = world(3);
    let jobs = started(&mut w, two());
    let next = w.submit(ask().after(&format!("afterok:{}", jobs[0])));
    w.end(jobs[0], 0);
    w.end(jobs[1], 3);
    assert_eq!(w.plan(), []);
    w.pass(3600);
    assert!(w.state.jobs.contains_key(&jobs[1]), "a job depends on it");
    assert_eq!(w.plan(), []);
    assert_eq!(w.is(next), JobState::Pending);
}

#[test]
fn requeue_of_a_task_whose_first_group_is_done_is_refused() {
    let mut w = world(2);
    let jobs = started(&mut w, two());
    w.end(jobs[0], 0);
    let requeued = w.change(jobs[0], JobChange::Requeue(Requeue::PLAIN));
    assert_eq!(requeued, Err(Refusal::JobEnded(jobs[0])));
    assert_eq!(w.is(jobs[1]), JobState::Running);
    let incomplete = JobChange::Requeue(Requeue { incomplete: true, ..Requeue::PLAIN });
    w.change(jobs[0], incomplete).expect("nothing to do is no fault");
}

#[test]
fn groups_that_are_kept_do_not_hold_up_the_purge() {
    let mut w = world(3);
    let jobs = started(&mut w, two());
    let attempt = w.job(jobs[0]).attempt_id().expect("it runs");
    let node = w.nodes_of(jobs[0])[0].clone();
    w.report(&node, attempt, ended(0));
    // More records of a run that goes on than one tick purges.
    let kept = Arc::clone(&w.state.jobs[&jobs[0]]);
    let end = kept.ended().expect("it is done").end;
    for id in (1_000..12_000).map(JobId) {
        w.state.jobs.insert(id, Arc::clone(&kept));
        w.state.ended.insert((end, id));
    }
    let later = w.now + Duration::from_secs(1);
    let other = JobId(20_000);
    let mut alone = (*kept).clone();
    (alone.id, alone.het) = (other, None);
    w.state.jobs.insert(other, Arc::new(alone));
    w.state.ended.insert((later, other));
    let now = w.now + Duration::from_secs(3600);
    let context = Context { now, random: 0, by: crate::job_builder::root() };
    let decided = w.state.decide(&Command::Tick { booked: true }, &context).expect("a tick");
    let purged = decided.events.into_iter().find_map(|event| match event {
        Event::Purged { jobs } => Some(jobs),
        _ => None,
    });
    assert_eq!(purged, Some(vec![other]));
}

#[test]
fn retry_begins_with_all_groups_again_also_those_that_were_done() {
    for done in [0, 1] {
        let mut w = world(2);
        let retrying = |r: &mut model::run::Retry| (r.on_error, r.attempts_max) = (true, Some(2));
        let group = || ask().cpus(8).task().retry(retrying);
        let jobs = started(&mut w, group().group(group()));
        for is_last in [false, true] {
            w.end(jobs[done], 0);
            assert_eq!(w.is(jobs[done]), JobState::Completed);
            w.end(jobs[1 - done], 1);
            close(&mut w, jobs);
            if is_last {
                break;
            }
            assert_eq!(jobs.map(|job| w.is(job)), [JobState::Pending; 2], "group {done} was done");
            assert_eq!(jobs.map(|job| w.job(job).retries.count), [1; 2], "group {done} was done");
            assert_eq!(w.plan().len(), 0, "there is a pause");
            w.pass(15);
            assert_eq!(w.plan().len(), 2, "group {done} was done");
        }
        let mut wanted = [JobState::Failed; 2];
        wanted[done] = JobState::Completed;
        assert_eq!(jobs.map(|job| w.is(job)), wanted, "it was the second and last attempt");
    }
}

/// The requeue of one group is taken back by a cancel, and with it that of the group which was done.
#[test]
fn cancelled_retry_ends_the_group_that_was_done_too() {
    let mut w = world(2);
    let group = || ask().cpus(8).task().retry(|r| r.on_error = true);
    let jobs = started(&mut w, group().group(group()));
    w.end(jobs[0], 0);
    w.end(jobs[1], 1);
    close(&mut w, jobs);
    assert_eq!(jobs.map(|job| w.is(job)), [JobState::Pending; 2]);
    w.cancel(&[model::change::JobRef::whole(jobs[0])]);
    assert_eq!(jobs.map(|job| w.is(job)), [JobState::Cancelled; 2]);
}

#[test]
fn retry_pauses_and_counts_whichever_group_fails() {
    for failing in [0, 1] {
        let mut w = world(2);
        let retrying = |r: &mut model::run::Retry| (r.on_error, r.attempts_max) = (true, Some(2));
        let group = || ask().cpus(8).task().retry(retrying);
        let jobs = started(&mut w, group().group(group()));
        w.end(jobs[failing], 1);
        close(&mut w, jobs);
        assert_eq!(jobs.map(|job| w.is(job)), [JobState::Pending; 2], "group {failing}");
        assert_eq!(jobs.map(|job| w.job(job).retries.count), [1; 2], "group {failing}");
        assert_eq!(w.plan().len(), 0, "there is a pause");
        w.pass(15);
        assert_eq!(w.plan().len(), 2, "group {failing}");
        w.end(jobs[failing], 1);
        close(&mut w, jobs);
        let mut wanted = [JobState::Cancelled; 2];
        wanted[failing] = JobState::Failed;
        assert_eq!(jobs.map(|job| w.is(job)), wanted, "it was the second and last attempt");
    }
}
