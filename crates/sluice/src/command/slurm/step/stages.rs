//! The lines of `srun -v`, `-vv` and `-vvv`: each stage of the step as it is reached.

use super::link::Peer;
use super::{Step, print_line};
use crate::command::slurm::submit::messages::{DEBUG, DEBUG2};
use ::slurm::words::stage;
use wire::view::JobView;

impl Step {
    /// The job has started.
    pub(super) fn show_allocation(&self, view: &JobView) {
        if let Some(granted) = &view.allocation {
            self.print_from(1, || stage::ready(granted));
            self.print_from(1, || stage::allocated(self.plan.job, granted));
        }
    }

    /// The step is launched on these nodes, and they may be heard from now on.
    pub(super) fn show_launch(&mut self, layout: &[(String, Vec<u32>)]) {
        self.awaits_allocation_lines = false;
        for (node, tasks) in layout {
            self.print_from(1, || stage::launching(&self.plan.name, node, tasks));
        }
    }

    /// A task has started. Its node has a line once all its tasks have.
    pub(super) fn show_started(&self, peer: &Peer, started_here: u64) {
        self.print_from(DEBUG2, || "debug2: received task launch".to_owned());
        if started_here == self.tasks_on(peer).count() as u64 {
            self.print_from(1, || stage::started(&peer.node, started_here));
        }
    }

    /// Tasks have ended; the errors among them are reported after this.
    pub(super) fn show_task_ends(&self) {
        if self.plan.verbose == 0 {
            return;
        }
        for (exit, tasks, completed) in self.ends.unreported_exits() {
            self.print_from(DEBUG2, || "debug2: received task exit".to_owned());
            self.print_from(1, || stage::exited(&self.plan.name, tasks.len(), exit));
            if let Some(line) = completed {
                self.print_from(1, || line);
            }
            for task in tasks.iter() {
                self.print_from(DEBUG, || format!("debug:  task {task} done"));
            }
        }
    }

    /// Prints a line if there are so many `-v`.
    fn print_from(&self, verbose: u32, line: impl FnOnce() -> String) {
        if self.plan.verbose >= verbose {
            print_line(self.command, &line());
        }
    }
}
