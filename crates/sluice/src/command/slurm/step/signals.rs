//! Signals and deadlines of a step: interrupts, termination that is requested, and termination that is enforced.

use super::{Step, terminal};
use crate::command::slurm::submit::messages::{print_error, print_line};
use model::array::IndexSet;
use std::io;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};
use wire::step::StepMessage;

/// A second interrupt within this time ends the step.
const INTERRUPT_WITHIN: Duration = Duration::from_secs(1);
/// How long nodes may take to end a step.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// How far the early termination of a step has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Abort {
    No,
    /// `-K`: the tasks are terminated, and killed after the grace time.
    Asked,
    /// The tasks are killed.
    Forced,
    /// The nodes have reported it, and the user was told.
    Said,
}

impl Step {
    pub(super) fn on_signal(&mut self, signal: i32) {
        match signal {
            libc::SIGINT => self.on_interrupt(),
            libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => {
                if signal == libc::SIGQUIT {
                    self.print_once("Quit");
                }
                self.force();
            }
            libc::SIGWINCH => {
                if let Some((rows, columns)) = terminal::size() {
                    self.send(&StepMessage::Resize { rows, columns });
                }
            }
            // Slurm's srun does not pass it on.
            libc::SIGALRM => {}
            other => self.send(&StepMessage::Signal { signal: other }),
        }
    }

    /// One interrupt prints the tasks' states. A second one within a second is sent to the tasks and ends them. Before
    /// tasks have started, the first one ends `srun`.
    fn on_interrupt(&mut self) {
        if !self.has_begun() {
            return self.force();
        }
        let again = self.interrupted.is_some_and(|at| at.elapsed() < INTERRUPT_WITHIN);
        self.interrupted = Some(Instant::now());
        if !again && !self.plan.disable_status && !self.plan.quit_on_interrupt {
            self.print_once("interrupt (one more within 1 sec to abort)");
            return self.report_tasks();
        }
        if self.abort >= Abort::Forced {
            return;
        }
        self.print_once(&format!("sending Ctrl-C to StepId={}", self.plan.name));
        // The interrupt and the end go out in one piece. A task that ended on the interrupt alone would end the step first.
        let interrupt = StepMessage::Signal { signal: libc::SIGINT };
        self.links.iter_mut().for_each(|(link, _)| link.queue(&interrupt));
        if again || self.plan.quit_on_interrupt {
            // The user asked for the end, so the tasks' exits are not reported.
            self.hides_task_ends = true;
            self.force();
        } else {
            self.links.iter_mut().for_each(|(link, _)| link.flush());
        }
    }

    /// Prints which tasks are running and which have exited.
    pub(super) fn report_tasks(&self) {
        let started: IndexSet = self.links.iter().flat_map(|(_, tasks)| tasks.iter()).collect();
        let (exited, running): (Vec<u32>, Vec<u32>) =
            started.iter().partition(|task| self.ends.has(*task));
        for (tasks, state) in [(running, "running"), (exited, "exited")] {
            let tasks: IndexSet = tasks.into_iter().collect();
            let noun = if tasks.len() == 1 { "task" } else { "tasks" };
            if !tasks.is_empty() {
                let list = tasks.range_text();
                self.print_unless_quiet(&format!(
                    "StepId={} {noun} {list}: {state}",
                    self.plan.name
                ));
            }
        }
    }

    /// Ends the step at once.
    fn force(&mut self) {
        if !self.has_begun() {
            let job = self.plan.job;
            self.print_once(&format!("Job allocation {job} has been revoked"));
            self.print_once(&format!("Force Terminated JobId={job}"));
            self.over = true;
            return;
        }
        if self.abort < Abort::Forced {
            self.print_once("forcing job termination");
        }
        self.kill();
    }

    fn kill(&mut self) {
        self.send(&StepMessage::End { at_once: true });
        self.abort = self.abort.max(Abort::Forced);
        self.give_up_at = self.give_up_at.or(Some(Instant::now() + END_TIMEOUT));
    }

    /// `-K`: a task has failed, and the others are terminated.
    pub(super) fn terminate_rest(&mut self) {
        if self.abort > Abort::No {
            return;
        }
        self.report_task_ends();
        self.print_unless_quiet(&format!(
            "launch/slurm: _step_signal: Terminating StepId={}",
            self.plan.name
        ));
        self.send(&StepMessage::End { at_once: false });
        self.abort = Abort::Asked;
    }

    /// A node ends the step, because it was cancelled or has reached its time limit.
    pub(super) fn on_ending(&mut self, wait_s: u32) {
        if matches!(self.abort, Abort::Asked | Abort::Said) {
            return;
        }
        self.abort = Abort::Said;
        self.print_unless_quiet(&format!(
            "Job step aborted: Waiting up to {wait_s} seconds for job step to finish."
        ));
        self.give_up_at = Some(Instant::now() + Duration::from_secs(u64::from(wait_s)));
    }

    /// The first task has ended. Starts the time that `-W` or the configuration gives the others.
    pub(super) fn begin_wait(&mut self) -> io::Result<()> {
        match self.plan.wait {
            Some(wait) => self.set_wait(wait),
            None => self.wait_asked = Some(self.streams.ask_wait_time()?),
        }
        Ok(())
    }

    fn set_wait(&mut self, wait: Duration) {
        self.plan.wait = Some(wait);
        self.wait_asked = None;
        self.terminate_at = self.first_end.filter(|_| !wait.is_zero()).map(|first| first + wait);
    }

    fn receive_wait(&mut self) {
        match self.wait_asked.as_ref().map(Receiver::try_recv) {
            Some(Ok(wait)) => self.set_wait(wait),
            Some(Err(TryRecvError::Disconnected)) => self.wait_asked = None,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
    }

    /// The time of `-W` has passed since the first task ended.
    fn on_waited(&mut self, since: Duration) {
        if self.abort > Abort::No {
            return;
        }
        self.report_waited(since);
        self.report_tasks();
        self.end_waited();
    }

    pub(super) fn report_waited(&self, since: Duration) {
        self.print_unless_quiet(&format!("First task exited {}s ago", since.as_secs()));
    }

    pub(super) fn end_waited(&mut self) {
        if self.abort > Abort::No {
            return;
        }
        self.print_unless_quiet(&format!(
            "launch/slurm: _step_signal: Terminating StepId={}",
            self.plan.name
        ));
        self.kill();
    }

    /// Prints a line that is printed once for all components.
    fn print_once(&self, line: &str) {
        if self.is_leader() {
            self.print_unless_quiet(line);
        }
    }

    pub(super) fn on_deadlines(&mut self) {
        let passed = |deadline: Option<Instant>| deadline.is_some_and(|at| Instant::now() >= at);
        if passed(self.report_at) {
            self.report_task_ends();
        }
        self.receive_wait();
        if passed(self.terminate_at) {
            self.terminate_at = None;
            self.on_waited(self.plan.wait.unwrap_or_default());
        }
        if passed(self.give_up_at) {
            if self.job_ended.is_none() {
                print_error(self.command, "Timed out waiting for job step to complete");
            }
            self.over = true;
        }
        for (link, _) in &mut self.links {
            if link.is_overdue() {
                link.close();
            }
        }
    }

    /// The last line of a step whose tasks were killed or terminated, unless this `srun` did it.
    pub(super) fn report_terminated(&self) {
        let forced = matches!(self.ends.worst().signal, libc::SIGKILL | libc::SIGTERM);
        let quiet = self.plan.quiet || self.abort >= Abort::Forced;
        if forced && !quiet {
            print_line(self.command, &format!("Force Terminated StepId={}", self.plan.name));
        }
    }
}
