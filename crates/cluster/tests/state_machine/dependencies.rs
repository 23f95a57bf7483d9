//! Dependencies: what a job waits for, when it is met, and when it can never be.

use crate::job_builder::{Ask, ask, bob, root};
use crate::testbed::{tasks, world, world_with};
use model::change::JobRef;
use model::dependency::DependencyState::{self, Failed, Fulfilled, Unfulfilled};
use model::id::JobId;
use model::private_data::PrivateKind;
use model::run::JobState;

fn standing(w: &crate::testbed::World, job: JobId) -> DependencyState {
    cluster::dependency::state_of(&w.state, w.job(job), w.now)
}

/// The state of the first job when the dependency of the second is evaluated.
#[derive(Debug, Clone, Copy)]
enum First {
    Waits,
    Runs,
    Ends(i32),
    IsCancelled,
}

#[test]
fn each_dependency_kind_is_met_by_its_outcome() {
    use First::*;
    let table = [
        ("after:1", Waits, Unfulfilled),
        ("after:1", Runs, Fulfilled),
        ("after:1", IsCancelled, Fulfilled),
        ("after:1+5", Runs, Unfulfilled),
        ("afterany:1", Runs, Unfulfilled),
        ("afterany:1", Ends(0), Fulfilled),
        ("afterany:1", Ends(1), Fulfilled),
        ("afterany:1", IsCancelled, Fulfilled),
        ("afterok:1", Waits, Unfulfilled),
        ("afterok:1", Runs, Unfulfilled),
        ("afterok:1", Ends(0), Fulfilled),
        ("afterok:1", Ends(1), Failed),
        ("afterok:1", IsCancelled, Failed),
        ("afternotok:1", Ends(0), Failed),
        ("afternotok:1", Ends(1), Fulfilled),
        ("aftercorr:1", Ends(0), Fulfilled),
        ("singleton", Waits, Unfulfilled),
        ("singleton", Runs, Unfulfilled),
        ("singleton", Ends(1), Fulfilled),
        ("afterok:1?afterok:99", Waits, Fulfilled),
        ("afterok:1?afternotok:1", Ends(1), Fulfilled),
        ("afterok:1,afterany:1", Ends(1), Failed),
        ("afterok:99", Waits, Fulfilled),
        ("afternotok:99", Waits, Fulfilled),
    ];
    for (text, first, expected) in table {
        let mut w = world(1);
        let id = w.submit(ask());
        match first {
            Waits => {}
            Runs => {
                w.plan();
            }
            Ends(code) => {
                w.plan();
                w.end(id, code);
            }
            IsCancelled => {
                w.cancel(&[JobRef::whole(id)]);
            }
        }
        let second = w.submit(ask().after(text));
        assert_eq!(standing(&w, second), expected, "{text} while the first {first:?}");
        let started = w.planned().iter().any(|s| s.job == second);
        assert_eq!(started, expected == Fulfilled, "{text} while the first {first:?}");
    }
}

#[test]
fn after_counts_minutes_from_the_start() {
    let mut w = world(1);
    w.started(ask());
    let second = w.submit(ask().after("after:1+5"));
    w.pass(299);
    assert_eq!(standing(&w, second), Unfulfilled);
    w.pass(1);
    assert_eq!(standing(&w, second), Fulfilled);
}

#[test]
fn dependency_on_an_array_waits_for_every_task() {
    let mut w = world(1);
    let array = w.submit(ask().cpus(4).array("0-2"));
    let all = w.submit(ask().after("afterok:1"));
    let one = w.submit(ask().after("afterok:1_1"));
    let running = w.plan();
    w.end(running[0].job, 0);
    assert_eq!((standing(&w, all), standing(&w, one)), (Unfulfilled, Unfulfilled));
    w.end(running[1].job, 0);
    assert_eq!((standing(&w, all), standing(&w, one)), (Unfulfilled, Fulfilled));
    w.plan();
    w.end(array, 1);
    assert_eq!((standing(&w, all), standing(&w, one)), (Failed, Fulfilled));
}

#[test]
fn cancelled_pending_task_fails_afterok() {
    let mut w = world(1);
    w.submit(ask().array("0-2"));
    let after = w.submit(ask().after("afterok:1_1"));
    w.cancel(&[JobRef::whole(JobId(1))]);
    assert_eq!(standing(&w, after), Failed);
}

#[test]
fn aftercorr_starts_each_task_after_the_task_of_the_same_index() {
    let mut w = world(1);
    w.submit(ask().cpus(2).array("0-2"));
    let second = w.submit(ask().cpus(2).array("0-2").after("aftercorr:1"));
    let mut first = w.plan();
    assert_eq!(first.len(), 3);
    let last = first.pop().expect("three started");
    assert_eq!(standing(&w, second), Unfulfilled);
    w.end(last.job, 0);
    let started = w.plan();
    assert_eq!(started.len(), 1);
    assert_eq!(w.job(started[0].job).task.expect("a task").index, 2);
    w.end(first[0].job, 1);
    assert_eq!(w.plan().len(), 0, "its counterpart failed");
    w.end(first[1].job, 1);
    assert_eq!(standing(&w, second), Failed, "no task of it can start any more");
}

#[test]
fn unmet_term_names_first_what_keeps_it_from_being_met() {
    for end_of_third in [Some(1), None] {
        let mut w = world(1);
        w.submit(ask().array("0-3"));
        let first = w.plan();
        for (at, end) in [(0, Some(0)), (1, Some(0)), (2, end_of_third), (3, Some(0))] {
            if let Some(code) = end {
                w.end(first[at].job, code);
            }
        }
        let all = w.submit(ask().after("afterok:1"));
        let array = w.submit(ask().array("0-3").after("aftercorr:1"));
        assert_eq!(w.plan().len(), 3, "the counterpart of one has not succeeded");
        let named = |job| {
            let terms = cluster::dependency::Dependencies::new(&w.state, w.now);
            let terms = terms.unmet_terms(w.job(job));
            terms[0].jobs.iter().map(|job| job.shown_id()).collect::<Vec<_>>()
        };
        assert_eq!(named(all), ["1_2", "1_0", "1_1", "1_3"], "{end_of_third:?}");
        assert_eq!(named(array), ["1_2"], "{end_of_third:?}");
    }
}

#[test]
fn tasks_that_wait_for_aftercorr_take_no_resources_from_others() {
    let mut w = world(1);
    w.submit(ask().cpus(2).array("0-1"));
    w.submit(ask().cpus(2).array("0-1").after("aftercorr:1"));
    let behind = w.submit(ask().cpus(4));
    let first: Vec<_> = w.plan();
    assert_eq!(first.len(), 3);
    assert_eq!(w.is(behind), JobState::Running);
    let waiting = w.submit(ask().cpus(4));
    w.end(first[0].job, 0);
    w.end(behind, 0);
    let jobs: Vec<JobId> = w.plan().iter().map(|a| a.job).collect();
    assert!(jobs.contains(&waiting) && jobs.len() == 2, "{jobs:?}");
}

#[test]
fn singleton_waits_for_earlier_jobs_of_the_same_name_and_user() {
    let mut w = world(1);
    w.submit(ask().named("train").cpus(4).array("0-1"));
    let of_bob = w.submit(ask().named("train").of(bob()).after("singleton"));
    let other = w.submit(ask().named("eval").after("singleton"));
    let same = w.submit(ask().named("train").after("singleton"));
    assert_eq!(standing(&w, of_bob), Fulfilled);
    assert_eq!(standing(&w, other), Fulfilled);
    assert_eq!(standing(&w, same), Unfulfilled);
    let tasks: Vec<JobId> = w.plan().iter().map(|a| a.job).filter(|id| *id > same).collect();
    assert_eq!(tasks.len(), 1, "one task has a number above the job that waits for it");
    w.end(JobId(1), 0);
    assert_eq!(standing(&w, same), Unfulfilled, "a task of the earlier array still runs");
    w.end(tasks[0], 0);
    w.submit(ask().named("train"));
    assert_eq!(standing(&w, same), Fulfilled, "a later one is not waited for");
}

#[test]
fn dependency_that_can_never_be_met_keeps_or_cancels_the_job() {
    let kill = |ask: Ask, kill| ask.with(|spec| spec.kill_on_invalid_dependency = kill);
    for (killed, expected) in [(false, JobState::Pending), (true, JobState::Cancelled)] {
        let mut w = world(1);
        let first = w.started(ask()).job;
        w.end(first, 1);
        let second = w.submit(kill(ask().after("afterok:1"), killed));
        let array = w.submit(kill(ask().array("0-3").after("afterok:1"), killed));
        assert_eq!(w.plan(), []);
        w.tick();
        assert_eq!((w.is(second), w.is(array)), (expected, expected));
    }
}

#[test]
fn requeued_job_does_not_meet_afterany() {
    let mut w = world(2);
    let first = w.started(ask().requeue());
    let second = w.submit(ask().after("afterany:1"));
    let node = w.nodes_of(first.job)[0].clone();
    w.fail(&node);
    assert_eq!(w.is(first.job), JobState::Pending);
    assert_eq!(standing(&w, second), Unfulfilled);
}

#[test]
fn record_that_a_job_depends_on_is_not_purged() {
    let mut w = world(1);
    let array = w.submit(ask().cpus(4).array("0-1"));
    let running = w.plan();
    running.iter().for_each(|a| w.end(a.job, 1));
    let other = w.started(ask()).job;
    w.end(other, 0);
    let waiting = w.submit(ask().after("afterok:1_0"));
    w.pass(400);
    assert!(!w.state.jobs.contains_key(&other), "nobody waits for this one");
    assert_eq!(standing(&w, waiting), Failed, "the array's tasks are still known");
    w.cancel(&[JobRef::whole(waiting), JobRef { tasks: tasks("7"), ..JobRef::whole(array) }]);
    w.pass(400);
    assert!(w.state.jobs.is_empty() && w.state.runs.is_empty() && w.state.arrays.is_empty());
}

#[test]
fn jobs_that_are_named_and_not_known_are_told() {
    let mut w = world(1);
    let (first, array) = (w.submit(ask()), w.submit(ask().array("0-2")));
    let known = format!("afterok:{first}:{array}:{array}_1");
    let waiting = w.submit(ask().after(&format!("{known}:{array}_7:99,afterany:98_3")));
    let told = |w: &crate::testbed::World| -> Vec<String> {
        let unknown = cluster::dependency::unknown_targets(&w.state, w.job(waiting));
        unknown.map(|target| target.to_string()).collect()
    };
    let unknown = [format!("{array}_7"), "99".to_owned(), "98_3".to_owned()];
    assert_eq!(told(&w), unknown);
    w.cancel(&[JobRef { tasks: tasks("1"), ..JobRef::whole(array) }]);
    assert_eq!(told(&w), unknown, "a task that was cancelled is known");
}

#[test]
fn dependency_on_a_hidden_job_is_as_one_on_no_job() {
    let table =
        ["after:1", "afterany:1", "afterok:1", "afternotok:1", "aftercorr:1", "afterok:1_1"];
    let hiding = || {
        world_with(1, |config| {
            config.parameters.private_data = [PrivateKind::Jobs].into_iter().collect();
        })
    };
    for (text, array) in table.into_iter().zip(["", "", "", "", "0-2", "0-2"]) {
        for cancelled in [false, true] {
            let mut w = hiding();
            let first = if array.is_empty() { ask() } else { ask().array(array) };
            let first = w.submit(first);
            if cancelled {
                w.cancel(&[JobRef::whole(first)]);
            }
            let none = w.submit(ask().of(bob()).after(&text.replace(":1", ":99")));
            let hidden = w.submit(ask().of(bob()).after(text));
            assert_eq!(standing(&w, hidden), standing(&w, none), "{text}, cancelled: {cancelled}");
            let looked = cluster::dependency::Dependencies::new(&w.state, w.now);
            let shown = |job| looked.shown(w.job(job));
            assert_eq!(shown(hidden), shown(none), "{text}");
            let unknown = |job| cluster::dependency::unknown_targets(&w.state, w.job(job)).count();
            assert_eq!((unknown(hidden), unknown(none)), (1, 1), "{text}");
        }
    }
    let mut w = hiding();
    w.submit(ask());
    let own = w.submit(ask().after("afterok:1"));
    assert_eq!(standing(&w, own), Unfulfilled, "the owner's own");
    let of_root = w.submit(ask().of(root()).after("afterok:1"));
    assert_eq!(standing(&w, of_root), Unfulfilled, "root is shown all");
}
