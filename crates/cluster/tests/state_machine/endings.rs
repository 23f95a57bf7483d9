//! How attempts end: outcomes, exit codes, steps, and reports that come twice, late or from elsewhere.

use crate::ask::{Ask, ask, bob};
use crate::world::{World, ended, exited, world, world_with};
use cluster::command::{PartReport, StepAsk};
use cluster::{ClusterConfig, Command};
use model::attempt::EndCause;
use model::change::JobRef;
use model::id::{AttemptId, BlobRef, StepId};
use model::reason::{Reason, Refusal};
use model::record::RecordState;
use model::run::{ExitStatus, JobSpec, JobState, Outcome, Usage};
use model::step::StepRefusal;
use model::time::TimeLimit;
use std::sync::Arc;

fn killed() -> ExitStatus {
    ExitStatus { code: 0, signal: 9 }
}

fn over(exit: ExitStatus, oom: bool, timed_out: bool, lost: bool) -> PartReport {
    PartReport::Ended { exit, usage: Usage::default(), oom, timed_out, lost }
}

#[test]
fn the_last_report_says_how_the_job_ended() {
    let launch_failed =
        || PartReport::LaunchFailed { what: "no such user".into(), unfit: None, hold: false };
    let table = [
        (ended(0), Outcome::Completed, "0:0", Reason::None),
        (ended(3), Outcome::Failed, "3:0", Reason::NonZeroExit),
        (over(killed(), false, false, false), Outcome::Failed, "0:9", Reason::NonZeroExit),
        (over(killed(), true, false, false), Outcome::OutOfMemory, "0:125", Reason::OutOfMemory),
        (over(exited(15), false, true, false), Outcome::Timeout, "0:0", Reason::TimeLimit),
        (over(killed(), false, false, true), Outcome::NodeFail, "0:0", Reason::NodeFail),
        (PartReport::Missing, Outcome::NodeFail, "0:0", Reason::NodeFail),
        (launch_failed(), Outcome::LaunchFailed, "0:53", Reason::LaunchFailed),
    ];
    for (report, outcome, exit, reason) in table {
        let mut w = world(1);
        let attempt = w.started(ask());
        w.report("n1", attempt, report.clone());
        let end = w.job(attempt.job).ended().expect("it has ended");
        assert_eq!(
            (end.outcome, end.exit.to_string().as_str(), &end.reason),
            (outcome, exit, &reason),
            "{report:?}"
        );
        let record = &w.records[0];
        assert_eq!((record.state, record.exit), (RecordState::Ended(outcome), end.exit));
        assert!(record.steps.iter().all(|s| s.end.is_some()), "{:?}", record.steps);
    }
}

#[test]
fn a_cancelled_job_is_recorded_with_who_did_it_and_not_with_our_signal() {
    let mut w = world(1);
    let attempt = w.started(ask().of(bob()));
    w.cancel_as(bob(), &[JobRef::whole(attempt.job)]);
    assert_eq!(w.is(attempt.job), JobState::Completing);
    w.report("n1", attempt, over(killed(), false, false, false));
    let end = w.job(attempt.job).ended().expect("it has ended");
    assert_eq!((end.outcome, end.exit), (Outcome::Cancelled { by: 1001 }, ExitStatus::default()));
}

#[test]
fn the_first_to_decide_the_end_keeps_its_word() {
    let mut w = world(1);
    let attempt = w.started(ask());
    let script = PartReport::ScriptEnded { exit: exited(2), oom: false, timed_out: false };
    w.report("n1", attempt, script.clone());
    w.report("n1", attempt, script);
    w.cancel(&[JobRef::whole(attempt.job)]);
    w.report("n1", attempt, ended(0));
    let end = w.job(attempt.job).ended().expect("it has ended");
    assert_eq!((end.outcome, end.exit), (Outcome::Failed, exited(2)));
}

#[test]
fn what_the_site_does_after_a_scripts_end_is_not_the_jobs_time() {
    let mut w = world(1);
    let attempt = w.started(ask());
    w.pass(20);
    let script = PartReport::ScriptEnded { exit: exited(0), oom: false, timed_out: false };
    w.report("n1", attempt, script);
    let over = w.now;
    w.pass(60);
    assert_eq!(w.is(attempt.job), JobState::Completing, "its node is not free yet");
    w.report("n1", attempt, ended(0));
    let end = w.job(attempt.job).ended().expect("it has ended");
    assert_eq!((end.outcome, end.end), (Outcome::Completed, over));
    let booked = &w.records[0];
    assert_eq!(booked.end, Some(over), "nor are the books");
    let ends: Vec<_> = booked.steps.iter().map(|step| step.end).collect();
    assert_eq!(ends, [Some(over)], "nor is its script's step");
}

#[test]
fn reports_that_come_again_late_or_from_elsewhere_change_nothing() {
    let mut w = world(2);
    let attempt = w.started(ask().on("n1"));
    let before = w.state.clone();
    let other = AttemptId { number: 2, ..attempt };
    let unknown = AttemptId { job: model::id::JobId(77), number: 1 };
    for (node, attempt) in [("n2", attempt), ("n1", other), ("n1", unknown), ("n9", attempt)] {
        w.report(node, attempt, ended(1));
    }
    assert!(w.state == before);
    w.report("n1", attempt, ended(0));
    let after = w.state.clone();
    w.report("n1", attempt, ended(1));
    w.report("n1", attempt, PartReport::Missing);
    assert!(w.state == after);
    assert_eq!(w.records.len(), 1);
}

#[test]
fn a_batch_job_ends_with_its_first_node_and_frees_the_others_as_they_report() {
    let mut w = world(2);
    let attempt = w.started(ask().nodes(2).cpus(8));
    let script = PartReport::ScriptEnded { exit: exited(0), oom: false, timed_out: false };
    w.report("n2", attempt, script.clone());
    assert_eq!(w.is(attempt.job), JobState::Running, "the script is on the first node");
    w.report("n1", attempt, script);
    assert_eq!(w.is(attempt.job), JobState::Completing);
    w.report("n2", attempt, ended(0));
    w.submit(ask().cpus(8).on("n2"));
    assert_eq!(w.plan().len(), 1, "the second node is free");
    w.report("n1", attempt, ended(0));
    assert_eq!(w.is(attempt.job), JobState::Completed);
}

#[test]
fn a_task_on_several_nodes_is_done_when_all_are_and_fails_with_the_first() {
    let mut w = world(2);
    let attempt = w.started(ask().task().nodes(2));
    w.report("n2", attempt, ended(0));
    assert_eq!(w.is(attempt.job), JobState::Running);
    w.report("n1", attempt, ended(0));
    assert_eq!(w.is(attempt.job), JobState::Completed);

    let attempt = w.started(ask().task().nodes(2));
    w.report("n2", attempt, ended(7));
    assert_eq!(w.is(attempt.job), JobState::Completing);
    w.report("n1", attempt, over(killed(), false, false, false));
    let end = w.job(attempt.job).ended().expect("it has ended");
    assert_eq!((end.outcome, end.exit.code), (Outcome::Failed, 7));
}

#[test]
fn a_part_that_is_lost_ends_the_whole_attempt_as_its_node_would() {
    let of: [fn(Ask) -> Ask; 3] = [|a| a, Ask::task, Ask::interactive];
    for kind in of {
        let mut w = world(2);
        let attempt = w.started(kind(ask().nodes(2)));
        w.report("n2", attempt, over(killed(), false, false, true));
        assert_eq!(w.is(attempt.job), JobState::Completing);
        w.report("n1", attempt, ended(0));
        assert_eq!(w.is(attempt.job), JobState::NodeFail);
    }
}

fn step(tasks: u32) -> StepAsk {
    StepAsk { name: "hostname".into(), tasks: Some(tasks), ..StepAsk::default() }
}

fn step_ended(step: StepId, code: i32) -> PartReport {
    PartReport::StepEnded { step, exit: exited(code), usage: Usage::default(), oom: false }
}

#[test]
fn a_step_ends_with_its_last_node_and_the_highest_code_is_derived() {
    let mut w = world(2);
    let attempt = w.started(ask().nodes(2).cpus(2));
    let placed = w.step(attempt.job, step(2));
    assert_eq!((placed.step, placed.nodes.len()), (StepId::Number(0), 2));
    let end = |w: &World| w.job(attempt.job).attempt().expect("it runs").steps[1].end.clone();
    w.report("n2", attempt, step_ended(placed.step, 5));
    w.report("n2", attempt, step_ended(placed.step, 5));
    assert_eq!(end(&w), None);
    w.report("n1", attempt, step_ended(placed.step, 0));
    assert_eq!(end(&w).map(|e| e.outcome), Some(Outcome::Failed));
    assert_eq!(w.step(attempt.job, step(1)).step, StepId::Number(1));
    w.end(attempt.job, 0);
    let record = &w.records[0];
    assert_eq!((record.exit.code, record.derived_exit.code), (0, 5));
    assert_eq!(record.steps.len(), 3);
}

#[test]
fn steps_that_do_not_fit_are_refused_and_numbers_have_no_overflow() {
    let mut w = world(2);
    let job = w.started(ask().nodes(2).cpus(2)).job;
    let huge = u32::MAX;
    let asks = [
        StepAsk { tasks: Some(5), ..StepAsk::default() },
        StepAsk { nodes: Some(3), ..StepAsk::default() },
        StepAsk { nodes: Some(0), ..StepAsk::default() },
        StepAsk { tasks_per_node: Some(huge), ..StepAsk::default() },
        StepAsk { tasks: Some(huge), overcommit: true, ..StepAsk::default() },
        StepAsk { node_list: vec!["n9".into()], ..StepAsk::default() },
    ];
    for ask in asks {
        let shown = format!("{ask:?}");
        let refused = w.try_as(crate::ask::alice(), Command::CreateStep { job, ask: ask.into() });
        let never = match &refused {
            Err(Refusal::Step(why)) => *why != StepRefusal::Busy,
            Err(Refusal::NodeConfiguration(_)) => true,
            _ => false,
        };
        assert!(never, "{shown}: {refused:?}");
    }
    let wide = StepAsk { cpus_per_task: Some(huge), overcommit: true, ..step(2) };
    assert_eq!(w.step(job, wide).nodes.len(), 2);
}

#[test]
fn an_allocation_ends_as_its_holder_says() {
    let table = [(0, JobState::Completed), (4, JobState::Failed)];
    for (code, state) in table {
        let mut w = world(1);
        let job = w.started(ask().interactive()).job;
        w.run(Command::Relinquish { job, exit: exited(code) });
        w.end(job, 0);
        assert_eq!((w.is(job), w.records[0].exit), (state, exited(code)));
    }
    let mut w = world(1);
    let running = w.started(ask().interactive()).job;
    let waiting = w.submit(ask().interactive().cpus(8));
    for job in [running, waiting] {
        w.run(Command::HolderLost { job });
    }
    w.end(running, 0);
    assert_eq!((w.is(running), w.is(waiting)), (JobState::Cancelled, JobState::Cancelled));
}

#[test]
fn an_srun_that_found_no_server_to_say_so_has_ended_as_its_step_did() {
    let not_launched = ExitStatus { code: 0, signal: 53 };
    let table = [
        (exited(0), JobState::Completed, exited(0)),
        (exited(6), JobState::Failed, exited(6)),
        // As for the loss of its `srun`, of which the server may hear last.
        (killed(), JobState::Cancelled, exited(0)),
        (not_launched, JobState::Cancelled, exited(0)),
    ];
    for (exit, state, shown) in table {
        let mut w = world(1);
        let of_srun = |spec: &mut JobSpec| {
            Arc::make_mut(&mut spec.launch).first_step = Some(Box::new(BlobRef([0; 32])));
        };
        let attempt = w.started(ask().interactive().with(of_srun));
        let step = w.step(attempt.job, StepAsk::default()).step;
        assert_eq!(w.job(attempt.job).finished_step(), None, "it runs");
        let usage = Usage::default();
        w.report("n1", attempt, PartReport::StepEnded { step, exit, usage, oom: false });
        w.run(Command::HolderLost { job: attempt.job });
        w.end(attempt.job, 0);
        assert_eq!((w.is(attempt.job), w.records[0].exit), (state, shown), "{exit}");
    }
}

#[test]
fn a_part_that_runs_out_before_the_limit_ends_the_whole_job() {
    let mut w = world(2);
    let limited = || ask().nodes(2).cpus(8).asking(|r| r.time_limit = Some(TimeLimit::Minutes(10)));
    let attempt = w.started(limited());
    // A node that is not the script's has used up its CPU time.
    w.report("n2", attempt, over(killed(), false, true, false));
    assert_eq!(w.is(attempt.job), JobState::Completing);
    let why = |w: &World| w.job(attempt.job).attempt().and_then(|a| a.ending);
    assert_eq!(why(&w).expect("it ends").cause, EndCause::CpuTimeExhausted);
    w.report("n1", attempt, over(killed(), false, false, false));
    assert_eq!(w.is(attempt.job), JobState::Timeout);
    // At the limit of time each node ends by itself, and nobody is told a second time.
    let attempt = w.started(limited());
    w.pass(600);
    w.report("n2", attempt, over(killed(), false, true, false));
    assert_eq!(w.is(attempt.job), JobState::Running);
    w.report("n1", attempt, over(killed(), false, true, false));
    assert_eq!(w.is(attempt.job), JobState::Timeout);
}

#[test]
fn nodes_are_ready_one_by_one_where_somebody_waits_for_them() {
    let set = |config: &mut ClusterConfig| {
        config.site.prolog = vec!["/bin/p".into()];
        config.site.prolog_at_allocation = true;
        config.site.defer_batch = true;
    };
    let mut w = world_with(2, set);
    let preparing = |w: &World, attempt: AttemptId| -> Vec<String> {
        w.job(attempt.job).attempt().expect("it runs").prolog_nodes.clone()
    };
    for kind in [Ask::interactive as fn(Ask) -> Ask, |ask| ask] {
        let attempt = w.started(kind(ask()).nodes(2));
        assert_eq!(preparing(&w, attempt), ["n1", "n2"]);
        w.report("n2", attempt, PartReport::Started);
        w.report("n2", attempt, PartReport::Started);
        assert_eq!(preparing(&w, attempt), ["n1"]);
        w.restart();
        assert_eq!(preparing(&w, attempt), ["n1"], "it is in the journal");
        w.report("n1", attempt, PartReport::Started);
        assert!(preparing(&w, attempt).is_empty());
    }
    let alone = w.started(ask());
    assert!(
        preparing(&w, alone).is_empty(),
        "on one node the script comes after the prolog anyway"
    );
}
