//! Launches of steps on their way to the nodes: kept until every node has its order.
//!
//! An order that is lost with its link is sent again when the node says hello; a supervisor passes over what it has.
//! A server that restarts has none of these: a first step's launch is in the store, and another's `srun` says it again.

use crate::shared::Shared;
use cluster::authorise::{Act, authorise};
use model::id::{AttemptId, JobId, StepId};
use model::principal::Principal;
use model::reason::Refusal;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use wire::step::StepLaunch;

#[derive(Default)]
pub struct Steps {
    /// As many as steps were created within the last round trip to their nodes.
    open: Mutex<HashMap<(JobId, StepId), Open>>,
}

struct Open {
    launch: Arc<StepLaunch>,
    /// Nodes that have said that they have it.
    taken: Vec<String>,
}

impl Steps {
    pub fn put(&self, job: JobId, step: StepId, launch: StepLaunch) {
        let open = Open { launch: Arc::new(launch), taken: Vec::new() };
        self.held().insert((job, step), open);
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<(JobId, StepId), Open>> {
        self.open.lock().expect("no panic with the steps held")
    }

    pub fn launch(&self, job: JobId, step: StepId) -> Option<Arc<StepLaunch>> {
        self.held().get(&(job, step)).map(|open| open.launch.clone())
    }

    /// The node has its order, or needs none any more.
    pub fn taken(&self, shared: &Shared, job: JobId, step: StepId, node: &str) {
        let known = self.held().contains_key(&(job, step));
        if !known {
            return;
        }
        let nodes = {
            let state = shared.read();
            let attempt = state.jobs.get(&job).and_then(|job| job.attempt());
            let step = attempt.and_then(|a| a.steps.iter().find(|s| s.id == step));
            step.map(|step| step.nodes.clone()).unwrap_or_default()
        };
        let mut held = self.held();
        let Some(open) = held.get_mut(&(job, step)) else { return };
        if !open.taken.iter().any(|known| known == node) {
            open.taken.push(node.to_owned());
        }
        if nodes.iter().all(|node| open.taken.contains(node)) {
            held.remove(&(job, step));
        }
    }

    /// An attempt's part is over: no order of its job is waited for on any node of it.
    pub fn forget(&self, job: JobId) {
        self.held().retain(|(of, _), _| *of != job);
    }

    /// The steps of an attempt whose orders this node may lack, with what to start.
    pub fn lacking(
        &self,
        shared: &Shared,
        id: AttemptId,
        node: &str,
    ) -> Vec<(StepId, Arc<StepLaunch>)> {
        let (steps, first) = {
            let state = shared.read();
            let Some(job) = state.jobs.get(&id.job) else { return Vec::new() };
            let Some(attempt) = job.attempt().filter(|a| a.number == id.number) else {
                return Vec::new();
            };
            let waiting = attempt.steps.iter().filter(|s| s.waiting.iter().any(|n| n == node));
            let steps: Vec<StepId> = waiting.map(|s| s.id).collect();
            (steps, job.spec.launch.first_step.clone())
        };
        let stored = || {
            let text = crate::dispatch::launch::blob_text(shared, first.as_deref()?).ok()?;
            serde_json::from_str(&text).ok().map(Arc::new)
        };
        let launch = |step: StepId| {
            let taken = |open: &Open| open.taken.iter().any(|known| known == node);
            match self.held().get(&(id.job, step)) {
                Some(open) if taken(open) => return None,
                Some(open) => return Some(open.launch.clone()),
                None => {}
            }
            if step == StepId::Number(0) { stored() } else { None }
        };
        let found = steps.into_iter().filter_map(|step| Some((step, launch(step)?)));
        found.collect()
    }

    /// An `srun` says again what it wants started: the server that was told first is gone.
    pub fn say_again(
        shared: &Shared,
        by: &Principal,
        job: JobId,
        step: StepId,
        launch: StepLaunch,
    ) -> Result<(), Refusal> {
        {
            let state = shared.read();
            let found = state.jobs.get(&job).ok_or_else(|| Refusal::UnknownJob(job.to_string()))?;
            authorise(&state, by, Act::OwnJob(found))?;
            let attempt = found.attempt().ok_or(Refusal::JobNotRunning(job))?;
            let known = attempt.steps.iter().any(|s| s.id == step && s.end.is_none());
            if !known || !matches!(step, StepId::Number(_)) {
                return Err(Refusal::UnknownStep(format!("{job}.{step}")));
            }
        }
        shared.volatile.steps.put(job, step, launch);
        shared.dispatch.step(job, step);
        Ok(())
    }
}
