//! Arrays: one record for what is pending, one for each task that has left it.

use crate::job_builder::{alice, ask};
use crate::testbed::{tasks, world};
use cluster::job_selection::count_named;
use model::change::{JobChange, JobField, JobRef, Requeue};
use model::id::JobId;
use model::reason::Refusal;
use model::run::{ArrayTask, Hold, JobState};

#[test]
fn each_task_gets_an_id_at_its_start_and_the_last_takes_the_arrays_id() {
    let mut w = world(1);
    let array = w.submit(ask().cpus(8).array("0-2"));
    let mut ids = Vec::new();
    for index in 0..3 {
        let started = w.plan();
        assert_eq!(started.len(), 1, "the node holds one task at a time");
        let id = started[0].job;
        assert_eq!(w.job(id).task, Some(ArrayTask { array, index }));
        ids.push(id);
        w.end(id, 0);
    }
    assert_eq!(ids, [JobId(2), JobId(3), array]);
    let booked: Vec<_> = w.records.iter().map(|r| (r.job, r.array_job, r.array_task)).collect();
    let of_array = Some(array);
    assert_eq!(
        booked,
        [
            (JobId(2), of_array, Some(0)),
            (JobId(3), of_array, Some(1)),
            (JobId(1), of_array, Some(2))
        ]
    );
}

#[test]
fn pending_array_is_one_record_however_long() {
    let mut w = world(1);
    w.submit(ask().array("0-999"));
    assert_eq!((w.state.jobs.len(), w.state.arrays.len()), (1, 0));
    assert_eq!(w.plan().len(), 8, "as many as there are CPUs");
    assert_eq!(w.state.jobs.len(), 9);
    assert_eq!(w.job(JobId(1)).shown_id(), "1_[8-999]");
}

#[test]
fn number_of_an_array_counts_as_all_the_records_that_it_names() {
    let mut w = world(1);
    w.submit(ask().array("0-999"));
    let other = w.submit(ask());
    let named = |text: &str| vec![JobRef::parse(text).expect("a reference")];
    assert_eq!(count_named(&w.state, &named("1")), 1, "all of its tasks wait");
    assert_eq!(w.plan().len(), 8, "as many as there are CPUs");
    assert_eq!(count_named(&w.state, &named("1")), 9);
    assert_eq!(count_named(&w.state, &named("1_3")), 2);
    assert_eq!(count_named(&w.state, &[named("1"), vec![JobRef::whole(other)]].concat()), 10);
}

#[test]
fn throttle_bounds_how_many_tasks_run_at_once() {
    let mut w = world(1);
    let array = w.submit(ask().array("0-5%2"));
    let first = w.plan();
    assert_eq!(first.len(), 2);
    assert_eq!(w.plan().len(), 0);
    w.end(first[0].job, 0);
    assert_eq!(w.plan().len(), 1, "one ended, one may follow");
    w.change(array, JobChange::Fields(vec![JobField::ArrayThrottle(Some(4))]))
        .expect("a throttle can be raised");
    assert_eq!(w.plan().len(), 2);
    w.change(array, JobChange::Fields(vec![JobField::ArrayThrottle(None)]))
        .expect("a throttle can be lifted");
    assert_eq!(w.plan().len(), 1, "the last");
}

#[test]
fn throttle_is_also_for_tasks_that_were_requeued() {
    let mut w = world(1);
    let array = w.submit(ask().requeue().array("0-2%1"));
    let first = w.plan();
    assert_eq!(first.len(), 1);
    w.change(first[0].job, JobChange::Requeue(Requeue::PLAIN)).expect("root may");
    w.end(first[0].job, 0);
    // It waits a moment before it may start again, and another task takes its turn.
    assert_eq!(w.plan().len(), 1);
    w.pass(300);
    assert_eq!(w.plan().len(), 0, "the requeued task waits for the one that runs");
    w.end(JobId(3), 0);
    assert_eq!(w.plan().len(), 1);
    // The last task has the array's record, which keeps the bound.
    assert!(w.job(array).pending.is_none());
    assert_eq!(w.plan().len(), 0, "the requeued task still waits");
    w.change(array, JobChange::Fields(vec![JobField::ArrayThrottle(Some(2))]))
        .expect("a throttle can be raised");
    assert_eq!(w.plan().len(), 1);
}

#[test]
fn tasks_cancelled_while_pending_never_run_and_are_booked_as_one_record() {
    let mut w = world(1);
    let array = w.submit(ask().cpus(8).array("0-5"));
    w.cancel(&[JobRef { tasks: tasks("1-3"), ..JobRef::whole(array) }]);
    assert_eq!(w.job(array).shown_id(), "1_[0,4-5]");
    assert_eq!(w.records[0].array_pending.as_deref(), Some("1-3"));
    let ran: Vec<u32> = (0..3)
        .map(|_| {
            let id = w.plan()[0].job;
            let index = w.job(id).task.expect("a task").index;
            w.end(id, 0);
            index
        })
        .collect();
    assert_eq!(ran, [0, 4, 5]);
}

#[test]
fn cancelled_array_ends_pending_tasks_at_once_and_running_ones_when_gone() {
    let mut w = world(1);
    let array = w.submit(ask().cpus(4).array("0-5%2"));
    let running = w.plan();
    assert!(w.cancel(&[JobRef::whole(array)]).iter().all(|(_, result)| result.is_ok()));
    assert_eq!(w.is(array), JobState::Cancelled);
    assert_eq!(w.job(array).shown_id(), "1_[2-5]", "the record still says which tasks it was");
    for attempt in running {
        assert_eq!(w.is(attempt.job), JobState::Completing);
        w.end(attempt.job, 0);
        assert_eq!(w.is(attempt.job), JobState::Cancelled);
    }
    let again = w.cancel(&[JobRef { tasks: tasks("3"), ..JobRef::whole(array) }]);
    assert_eq!(again, [("1_3".into(), Err(Refusal::JobEnded(array)))]);
}

#[test]
fn job_named_twice_is_cancelled_once() {
    let mut w = world(1);
    let array = w.submit(ask().array("0-3"));
    let plain = w.submit(ask());
    let named = [
        JobRef { tasks: tasks("0-1"), ..JobRef::whole(array) },
        JobRef { tasks: tasks("1-2"), ..JobRef::whole(array) },
        JobRef::whole(plain),
        JobRef::whole(plain),
    ];
    assert_eq!(w.cancel(&named).len(), 2);
    assert_eq!(w.job(array).shown_id(), "1_[3]");
    assert_eq!(w.records.len(), 2);
}

#[test]
fn holding_some_tasks_splits_them_off_and_the_others_run() {
    let mut w = world(1);
    let array = w.submit(ask().array("0-3"));
    let some = JobRef { tasks: tasks("1,3"), ..JobRef::whole(array) };
    w.change_as(alice(), some.clone(), JobChange::Hold { by: Hold::User }).expect("its owner may");
    let ran: Vec<_> = w.plan().iter().map(|a| w.job(a.job).task.expect("a task").index).collect();
    assert_eq!(ran, [0, 2]);
    w.change_as(alice(), some, JobChange::Release).expect("its owner may");
    assert_eq!(w.plan().len(), 2);
}

#[test]
fn arrays_outside_the_limits_are_refused() {
    let mut w = world(1);
    w.submit(ask().array("0-999"));
    let mut too_high = ask().array("0-9");
    too_high.0.array.as_mut().expect("an array").indices.insert(1001);
    assert_eq!(w.try_submit(too_high), Err(Refusal::ArrayIndex { most: 1000, asked: 1001 }));
}
