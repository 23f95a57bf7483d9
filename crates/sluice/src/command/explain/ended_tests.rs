//! The text of an end, by the attempts of the books.

use crate::command::explain::testing::{NOW, record};
use ::server::explanation::ended::lines;
use ::server::explanation::lost_nodes::LostNodes;
use ::slurm::output::Moment;
use jiff::tz::TimeZone;
use model::id::StepId;
use model::reason::{LaunchFailure, LaunchFault, Reason};
use model::record::{JobRecord, RecordState, StepRecord};
use model::run::{ExitStatus, LaunchKind, Outcome, Usage};

fn step(number: u32, outcome: Outcome, exit: ExitStatus) -> StepRecord {
    StepRecord {
        id: StepId::Number(number),
        name: "python3".into(),
        state: RecordState::Ended(outcome),
        exit,
        start: NOW,
        end: Some(NOW),
        nodes: vec!["n1".into()],
        cpus: 1,
        tasks: 1,
        usage: Usage::default(),
        submit_line: String::new(),
        cpu_frequency: None,
        container: None,
    }
}

fn said(record: &JobRecord) -> Vec<String> {
    lines(record, &LostNodes::default(), Moment::at(NOW, &TimeZone::UTC))
}

#[test]
fn step_that_ran_out_of_memory_is_told_with_what_to_try() {
    let exit = ExitStatus { code: 3, signal: 0 };
    for (outcome, code) in [(Outcome::Failed, 127), (Outcome::Completed, 0)] {
        let mut ended = record(outcome, (code, 0), Reason::None);
        ended.steps = vec![
            step(0, Outcome::OutOfMemory, ExitStatus::OUT_OF_MEMORY),
            step(1, Outcome::Failed, exit),
            step(2, Outcome::Failed, ExitStatus::NOT_LAUNCHED),
        ];
        let told = said(&ended);
        assert_eq!(
            told[1..4],
            [
                "Step 12.0 (python3) ran out of memory: the kernel killed a process of it at its memory limit.",
                "Step 12.1 (python3) ended with exit code 3.",
                "Step 12.2 (python3) was not started.",
            ]
        );
        let advice =
            "To try: more memory for the step, as with --mem (the job had 1G on each node).";
        assert_eq!(told.last().map(String::as_str), Some(advice), "{told:?}");
        ended.steps.remove(0);
        let told = said(&ended).join(" ");
        assert!(!told.contains("more memory"), "{told}");
    }
}

#[test]
fn job_that_was_put_back_out_of_memory_is_said_to_have_run_out_of_it() {
    let told = said(&record(Outcome::Requeued, (0, 125), Reason::OutOfMemory));
    let cause = "It ran out of memory: the kernel killed a process of it at its memory limit, and was put back into the queue.";
    assert_eq!(told[0], cause);
}

#[test]
fn failed_launch_is_told_with_what_helps_that_kind_of_job() {
    let place = "or name another place (--output, --error, --chdir), and submit it again.";
    let configuration = "on that node or in the configuration, and apply it again.";
    let image = "`srun --container-image=IMAGE true` shows whether a node gets the image.";
    let table = [
        (LaunchFault::Other, LaunchKind::Batch, place),
        (LaunchFault::Other, LaunchKind::Task, configuration),
        (LaunchFault::Container, LaunchKind::Task, image),
    ];
    for (fault, kind, advice) in table {
        let why = LaunchFailure::new(fault, "python: there is no python3.12 here");
        let reason = Reason::NotLaunched(Box::new(why));
        let ended = JobRecord { kind, ..record(Outcome::LaunchFailed, (0, 53), reason) };
        let told = said(&ended);
        assert!(told.last().is_some_and(|last| last.ends_with(advice)), "{told:?}");
    }
}
