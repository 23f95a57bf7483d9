//! A second attempt: after a node's failure, by an administrator's word, by dstack's `retry`.

use crate::job_builder::{Ask, alice, ask};
use crate::testbed::{ended, exited, world, world_with};
use cluster::Command;
use cluster::command::{AttemptReport, EndedRun};
use model::change::{JobChange, JobRef, Requeue};
use model::cron::Schedule;
use model::node::AdminState;
use model::node_reason::NodeCause;
use model::reason::{LaunchFault, Reason, Refusal, UserFault};
use model::record::RecordState;
use model::request::WaitPolicy;
use model::run::{Hold, JobState, Outcome, Retry, Usage};
use std::time::Duration;

#[test]
fn requeued_job_keeps_its_id_and_starts_attempt_two() {
    let mut w = world(1);
    let first = w.started(ask().requeue());
    let requeue = JobChange::Requeue(Requeue::PLAIN);
    w.change_as(alice(), JobRef::whole(first.job), requeue).expect("it runs");
    assert_eq!(w.is(first.job), JobState::Completing);
    w.end(first.job, 0);
    assert_eq!((w.is(first.job), w.job(first.job).restarts()), (JobState::Pending, 1));
    let second = w.plan();
    assert_eq!((second[0].job, second[0].number), (first.job, 2));
    w.report("n1", first, ended(9));
    assert_eq!(w.is(first.job), JobState::Running, "the first attempt has no more to say");
    w.end(first.job, 0);
    let booked: Vec<_> = w.records.iter().map(|r| (r.attempt, r.state)).collect();
    let ends = |outcome| RecordState::Ended(outcome);
    assert_eq!(booked, [(1, ends(Outcome::Requeued)), (2, ends(Outcome::Completed))]);
    assert_eq!(w.records[0].reason, Reason::RequeuedBy(alice().uid));
}

#[test]
fn node_failure_requeues_only_jobs_with_requeue() {
    type Kind = fn(Ask) -> Ask;
    let table: [(Kind, JobState); 5] = [
        (|a| a, JobState::NodeFail),
        (Ask::requeue, JobState::Pending),
        (|a| a.requeue().interactive(), JobState::NodeFail),
        (|a| a.task(), JobState::NodeFail),
        (|a| a.task().retry(|r| r.on_interruption = true), JobState::Pending),
    ];
    for (at, (kind, expected)) in table.into_iter().enumerate() {
        let mut w = world(1);
        let job = w.started(kind(ask())).job;
        w.fail("n1");
        assert_eq!(w.is(job), expected, "row {at}");
        assert_eq!(w.records[0].state, RecordState::Ended(Outcome::NodeFail));
    }
}

#[test]
fn node_that_cannot_launch_is_drained_and_its_job_is_requeued() {
    type Kind = fn(Ask) -> Ask;
    let (again, failed) = (Outcome::Requeued, Outcome::LaunchFailed);
    let table: [(Kind, JobState, Outcome); 3] = [
        (Ask::requeue, JobState::Pending, again),
        (|a| a, JobState::Failed, failed),
        (|a| a.requeue().interactive(), JobState::Failed, failed),
    ];
    for (at, (kind, state, outcome)) in table.into_iter().enumerate() {
        let mut w = world(2);
        let first = w.started(kind(ask()));
        let node = w.nodes_of(first.job)[0].clone();
        let unfit = Some("spool: full".to_owned());
        let report = AttemptReport::LaunchFailed {
            what: "no room".into(),
            fault: LaunchFault::Other,
            unfit,
            hold: false,
            user: None,
        };
        w.report(&node, first, report.clone());
        assert_eq!((w.is(first.job), w.records[0].state), (state, RecordState::Ended(outcome)));
        let drained = &w.state.nodes[node.as_str()];
        let why = drained.reason.as_ref().map(|r| r.cause.clone());
        assert_eq!(
            (drained.admin, why),
            (Some(AdminState::Drain), Some(NodeCause::Text("spool: full".into())))
        );
        w.report(&node, first, report);
        if state == JobState::Pending {
            assert_eq!(w.plan().len(), 1, "row {at}");
            assert_ne!(w.nodes_of(first.job), [node], "another node takes it");
        }
    }
}

#[test]
fn job_whose_prolog_failed_is_requeued_held_with_a_reason() {
    let mut w = world(2);
    let first = w.started(ask().requeue());
    let node = w.nodes_of(first.job)[0].clone();
    let unfit = Some("Prolog error".to_owned());
    w.report(
        &node,
        first,
        AttemptReport::LaunchFailed {
            what: "it failed".into(),
            fault: LaunchFault::Other,
            unfit,
            hold: true,
            user: None,
        },
    );
    let job = w.job(first.job);
    let why = job.fixed_reason.as_deref().cloned();
    assert_eq!((job.hold, why), (Some(Hold::Admin), Some(Reason::LaunchFailedHeld)));
    assert_eq!(w.plan(), vec![]);
    w.change(first.job, JobChange::Release).expect("root may");
    assert_eq!(w.plan().len(), 1);
    assert_ne!(w.nodes_of(first.job), [node], "another node takes it");
    assert_eq!(w.job(first.job).fixed_reason, None);
}

#[test]
fn job_whose_owner_a_node_refuses_is_held_and_the_node_is_not_drained() {
    type Kind = fn(Ask) -> Ask;
    let table: [(Kind, JobState, Outcome); 3] = [
        (Ask::requeue, JobState::Pending, Outcome::Requeued),
        (|a| a, JobState::Failed, Outcome::LaunchFailed),
        (|a| a.requeue().interactive(), JobState::Failed, Outcome::LaunchFailed),
    ];
    let locked = Reason::UserRefused(UserFault::Locked);
    for (at, (kind, state, outcome)) in table.into_iter().enumerate() {
        let mut w = world(2);
        let first = w.started(kind(ask()));
        let node = w.nodes_of(first.job)[0].clone();
        let user = Some(UserFault::Locked);
        let report = AttemptReport::LaunchFailed {
            what: "locked".into(),
            fault: LaunchFault::Other,
            unfit: None,
            hold: false,
            user,
        };
        w.report(&node, first, report);
        assert_eq!((w.is(first.job), w.records[0].state), (state, RecordState::Ended(outcome)));
        assert_eq!(w.records[0].reason, locked, "row {at}");
        assert_eq!(w.state.nodes[node.as_str()].admin, None, "row {at}");
        assert_eq!(w.plan(), vec![], "row {at}: it does not start again by itself");
        if state == JobState::Pending {
            let job = w.job(first.job);
            let why = job.fixed_reason.as_deref().cloned();
            assert_eq!((job.hold, why), (Some(Hold::Admin), Some(locked.clone())));
            w.change(first.job, JobChange::Release).expect("root may");
            assert_eq!(w.plan().len(), 1);
        }
    }
}

#[test]
fn unfit_node_is_drained_while_its_job_goes_on() {
    let mut w = world(1);
    let first = w.started(ask());
    let node = w.nodes_of(first.job)[0].clone();
    w.report(&node, first, AttemptReport::Unfit { why: "Epilog error".into() });
    let drained = &w.state.nodes[node.as_str()];
    let why = drained.reason.as_ref().map(|r| r.cause.clone());
    assert_eq!(
        (drained.admin, why),
        (Some(AdminState::Drain), Some(NodeCause::Text("Epilog error".into())))
    );
    assert_eq!(w.is(first.job), JobState::Running);
    w.end(first.job, 0);
    assert_eq!(w.is(first.job), JobState::Completed);
}

#[test]
fn requeuehold_holds_the_job_until_released() {
    for special_exit in [false, true] {
        let mut w = world(1);
        let job = w.started(ask().requeue()).job;
        let how = Requeue { special_exit, ..Requeue::HELD };
        w.change(job, JobChange::Requeue(how)).expect("it runs");
        w.end(job, 0);
        let state = if special_exit { JobState::SpecialExit } else { JobState::Pending };
        assert_eq!((w.plan(), w.is(job)), (vec![], state));
        w.change_as(alice(), JobRef::whole(job), JobChange::Release).expect("its owner may");
        assert_eq!((w.is(job), w.plan().len()), (JobState::Pending, 1));
    }
}

#[test]
fn requeued_job_starts_after_the_requeue_wait_and_shows_a_new_submit_time() {
    let mut w = world_with(1, |c| c.parameters.requeue_wait_s = 121);
    let job = w.started(ask().requeue()).job;
    w.pass(5);
    w.change(job, JobChange::Requeue(Requeue::PLAIN)).expect("it runs");
    w.end(job, 0);
    assert_eq!(w.job(job).shown_submit(), w.now);
    w.pass(120);
    assert_eq!(w.plan(), []);
    w.pass(1);
    assert_eq!(w.plan().len(), 1);
}

#[test]
fn configured_exit_codes_requeue_or_hold_a_script() {
    let world = || {
        world_with(1, |c| {
            c.parameters.requeue_exits = vec![(5, 6)];
            c.parameters.requeue_exits_held = vec![(7, 7)];
        })
    };
    let table = [
        (5, JobState::Pending, None, Outcome::Requeued),
        (6, JobState::Pending, None, Outcome::Requeued),
        (7, JobState::SpecialExit, Some(Hold::User), Outcome::Requeued),
        (8, JobState::Failed, None, Outcome::Failed),
        (0, JobState::Completed, None, Outcome::Completed),
    ];
    for (code, state, hold, outcome) in table {
        let mut w = world();
        let job = w.started(ask()).job;
        let script =
            AttemptReport::ScriptEnded { exit: exited(code), oom: false, timed_out: false };
        w.report("n1", w.job(job).attempt_id().expect("it runs"), script);
        w.end(job, code);
        assert_eq!((w.is(job), w.job(job).hold), (state, hold), "exit {code}");
        let booked = &w.records[0];
        assert_eq!((booked.state, booked.exit), (RecordState::Ended(outcome), exited(code)));
    }
    let mut w = world();
    let job = w.started(ask().task()).job;
    w.end(job, 5);
    assert_eq!(w.is(job), JobState::Failed, "a task's exits are its own");
}

#[test]
fn job_suspended_by_hand_is_held_when_requeued() {
    let mut w = world(1);
    let job = w.started(ask().requeue()).job;
    w.change(job, JobChange::Suspend).expect("root may suspend");
    w.change(job, JobChange::Requeue(Requeue::PLAIN)).expect("it stands still");
    w.end(job, 0);
    assert_eq!((w.is(job), w.job(job).hold), (JobState::Pending, Some(Hold::User)));
}

#[test]
fn ended_job_is_requeued_under_its_id() {
    let mut w = world(1);
    let job = w.started(ask().requeue()).job;
    w.end(job, 1);
    w.change(job, JobChange::Requeue(Requeue::PLAIN)).expect("an ended job can run again");
    assert_eq!(w.is(job), JobState::Pending);
    assert_eq!(w.plan()[0].number, 2);
    w.end(job, 0);
    assert_eq!(w.is(job), JobState::Completed);
}

#[test]
fn job_cancelled_while_pending_and_requeued_is_booked_under_two_attempt_numbers() {
    let mut w = world(1);
    let job = w.submit(ask().requeue());
    w.cancel(&[JobRef::whole(job)]);
    w.change(job, JobChange::Requeue(Requeue::PLAIN)).expect("an ended job can run again");
    w.plan();
    w.end(job, 0);
    let booked: Vec<_> = w.records.iter().map(|r| (r.attempt, r.start.is_some())).collect();
    assert_eq!(booked, [(1, false), (2, true)]);
}

#[test]
fn requeue_of_a_job_that_cannot_be_requeued_is_refused() {
    let mut w = world(1);
    let requeue = JobChange::Requeue(Requeue::PLAIN);
    let interactive = w.started(ask().interactive()).job;
    assert_eq!(w.change(interactive, requeue.clone()), Err(Refusal::NotRequeueable(interactive)));
    let waiting = w.submit(ask().requeue().cpus(8));
    assert_eq!(w.change(waiting, requeue.clone()), Err(Refusal::JobNotRunning(waiting)));
    let held = JobChange::Requeue(Requeue::HELD);
    assert_eq!(w.change(waiting, held), Err(Refusal::JobNotRunning(waiting)));
    let once = w.started(ask()).job;
    assert_eq!(w.change(once, requeue.clone()), Err(Refusal::RequeueDisabled(once)));
    w.end(once, 3);
    let again = w.submit(ask().requeue());
    w.cancel(&[JobRef::whole(again)]);
    let incomplete = JobChange::Requeue(Requeue { incomplete: true, ..Requeue::PLAIN });
    w.change(again, incomplete).expect("nothing to do is no fault");
    assert_eq!(w.is(again), JobState::Cancelled, "it has ended");
    let array = w.submit(ask().requeue().array("0-3"));
    w.cancel(&[JobRef::whole(array)]);
    assert_eq!(w.change(array, requeue), Err(Refusal::JobEnded(array)), "no task of it is left");
}

#[test]
fn cancel_takes_back_a_requeue_under_way() {
    let mut w = world(1);
    let job = w.started(ask().requeue()).job;
    w.change(job, JobChange::Requeue(Requeue::PLAIN)).expect("it runs");
    w.cancel_as(alice(), &[JobRef::whole(job)]);
    w.end(job, 0);
    assert_eq!(w.is(job), JobState::Cancelled);
    assert_eq!(w.records[0].reason, Reason::None, "it was not requeued");
}

#[test]
fn retry_waits_longer_before_each_attempt() {
    let mut w = world(1);
    let retrying = |r: &mut model::run::Retry| (r.on_error, r.duration_s) = (true, Some(3600));
    let job = w.started(ask().task().retry(retrying)).job;
    for (number, pause_s) in [(2, 15), (3, 30), (4, 60), (5, 120), (6, 300), (7, 600), (8, 600)] {
        let script = AttemptReport::ScriptEnded { exit: exited(1), oom: false, timed_out: false };
        w.report("n1", w.job(job).attempt_id().expect("it runs"), script);
        w.end(job, 1);
        assert_eq!(w.is(job), JobState::Pending);
        w.pass(pause_s - 1);
        assert!(w.plan().is_empty(), "attempt {number} is not due yet");
        w.pass(1);
        assert_eq!(w.plan()[0].number, number);
    }
}

/// Its duration bounds the wait since the last event, however long the run has run before, and not the run itself.
#[test]
fn retry_ends_where_no_attempt_starts_within_its_duration() {
    let mut w = world(1);
    let retrying = |r: &mut model::run::Retry| (r.on_error, r.duration_s) = (true, Some(600));
    let first_until = WaitPolicy::Until(w.now + Duration::from_secs(600));
    let asked = ask().task().retry(retrying).asking(|ask| ask.wait_policy = first_until);
    let job = w.started(asked).job;
    w.pass(7200);
    w.end(job, 1);
    w.tick();
    assert_eq!(w.is(job), JobState::Pending, "it was submitted long ago, and failed just now");
    // The pause before the attempt is not its wait.
    w.pass(614);
    assert_eq!(w.is(job), JobState::Pending);
    w.pass(1);
    assert_eq!(w.is(job), JobState::Failed);
    assert_eq!(w.job(job).ended().expect("it has ended").outcome, Outcome::NoCapacity);
}

#[test]
fn requeue_by_somebody_is_no_retry() {
    let mut w = world(1);
    let retrying = |r: &mut model::run::Retry| {
        (r.on_error, r.duration_s, r.attempts_max) = (true, Some(60), Some(2));
    };
    let job = w.started(ask().task().retry(retrying)).job;
    w.change(job, JobChange::Requeue(Requeue::HELD)).expect("it runs");
    w.end(job, 0);
    w.pass(7200);
    assert_eq!(w.is(job), JobState::Pending, "nobody's retry has a duration");
    w.change(job, JobChange::Release).expect("it is held");
    assert_eq!(w.plan()[0].number, 2);
    w.end(job, 1);
    assert_eq!(w.is(job), JobState::Pending, "it has its two attempts");
    w.pass(15);
    assert_eq!(w.plan()[0].number, 3);
    w.end(job, 1);
    assert_eq!(w.is(job), JobState::Failed);
}

#[test]
fn retry_that_was_held_for_longer_than_its_duration_goes_on_when_it_is_released() {
    let mut w = world(1);
    let retrying = |r: &mut model::run::Retry| (r.on_error, r.duration_s) = (true, Some(60));
    let job = w.started(ask().task().retry(retrying)).job;
    w.end(job, 1);
    w.change(job, JobChange::Hold { by: Hold::User }).expect("it waits");
    w.pass(7200);
    w.change(job, JobChange::Release).expect("it is held");
    w.tick();
    assert_eq!(w.is(job), JobState::Pending);
    assert_eq!(w.plan()[0].number, 2);
}

#[test]
fn retry_makes_as_many_attempts_as_it_says() {
    let mut w = world(1);
    let retrying = |r: &mut model::run::Retry| (r.on_error, r.attempts_max) = (true, Some(2));
    let job = w.started(ask().task().retry(retrying)).job;
    w.end(job, 1);
    w.pass(15);
    assert_eq!(w.plan()[0].number, 2);
    w.end(job, 1);
    assert_eq!((w.is(job), w.job(job).restarts()), (JobState::Failed, 1));
}

#[test]
fn retry_requeues_only_for_the_events_that_it_lists() {
    type Set = fn(&mut model::run::Retry);
    let oom = AttemptReport::Ended {
        exit: exited(1),
        usage: Usage::default(),
        oom: true,
        timed_out: false,
        lost: false,
    };
    let table: [(Set, AttemptReport, JobState); 7] = [
        (|r| r.on_error = true, ended(1), JobState::Pending),
        (|r| r.on_error = true, ended(0), JobState::Completed),
        (|r| r.on_error = true, AttemptReport::Missing, JobState::Pending),
        (|r| r.on_interruption = true, AttemptReport::Missing, JobState::Pending),
        (|r| r.on_interruption = true, ended(1), JobState::Failed),
        (|r| r.on_interruption = true, oom.clone(), JobState::OutOfMemory),
        (|r| r.on_error = true, oom, JobState::Pending),
    ];
    for (set, report, expected) in table {
        let mut w = world(1);
        let attempt = w.started(ask().task().retry(set));
        w.report("n1", attempt, report.clone());
        assert_eq!(w.is(attempt.job), expected, "{report:?}");
    }
}

#[test]
fn requeued_array_task_stays_the_same_task() {
    let mut w = world(1);
    w.submit(ask().requeue().cpus(8).array("0-1"));
    let first = w.plan()[0].job;
    w.change(first, JobChange::Requeue(Requeue::PLAIN)).expect("it runs");
    w.end(first, 0);
    let index = w.job(first).task.expect("a task").index;
    assert_eq!((index, w.job(first).shown_id().as_str()), (0, "1_0"));
    let again = w.plan()[0];
    assert_eq!(w.job(again.job).task.expect("a task").array.0, 1);
}

#[test]
fn job_held_while_running_runs_on_and_is_held_when_requeued() {
    let mut w = world(1);
    let job = w.started(ask().requeue()).job;
    w.change_as(alice(), JobRef::whole(job), JobChange::Hold { by: Hold::User }).expect("hers");
    assert_eq!(w.is(job), JobState::Running);
    w.change(job, JobChange::Requeue(Requeue::PLAIN)).expect("it runs");
    w.end(job, 0);
    assert_eq!((w.is(job), w.plan().len()), (JobState::Pending, 0));
    w.change_as(alice(), JobRef::whole(job), JobChange::Release).expect("hers");
    assert_eq!(w.plan().len(), 1);
}

#[test]
fn hold_of_an_update_is_told_from_that_of_somebody_else_also_after_a_restart() {
    let replaced = Requeue { incomplete: true, for_update: true, ..Requeue::HELD };
    for by in [None, Some(Hold::User), Some(Hold::Admin)] {
        let mut w = world(1);
        let job = w.started(ask().requeue()).job;
        if let Some(by) = by {
            w.change(job, JobChange::Hold { by }).expect("root may");
        }
        w.change(job, JobChange::Requeue(replaced)).expect("it runs");
        w.end(job, 0);
        w.restart();
        let expected = by.unwrap_or(Hold::Update);
        assert_eq!((w.is(job), w.job(job).hold), (JobState::Pending, Some(expected)));
        w.change(job, JobChange::Hold { by: Hold::Update }).expect("it waits");
        assert_eq!(w.job(job).hold, Some(expected), "it replaces nobody's");
    }
    let mut w = world(1);
    let job = w.submit(ask());
    w.change(job, JobChange::Hold { by: Hold::Update }).expect("it waits");
    assert_eq!(w.job(job).hold, Some(Hold::Update));
    w.change_as(alice(), JobRef::whole(job), JobChange::Hold { by: Hold::User }).expect("hers");
    assert_eq!(w.job(job).hold, Some(Hold::User), "now she wants it held");
    w.change_as(alice(), JobRef::whole(job), JobChange::Release).expect("hers");
    assert_eq!(w.plan().len(), 1);
}

#[test]
fn scheduled_job_waits_for_its_next_time_however_it_ended_until_it_is_cancelled() {
    let each_hour = vec!["0 * * * *".to_owned()];
    let schedule = Schedule::parse(each_hour).expect("a schedule");
    let mut w = world(1);
    let scheduled = ask().task().with(|spec| spec.schedule = Some(Box::new(schedule)));
    let job = w.started(scheduled).job;
    for (attempt, code) in [(1, 0), (2, 3)] {
        w.end(job, code);
        assert_eq!((w.is(job), w.job(job).restarts()), (JobState::Pending, attempt));
        let next = w.job(job).begin.expect("a next time");
        assert_eq!(next.secs() % 3600, 0, "a whole hour");
        assert!(next > w.now && w.plan().is_empty(), "it is not due yet");
        w.pass((next.secs() - w.now.secs()) as u64 + 1);
        assert_eq!(w.plan().len(), 1, "its time has come");
    }
    w.cancel(&[JobRef::whole(job)]);
    w.end(job, 0);
    assert_eq!(w.is(job), JobState::Cancelled);
}

#[test]
fn scheduled_job_that_is_retried_or_requeued_does_not_wait_for_its_next_time() {
    let each_hour = Schedule::parse(vec!["0 * * * *".to_owned()]).expect("a schedule");
    let mut w = world(1);
    let scheduled = ask().task().with(|spec| {
        spec.schedule = Some(Box::new(each_hour));
        let (on_no_capacity, on_interruption, on_error) = (false, false, true);
        let (duration_s, attempts_max) = (Some(600), None);
        let retry = Retry { on_no_capacity, on_interruption, on_error, duration_s, attempts_max };
        spec.retry = Some(Box::new(retry));
    });
    let job = w.started(scheduled).job;
    w.end(job, 3);
    w.pass(15);
    assert_eq!(w.plan().len(), 1, "its retry");
    w.change(job, JobChange::Requeue(Requeue::PLAIN)).expect("it runs");
    w.end(job, 0);
    assert_eq!(w.plan().len(), 1, "it was requeued before it had its turn");
    w.end(job, 0);
    assert!(w.plan().is_empty(), "it has had its turn");
    let next = w.job(job).begin.expect("a next time");
    w.pass((next.secs() - w.now.secs()) as u64 + 1);
    assert_eq!(w.plan().len(), 1, "its time has come");
    w.pass(601);
    w.end(job, 3);
    assert!(w.plan().is_empty(), "the time of its retry is over");
}

/// On 30 February nothing starts again.
#[test]
fn scheduled_job_without_a_further_time_ends() {
    let never = Schedule::parse(vec!["0 0 30 2 *".to_owned()]).expect("a schedule");
    let mut w = world(1);
    let job = w.started(ask().task().with(|spec| spec.schedule = Some(Box::new(never)))).job;
    w.end(job, 0);
    assert_eq!(w.is(job), JobState::Completed);
}

#[test]
fn run_that_is_named_twice_is_deleted_once_and_listed_again_when_requeued() {
    let mut w = world(1);
    let job = w.started(ask().requeue()).job;
    let ended = EndedRun {
        run: w.job(job).run,
        name: "x".into(),
        owner: w.job(job).spec.owner.uid,
        account: w.job(job).account.to_string(),
    };
    let delete = || Command::DeleteRuns(vec![ended.clone(), ended.clone()]);
    assert!(w.try_as(alice(), delete()).is_err(), "it runs");
    w.end(job, 1);
    let before = w.state.activities.iter().count();
    w.run(delete());
    assert!(w.job(job).deleted);
    assert_eq!(w.state.activities.iter().count(), before + 1);
    w.change(job, JobChange::Requeue(Requeue::PLAIN)).expect("an ended job can run again");
    assert!(!w.job(job).deleted);
}
