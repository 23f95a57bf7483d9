//! What signals and deadlines do to a step: interrupts, ends that are asked for, and ends that are enforced.

use super::{Step, terminal};
use crate::command::slurm::caller::say;
use ::slurm::option::Command;
use std::time::{Duration, Instant};
use wire::step::StepMessage;

/// A second interrupt within this time ends the step.
const INTERRUPT_WITHIN: Duration = Duration::from_secs(1);
/// Between asking the tasks to end and killing them; then as long again until they are given up.
const KILL_AFTER: Duration = Duration::from_secs(30);

impl Step {
    pub(super) fn on_signal(&mut self, signal: i32) {
        match signal {
            libc::SIGINT => self.on_interrupt(),
            libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => {
                say(Command::Srun, "forcing job termination");
                self.terminate();
            }
            libc::SIGWINCH => {
                if let Some((rows, columns)) = terminal::size() {
                    self.send(&StepMessage::Resize { rows, columns });
                }
            }
            other => self.send(&StepMessage::Signal { signal: other }),
        }
    }

    /// Once: to the tasks. Twice within a second: the end of them. Before there are tasks: the end of the waiting.
    fn on_interrupt(&mut self) {
        if self.started == 0 {
            say(Command::Srun, &format!("Job allocation {} has been revoked", self.plan.job));
            self.over = true;
            return;
        }
        if self.interrupted.is_some_and(|at| at.elapsed() < INTERRUPT_WITHIN) {
            say(Command::Srun, "forcing job termination");
            self.kill();
            return;
        }
        self.interrupted = Some(Instant::now());
        self.tell(&format!("sending Ctrl-C to StepId={}", self.plan.name));
        self.send(&StepMessage::Signal { signal: libc::SIGINT });
    }

    pub(super) fn terminate(&mut self) {
        if self.started == 0 {
            self.over = true;
            return;
        }
        self.send(&StepMessage::Signal { signal: libc::SIGCONT });
        self.send(&StepMessage::Signal { signal: libc::SIGTERM });
        self.kill_at = Some(Instant::now() + KILL_AFTER);
    }

    fn kill(&mut self) {
        self.send(&StepMessage::Signal { signal: libc::SIGKILL });
        self.kill_at = None;
        self.give_up_at = self.give_up_at.or(Some(Instant::now() + KILL_AFTER));
    }

    pub(super) fn on_deadlines(&mut self) {
        let passed = |deadline: Option<Instant>| deadline.is_some_and(|at| Instant::now() >= at);
        if passed(self.terminate_at) && self.kill_at.is_none() && self.give_up_at.is_none() {
            self.terminate();
        }
        if passed(self.kill_at) {
            self.kill();
        }
        if passed(self.give_up_at) {
            self.over = true;
        }
        for (link, _) in &mut self.links {
            if link.is_overdue() {
                link.close();
            }
        }
    }
}
