//! `srun --bcast`: the program is copied to the nodes of the job first, and the copy is run.

use super::step_create::ENDING_SIGNALS;
use super::{COMMAND, RunError, StepRequest, print_error, report};
use crate::client::Client;
use crate::command::slurm::sbcast;
use crate::command::slurm::submit::messages::{failure, refused, unexpected};
use model::change::{JobFilter, JobRef};
use model::id::JobId;
use model::os_text;
use model::reason::Reason;
use nix::sys::signalfd::SignalFd;
use nix::unistd::{AccessFlags, access};
use std::path::Path;
use wire::client::{Answer, Call, Cancel};

/// How long one request waits for the nodes; signals are looked for in between.
const AWAIT_MS: u64 = 500;

impl StepRequest<'_> {
    /// Copies the program to every node of the job. Returns the command line with the copy.
    pub(super) fn copy_program(
        &self,
        client: &mut Client,
        job: JobId,
        to: &str,
    ) -> Result<Vec<String>, RunError> {
        let work_dir = self.submitter.work_dir.as_str();
        let path = std::env::var("PATH").unwrap_or_default();
        let Some(source) = find_program(&self.argv[0], &path) else {
            let text = format!("--bcast: {}: No such file or directory", self.argv[0]);
            return Err(report(&[text]));
        };
        let destination = absolute(&destination(to, job), work_dir);
        match sbcast::copy_file(client, job, self.submitter, &source, &destination) {
            Ok(true) => {}
            // The nodes have said why.
            Ok(false) => return Err(RunError::Reported(failure())),
            Err(error) => {
                let text = error.to_string();
                let text = text.strip_prefix("sbcast: error: ").unwrap_or(&text);
                return Err(report(&[format!("--bcast: {text}")]));
            }
        }
        let mut argv = self.argv.to_vec();
        argv[0] = destination;
        Ok(argv)
    }

    /// Waits until the job has its nodes, and their prologs are over. A signal cancels it.
    pub(super) fn await_nodes(
        &self,
        client: &mut Client,
        job: JobId,
        signals: &SignalFd,
    ) -> Result<(), RunError> {
        loop {
            while let Ok(Some(signal)) = signals.read_signal() {
                if ENDING_SIGNALS.contains(&(signal.ssi_signo as i32)) {
                    let filter =
                        JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() };
                    let cancel =
                        Cancel { filter, step: None, signal: None, batch_only: false, full: false };
                    client.call(Call::Cancel(cancel))?;
                    return Err(report(&[format!("Job allocation {job} has been revoked")]));
                }
            }
            let ask = Call::AwaitStart { job, timeout_ms: AWAIT_MS, ready: true };
            match client.call_again(ask)? {
                Answer::Start { state, .. } if state.is_ended() => {
                    return Err(report(&[format!("Job allocation {job} has been revoked")]));
                }
                Answer::Start { allocation: Some(_), reason, .. } if reason != Reason::Prolog => {
                    return Ok(());
                }
                Answer::Start { .. } => {}
                Answer::Refused(why) => return Err(RunError::Reported(refused(COMMAND, &why))),
                other => return Err(RunError::Reported(unexpected(COMMAND, &other))),
            }
        }
    }
}

/// Refuses what cannot be copied; `components` is how many the command line has.
pub(super) fn check(request: &StepRequest<'_>, components: usize) -> Result<(), RunError> {
    let why = match request.options.step.bcast {
        Some(_) if request.options.step.multi_prog => "not together with --multi-prog",
        Some(_) if components > 1 => "not in several components: copy the program with sbcast",
        _ => return Ok(()),
    };
    print_error(COMMAND, &format!("--bcast: {why}"));
    Err(RunError::Reported(failure()))
}

/// The file of a command: as it is named with a `/` in it, else the first in the folders of `PATH` that can be executed.
fn find_program(name: &str, path: &str) -> Option<String> {
    if name.contains('/') {
        return Some(name.to_owned());
    }
    let is_program = |file: &String| {
        let file = os_text::to_os(file);
        Path::new(&*file).is_file() && access(&*file, AccessFlags::X_OK).is_ok()
    };
    path.split(':').map(|folder| format!("{folder}/{name}")).find(is_program)
}

/// Without a path, or with a folder, the copy has a name of its own there.
fn destination(to: &str, job: JobId) -> String {
    if to.is_empty() || to.ends_with('/') {
        format!("{to}slurm_bcast_{job}.{}", std::process::id())
    } else {
        to.to_owned()
    }
}

fn absolute(path: &str, work_dir: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{}/{path}", work_dir.trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_by_its_path_or_in_the_folders_of_path() {
        assert_eq!(find_program("./a", "/bin").as_deref(), Some("./a"));
        assert!(find_program("sh", "/nowhere:/bin").is_some_and(|file| file == "/bin/sh"));
        assert_eq!(find_program("no-such-program", "/bin"), None);
    }

    #[test]
    fn copy_has_the_path_that_is_asked_for_or_a_name_of_its_own() {
        let job = JobId(7);
        let own = format!("slurm_bcast_7.{}", std::process::id());
        assert_eq!(destination("", job), own);
        assert_eq!(destination("/tmp/", job), format!("/tmp/{own}"));
        assert_eq!(destination("/tmp/a.out", job), "/tmp/a.out");
        assert_eq!(absolute("a.out", "/home/ann/"), "/home/ann/a.out");
        assert_eq!(absolute("/tmp/a.out", "/home/ann"), "/tmp/a.out");
    }
}
