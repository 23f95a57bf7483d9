//! The end of a step: its group is killed until it is empty, its last output is sent, and its end is reported.

use super::{Stage, Step};
use crate::supervisor::container;
use crate::supervisor::step::task::Task;
use model::id::StepId;
use model::run::{ExitStatus, Usage};
use nix::unistd::Pid;
use std::time::Instant;
use wire::report::ReportEvent;
use wire::step::StepMessage;

impl Step {
    /// Advances the end. Returns the report once nothing of the step is left. `notice` makes the line about OOM kills.
    pub fn settle(
        &mut self,
        oom_now: impl FnOnce() -> u64,
        notice: impl FnOnce(StepId, u64) -> Option<String>,
        linger_until: Option<Instant>,
    ) -> Option<ReportEvent> {
        self.notice_loss();
        self.give_up_saving();
        if self.stage == Stage::Running
            && self.tasks.iter().all(|t| t.exit.is_some() && t.pid.is_none())
            && self.epilogs.is_empty()
            && self.saver.is_none()
        {
            self.stage = Stage::Emptying;
        }
        if self.stage == Stage::Emptying {
            // The second look is after the kill of what the tasks have left.
            if !self.has_only_holder() && !self.is_empty() && !self.has_only_holder() {
                return None;
            }
            let read_out =
                self.tasks.iter().all(Task::outputs_closed) || self.clients.srun().is_closed();
            let lingers = linger_until.is_none_or(|until| Instant::now() < until);
            if !read_out && lingers {
                return None;
            }
            if !self.is_told {
                self.tell_end(oom_now, notice);
            }
            if !self.is_empty() {
                return None;
            }
            if let Some(group) = self.group.take() {
                // If this fails, the removal of the job's group removes it too.
                let _ = group.remove();
            }
            self.remover = self.begin_removal();
            self.stage = Stage::Removing;
        }
        if self.stage != Stage::Removing || self.remover.is_some() {
            return None;
        }
        self.stage = Stage::Over;
        self.over_since = Some(Instant::now());
        Some(ReportEvent::StepEnded {
            step: self.order.step,
            exit: self.exit(),
            usage: Usage {
                tasks: Some(Box::new(self.used_by_tasks())).filter(|used| used.tasks > 0),
                ..self.usage.clone()
            },
            oom: self.usage.oom_kills > 0,
        })
    }

    /// Gives the frequency of its CPUs back, and tells its clients that nothing follows.
    fn tell_end(
        &mut self,
        oom_now: impl FnOnce() -> u64,
        notice: impl FnOnce(StepId, u64) -> Option<String>,
    ) {
        let oom_kills = self.oom_kills(oom_now);
        self.usage.oom_kills = oom_kills as u32;
        if let Some(frequency) = self.frequency.take() {
            frequency.release();
        }
        if let Some(line) = (oom_kills > 0).then(|| notice(self.order.step, oom_kills)).flatten() {
            // Sent before `Gone`, after which nothing follows.
            self.write_notice(&line);
        }
        self.clients.send_to_all(&StepMessage::Gone);
        self.clients.flush();
        self.is_told = true;
    }

    /// Whether the first process of its container is all that is left. It runs nothing of the user's, and takes the container's
    /// mounts apart as it dies: its clients are told the end before it is killed.
    fn has_only_holder(&self) -> bool {
        let (Some(group), Some(containers)) = (&self.group, &self.containers) else { return false };
        let Ok(pids) = group.pids() else { return false };
        let holder = || container::holder_of(containers, &self.order.step.to_string());
        pids.len() == 1 && pids.first().copied() == holder()
    }

    /// The files of a container that has no name end with its step. One that was saved may have left word of a file that is
    /// to be removed with the user's rights: it goes with the job.
    fn begin_removal(&self) -> Option<Pid> {
        let launch = &self.order.launch;
        let own = launch.container.as_ref();
        let is_kept = launch.joins_script || own.is_some_and(|own| own.save.is_some());
        let containers = self.containers.as_ref().filter(|_| !is_kept)?;
        container::begin_removal(containers, &self.order.step.to_string())
    }

    /// Kills a step that has lost its `srun`.
    fn notice_loss(&mut self) {
        if self.abandoned || !self.clients.srun().is_closed() {
            return;
        }
        self.abandoned = true;
        match self.stage {
            Stage::Dialling | Stage::Awaiting => self.stage = Stage::Emptying,
            Stage::Running => self.kill(),
            Stage::Emptying | Stage::Removing | Stage::Over => {}
        }
    }

    /// Whether its group is empty. Processes that outlived the tasks are killed.
    fn is_empty(&mut self) -> bool {
        let Some(group) = &self.group else { return true };
        if group.is_empty().unwrap_or(false) {
            return true;
        }
        self.kill();
        self.group.as_ref().is_none_or(|group| group.is_empty().unwrap_or(false))
    }

    /// The worst exit of its tasks: a signal is worse than a code, a higher number than a lower.
    fn exit(&self) -> ExitStatus {
        let exits = self.tasks.iter().filter_map(|task| task.exit);
        exits.max_by_key(|exit| (exit.signal, exit.code)).unwrap_or(ExitStatus::NOT_LAUNCHED)
    }
}
