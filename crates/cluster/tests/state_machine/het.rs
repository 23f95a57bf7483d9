//! Jobs that are taken, start and end together.

use crate::job_builder::{Ask, ask, bob, root};
use crate::testbed::{World, ended, exited, world};
use cluster::Command;
use cluster::command::{AttemptReport, CancelJobs};
use model::change::{JobChange, JobFilter, JobRef, Requeue};
use model::id::JobId;
use model::reason::{LaunchFault, Refusal};
use model::run::{JobState, Launch, LaunchKind, Outcome};
use std::sync::Arc;

/// A script's job with two that have nothing to run.
fn three() -> Ask {
    let mut first = ask().cpus(4);
    for cpus in [8, 2] {
        let mut spec = ask().cpus(cpus).interactive().0.spec;
        let launch = Arc::make_mut(&mut spec.launch);
        *launch = Launch { unattended: true, ..Launch::empty(LaunchKind::Interactive) };
        first.0.het_components.push(spec);
    }
    first
}

fn states(w: &World, first: JobId) -> Vec<JobState> {
    (0..3).map(|offset| w.is(JobId(first.0 + offset))).collect()
}

fn cancel(w: &mut World, job: JobId) {
    let filter = JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() };
    let cancel = CancelJobs { filter, step: None, signal: None, batch_only: false, full: false };
    w.run(Command::Cancel(Box::new(cancel)));
}

#[test]
fn all_components_are_submitted_or_none() {
    let mut w = world(2);
    let first = w.submit(three());
    let shown: Vec<String> = (0..3).map(|at| w.job(JobId(first.0 + at)).shown_id()).collect();
    assert_eq!(shown, ["1+0", "1+1", "1+2"]);
    let next = w.state.next_job;
    let mut bad = three();
    bad.0.het_components.push(ask().cpus(100).0.spec);
    w.try_submit(bad).expect_err("the last fits nowhere");
    let mut array = three();
    array.0.array = ask().array("0-1").0.array;
    assert_eq!(w.try_submit(array), Err(Refusal::InvalidArray));
    let mut of_two = three();
    of_two.0.het_components.push(ask().of(bob()).0.spec);
    w.try_submit(of_two).expect_err("one is somebody else's");
    assert_eq!((w.state.next_job, w.state.jobs.len()), (next, 3), "nothing is left of them");
}

#[test]
fn all_components_start_in_one_decision_or_none() {
    let mut w = world(2);
    let other = w.started(ask().cpus(4)).job;
    let first = w.submit(three());
    assert_eq!(w.plan(), [], "there are twelve CPUs for fourteen");
    assert_eq!(states(&w, first), [JobState::Pending; 3]);
    w.end(other, 0);
    assert_eq!(w.plan().len(), 3);
    assert_eq!(states(&w, first), [JobState::Running; 3]);
}

#[test]
fn incomplete_or_overtaken_het_start_is_refused_as_a_whole() {
    let mut w = world(2);
    let first = w.submit(three());
    let starts = w.planned();
    assert_eq!(starts.len(), 3);
    let refused = |w: &mut World, command| w.try_as(root(), command).expect_err("it is refused");
    refused(&mut w, Command::Start(Box::new(starts[0].clone())));
    refused(&mut w, Command::StartHetJob(starts[..2].to_vec()));
    let mut twice = starts.clone();
    twice[2].allocation = twice[1].allocation.clone();
    assert_eq!(refused(&mut w, Command::StartHetJob(twice)), Refusal::NoCapacityNow);
    assert_eq!(states(&w, first), [JobState::Pending; 3]);
    w.run(Command::StartHetJob(starts));
    assert_eq!(states(&w, first), [JobState::Running; 3]);
}

#[test]
fn end_of_the_leader_or_of_any_component_ends_all() {
    type Cause = fn(&mut World, JobId);
    let fail_second: Cause = |w, first| w.fail(&w.nodes_of(JobId(first.0 + 1))[0].clone());
    let table: [(Cause, JobState); 4] = [
        (|w, first| w.end(first, 0), JobState::Completed),
        (|w, first| w.end(first, 3), JobState::Failed),
        (|w, first| cancel(w, first), JobState::Cancelled),
        (fail_second, JobState::NodeFail),
    ];
    for (at, (cause, state)) in table.into_iter().enumerate() {
        let mut w = world(2);
        let first = w.submit(three());
        w.plan();
        cause(&mut w, first);
        for offset in 0..3 {
            let job = JobId(first.0 + offset);
            if w.is(job) == JobState::Completing {
                w.end(job, 0);
            }
        }
        assert_eq!(states(&w, first), [state; 3], "row {at}");
        assert!(w.state.nodes.values().all(|node| node.used.jobs == 0), "row {at}");
    }
}

#[test]
fn running_component_is_cancelled_alone_and_pending_one_is_refused() {
    let mut w = world(2);
    let first = w.submit(three());
    let second = JobId(first.0 + 1);
    let said = w.cancel(&[JobRef::whole(second)]);
    assert!(said.iter().all(|(_, result)| result.is_err()), "{said:?}");
    assert_eq!(states(&w, first), [JobState::Pending; 3]);
    w.plan();
    cancel(&mut w, second);
    w.end(second, 0);
    let left = [JobState::Running, JobState::Cancelled, JobState::Running];
    assert_eq!(states(&w, first), left);
    w.end(first, 0);
    w.end(JobId(first.0 + 2), 0);
    let over = [JobState::Completed, JobState::Cancelled, JobState::Completed];
    assert_eq!(states(&w, first), over);
}

#[test]
fn component_offset_that_does_not_exist_selects_no_job() {
    let mut w = world(2);
    let first = w.submit(three());
    let other = w.submit(ask());
    assert_eq!(other, JobId(first.0 + 3));
    let beyond = JobRef { component_of: Some(first), ..JobRef::whole(other) };
    let said = w.cancel(std::slice::from_ref(&beyond));
    assert_eq!(said, [("1+3".to_owned(), Err(Refusal::UnknownJob("1+3".to_owned())))]);
    let change = JobChange::Hold { by: model::run::Hold::User };
    let held = w.change_as(root(), beyond, change);
    assert_eq!(held.map(|_| ()), Err(Refusal::UnknownJob("1+3".to_owned())));
    assert_eq!(w.is(other), JobState::Pending);
    assert_eq!(w.job(other).hold, None);
    let last = JobRef { component_of: Some(first), ..JobRef::whole(JobId(first.0 + 2)) };
    assert_eq!(cluster::job_selection::resolve(&w.state, &last).len(), 1);
}

#[test]
fn pending_het_job_is_cancelled_held_and_released_as_a_whole() {
    let mut w = world(1);
    let first = w.submit(three());
    w.change(first, JobChange::Hold { by: model::run::Hold::User }).expect("they wait");
    assert!((0..3).all(|at| w.job(JobId(first.0 + at)).hold.is_some()));
    w.change(first, JobChange::Release).expect("they are held");
    assert!((0..3).all(|at| w.job(JobId(first.0 + at)).hold.is_none()));
    cancel(&mut w, first);
    assert_eq!(states(&w, first), [JobState::Cancelled; 3]);
}

/// The nodes say of all that are ending that nothing is left of them.
fn close(w: &mut World, first: JobId) {
    for offset in 0..3 {
        let job = JobId(first.0 + offset);
        if w.is(job) == JobState::Completing {
            w.end(job, 0);
        }
    }
}

#[test]
fn requeue_of_the_leader_requeues_all_components() {
    type Cause = fn(&mut World, JobId);
    let fail = |w: &mut World, job: JobId| w.fail(&w.nodes_of(job)[0].clone());
    let table: [(Cause, bool); 5] = [
        (
            |w, first| drop(w.change(first, JobChange::Requeue(Requeue::PLAIN)).expect("it runs")),
            true,
        ),
        (fail, true),
        (|w, first| w.fail(&w.nodes_of(JobId(first.0 + 1))[0].clone()), true),
        (fail, false),
        (|w, first| w.fail(&w.nodes_of(JobId(first.0 + 2))[0].clone()), false),
    ];
    for (at, (cause, requeue)) in table.into_iter().enumerate() {
        let mut w = world(2);
        let mut asked = three();
        asked.0.spec.requeue = requeue;
        let first = w.submit(asked);
        w.plan();
        cause(&mut w, first);
        close(&mut w, first);
        let wanted = if requeue { JobState::Pending } else { JobState::NodeFail };
        assert_eq!(states(&w, first), [wanted; 3], "row {at}");
        assert!(w.state.nodes.values().all(|node| node.used.jobs == 0), "row {at}");
    }
    let mut w = world(2);
    let mut asked = three();
    asked.0.spec.requeue = true;
    let first = w.submit(asked);
    w.plan();
    let second = JobId(first.0 + 1);
    let alone = w.change(second, JobChange::Requeue(Requeue::PLAIN));
    assert_eq!(alone, Err(Refusal::NotHetLeader(second)));
    w.change(first, JobChange::Requeue(Requeue::PLAIN)).expect("it runs");
    w.end(second, 0);
    let mixed = [JobState::Completing, JobState::Pending, JobState::Completing];
    assert_eq!(states(&w, first), mixed);
    assert_eq!(w.plan(), [], "one that is there already waits for the others");
    close(&mut w, first);
    w.now = w.now + std::time::Duration::from_secs(3600);
    assert_eq!(w.plan().len(), 3);
    assert_eq!(states(&w, first), [JobState::Running; 3]);
    assert!((0..3).all(|at| w.job(JobId(first.0 + at)).restarts() == 1));
}

#[test]
fn cancelled_leader_takes_back_the_requeue_of_all_components() {
    for ended in [0, 1, 2] {
        let mut w = world(2);
        let mut asked = three();
        asked.0.spec.requeue = true;
        let first = w.submit(asked);
        w.plan();
        w.change(first, JobChange::Requeue(Requeue::PLAIN)).expect("it runs");
        // One component is requeued already, the others are being ended.
        w.end(JobId(first.0 + ended), 0);
        cancel(&mut w, first);
        close(&mut w, first);
        assert_eq!(states(&w, first), [JobState::Cancelled; 3], "after {ended}");
    }
}

#[test]
fn failed_launch_of_one_component_ends_all() {
    let mut w = world(2);
    let first = w.submit(three());
    w.plan();
    let second = w.job(JobId(first.0 + 1)).attempt_id().expect("it runs");
    let node = w.nodes_of(second.job)[0].clone();
    let unfit = Some("spool: full".to_owned());
    w.report(
        &node,
        second,
        AttemptReport::LaunchFailed {
            what: "no room".into(),
            fault: LaunchFault::Other,
            unfit,
            hold: false,
            user: None,
        },
    );
    let ending = w.job(first).attempt().and_then(|attempt| attempt.ending);
    assert_eq!(ending.map(|e| (e.outcome, e.requeue)), Some((Outcome::LaunchFailed, None)));
}

#[test]
fn dependency_on_a_het_job_waits_for_its_leader() {
    let mut w = world(3);
    let first = w.submit(three());
    let next = w.submit(ask().after(&format!("afterok:{first}")));
    assert_eq!(w.plan().len(), 3);
    let attempt = w.job(first).attempt_id().expect("it runs");
    let node = w.nodes_of(first)[0].clone();
    w.report(&node, attempt, ended(exited(0).code));
    assert_eq!(w.plan().iter().map(|a| a.job).collect::<Vec<_>>(), [next]);
}
