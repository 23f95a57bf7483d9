//! Events of the job that a step is in, and the outcome of the step.

use super::{DRAIN_TIMEOUT, Step, StepOutcome};
use crate::command::slurm::submit::job_watch::JobEvent;
use crate::command::slurm::submit::messages::print_error;
use crate::command::slurm::submit::wait_line;
use ::slurm::words::{note, refusal};
use model::reason::Reason;
use model::run::{ExitStatus, Outcome};
use std::io;
use std::time::Instant;
use wire::view::JobView;

impl Step {
    pub(super) fn on_job_event(&mut self, event: JobEvent) -> io::Result<()> {
        let job = self.plan.job;
        if !matches!(event, JobEvent::Queued | JobEvent::Waits(_)) {
            self.awaits_allocation_lines = false;
        }
        match event {
            JobEvent::Queued => {
                (self.queued, self.awaits_allocation_lines) = (true, true);
                self.print_unless_quiet(&format!("job {job} queued and waiting for resources"));
            }
            JobEvent::Waits(wait) => wait_line::show(self.command, job, &wait),
            JobEvent::Started(view) => {
                wait_line::clear();
                if self.queued {
                    self.print_unless_quiet(&format!("job {job} has been allocated resources"));
                }
                self.show_allocation(&view);
                self.on_granted()?;
                if self.plan.tasks.is_none() {
                    self.expect(tasks_of(&view))?;
                }
                match view.steps.first() {
                    Some(step) => {
                        self.show_launch(&step.layout);
                        self.expect_nodes(&step.layout);
                    }
                    None => (self.is_refused, self.over) = (true, true),
                }
                self.lose_tasks_of_broken_links()?;
            }
            JobEvent::Ended { exit, outcome, reason } => {
                self.job_ended = Some((exit, outcome, reason));
                self.give_up_at = Some(Instant::now() + DRAIN_TIMEOUT);
            }
            // While tasks run, their supervisors report. Without tasks there is nothing to wait for.
            JobEvent::Refused(why) if self.started == 0 => self.abandon(&refusal::text(&why)),
            JobEvent::Unreachable(why) if self.started == 0 => self.abandon(&why.in_slurms_words()),
            JobEvent::Ready | JobEvent::Refused(_) | JobEvent::Unreachable(_) => {}
        }
        Ok(())
    }

    fn abandon(&mut self, why: &str) {
        print_error(self.command, &format!("{}: {why}", self.command.refusal_prefix()));
        self.over = true;
    }

    pub(super) fn outcome(&self) -> StepOutcome {
        let job_ended = self.job_ended.is_some();
        let is_refused = self.is_refused;
        if self.listener.is_none() {
            let code = self.ends.exit_code();
            return StepOutcome { code, exit: self.ends.worst(), job_ended, is_refused };
        }
        if self.all_ended() {
            self.report_terminated();
            return StepOutcome {
                code: self.ends.code(),
                exit: self.ends.worst(),
                job_ended,
                is_refused,
            };
        }
        if let Some((_, outcome, reason)) = &self.job_ended {
            self.report_job_ended(*outcome, reason);
        }
        let code = self.ends.code().max(1);
        StepOutcome {
            code,
            exit: ExitStatus { code: i32::from(code), signal: 0 },
            job_ended,
            is_refused,
        }
    }

    /// Reports that the job ended before the step.
    fn report_job_ended(&self, outcome: Option<Outcome>, reason: &Reason) {
        let unable = self.command.refusal_prefix();
        match outcome {
            Some(Outcome::NoCapacity) => {
                print_error(self.command, &format!("{unable}: Requested nodes are busy"));
            }
            Some(Outcome::Cancelled { .. }) if !self.granted => {
                self.print_unless_quiet("Job has been cancelled");
                let words = "Job/step already completing or completed";
                print_error(self.command, &format!("{unable}: {words}"));
            }
            _ => {
                let job = self.plan.job;
                print_error(self.command, &format!("Job allocation {job} has been revoked"));
                if let Some(why) = note::launch_failure(reason) {
                    self.print_unless_quiet(&format!("note: {why}"));
                }
            }
        }
    }
}

/// The number of tasks of the step that started with the job.
fn tasks_of(view: &JobView) -> u32 {
    let step = view.steps.first().map(|step| step.tasks);
    let allocated = view.allocation.as_ref().map(|allocation| allocation.task_count());
    step.or(allocated).unwrap_or(view.tasks).max(1)
}
