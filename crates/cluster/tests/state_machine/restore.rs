//! A state that was restored from a backup: jobs that may have started since are not started twice.

use crate::job_builder::ask;
use crate::testbed::{World, ended, world};
use cluster::{Command, Event};
use model::change::NodeChange;
use model::id::{AttemptId, JobId};
use model::reason::Reason;
use std::time::Duration;

/// Ids that are left out by the restore of these tests.
const SKIPPED: u32 = 1_000;

/// As `sluice restore` does it, and the start of the server a while later.
fn restore(w: &mut World, start_at_once: bool) {
    let (term, next_job) = (w.state.term + 100, w.state.next_job + SKIPPED);
    let restored = Event::Restored { term, next_job, at: w.now, start_at_once };
    w.state.apply(&restored);
    w.now = w.now + Duration::from_secs(10 * 3600);
    w.run(Command::StartTerm { term: term + 1 });
}

/// A job that waits for a node that is gone for now, so that none is started before the restore.
fn waiting(w: &mut World) -> JobId {
    w.change_nodes(&["n1", "n2"], NodeChange::Drain { reason: "busy".into() });
    let job = w.submit(ask());
    assert!(w.plan().is_empty());
    w.change_nodes(&["n1", "n2"], NodeChange::Resume);
    job
}

fn reason(w: &World, job: JobId) -> Option<Reason> {
    let view = cluster::view::view(&w.state, w.now);
    view.queue.iter().find(|waiting| waiting.job == job).and_then(|job| job.fixed_reason.clone())
}

fn started(w: &mut World) -> Vec<JobId> {
    let planned: Vec<JobId> = w.planned().iter().map(|start| start.job).collect();
    let started: Vec<JobId> = w.plan().iter().map(|attempt| attempt.job).collect();
    assert_eq!(planned, started, "the plan and the check of its starts agree");
    started
}

#[test]
fn job_of_a_backup_starts_when_every_node_has_said_what_it_runs() {
    let mut w = world(2);
    let old = waiting(&mut w);
    restore(&mut w, false);
    w.tick();
    w.hello("n1", &[]);
    assert_eq!(reason(&w, old), Some(Reason::RestoredNodesAwaited));
    assert!(started(&mut w).is_empty(), "n2 may run it");
    let new = w.submit(ask());
    assert_eq!(started(&mut w), [new], "a new job can run nowhere yet");

    // The node runs the job, as what the restored state does not know: that ends first.
    let unknown = AttemptId { job: old, number: 1 };
    w.hello("n2", &[unknown]);
    assert!(started(&mut w).is_empty(), "it ends there first");
    w.restart();
    w.report("n2", unknown, ended(0));
    assert_eq!((reason(&w, old), started(&mut w)), (None, vec![old]));
}

#[test]
fn node_that_was_down_at_the_backup_is_waited_for_until_the_timeout() {
    for comes_back in [true, false] {
        let mut w = world(2);
        let old = waiting(&mut w);
        w.fail("n2");
        restore(&mut w, false);
        w.hello("n1", &[]);
        assert_eq!(reason(&w, old), Some(Reason::RestoredNodesAwaited));
        let timeout = u64::from(w.state.config.parameters.slurmd_timeout_s);
        w.pass(timeout - 1);
        assert!(started(&mut w).is_empty(), "it may have been given the job since");
        if comes_back {
            let unknown = AttemptId { job: old, number: 1 };
            w.hello("n2", &[unknown]);
            w.pass(timeout);
            assert!(started(&mut w).is_empty(), "it runs there: no time is long enough");
            w.report("n2", unknown, ended(0));
        } else {
            w.pass(1);
        }
        assert_eq!(started(&mut w), [old], "{comes_back}");
    }
}

#[test]
fn administrator_ends_the_wait_for_a_node_that_cannot_end_what_it_runs() {
    let mut w = world(2);
    let old = waiting(&mut w);
    restore(&mut w, false);
    w.hello("n1", &[]);
    let known = w.submit(ask());
    assert_eq!(started(&mut w), [known]);
    w.hello("n2", &[AttemptId { job: old, number: 1 }]);
    w.pass(600);
    assert!(started(&mut w).is_empty());
    w.restart();
    w.change_nodes(&["n2"], NodeChange::Resume);
    assert_eq!(started(&mut w), [old]);
    assert!(w.job(known).attempt().is_some(), "what runs goes on");
}

#[test]
fn nodes_that_are_lost_are_not_waited_for() {
    for way in ["timeout", "administrator", "at once"] {
        let mut w = world(2);
        let old = waiting(&mut w);
        restore(&mut w, way == "at once");
        w.hello("n1", &[]);
        if way == "at once" {
            assert_eq!(started(&mut w), [old]);
            continue;
        }
        // The timeout counts from the start of the server, not from the restore hours before.
        w.pass(u64::from(w.state.config.parameters.slurmd_timeout_s) - 1);
        assert!(started(&mut w).is_empty(), "{way}");
        match way {
            "timeout" => w.pass(1),
            _ => w.change_nodes(&["n2"], NodeChange::Down { reason: "lost".into() }),
        }
        assert_eq!(started(&mut w), [old], "{way}");
    }
}
