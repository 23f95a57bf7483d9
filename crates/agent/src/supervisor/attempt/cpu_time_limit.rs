//! The end of an attempt that has used the CPU time it may, counted over all its processes here.

use super::Attempt;
use crate::supervisor::process::usage;
use crate::wall_clock;
use model::time::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;

impl Attempt {
    /// When its CPU time can be gone; what is suspended uses none.
    pub(super) fn cpu_due(&self) -> Option<Timestamp> {
        let counts = !self.suspended && self.emptying.is_none() && !self.hooks.is_after_job();
        self.cpu_limit.as_ref().filter(|_| counts).map(|limit| limit.look_at())
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

    /// As the groups count it; without them, of what has ended and of what lives.
    fn cpu_used(&self) -> Duration {
        let counted = self.group.consumed();
        if let (Some(user), Some(system)) = (counted.cpu_user_us, counted.cpu_system_us) {
            return Duration::from_micros(user.saturating_add(system));
        }
        let ended = self.reaped.cpu_user_us.saturating_add(self.reaped.cpu_system_us);
        // A group that cannot be read now is read the next time.
        let living = usage::cpu_ms(&self.group.pids().unwrap_or_default());
        Duration::from_micros(ended) + Duration::from_millis(living)
    }

    /// As at the end of the time limit, and with the kernel's own signal of such a limit before it.
    fn end_for_cpu_time(&mut self, now: Timestamp) {
        self.timed_out = true;
        let script = self.leader.as_ref().and_then(|leader| leader.pid).map(|pid| pid.as_raw());
        let tasks = self.steps.iter().flat_map(|step| step.task_pids());
        // To who handles it only: it would kill the others, who have a handler for the SIGTERM that follows.
        for pid in script.into_iter().chain(tasks).filter(|pid| usage::handles(*pid, libc::SIGXCPU))
        {
            // Our own child, not yet reaped: the number cannot have passed to a stranger.
            let _ = kill(Pid::from_raw(pid), Signal::SIGXCPU);
        }
        let grace = Duration::from_secs(u64::from(self.record.launch.kill_wait_s));
        let notices = self.record.launch.notices.clone();
        let (words, of_step) = (&notices.cpu_time_limit, &notices.step_cpu_time_limit);
        self.begin_end(words, of_step, now + grace, now);
    }
}
