//! The end of an attempt: its group is killed until it is empty, its end is reported, and nothing of it is left.

use super::{Attempt, own_kills};
use crate::cgroup::{CgroupError, signal_listed};
use crate::cpu_frequency::SetFrequency;
use crate::supervisor::notice;
use crate::supervisor::process::descendants;
use crate::supervisor::step::Step;
use crate::wall_clock;
use model::reason::LaunchFailure;
use model::run::{ExitStatus, Usage};
use model::usage::{CpuTime, TaskUsage};
use nix::sys::signal::Signal;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use wire::report::{AttemptEnd, ReportEvent};

/// How long the end of the job waits for an `srun` to take its last bytes.
const LINGER: Duration = Duration::from_millis(500);
/// The pause between two kills of a group that does not empty: a process stuck in the kernel takes time to die.
const KILL_PAUSE: Duration = Duration::from_millis(500);

/// How long a group may take to empty before it is checked less often.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// How often a group without a watch descriptor is checked while it empties.
const EMPTYING_TICK: Duration = Duration::from_millis(20);
/// The reason of the drain of a node on which a process cannot be killed, in Slurm's words.
const UNKILLABLE: &str = "Kill task failed";

/// Set once the attempt is ending: nothing new is started, and the attempt is over when its group is empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Emptying {
    /// Whether to kill now. If not, the grace period is still running.
    kill: bool,
    /// When the group was killed first, and last.
    first_kill: Option<Instant>,
    killed_at: Option<Instant>,
    /// The unkillable process was reported.
    unkillable: bool,
    linger_until: Instant,
    script_end_reported: bool,
}

impl Attempt {
    /// Begins the end, or turns an end with grace into a kill.
    pub(super) fn empty(&mut self, kill: bool) {
        let linger_until = Instant::now() + LINGER;
        let emptying = self.emptying.get_or_insert(Emptying {
            kill,
            first_kill: None,
            killed_at: None,
            unkillable: false,
            linger_until,
            script_end_reported: false,
        });
        if kill && !emptying.kill {
            *emptying = Emptying { kill, linger_until, ..*emptying };
        }
    }

    /// Whether no process of the job is left to signal: it is being killed, or only the epilog runs.
    pub(super) fn is_past_ending(&self) -> bool {
        self.emptying.is_some_and(|emptying| emptying.kill) || self.hooks.is_after_job()
    }

    /// How soon to check again what no descriptor reports; `None` if there is nothing of that kind.
    pub fn tick(&self) -> Option<Duration> {
        let group = self.emptying.filter(|emptying| emptying.kill || self.watch.is_none());
        let of_group = group.map(|emptying| match emptying.first_kill {
            // A process that a kill does not end at once is stuck in the kernel, and stays so for a while.
            Some(at) if at.elapsed() > STUCK_AFTER => KILL_PAUSE,
            _ => EMPTYING_TICK,
        });
        let of_steps = self.steps.iter().any(Step::is_ending).then_some(EMPTYING_TICK);
        let of_turn = self.hooks.waits_for_lock().then_some(EMPTYING_TICK);
        of_group.into_iter().chain(of_steps).chain(of_turn).min()
    }

    /// Kills what runs if its folder was removed while no agent is there: the next agent would not find it, and nobody could end it.
    pub fn end_if_removed(&mut self) {
        if !self.agents.has_agent() && !self.is_past_ending() && self.dir.is_removed() {
            self.empty(true);
        }
    }

    pub fn is_over(&self) -> bool {
        self.over
    }

    pub fn on_group_event(&mut self) {
        if let Some(watch) = &self.watch {
            // Reading arms the watch again; `settle` checks whether the group is empty.
            let _ = watch.is_empty();
        }
    }

    /// Called once in each round of the event loop: reports ended steps, and finishes the attempt when all is over.
    pub fn settle(&mut self) {
        if self.held_input.take_relief() {
            self.steps.iter_mut().for_each(Step::on_input_taken);
        }
        self.settle_steps();
        self.settle_end();
        self.agents.flush();
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
                self.agents.report(event);
            }
            step.flush();
        }
        let lingers = linger_until.is_none_or(|until| Instant::now() < until);
        self.steps.retain(|step| !step.is_over() || (lingers && !step.is_delivered()));
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
                self.report_script_ended(&mut emptying);
            }
            if emptying.killed_at.is_none_or(|at| at.elapsed() >= KILL_PAUSE) {
                let now = Instant::now();
                emptying.first_kill.get_or_insert(now);
                emptying.killed_at = Some(now);
                // A failed kill is repeated: the attempt does not end before its group is empty.
                let _ = self.group.kill();
                self.kill_hook_groups();
                let _ = signal_listed(Signal::SIGKILL, &|| Ok(self.escaped_processes()));
            }
        }
        if !empty {
            self.report_unkillable(&mut emptying);
        }
        self.emptying = Some(emptying);
        let reaped = self.leader.as_ref().is_none_or(|leader| leader.pid.is_none());
        if empty && reaped && self.steps.is_empty() && self.is_cleaned() {
            self.finish();
        }
    }

    /// Processes that have left the job's groups, without those that the prolog left running in its own group.
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
            // The watch covers one tree and costs one call.
            Some(watch) => Ok(watch.is_empty()? && self.group.is_empty_beyond(watch)?),
            None => self.group.is_empty(),
        }
    }

    /// Kills again what has come into the group since it was empty.
    pub(super) fn kill_again(&mut self) {
        if let Some(emptying) = &mut self.emptying {
            *emptying = Emptying { kill: true, killed_at: None, first_kill: None, ..*emptying };
        }
    }

    /// Reports the job's end before the epilog runs: the epilog's time is not the job's, and does not change its exit.
    pub(super) fn report_job_ended(&mut self) {
        if let Some(mut emptying) = self.emptying {
            self.report_script_ended(&mut emptying);
            self.emptying = Some(emptying);
        }
    }

    /// Reports the script's exit before the group is empty, so that the job's other nodes need not wait for a stuck
    /// process.
    fn report_script_ended(&mut self, emptying: &mut Emptying) {
        if emptying.script_end_reported || self.launch_failed.is_some() {
            return;
        }
        emptying.script_end_reported = true;
        let oom = self.script_kills() > 0;
        let (exit, timed_out) = (self.exit(), self.timed_out);
        self.agents.report(ReportEvent::ScriptEnded { exit, oom, timed_out });
        // If this process dies before the group is empty, the next agent finds the exit in the spool.
        let _ = self.agents.write_status(&self.dir);
    }

    /// Reports the node unfit if a process survives its kill for `UnkillableStepTimeout`.
    fn report_unkillable(&mut self, emptying: &mut Emptying) {
        let limit = Duration::from_secs(u64::from(self.record.launch.unkillable_s));
        let stuck = emptying.first_kill.is_some_and(|at| at.elapsed() >= limit);
        if stuck && !limit.is_zero() && !emptying.unkillable {
            emptying.unkillable = true;
            self.agents.report(ReportEvent::Unfit { why: UNKILLABLE.to_owned() });
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
        if let Some(log) = &mut self.log {
            log.drain();
        }
        let event = match self.launch_failed.take() {
            Some(LaunchFailure { fault, what }) => {
                let (what, user) = (what.into(), self.user_fault);
                let unfit = self.hooks.unfit.take();
                let hold = unfit.is_some() && self.record.site.hold_on_failure;
                ReportEvent::LaunchFailed { what, fault, unfit, hold, user }
            }
            None => ReportEvent::Ended(AttemptEnd {
                exit: self.exit(),
                usage,
                oom,
                timed_out: self.timed_out,
                supervisor_lost: false,
            }),
        };
        SetFrequency::release_attempt(&self.dir, &self.record);
        // A group that cannot be removed is removed by the next agent.
        let _ = self.group.remove();
        self.agents.report(event);
        // Connected agents have the event; an agent that starts later reads the spool.
        let _ = self.agents.write_status(&self.dir);
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
            // The agent's, which counts for the machine.
            energy_mj: 0,
        }
    }
}
