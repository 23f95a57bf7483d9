//! Ends an attempt that has reached its limit of CPU time, counted over all its processes on this node.

use super::Attempt;
use crate::supervisor::process::usage;
use crate::wall_clock;
use model::time::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;

impl Attempt {
    /// When the CPU time is to be read next; `None` while the attempt is suspended or ending.
    pub(super) fn cpu_due(&self) -> Option<Timestamp> {
        let counts = !self.suspended && self.emptying.is_none() && !self.hooks.is_after_job();
        self.cpu_limit.as_ref().filter(|_| counts).map(|limit| limit.next_reading())
    }

    pub(super) fn on_cpu_time(&mut self, now: Timestamp) {
        if self.cpu_due().is_none_or(|at| at > now) {
            return;
        }
        let used = self.cpu_used();
        if self.cpu_limit.as_mut().is_some_and(|limit| limit.is_used_up(used, now)) {
            self.end_for_cpu_time(wall_clock::now());
        }
    }

    /// CPU time as the control groups count it. Without them, the sum over ended and living processes.
    fn cpu_used(&self) -> Duration {
        let counted = self.group.consumed();
        if let (Some(user), Some(system)) = (counted.cpu_user_us, counted.cpu_system_us) {
            return Duration::from_micros(user.saturating_add(system));
        }
        let ended = self.reaped.cpu_user_us.saturating_add(self.reaped.cpu_system_us);
        // A group that cannot be read now is read at the next reading.
        let living = usage::cpu_ms(&self.group.pids().unwrap_or_default());
        Duration::from_micros(ended) + Duration::from_millis(living)
    }

    /// Ends the attempt as the time limit does, with SIGXCPU before it, the kernel's signal for such a limit.
    fn end_for_cpu_time(&mut self, now: Timestamp) {
        self.timed_out = true;
        let script = self.leader.as_ref().and_then(|leader| leader.pid).map(|pid| pid.as_raw());
        let tasks = self.steps.iter().flat_map(|step| step.task_pids());
        // Only to processes that handle SIGXCPU: it would kill the others before the SIGTERM that they may handle.
        for pid in script.into_iter().chain(tasks).filter(|pid| usage::handles(*pid, libc::SIGXCPU))
        {
            // A child of this process that is not reaped yet: its pid cannot have been reused.
            let _ = kill(Pid::from_raw(pid), Signal::SIGXCPU);
        }
        let grace = Duration::from_secs(u64::from(self.record.launch.kill_wait_s));
        let notices = self.record.launch.notices.clone();
        let (words, of_step) = (&notices.cpu_time_limit, &notices.step_cpu_time_limit);
        self.begin_end(words, of_step, now + grace, now);
    }
}
