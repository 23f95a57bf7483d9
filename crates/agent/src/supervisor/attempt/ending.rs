//! The end of an attempt: its group is emptied, its last words are said, and nothing of it is left.

use super::{Attempt, own_kills};
use crate::cgroup::{CgroupError, signal_listed};
use crate::supervisor::notice;
use crate::supervisor::process::descendants;
use crate::supervisor::step::Step;
use crate::wall_clock;
use model::run::{ExitStatus, Usage};
use model::usage::{CpuTime, TaskUsage};
use nix::sys::signal::Signal;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use wire::report::{AttemptEnd, ReportEvent};

/// How long the end of the job waits for an `srun` to take its last bytes.
const LINGER: Duration = Duration::from_millis(500);
/// The pause between two kills of a group that does not empty: what is stuck in the kernel needs its time.
const KILL_PAUSE: Duration = Duration::from_millis(500);

/// How long a group may take to empty before it is looked at less often.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// The longest sleep while something is emptying that no descriptor tells of.
const EMPTYING_TICK: Duration = Duration::from_millis(20);
/// Why a node is drained on which a process cannot be killed.
const UNKILLABLE: &str = "Kill task failed";

/// Nothing new is started any more; the attempt is over when its group is empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Emptying {
    /// Kill now, or first let the grace pass.
    kill: bool,
    /// The first kill, and the last.
    first_kill: Option<Instant>,
    killed_at: Option<Instant>,
    /// The node was told of what cannot be killed.
    unkillable: bool,
    linger_until: Instant,
    told: bool,
}

impl Attempt {
    /// From here on the attempt only waits for its group to be empty.
    pub(super) fn empty(&mut self, kill: bool) {
        let linger_until = Instant::now() + LINGER;
        let emptying = self.emptying.get_or_insert(Emptying {
            kill,
            first_kill: None,
            killed_at: None,
            unkillable: false,
            linger_until,
            told: false,
        });
        if kill && !emptying.kill {
            *emptying = Emptying { kill, linger_until, ..*emptying };
        }
    }

    /// Nothing of the job is left that could be told anything: it is being killed, or only the site's work goes on.
    pub(super) fn is_past_ending(&self) -> bool {
        self.emptying.is_some_and(|emptying| emptying.kill) || self.hooks.is_after_job()
    }

    /// How soon to look again for what no descriptor tells of; none: nothing such is waited for.
    pub fn tick(&self) -> Option<Duration> {
        let group = self.emptying.filter(|emptying| emptying.kill || self.watch.is_none());
        let of_group = group.map(|emptying| match emptying.first_kill {
            // What a kill does not end at once is stuck, and stays so for a while.
            Some(at) if at.elapsed() > STUCK_AFTER => KILL_PAUSE,
            _ => EMPTYING_TICK,
        });
        let of_steps = self.steps.iter().any(Step::is_ending).then_some(EMPTYING_TICK);
        let of_turn = self.hooks.waits_for_lock().then_some(EMPTYING_TICK);
        of_group.into_iter().chain(of_steps).chain(of_turn).min()
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
                step.give_up_start();
            }
            let (group, record) = (&self.group, &self.record);
            let words = &record.launch.notices.out_of_memory;
            let line = |id, count| notice::fill(words, record, id, count, wall_clock::now());
            if let Some(event) = step.settle(|| own_kills(group), line, linger_until) {
                if let ReportEvent::StepEnded { usage, .. } = &event {
                    let kills = u64::from(usage.oom_kills);
                    self.oom_of_steps += kills;
                    self.oom_shared += if step.shares_memory() { kills } else { 0 };
                    self.cpu_of_steps.add(usage);
                }
                self.control.tell(event);
            }
            step.flush();
        }
        let patient = linger_until.is_none_or(|until| Instant::now() < until);
        self.steps.retain(|step| !step.is_over() || (patient && !step.is_told()));
    }

    fn settle_end(&mut self) {
        if self.hooks.is_busy() {
            return self.advance_hook();
        }
        let Some(mut emptying) = self.emptying else { return };
        let empty = self.group_is_empty().unwrap_or(false)
            && self.hook_groups_are_gone()
            && self.escaped_processes().is_empty();
        if !empty && emptying.kill {
            if emptying.killed_at.is_some() {
                self.tell_script_ended(&mut emptying);
            }
            if emptying.killed_at.is_none_or(|at| at.elapsed() >= KILL_PAUSE) {
                let now = Instant::now();
                emptying.first_kill.get_or_insert(now);
                emptying.killed_at = Some(now);
                // A kill that fails is tried again: the attempt does not end before its group is empty.
                let _ = self.group.kill();
                self.kill_hook_groups();
                let _ = signal_listed(Signal::SIGKILL, &|| Ok(self.escaped_processes()));
            }
        }
        if !empty {
            self.tell_unkillable(&mut emptying);
        }
        self.emptying = Some(emptying);
        let reaped = self.leader.as_ref().is_none_or(|leader| leader.pid.is_none());
        if empty && reaped && self.steps.is_empty() && self.is_cleaned() {
            self.finish();
        }
    }

    /// What has left the job's groups. What the site's programs have left running is theirs for as long as it may be.
    fn escaped_processes(&self) -> Vec<i32> {
        if !descendants::has_children() {
            return Vec::new();
        }
        let left = self.hooks.leftover_groups.iter().filter_map(|group| group.pids().ok());
        let of_site: HashSet<i32> = left.flatten().collect();
        descendants::all().into_iter().filter(|pid| !of_site.contains(pid)).collect()
    }

    fn group_is_empty(&self) -> Result<bool, CgroupError> {
        match &self.watch {
            // The watch is one tree's and costs one call.
            Some(watch) => Ok(watch.is_empty()? && self.group.is_empty_beyond(watch)?),
            None => self.group.is_empty(),
        }
    }

    /// What has come to be in the group since it was empty is killed as the job was.
    pub(super) fn kill_again(&mut self) {
        if let Some(emptying) = &mut self.emptying {
            *emptying = Emptying { kill: true, killed_at: None, first_kill: None, ..*emptying };
        }
    }

    /// Only the site's work is left. That is not the job's time, and nothing that comes now changes how the job ended.
    pub(super) fn tell_job_ended(&mut self) {
        if let Some(mut emptying) = self.emptying {
            self.tell_script_ended(&mut emptying);
            self.emptying = Some(emptying);
        }
    }

    /// The job's other nodes need not wait until what is stuck here has died.
    fn tell_script_ended(&mut self, emptying: &mut Emptying) {
        if emptying.told || self.launch_failed.is_some() {
            return;
        }
        emptying.told = true;
        let oom = self.script_kills() > 0;
        let (exit, timed_out) = (self.exit(), self.timed_out);
        self.control.tell(ReportEvent::ScriptEnded { exit, oom, timed_out });
        // Should this process die before the group is empty, the exit is known all the same.
        let _ = self.control.write_down(&self.dir);
    }

    /// What a kill has not ended for so long is stuck in the kernel: no other job shall meet it here.
    fn tell_unkillable(&mut self, emptying: &mut Emptying) {
        let limit = Duration::from_secs(u64::from(self.record.launch.unkillable_s));
        let stuck = emptying.first_kill.is_some_and(|at| at.elapsed() >= limit);
        if stuck && !limit.is_zero() && !emptying.unkillable {
            emptying.unkillable = true;
            self.control.tell(ReportEvent::Unfit { why: UNKILLABLE.to_owned() });
        }
    }

    pub(super) fn exit(&self) -> ExitStatus {
        let own = self.leader.as_ref().and_then(|leader| leader.exit);
        self.ordered_exit.or(own).unwrap_or_default()
    }

    fn finish(&mut self) {
        let (usage, count) = self.used.take().unwrap_or_else(|| {
            let kills = self.script_kills();
            (self.usage(kills), kills)
        });
        let oom = count > 0;
        if oom {
            let words = self.record.launch.notices.out_of_memory.clone();
            self.write_notice(&words, count, wall_clock::now());
        }
        let event = match self.launch_failed.take() {
            Some(what) => {
                let unfit = self.hooks.unfit.take();
                let hold = unfit.is_some() && self.record.site.hold_on_failure;
                ReportEvent::LaunchFailed { what, unfit, hold }
            }
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
        let _ = self.control.write_down(&self.dir);
        self.over = true;
    }

    pub(super) fn usage(&self, script_kills: u64) -> Usage {
        let counted = self.group.consumed();
        Usage {
            cpu_user_us: counted.cpu_user_us.unwrap_or(self.reaped.cpu_user_us),
            cpu_system_us: counted.cpu_system_us.unwrap_or(self.reaped.cpu_system_us),
            memory_peak_bytes: counted.memory_peak_bytes.unwrap_or(self.reaped.memory_peak_bytes),
            oom_kills: (script_kills + self.oom_of_steps) as u32,
            steps_cpu: (self.cpu_of_steps != CpuTime::default())
                .then(|| Box::new(self.cpu_of_steps)),
            tasks: self
                .leader
                .is_some()
                .then(|| Box::new(TaskUsage::of(0, 0, &self.script_used, false))),
        }
    }
}
