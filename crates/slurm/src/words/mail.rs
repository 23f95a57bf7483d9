//! The subject of a mail about a job, in the form of Slurm's, which users' filters and sites' mail programs read.

use super::job;
use model::id::JobId;
use model::printable::printable;
use model::run::{ExitStatus, JobState};
use model::time::format_elapsed_full;

/// Whom a mail is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailJob {
    Job(JobId),
    Task {
        array: JobId,
        index: u32,
        job: JobId,
    },
    /// All tasks of the array together.
    Array(JobId),
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailEvent {
    Began {
        queued_s: u64,
    },
    Ended {
        failed: bool,
        run_s: u64,
        state: JobState,
        exit: ExitStatus,
    },
    /// No state: the tasks ended in different ones.
    ArrayEnded {
        failed: bool,
        state: Option<JobState>,
        code_min: i32,
        code_max: i32,
    },
    Requeued {
        run_s: u64,
    },
    TimeLimitReached,
    /// This many per cent of the time limit are over.
    TimeLimitNear(u32),
    InvalidDependency,
}

/// `Slurm Job_id=12 Name=train Began, Queued time 00:00:03`
pub fn subject(about: MailJob, name: &str, event: MailEvent) -> String {
    let name = printable(name);
    let (about, whole) = match about {
        MailJob::Job(id) => (format!("Slurm Job_id={id}"), false),
        MailJob::Task { array, index, job } => {
            (format!("Slurm Array Task Job_id={array}_{index} ({job})"), false)
        }
        MailJob::Array(id) => (format!("Slurm Array Summary Job_id={id}_* ({id})"), true),
    };
    let verb = |failed: bool| if failed { "Failed" } else { "Ended" };
    let what = match event {
        MailEvent::Began { .. } if whole => "Began".to_owned(),
        MailEvent::Began { queued_s } => {
            format!("Began, Queued time {}", format_elapsed_full(queued_s))
        }
        MailEvent::Ended { failed, run_s, state, exit } => {
            let (run, state) = (format_elapsed_full(run_s), job::long(state));
            format!("{}, Run time {run}, {state}, ExitCode {}", verb(failed), exit.code)
        }
        MailEvent::ArrayEnded { failed, state, code_min, code_max } => {
            let state = state.map_or("Mixed", job::long);
            format!("{}, {state}, ExitCode [{code_min}-{code_max}]", verb(failed))
        }
        MailEvent::Requeued { .. } if whole => "Requeued".to_owned(),
        MailEvent::Requeued { run_s } => {
            format!("Requeued, Run time {}", format_elapsed_full(run_s))
        }
        MailEvent::TimeLimitReached => "Reached time limit".to_owned(),
        MailEvent::TimeLimitNear(percent) => format!("Reached {percent}% of time limit"),
        MailEvent::InvalidDependency => "Invalid dependency".to_owned(),
    };
    format!("{about} Name={name} {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As mails of a real Slurm have them.
    #[test]
    fn subjects_have_slurms_form_and_stay_one_line() {
        let exit = ExitStatus { code: 2, signal: 0 };
        let task = MailJob::Task { array: JobId(12), index: 3, job: JobId(15) };
        let array = MailJob::Array(JobId(12));
        for (about, event, expected) in [
            (
                MailJob::Job(JobId(12)),
                MailEvent::Began { queued_s: 3 },
                "Slurm Job_id=12 Name=a Began, Queued time 00:00:03",
            ),
            (
                MailJob::Job(JobId(12)),
                MailEvent::Ended { failed: true, run_s: 90_061, state: JobState::Failed, exit },
                "Slurm Job_id=12 Name=a Failed, Run time 1-01:01:01, FAILED, ExitCode 2",
            ),
            (
                task,
                MailEvent::Ended {
                    failed: false,
                    run_s: 1,
                    state: JobState::Completed,
                    exit: ExitStatus::default(),
                },
                "Slurm Array Task Job_id=12_3 (15) Name=a Ended, Run time 00:00:01, COMPLETED, ExitCode 0",
            ),
            (
                array,
                MailEvent::Began { queued_s: 3 },
                "Slurm Array Summary Job_id=12_* (12) Name=a Began",
            ),
            (
                array,
                MailEvent::ArrayEnded { failed: true, state: None, code_min: 0, code_max: 2 },
                "Slurm Array Summary Job_id=12_* (12) Name=a Failed, Mixed, ExitCode [0-2]",
            ),
            (
                MailJob::Job(JobId(12)),
                MailEvent::TimeLimitNear(80),
                "Slurm Job_id=12 Name=a Reached 80% of time limit",
            ),
        ] {
            assert_eq!(subject(about, "a", event), expected);
        }
        let forged = subject(array, "a\nBcc: x", MailEvent::InvalidDependency);
        assert!(!forged.contains('\n'), "{forged}");
    }
}
