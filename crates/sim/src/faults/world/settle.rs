//! After the last fault: everything is repaired, and everything that can run does.

use super::{CALM_CHECK_EVERY, World};
use crate::faults::checks::{Awaited, Broken, Checked, awaited};
use crate::faults::server::Work;
use crate::faults::site;
use cluster::{Command, Job, State};
use model::change::{JobChange, JobRef, NodeChange};
use model::id::JobId;
use model::node::SlotState;
use model::reason::Reason;
use sched::Memo;

/// Events that may pass until nothing runs and nothing waits that could.
const SETTLE_EVENTS_MAX: u64 = 20_000;

impl World {
    pub(super) fn settle(&mut self) -> Checked {
        self.is_calm = true;
        self.disks.make_room();
        let nodes: Vec<String> = self.agents.keys().cloned().collect();
        for node in nodes {
            if let Some(agent) = self.agents.get_mut(&node) {
                agent.is_partitioned = false;
            }
            self.start_agent(&node);
            self.dial(&node, 100);
        }
        // All nodes are in the files again.
        self.variant += 4 - self.variant % 4;
        let begun = self.counts.events;
        let mut unsettled = self.why_unsettled();
        while unsettled.is_some() {
            if self.counts.events - begun == SETTLE_EVENTS_MAX {
                let why = unsettled.unwrap_or_default();
                return Err(Broken(format!("it does not come to rest after the faults: {why}")));
            }
            self.step()?;
            let passed = self.counts.events - begun;
            if passed.is_multiple_of(CALM_CHECK_EVERY) {
                self.check_all()?;
            }
            if passed.is_multiple_of(20) {
                unsettled = self.why_unsettled();
            }
        }
        Ok(())
    }

    /// What an operator does meanwhile: the site's files as they should be, nodes in service, suspended jobs resumed.
    pub(super) fn operator_work(&self) -> Vec<Work> {
        let Some(server) = &self.server else { return Vec::new() };
        let state = &server.state;
        let mut commands = Vec::new();
        let wanted = site::configuration(self.variant);
        if *state.config != wanted {
            commands.push(Command::Configure(Box::new(wanted)));
        }
        let drained = state.nodes.iter().filter(|(_, node)| node.admin.is_some());
        let drained: Vec<String> = drained.map(|(name, _)| name.clone()).collect();
        if !drained.is_empty() {
            commands.push(Command::ChangeNode { nodes: drained, change: NodeChange::Resume });
        }
        commands.extend(
            suspended_jobs(state).map(|job| Command::ChangeJob {
                job: JobRef::whole(job),
                change: JobChange::Resume,
            }),
        );
        commands.into_iter().map(Work::own).collect()
    }

    /// Why the history is not over yet.
    fn why_unsettled(&self) -> Option<String> {
        let Some(server) = &self.server else { return Some("the server is down".to_owned()) };
        let state = &server.state;
        if server.plan_under_way {
            return Some("a plan is under way".to_owned());
        }
        if let Some(job) = state.active.first() {
            let phase = state.job(*job).map(|job| job.state());
            return Some(format!("{} jobs run, the first is {job}, {phase:?}", state.active.len()));
        }
        for name in site::NODES {
            let Some(node) = state.nodes.get(name) else { return Some(format!("{name} is gone")) };
            let is_well = node.slot == SlotState::Up
                && node.stale.is_empty()
                && node.admin.is_none()
                && server.dispatcher.link(name).is_some();
            if !is_well {
                return Some(format!("{name} is {:?}, stale {:?}", node.slot, node.stale));
            }
            let agent = self.agents.get(name)?;
            if let Some((attempt, _)) = agent.attempts.first_key_value() {
                return Some(format!("{name} still has attempt {attempt}"));
            }
        }
        self.why_jobs_wait(state)
    }

    /// A job that waits though nothing runs, and that could start now or later.
    fn why_jobs_wait(&self, state: &State) -> Option<String> {
        let now = self.server_time();
        let view = cluster::view::view(state, now);
        let plan = sched::plan(&view, now, &mut Memo::default());
        if let Some(start) = plan.starts.first() {
            return Some(format!("job {} can start", start.job));
        }
        let waits = plan.reasons.iter().find(|(id, reason)| {
            state.job(*id).is_none_or(|job| !waits_rightly(state, job, reason))
        });
        waits.map(|(job, reason)| format!("job {job} waits on an empty cluster: {reason:?}"))
    }
}

/// Whether a job may wait for ever on an empty cluster whose nodes are all well: for the end of a job that has not ended, or for what
/// never comes about, where nobody asked that it be cancelled then. The components of a het job wait for one another.
fn waits_rightly(state: &State, job: &Job, reason: &Reason) -> bool {
    let components = job.het.into_iter().flat_map(|het| het.jobs());
    let components = components.filter_map(|id| state.job(id));
    let mut all = components.chain([job]);
    match reason {
        Reason::Dependency => all.any(|one| matches!(awaited(state, one), Awaited::End(_))),
        Reason::DependencyNeverSatisfied => all.any(|one| {
            awaited(state, one) == Awaited::Never && !one.spec.kill_on_invalid_dependency
        }),
        Reason::HeldByUser | Reason::HeldByAdmin => all.any(|one| one.hold.is_some()),
        _ => job.het.is_some() && all.any(|one| one.hold.is_some()),
    }
}

fn suspended_jobs(state: &State) -> impl Iterator<Item = JobId> {
    let is_suspended = move |job: &&JobId| {
        let attempt = state.job(**job).and_then(|job| job.attempt());
        attempt.is_some_and(|attempt| attempt.suspended && attempt.ending.is_none())
    };
    state.active.iter().filter(is_suspended).copied()
}
