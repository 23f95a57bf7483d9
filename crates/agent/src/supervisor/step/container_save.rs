//! Saves a step's container when its tasks have ended: a process of the step that waits in the container until then. The
//! step ends after it, and fails if it fails.

use super::Step;
use super::step_container::StepContainer;
use crate::supervisor::container::{ContainerSpec, SAVE, remove_partial, save_path};
use crate::supervisor::job_context::JobContext;
use crate::supervisor::process::binding::ProcessBinding;
use crate::supervisor::process::pipe::{pipe, set_nonblocking};
use crate::supervisor::process::reap::EndedChild;
use crate::supervisor::process::spawn::{Argv0, ProcessSpec, Stream, spawn};
use model::run::ExitStatus;
use nix::unistd::{Pid, write};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use wire::order::UserIds;
use wire::step::StepMessage;

/// What the process is told: to save the container, or anything else to end.
const GIVE_UP: &[u8; 1] = b"-";
/// The exit of a step whose container could not be saved.
const NOT_SAVED: ExitStatus = ExitStatus { code: 1, signal: 0 };
/// As much as a pipe holds. There is more only while a process of the user's goes on writing.
const WORDS_BYTES_MAX: u64 = 64 << 10;
/// The number of this process among those in the container, which the tasks count from 0.
const PROCESS: u32 = u32::MAX;

/// The process that saves the container.
pub(super) struct Saver {
    pid: Pid,
    /// Where it saves the container to, and as whom.
    path: PathBuf,
    user: UserIds,
    /// Where it is told that the tasks have ended.
    begin: Option<OwnedFd>,
    /// What it says about its failure.
    words: File,
    /// The exit of the task that ended last, which the client gets when the container is saved.
    held: Option<HeldExit>,
}

struct HeldExit {
    task: usize,
    exit: ExitStatus,
    oom: bool,
}

impl Step {
    /// Starts the process if the step asks for it.
    pub(super) fn start_saver(&mut self, job: JobContext) -> Result<(), String> {
        let own = self.order.launch.container.as_deref();
        let Some(path) = own.and_then(|own| own.save.as_deref()) else { return Ok(()) };
        let chosen = StepContainer::of(job.record, &self.order.launch)
            .ok_or("cannot save the container: the step has none")?;
        let failed = |e: nix::errno::Errno| format!("cannot save the container: {}", e.desc());
        let (record, launch) = (job.record, &self.order.launch);
        let user = &record.launch.user;
        let group = self.group.as_ref().ok_or("the step has no group")?;
        let entry = group.entry_fds().map_err(|e| e.to_string())?;
        let (begun, begin) = pipe(user).map_err(failed)?;
        let (words, said) = pipe(user).map_err(failed)?;
        set_nonblocking(&words).map_err(failed)?;
        let (step, request) = (self.order.step.to_string(), &*chosen.request);
        let container = ContainerSpec {
            process: PROCESS,
            work_dir: &launch.work_dir,
            image_dir: chosen.image_dir,
            umask: launch.umask,
            save: Some(path),
            ..ContainerSpec::of_job(job, request, &step, group, chosen.auth)?
        };
        let spec = ProcessSpec {
            user,
            argv: Vec::new(),
            argv0: Argv0::AsGiven,
            environment: launch.environment.split('\0').map(str::to_owned).collect(),
            pid_variables: Vec::new(),
            work_dir: &launch.work_dir,
            umask: launch.umask,
            rlimits: launch.rlimits.as_ref().unwrap_or(&record.launch.rlimits),
            limits: Some(&record.limits),
            lines: &[],
            nice: self.order.nice,
            hold: ProcessBinding::default(),
            streams: [Stream::Fd(begun), Stream::Null, Stream::Fd(said)],
            terminal: false,
            namespaces: job.folders.namespaces.as_ref(),
            login: None,
            prologs: Vec::new(),
            workspace: None,
            container: Some(container),
            entry: &entry,
            notices: &record.launch.notices,
        };
        let pid = spawn(spec).map_err(failed)?.pid;
        self.saver = Some(Saver {
            pid,
            path: save_path(&launch.work_dir, path),
            user: user.clone(),
            begin: Some(begin),
            words: words.into(),
            held: None,
        });
        Ok(())
    }

    /// Keeps back the exit of the last task while the container is saved. Returns whether it was kept.
    pub(super) fn hold_exit(&mut self, task: usize, exit: ExitStatus, oom: bool) -> bool {
        let others = self.tasks.iter().enumerate().filter(|(at, _)| *at != task);
        let is_last = others.into_iter().all(|(_, one)| one.exit.is_some() && one.pid.is_none());
        let Some(saver) = self.saver.as_mut().filter(|_| is_last) else { return false };
        saver.held = Some(HeldExit { task, exit, oom });
        saver.tell(SAVE);
        true
    }

    /// Ends the process if all tasks have ended and none of them left an exit to keep back.
    pub(super) fn give_up_saving(&mut self) {
        let over = self.tasks.iter().all(|task| task.exit.is_some() && task.pid.is_none());
        if let Some(saver) = self.saver.as_mut().filter(|saver| over && saver.held.is_none()) {
            saver.tell(GIVE_UP);
        }
    }

    /// Handles the end of the process that saves the container. Returns whether it was that.
    pub(super) fn on_saver_ended(&mut self, dead: &EndedChild) -> bool {
        let Some(saver) = self.saver.take_if(|saver| saver.pid == dead.pid) else {
            return false;
        };
        if dead.exit != ExitStatus::default() {
            self.not_saved = true;
            if dead.exit.signal > 0 {
                remove_partial(saver.pid, &saver.path, &saver.user);
            }
            let unsaid =
                saver.held.as_ref().map(|_| "sluice: the container was not saved".to_owned());
            // Where the container could not be made, the tasks say so.
            if let Some(line) = last_line(&saver.words).or(unsaid) {
                self.write_notice(&line);
            }
        }
        if let Some(HeldExit { task, exit, oom }) = saver.held {
            self.tell_exit(task, exit, oom);
        }
        true
    }

    /// Notes the exit of a task, and tells the clients. Once the container could not be saved, no task that is told succeeds:
    /// that is the one that ended last, and all of them if the container could not be made.
    pub(super) fn tell_exit(&mut self, index: usize, exit: ExitStatus, oom: bool) {
        let fails = self.not_saved && exit == ExitStatus::default();
        let exit = if fails { NOT_SAVED } else { exit };
        let task = &mut self.tasks[index];
        task.exit = Some(exit);
        let rank = task.rank;
        self.clients.send_to_all(&StepMessage::Exited { task: rank, exit, oom });
        self.clients.flush();
    }
}

/// The last line of what was said. The pipe does not block, and who goes on writing into it is not waited for.
fn last_line(words: impl Read) -> Option<String> {
    let mut said = Vec::new();
    let _ = words.take(WORDS_BYTES_MAX).read_to_end(&mut said);
    String::from_utf8_lossy(&said).lines().last().map(str::to_owned)
}

impl Saver {
    fn tell(&mut self, word: &[u8; 1]) {
        if let Some(begin) = self.begin.take() {
            // The end of a process that is gone already is reaped next.
            let _ = write(begin, word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_without_an_end_are_read_up_to_a_bound() {
        let line = last_line(std::io::repeat(b'x')).expect("a line");
        assert_eq!(line.len() as u64, WORDS_BYTES_MAX);
        assert_eq!(last_line(&b"first\nno \xff space\n"[..]).as_deref(), Some("no \u{fffd} space"));
        assert_eq!(last_line(&b""[..]), None);
    }
}
