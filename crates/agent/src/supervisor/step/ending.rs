//! The end of a step: its group is emptied, its last bytes are passed on, and its exit is that of its worst task.

use super::{NOT_LAUNCHED, Stage, Step};
use crate::supervisor::step::task::Task;
use model::id::StepId;
use model::run::{ExitStatus, Usage};
use std::time::Instant;
use wire::report::ReportEvent;
use wire::step::StepMessage;

impl Step {
    /// Moves the end on; gives the report when nothing of the step is left. `notice` words the kernel's kills.
    pub fn settle(
        &mut self,
        oom_now: impl FnOnce() -> u64,
        notice: impl FnOnce(StepId, u64) -> Option<String>,
        linger_until: Option<Instant>,
    ) -> Option<ReportEvent> {
        self.notice_loss();
        if self.stage == Stage::Running
            && self.tasks.iter().all(|t| t.exit.is_some() && t.pid.is_none())
            && self.epilogs.is_empty()
        {
            self.stage = Stage::Emptying;
        }
        if self.stage != Stage::Emptying || !self.is_empty() {
            return None;
        }
        let read_out =
            self.tasks.iter().all(Task::outputs_closed) || self.clients.srun().is_closed();
        let patient = linger_until.is_none_or(|until| Instant::now() < until);
        if !read_out && patient {
            return None;
        }
        let oom_kills = self.oom_kills(oom_now);
        self.usage.oom_kills = oom_kills as u32;
        if let Some(group) = self.group.take() {
            // Empty, so the kernel lets go of it at once; the job's own removal would take it along.
            let _ = group.remove();
        }
        if let Some(line) = (oom_kills > 0).then(|| notice(self.order.step, oom_kills)).flatten() {
            // Before the word that nothing follows.
            self.write_notice(&line);
        }
        self.clients.tell(&StepMessage::Gone);
        self.clients.flush();
        self.stage = Stage::Over;
        self.over_since = Some(Instant::now());
        let step = self.order.step;
        Some(ReportEvent::StepEnded {
            step,
            exit: self.exit(),
            usage: Usage {
                tasks: Some(Box::new(self.used_by_tasks())).filter(|used| used.tasks > 0),
                ..self.usage.clone()
            },
            oom: oom_kills > 0,
        })
    }

    /// Without its `srun` a step has nobody to run for.
    fn notice_loss(&mut self) {
        if self.abandoned || !self.clients.srun().is_closed() {
            return;
        }
        self.abandoned = true;
        match self.stage {
            Stage::Dialling | Stage::Awaiting => self.stage = Stage::Emptying,
            Stage::Running => self.kill(),
            Stage::Emptying | Stage::Over => {}
        }
    }

    /// Whether its group is empty; what outlived the tasks is killed.
    fn is_empty(&mut self) -> bool {
        let Some(group) = &self.group else { return true };
        if group.is_empty().unwrap_or(false) {
            return true;
        }
        self.kill();
        self.group.as_ref().is_none_or(|group| group.is_empty().unwrap_or(false))
    }

    /// The worst of its tasks: a signal before a code, the higher before the lower.
    fn exit(&self) -> ExitStatus {
        let exits = self.tasks.iter().filter_map(|task| task.exit);
        exits.max_by_key(|exit| (exit.signal, exit.code)).unwrap_or(NOT_LAUNCHED)
    }
}
