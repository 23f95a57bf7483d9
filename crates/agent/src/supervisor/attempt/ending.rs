//! The end of an attempt: its group is emptied, its last words are said, and nothing of it is left.

use super::{Attempt, oom_kills};
use crate::supervisor::notice;
use crate::supervisor::step::Step;
use crate::wall_clock;
use model::run::{ExitStatus, Usage};
use std::time::{Duration, Instant};
use wire::report::{AttemptEnd, ReportEvent};

/// How long the end of the job waits for an `srun` to take its last bytes.
const LINGER: Duration = Duration::from_millis(500);
/// The pause between two kills of a group that does not empty: what is stuck in the kernel needs its time.
const KILL_PAUSE: Duration = Duration::from_millis(500);

/// Nothing new is started any more; the attempt is over when its group is empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Emptying {
    /// Kill now, or first let the grace pass.
    kill: bool,
    killed_at: Option<Instant>,
    linger_until: Instant,
    told: bool,
}

impl Attempt {
    /// From here on the attempt only waits for its group to be empty.
    pub(super) fn empty(&mut self, kill: bool) {
        let linger_until = Instant::now() + LINGER;
        let emptying = self.emptying.get_or_insert(Emptying {
            kill,
            killed_at: None,
            linger_until,
            told: false,
        });
        if kill && !emptying.kill {
            *emptying = Emptying { kill, linger_until, ..*emptying };
        }
    }

    /// Whether something is waited for that no descriptor tells of.
    pub fn needs_tick(&self) -> bool {
        let group = self.emptying.is_some_and(|emptying| emptying.kill || self.watch.is_none());
        group || self.steps.iter().any(Step::is_ending)
    }

    pub fn is_over(&self) -> bool {
        self.over
    }

    pub fn on_group_event(&mut self) {
        if let Some(watch) = &self.watch {
            // Reading arms the watch again; what it says is looked at in `settle`.
            let _ = watch.is_empty();
        }
    }

    /// Draws the conclusions of a round: steps that have ended, and the end of it all.
    pub fn settle(&mut self) {
        self.settle_steps();
        self.settle_end();
        self.control.flush();
    }

    fn settle_steps(&mut self) {
        let linger_until = self.emptying.filter(|e| e.kill).map(|e| e.linger_until);
        for step in &mut self.steps {
            if self.emptying.is_some() {
                step.give_up_dialling();
            }
            let (group, record) = (&self.group, &self.record);
            let words = &record.launch.notices.out_of_memory;
            let line = |id, count| notice::fill(words, record, id, count, wall_clock::now());
            if let Some(event) = step.settle(|| oom_kills(group), line, linger_until) {
                if let ReportEvent::StepEnded { usage, .. } = &event {
                    self.oom_of_steps += u64::from(usage.oom_kills);
                }
                self.control.tell(event);
            }
            step.flush();
        }
        let patient = linger_until.is_none_or(|until| Instant::now() < until);
        self.steps.retain(|step| !step.is_over() || (patient && !step.is_told()));
    }

    fn settle_end(&mut self) {
        let Some(mut emptying) = self.emptying else { return };
        let empty = self.group.is_empty().unwrap_or(false);
        if !empty && emptying.kill {
            self.tell_script_ended(&mut emptying);
            if emptying.killed_at.is_none_or(|at| at.elapsed() >= KILL_PAUSE) {
                emptying.killed_at = Some(Instant::now());
                // A kill that fails is tried again: the attempt does not end before its group is empty.
                let _ = self.group.kill();
            }
        }
        self.emptying = Some(emptying);
        let reaped = self.leader.as_ref().is_none_or(|leader| leader.pid.is_none());
        if empty && reaped && self.steps.is_empty() {
            self.finish();
        }
    }

    /// The job's other nodes need not wait until what is stuck here has died.
    fn tell_script_ended(&mut self, emptying: &mut Emptying) {
        if emptying.told || self.launch_failed.is_some() || emptying.killed_at.is_none() {
            return;
        }
        emptying.told = true;
        let oom = self.oom_kills() > self.oom_of_steps;
        let (exit, timed_out) = (self.exit(), self.timed_out);
        self.control.tell(ReportEvent::ScriptEnded { exit, oom, timed_out });
        // Should this process die before the group is empty, the exit is known all the same.
        let _ = self.dir.write_status(&self.control.status());
    }

    fn exit(&self) -> ExitStatus {
        let own = self.leader.as_ref().and_then(|leader| leader.exit);
        self.ordered_exit.or(own).unwrap_or_default()
    }

    fn finish(&mut self) {
        let usage = self.usage();
        let oom = u64::from(usage.oom_kills) > self.oom_of_steps;
        if oom {
            let words = self.record.launch.notices.out_of_memory.clone();
            let count = u64::from(usage.oom_kills) - self.oom_of_steps;
            self.write_notice(&words, count, wall_clock::now());
        }
        let event = match self.launch_failed.take() {
            Some(what) => ReportEvent::LaunchFailed { what, unfit: None },
            None => ReportEvent::Ended(AttemptEnd {
                exit: self.exit(),
                usage,
                oom,
                timed_out: self.timed_out,
                supervisor_lost: false,
            }),
        };
        // An empty group that the kernel will not give up is found again by the next agent.
        let _ = self.group.remove();
        self.control.tell(event);
        // Whoever is connected is told; whoever is not reads this. The agent takes either.
        let _ = self.dir.write_status(&self.control.status());
        self.over = true;
    }

    fn usage(&self) -> Usage {
        let counted = self.group.usage().unwrap_or_default();
        Usage {
            cpu_user_us: counted.cpu_user_us.unwrap_or(self.reaped.cpu_user_us),
            cpu_system_us: counted.cpu_system_us.unwrap_or(self.reaped.cpu_system_us),
            memory_peak_bytes: counted.memory_peak_bytes.unwrap_or(self.reaped.memory_peak_bytes),
            oom_kills: counted.oom_kills.unwrap_or(0) as u32,
        }
    }
}
