//! `srun --prolog` and `--epilog`, or the site's `SrunProlog` and `SrunEpilog`: programs that `srun` runs on its own host, as
//! its user, before and after the step.

use crate::command::slurm::submit::messages::print_error;
use ::slurm::option::Command;
use ::slurm::option::JobOptions;
use model::id::{JobId, StepId};
use model::os_text;
use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process;
use wire::step::SrunPrologEpilog;

/// The programs to run: an option wins over the site's, and `none` over both.
pub fn chosen(options: &JobOptions, site: &SrunPrologEpilog) -> SrunPrologEpilog {
    let choose = |own: &Option<String>, site: &Option<String>| {
        own.clone().or_else(|| site.clone()).filter(|program| program != "none")
    };
    SrunPrologEpilog {
        prolog: choose(&options.step.prolog, &site.prolog),
        epilog: choose(&options.step.epilog, &site.epilog),
        mpi: site.mpi.clone(),
    }
}

/// A program that is ready to be started.
pub struct Program {
    path: String,
    command: process::Command,
}

impl Program {
    pub fn new(path: Option<&str>, context: &str, job: JobId, step: StepId) -> Option<Self> {
        let path = path?.to_owned();
        let mut command = process::Command::new(os_text::to_os(&path));
        command.env("SLURM_SCRIPT_CONTEXT", context);
        command.env("SLURM_JOB_ID", job.to_string()).env("SLURM_STEP_ID", step.to_string());
        let reset = || {
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
            Ok(())
        };
        // SAFETY: between fork and exec this makes one call that is safe there.
        unsafe { command.pre_exec(reset) };
        Some(Self { path, command })
    }

    /// Runs it and waits for it. A failure is reported and has no other effect, as in Slurm.
    pub fn run(mut self) {
        report_failure(&self.path, self.command.status());
    }

    /// Starts it. `None` if it cannot be started, which has been reported.
    pub fn start(mut self) -> Option<Running> {
        let started = self.command.spawn().and_then(|mut child| match watch(&child) {
            Ok(watch) => Ok((child, watch)),
            Err(error) => {
                end(&mut child);
                Err(error)
            }
        });
        match started {
            Ok((child, watch)) => Some(Running { path: self.path, child, watch, ended: false }),
            Err(error) => {
                report_failure(&self.path, Err(error));
                None
            }
        }
    }
}

/// A running program. Its descriptor is readable once it has ended. It is killed if this is dropped before.
pub struct Running {
    path: String,
    child: process::Child,
    watch: OwnedFd,
    ended: bool,
}

impl Running {
    pub fn finish(mut self) {
        self.ended = true;
        report_failure(&self.path, self.child.wait());
    }
}

impl AsFd for Running {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            end(&mut self.child);
        }
    }
}

fn watch(child: &process::Child) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and touches no memory of ours.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) })?;
    // SAFETY: the kernel has just given it to us, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn end(child: &mut process::Child) {
    // It may have ended by itself.
    let _ = child.kill().and_then(|()| child.wait());
}

fn report_failure(path: &str, ended: io::Result<process::ExitStatus>) {
    match ended {
        Ok(status) if status.success() => {}
        Ok(status) => print_error(Command::Srun, &format!("{path}: {status}")),
        Err(error) => print_error(Command::Srun, &format!("{path}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_overrides_the_sites_program_and_none_overrides_both() {
        let site = SrunPrologEpilog {
            prolog: Some("/site/before".into()),
            epilog: Some("/site/after".into()),
            mpi: None,
        };
        let mut options = JobOptions::default();
        assert_eq!(chosen(&options, &site), site);
        options.step.prolog = Some("./mine".into());
        options.step.epilog = Some("none".into());
        let own = SrunPrologEpilog { prolog: Some("./mine".into()), ..Default::default() };
        assert_eq!(chosen(&options, &site), own);
        assert!(chosen(&JobOptions::default(), &SrunPrologEpilog::default()).is_none());
    }
}
