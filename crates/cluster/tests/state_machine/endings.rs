//! How attempts end: outcomes, exit codes, steps, and reports that come twice, late or from elsewhere.

use crate::job_builder::{Ask, ask, bob};
use crate::testbed::{World, cancel, ended, exited, killed, over, world, world_with};
use cluster::books::record_of;
use cluster::command::{AttemptReport, StepRequest};
use cluster::{ClusterConfig, Command, Event};
use model::amount::Bytes;
use model::attempt::EndCause;
use model::change::{JobChange, JobField, JobRef};
use model::container::{Container, NO_CONTAINER};
use model::id::{AttemptId, BlobRef, StepId};
use model::range::Range;
use model::reason::{LaunchFault, Reason, Refusal};
use model::record::RecordState;
use model::request::Memory;
use model::run::{ExitStatus, JobSpec, JobState, Outcome, Retry, StartupOrder, Usage};
use model::step::StepRefusal;
use model::time::TimeLimit;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn last_report_decides_the_outcome() {
    let launch_failed = || AttemptReport::LaunchFailed {
        what: "no such user".into(),
        fault: LaunchFault::Other,
        unfit: None,
        hold: false,
        user: None,
    };
    let table = [
        (ended(0), Outcome::Completed, "0:0", Reason::None),
        (ended(3), Outcome::Failed, "3:0", Reason::NonZeroExit),
        (over(killed(), false, false, false), Outcome::Failed, "0:9", Reason::NonZeroExit),
        (over(killed(), true, false, false), Outcome::OutOfMemory, "0:125", Reason::OutOfMemory),
        (over(exited(15), false, true, false), Outcome::Timeout, "0:0", Reason::TimeLimit),
        (over(killed(), false, false, true), Outcome::NodeFail, "0:0", Reason::NodeFail),
        (AttemptReport::Missing, Outcome::NodeFail, "0:0", Reason::NodeFail),
        (
            launch_failed(),
            Outcome::LaunchFailed,
            "0:53",
            Reason::NotLaunched(Box::new("no such user".to_owned().into())),
        ),
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
        // The books have the script as the job's own record has it: 0:53 beside 0:53.
        let batch = record.steps.first().map(|s| (s.state, s.exit));
        let ended_step = end.steps.first().expect("the script");
        let step_outcome = ended_step.end.as_ref().expect("it has ended").outcome;
        assert_eq!(batch, Some((RecordState::Ended(step_outcome), ended_step.exit)), "{report:?}");
        if outcome == Outcome::LaunchFailed {
            assert_eq!((step_outcome, ended_step.exit), (Outcome::Cancelled { by: 0 }, end.exit));
        }
    }
}

#[test]
fn run_whose_gpus_are_idle_ends_with_the_reason_and_is_not_retried() {
    let mut w = world(1);
    let retry = |spec: &mut JobSpec| {
        let duration_s = None;
        spec.retry = Some(Box::new(Retry {
            on_error: true,
            on_interruption: true,
            on_no_capacity: true,
            duration_s,
            attempts_max: None,
        }));
    };
    let attempt = w.started(ask().task().with(retry));
    let other = AttemptId { number: attempt.number + 1, ..attempt };
    w.run(Command::EndByPolicy { attempt: other, cause: EndCause::GpusUnderused });
    assert!(w.job(attempt.job).attempt().expect("it runs").ending.is_none(), "of another attempt");
    w.run(Command::EndByPolicy { attempt, cause: EndCause::GpusUnderused });
    w.run(Command::EndByPolicy { attempt, cause: EndCause::GpusUnderused });
    w.report("n1", attempt, over(killed(), false, false, false));
    let end = w.job(attempt.job).ended().expect("it has ended");
    assert_eq!((end.outcome, &end.reason), (Outcome::Cancelled { by: 0 }, &Reason::GpusUnderused));
    assert_eq!(w.records[0].reason, Reason::GpusUnderused);
}

#[test]
fn cancelled_job_is_recorded_with_its_canceller_and_not_our_signal() {
    let mut w = world(1);
    let attempt = w.started(ask().of(bob()));
    w.cancel_as(bob(), &[JobRef::whole(attempt.job)]);
    assert_eq!(w.is(attempt.job), JobState::Completing);
    w.report("n1", attempt, over(killed(), false, false, false));
    let end = w.job(attempt.job).ended().expect("it has ended");
    assert_eq!((end.outcome, end.exit), (Outcome::Cancelled { by: 1001 }, ExitStatus::default()));
}

#[test]
fn first_decided_end_is_not_overwritten() {
    let mut w = world(1);
    let attempt = w.started(ask());
    let script = AttemptReport::ScriptEnded { exit: exited(2), oom: false, timed_out: false };
    w.report("n1", attempt, script.clone());
    w.report("n1", attempt, script);
    w.cancel(&[JobRef::whole(attempt.job)]);
    w.report("n1", attempt, ended(0));
    let end = w.job(attempt.job).ended().expect("it has ended");
    assert_eq!((end.outcome, end.exit), (Outcome::Failed, exited(2)));
}

#[test]
fn epilog_time_after_the_scripts_end_is_not_the_jobs() {
    let mut w = world(1);
    let attempt = w.started(ask());
    w.pass(20);
    let script = AttemptReport::ScriptEnded { exit: exited(0), oom: false, timed_out: false };
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
fn repeated_late_or_foreign_reports_change_nothing() {
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
    w.report("n1", attempt, AttemptReport::Missing);
    assert!(w.state == after);
    assert_eq!(w.records.len(), 1);
}

#[test]
fn batch_job_ends_with_its_first_node_and_frees_the_others_as_they_report() {
    let mut w = world(2);
    let attempt = w.started(ask().nodes(2).cpus(8));
    let script = AttemptReport::ScriptEnded { exit: exited(0), oom: false, timed_out: false };
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
fn task_on_several_nodes_completes_with_the_last_and_fails_with_the_first() {
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
fn lost_attempt_on_one_node_ends_the_job_as_node_fail() {
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

fn step(tasks: u32) -> StepRequest {
    StepRequest { name: "hostname".into(), tasks: Some(tasks), ..StepRequest::default() }
}

fn step_ended(step: StepId, code: i32) -> AttemptReport {
    AttemptReport::StepEnded { step, exit: exited(code), usage: Usage::default(), oom: false }
}

#[test]
fn step_ends_with_its_last_node_and_gives_the_derived_exit_code() {
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
fn record_of_a_job_out_of_memory_has_the_limit_that_is_not_what_was_granted() {
    let mut w = world(1);
    let of = |mib: u64| {
        let memory = Memory::PerNode(Range::exactly(Bytes::from_mib(mib)));
        ask().asking(|request| request.memory = memory)
    };
    // No limit is below `MinRAMSpace`, 30 MiB.
    for (granted, oom, limit) in [(20, true, Some(30)), (20, false, None), (64, true, None)] {
        let attempt = w.started(of(granted));
        w.report("n1", attempt, over(killed(), oom, false, false));
        let record = w.records.last().expect("its record");
        assert_eq!(record.memory_limit, limit.map(Bytes::from_mib), "{granted} {oom}");
    }
}

#[test]
fn record_names_the_first_of_several_nodes_that_failed() {
    let mut w = world(2);
    let script_ended = AttemptReport::ScriptEnded { exit: exited(3), oom: false, timed_out: false };
    // The processes that a script leaves behind may outlive the parts that end because of it.
    for decides in [script_ended, ended(3)] {
        let attempt = w.started(ask().task().nodes(2).cpus(1));
        w.report("n2", attempt, decides);
        w.report("n1", attempt, over(killed(), false, false, false));
        if w.job(attempt.job).attempt().is_some() {
            w.report("n2", attempt, ended(3));
        }
        let record = w.records.last().expect("its record");
        assert_eq!(record.failed_node.as_deref(), Some("n2"));
    }
    let one = w.started(ask().task().nodes(2).cpus(1));
    w.report("n1", one, ended(0));
    w.report("n2", one, ended(5));
    assert_eq!(w.records.last().and_then(|record| record.failed_node.as_deref()), Some("n2"));
    for (job, code) in [(ask().task(), 3), (ask().task().nodes(2).cpus(1), 0)] {
        let job = w.started(job).job;
        w.end(job, code);
        assert_eq!(w.records.last().map(|record| record.failed_node.clone()), Some(None));
    }
}

#[test]
fn record_has_the_kinds_of_the_gpus_of_its_nodes() {
    let mut w = world(3);
    let job = w.started(ask().nodes(2).cpus(1).gpus(1)).job;
    w.end(job, 0);
    let record = w.records.last().expect("its record");
    let [of_nodes] = &record.gpus[..] else { panic!("{:?}", record.gpus) };
    assert_eq!(of_nodes.nodes, "n[1-2]");
    assert_eq!(of_nodes.kinds, [("h100".to_owned(), 1)]);
    let job = w.started(ask().cpus(1)).job;
    w.end(job, 0);
    assert!(w.records.last().is_some_and(|record| record.gpus.is_empty()));
}

#[test]
fn record_has_the_image_of_each_step_and_of_the_step_that_a_job_was_made_for() {
    let image = |image: &str| Some(image.to_owned());
    let with = |image: Option<String>| StepRequest { image, ..step(1) };
    let mut w = world(1);
    let container = Container { image: image("debian"), ..Container::default() };
    let script = w.started(ask().with(|spec| {
        Arc::make_mut(&mut spec.launch).container = Some(Box::new(container));
    }));
    for own in [None, image("alpine"), image(NO_CONTAINER)] {
        let placed = w.step(script.job, with(own));
        w.report("n1", script, step_ended(placed.step, 0));
    }
    let record = record_of(&w.state, script.job, None);
    let steps: Vec<_> = record.steps.iter().map(|step| step.container.as_deref()).collect();
    assert_eq!(record.container.as_deref(), Some("debian"));
    assert_eq!(steps, [Some("debian"), Some("debian"), Some("alpine"), None]);
    // An allocation is shown without the images of its steps, the job of a lone `srun` with that of its own.
    for (first_step, expected) in [(None, None), (Some(BlobRef([7; 32])), Some("alpine"))] {
        let made = w.started(ask().interactive().with(|spec| {
            Arc::make_mut(&mut spec.launch).first_step = first_step.map(Box::new);
        }));
        w.step(made.job, with(image("alpine")));
        let record = record_of(&w.state, made.job, None);
        assert_eq!(record.steps[0].container.as_deref(), Some("alpine"));
        assert_eq!(record.container.as_deref(), expected);
    }
}

#[test]
fn steps_that_do_not_fit_are_refused_without_overflow() {
    let mut w = world(2);
    let job = w.started(ask().nodes(2).cpus(2)).job;
    let huge = u32::MAX;
    let asks = [
        StepRequest { tasks: Some(5), ..StepRequest::default() },
        StepRequest { nodes: Some(3), ..StepRequest::default() },
        StepRequest { nodes: Some(0), ..StepRequest::default() },
        StepRequest { tasks_per_node: Some(huge), ..StepRequest::default() },
        StepRequest { tasks: Some(huge), overcommit: true, ..StepRequest::default() },
        StepRequest { node_list: vec!["n9".into()], ..StepRequest::default() },
    ];
    for ask in asks {
        let shown = format!("{ask:?}");
        let refused =
            w.try_as(crate::job_builder::alice(), Command::CreateStep { job, ask: ask.into() });
        let never = match &refused {
            Err(Refusal::Step(why)) => *why != StepRefusal::Busy,
            Err(Refusal::NodeConfiguration(_)) => true,
            _ => false,
        };
        assert!(never, "{shown}: {refused:?}");
    }
    let wide = StepRequest { cpus_per_task: Some(huge), overcommit: true, ..step(2) };
    assert_eq!(w.step(job, wide).nodes.len(), 2);
}

#[test]
fn allocation_ends_with_the_exit_of_its_client() {
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
        w.run(Command::ClientLost { job });
    }
    w.end(running, 0);
    assert_eq!((w.is(running), w.is(waiting)), (JobState::Cancelled, JobState::Cancelled));
}

#[test]
fn lost_srun_whose_step_had_ended_ends_its_job_as_the_step() {
    let not_launched = ExitStatus { code: 0, signal: 53 };
    let table = [
        (exited(0), JobState::Completed, exited(0)),
        (exited(6), JobState::Failed, exited(6)),
        // The same holds for the loss of its `srun`, which the server may learn last.
        (killed(), JobState::Cancelled, exited(0)),
        (not_launched, JobState::Cancelled, exited(0)),
    ];
    for (exit, state, shown) in table {
        let mut w = world(1);
        let of_srun = |spec: &mut JobSpec| {
            Arc::make_mut(&mut spec.launch).first_step = Some(Box::new(BlobRef([0; 32])));
        };
        let attempt = w.started(ask().interactive().with(of_srun));
        let step = w.step(attempt.job, StepRequest::default()).step;
        assert_eq!(w.job(attempt.job).finished_step(), None, "it runs");
        let usage = Usage::default();
        w.report("n1", attempt, AttemptReport::StepEnded { step, exit, usage, oom: false });
        w.run(Command::ClientLost { job: attempt.job });
        w.end(attempt.job, 0);
        assert_eq!((w.is(attempt.job), w.records[0].exit), (state, shown), "{exit}");
    }
}

#[test]
fn cpu_time_exhausted_on_one_node_ends_the_job() {
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
fn prolog_ends_node_by_node_where_it_is_awaited() {
    let set = |config: &mut ClusterConfig| {
        config.site.prolog = vec!["/bin/p".into()];
        config.site.prolog_at_allocation = true;
        config.site.defer_batch = true;
    };
    let mut w = world_with(2, set);
    let preparing = |w: &World, attempt: AttemptId| -> Vec<String> {
        w.job(attempt.job).attempt().expect("it runs").preparing_nodes.clone()
    };
    for kind in [Ask::interactive as fn(Ask) -> Ask, |ask| ask] {
        let attempt = w.started(kind(ask()).nodes(2));
        assert_eq!(preparing(&w, attempt), ["n1", "n2"]);
        w.report("n2", attempt, AttemptReport::Started);
        w.report("n2", attempt, AttemptReport::Started);
        assert_eq!(preparing(&w, attempt), ["n1"]);
        w.restart();
        assert_eq!(preparing(&w, attempt), ["n1"], "it is in the journal");
        w.report("n1", attempt, AttemptReport::Started);
        assert!(preparing(&w, attempt).is_empty());
    }
    let alone = w.started(ask());
    assert!(
        preparing(&w, alone).is_empty(),
        "on one node the script comes after the prolog anyway"
    );
}

#[test]
fn pull_of_a_runs_image_does_not_count_towards_its_max_duration() {
    const HOUR_S: u64 = 3600;
    const PULL_MAX_S: u64 = 1800;
    let image = |spec: &mut JobSpec| {
        Arc::make_mut(&mut spec.launch).container = Some(Box::default());
    };
    let max_duration = |spec: &mut JobSpec| {
        Arc::make_mut(&mut spec.launch).limit_s = Some(HOUR_S as u32);
    };
    let length_s = |w: &World, attempt: AttemptId| {
        let active = w.job(attempt.job).attempt().expect("it runs");
        active.end_limit.expect("a limit").since(active.start).as_secs()
    };
    let mut w = world(2);
    let attempt = w.started(ask().task().nodes(2).with(image).with(max_duration));
    assert_eq!(length_s(&w, attempt), HOUR_S + PULL_MAX_S, "as long as a pull may take");
    w.pass(100);
    w.report("n1", attempt, AttemptReport::Started);
    assert_eq!(length_s(&w, attempt), HOUR_S + PULL_MAX_S, "the other node has no image yet");
    w.pass(200);
    w.report("n2", attempt, AttemptReport::Started);
    w.report("n2", attempt, AttemptReport::Started);
    assert_eq!(length_s(&w, attempt), HOUR_S + 300);
    let shorter = JobChange::Fields(vec![JobField::TimeLimit(TimeLimit::Minutes(10))]);
    w.change(attempt.job, shorter).expect("root may");
    assert_eq!(length_s(&w, attempt), 600 + 300, "another limit leaves the pull out too");
    w.restart();
    assert_eq!(length_s(&w, attempt), 600 + 300, "it is in the journal");

    let run = || ask().task().with(image).with(max_duration);
    let mut w = world(1);
    let attempt = w.started(run());
    w.pass(PULL_MAX_S + 400);
    w.report("n1", attempt, AttemptReport::Started);
    assert_eq!(length_s(&w, attempt), HOUR_S + PULL_MAX_S, "what is longer counts");
    let mut w = world(1);
    let attempt = w.started(run());
    let (node, at) = ("n1".into(), w.now + Duration::from_secs(9000));
    w.run(Command::Report { node, attempt, at, what: AttemptReport::Started });
    assert_eq!(length_s(&w, attempt), HOUR_S, "a clock that is ahead gains nothing");
    for other in [ask().task().with(max_duration), ask().task().with(image), ask()] {
        let mut w = world(1);
        let attempt = w.started(other);
        assert_eq!(length_s(&w, attempt), HOUR_S, "no image, or no max_duration");
    }
}

fn ordered(order: StartupOrder, ends_with_first_node: bool) -> Ask {
    ask().task().nodes(2).with(|spec| {
        let launch = Arc::make_mut(&mut spec.launch);
        (launch.startup_order, launch.ends_with_first_node) = (order, ends_with_first_node);
    })
}

#[test]
fn nodes_that_start_first_are_awaited() {
    let mut w = world(2);
    for (order, first) in [
        (StartupOrder::Any, &[][..]),
        (StartupOrder::MasterFirst, &["n1"]),
        (StartupOrder::WorkersFirst, &["n2"]),
    ] {
        let attempt = w.started(ordered(order, false));
        let awaited =
            |w: &World| w.job(attempt.job).attempt().expect("it runs").preparing_nodes.clone();
        assert_eq!(awaited(&w), first, "{order:?}");
        for node in first {
            w.report(node, attempt, AttemptReport::Started);
        }
        assert!(awaited(&w).is_empty());
        w.restart();
        for node in ["n1", "n2"] {
            w.report(node, attempt, ended(0));
        }
        assert_eq!(w.is(attempt.job), JobState::Completed);
    }
    let alone = w.started(ordered(StartupOrder::WorkersFirst, false).nodes(1));
    assert!(w.job(alone.job).attempt().expect("it runs").preparing_nodes.is_empty());
}

#[test]
fn task_is_done_with_its_first_node_where_it_says_so() {
    let done = || AttemptReport::ScriptEnded { exit: exited(0), oom: false, timed_out: false };
    let ending =
        |w: &World, attempt: AttemptId| w.job(attempt.job).attempt().and_then(|a| a.ending);
    for (ends_with_first, first_to_end, ends) in
        [(true, "n1", true), (true, "n2", false), (false, "n1", false)]
    {
        let mut w = world(2);
        let attempt = w.started(ordered(StartupOrder::Any, ends_with_first));
        w.report(first_to_end, attempt, done());
        assert_eq!(ending(&w, attempt).is_some(), ends, "{ends_with_first} {first_to_end}");
        let (one, other) = if first_to_end == "n1" { ("n1", "n2") } else { ("n2", "n1") };
        w.report(one, attempt, ended(0));
        assert_eq!(w.is(attempt.job) == JobState::Completing, ends);
        // Killed by the end of the first, or ended by itself.
        w.report(other, attempt, if ends { over(killed(), false, false, false) } else { ended(0) });
        assert_eq!(w.is(attempt.job), JobState::Completed);
        let record = w.job(attempt.job).ended().expect("it ended");
        assert_eq!(record.exit, exited(0), "the kill of a worker is not the run's exit");
    }
    let mut w = world(2);
    let attempt = w.started(ordered(StartupOrder::Any, true));
    w.report("n1", attempt, ended(3));
    w.report("n2", attempt, over(killed(), false, false, false));
    assert_eq!(w.is(attempt.job), JobState::Failed);
}

#[test]
fn run_that_is_killed_while_it_stops_is_aborted() {
    for (is_aborted, expected) in [(true, Reason::Aborted), (false, Reason::None)] {
        let mut w = world(1);
        let attempt = w.started(ask().task());
        let jobs = [JobRef::whole(attempt.job)];
        let kill = || {
            let Command::Cancel(mut cancel) = cancel(&jobs) else { panic!("no cancel") };
            (cancel.signal, cancel.full) = (Some(9), true);
            Command::Cancel(cancel)
        };
        // A kill alone is no abort: the run was not told to stop.
        w.run(kill());
        assert_eq!(w.is(attempt.job), JobState::Running);
        w.run(cancel(&jobs));
        if is_aborted {
            w.run(kill());
        }
        w.restart();
        w.end(attempt.job, 0);
        let ended = w.job(attempt.job).ended().expect("it has ended");
        assert!(matches!(ended.outcome, Outcome::Cancelled { .. }));
        assert_eq!(ended.reason, expected);
    }
}

/// A job on many nodes has a share of each: they are one list in memory, and not one for each that speaks of the job.
#[test]
fn start_run_and_end_of_a_job_share_one_allocation() {
    let mut w = world(2);
    let attempt = w.started(ask().nodes(2));
    let started = w.events.iter().find_map(|event| match event {
        Event::Started(started) => Some(started.allocation.clone()),
        _ => None,
    });
    let started = started.expect("it started");
    let active = w.job(attempt.job).attempt().expect("it runs");
    assert!(Arc::ptr_eq(&started, &active.allocation));
    w.end(attempt.job, 0);
    let end = w.job(attempt.job).ended().expect("it has ended");
    assert!(end.allocation.as_ref().is_some_and(|held| Arc::ptr_eq(&started, held)));
}
