//! Programs that `srun` runs around its step, where it is and as its user: its own options', else the site's.

use super::caller::complain;
use crate::connect::Client;
use ::slurm::option::Command;
use ::slurm::option::JobOptions;
use model::id::{JobId, StepId};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use std::os::unix::process::CommandExt;
use std::process;
use wire::client::{Answer, Call};
use wire::step::SrunPrograms;

/// How long one question waits for the job's start.
const WAIT_MS: u64 = 30_000;

/// What is to be run: an option wins over the site's, and `none` over both.
pub fn chosen(options: &JobOptions, site: &SrunPrograms) -> SrunPrograms {
    let choose = |own: &Option<String>, site: &Option<String>| {
        own.clone().or_else(|| site.clone()).filter(|program| program != "none")
    };
    SrunPrograms {
        prolog: choose(&options.step.prolog, &site.prolog),
        epilog: choose(&options.step.epilog, &site.epilog),
    }
}

/// Waits until the job has started or will not any more; whether it has.
pub fn await_start(client: &mut Client, job: JobId) -> bool {
    loop {
        match client.call(Call::AwaitStart { job, timeout_ms: WAIT_MS }) {
            Ok(Answer::Start { allocation: Some(_), .. }) => return true,
            Ok(Answer::Start { state, .. }) if !state.is_ended() => {}
            // The step itself says what has become of the job.
            _ => return false,
        }
    }
}

/// Runs one and waits for it. That it fails is said, and is no reason for the step not to run, as in Slurm.
pub fn run(program: Option<&str>, context: &str, job: JobId, step: StepId) {
    let Some(program) = program else { return };
    let mut command = process::Command::new(program);
    command.env("SLURM_SCRIPT_CONTEXT", context);
    command.env("SLURM_JOB_ID", job.to_string()).env("SLURM_STEP_ID", step.to_string());
    let reset = || {
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        Ok(())
    };
    // SAFETY: between fork and exec this makes one call that is safe there.
    unsafe { command.pre_exec(reset) };
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => complain(Command::Srun, &format!("{program}: {status}")),
        Err(error) => complain(Command::Srun, &format!("{program}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_wins_over_the_site_and_none_over_both() {
        let site = SrunPrograms {
            prolog: Some("/site/before".into()),
            epilog: Some("/site/after".into()),
        };
        let mut options = JobOptions::default();
        assert_eq!(chosen(&options, &site), site);
        options.step.prolog = Some("./mine".into());
        options.step.epilog = Some("none".into());
        let own = SrunPrograms { prolog: Some("./mine".into()), epilog: None };
        assert_eq!(chosen(&options, &site), own);
        assert!(chosen(&JobOptions::default(), &SrunPrograms::default()).is_none());
    }
}
