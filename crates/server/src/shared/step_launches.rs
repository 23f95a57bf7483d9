//! Launches of steps on their way to the nodes: kept until every node has its order.
//!
//! An order that is lost with its link is sent again when the node says hello; a supervisor ignores one that it has.
//! A server that restarts has none of these: a first step's launch is in the store, and every other `srun` sends its
//! launch again.

use crate::shared::state_lock::StateLock;
use model::bounds::{LAUNCHES_BYTES, USER_LAUNCHES_BYTES};
use model::id::{JobId, StepId};
use model::reason::Refusal;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use wire::step::StepLaunch;

const ROOT: u32 = 0;

#[derive(Default)]
pub struct StepLaunches {
    /// As many as steps were created within the last round trip to their nodes.
    undelivered: Mutex<HashMap<(JobId, StepId), Undelivered>>,
}

struct Undelivered {
    launch: Arc<StepLaunch>,
    /// The owner of its job.
    owner: u32,
    bytes: usize,
    /// Nodes that have acknowledged their order.
    delivered_to: Vec<String>,
}

/// The state of a step's order to one node, as far as this server knows it.
pub enum Delivery {
    /// Every node has it, or the launch was made before this server started.
    Unknown,
    Delivered,
    Pending(Arc<StepLaunch>),
}

impl StepLaunches {
    /// Refuses a launch for which its job, or all jobs of its owner together, have no room left: their nodes have not taken the
    /// others. What root's jobs hold together has no bound.
    pub fn check_room(&self, owner: u32, job: JobId, launch: &StepLaunch) -> Result<(), Refusal> {
        let bytes = launch_bytes(launch);
        let (mut of_job, mut of_owner) = (bytes, bytes);
        for ((of, _), one) in self.undelivered().iter() {
            of_job += if *of == job { one.bytes } else { 0 };
            of_owner += if one.owner == owner { one.bytes } else { 0 };
        }
        LAUNCHES_BYTES.hold(of_job)?;
        if owner == ROOT { Ok(()) } else { USER_LAUNCHES_BYTES.hold(of_owner) }
    }

    pub fn put(&self, owner: u32, job: JobId, step: StepId, launch: StepLaunch) {
        let bytes = launch_bytes(&launch);
        let one = Undelivered { launch: Arc::new(launch), owner, bytes, delivered_to: Vec::new() };
        self.undelivered().insert((job, step), one);
    }

    fn undelivered(&self) -> MutexGuard<'_, HashMap<(JobId, StepId), Undelivered>> {
        self.undelivered.lock().expect("no panic with the launches held")
    }

    pub fn launch(&self, job: JobId, step: StepId) -> Option<Arc<StepLaunch>> {
        self.undelivered().get(&(job, step)).map(|one| one.launch.clone())
    }

    pub fn delivery(&self, job: JobId, step: StepId, node: &str) -> Delivery {
        match self.undelivered().get(&(job, step)) {
            Some(one) if one.delivered_to.iter().any(|known| known == node) => Delivery::Delivered,
            Some(one) => Delivery::Pending(one.launch.clone()),
            None => Delivery::Unknown,
        }
    }

    /// The node has its order, or needs none any more.
    pub fn delivered(&self, state: &StateLock, job: JobId, step: StepId, node: &str) {
        let known = self.undelivered().contains_key(&(job, step));
        if !known {
            return;
        }
        let nodes = {
            let state = state.read();
            let attempt = state.jobs.get(&job).and_then(|job| job.attempt());
            let step = attempt.and_then(|a| a.steps.iter().find(|s| s.id == step));
            step.map(|step| step.nodes.clone()).unwrap_or_default()
        };
        let mut undelivered = self.undelivered();
        let Some(one) = undelivered.get_mut(&(job, step)) else { return };
        if !one.delivered_to.iter().any(|known| known == node) {
            one.delivered_to.push(node.to_owned());
        }
        if nodes.iter().all(|node| one.delivered_to.contains(node)) {
            undelivered.remove(&(job, step));
        }
    }

    /// The job's attempt is over on a node: none of its orders is waited for any more.
    pub fn forget(&self, job: JobId) {
        self.undelivered().retain(|(of, _), _| *of != job);
    }
}

/// What a launch takes beside its long texts, and each text of a list beside its bytes.
const SHORT_TEXTS_BYTES: usize = 1024;
const ITEM_BYTES: usize = 32;

fn launch_bytes(launch: &StepLaunch) -> usize {
    let lists = [
        &launch.argv,
        &launch.node_list,
        &launch.listen,
        &launch.encrypted_listen,
        &launch.secret_variables,
        &launch.shape.exclude,
    ];
    let of_list = |list: &Vec<String>| {
        ITEM_BYTES + list.iter().map(|text| text.len() + ITEM_BYTES).sum::<usize>()
    };
    let lists: usize = lists.into_iter().chain(&launch.programs).map(of_list).sum();
    SHORT_TEXTS_BYTES + launch.environment.len() + launch.submit_line.len() + lists
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::State;

    const OWNER: u32 = 1000;

    #[test]
    fn launch_is_kept_until_it_is_delivered_everywhere_or_forgotten() {
        let launches = StepLaunches::default();
        let (job, step) = (JobId(1), StepId::Number(0));
        let text = r#"{"name":"x","argv":[],"environment":"","work_dir":"/","listen":[],"key":""}"#;
        let launch: StepLaunch = serde_json::from_str(text).expect("a launch");
        launches.put(OWNER, job, step, launch.clone());
        assert!(matches!(launches.delivery(job, step, "n1"), Delivery::Pending(_)));
        // The state does not know the step: no node has to acknowledge it any more.
        launches.delivered(&StateLock::new(State::default()), job, step, "n1");
        assert!(matches!(launches.delivery(job, step, "n1"), Delivery::Unknown));
        launches.put(OWNER, job, step, launch);
        launches.forget(job);
        assert!(launches.launch(job, step).is_none());
    }

    #[test]
    fn launches_that_the_nodes_do_not_take_have_a_bound_for_each_job() {
        let launches = StepLaunches::default();
        let text = r#"{"name":"x","argv":[],"environment":"","work_dir":"/","listen":[],"key":""}"#;
        let small: StepLaunch = serde_json::from_str(text).expect("a launch");
        let environment = "x".repeat(model::bounds::ENVIRONMENT_BYTES.most);
        let large = StepLaunch { environment, ..small.clone() };
        let mut taken = 0;
        while launches.check_room(OWNER, JobId(1), &large).is_ok() {
            launches.put(OWNER, JobId(1), StepId::Number(taken), large.clone());
            taken += 1;
        }
        assert_eq!(taken, 21);
        launches.check_room(OWNER, JobId(1), &small).expect("a small one fits still");
        launches.check_room(OWNER, JobId(2), &large).expect("another job has its own");
        launches.forget(JobId(1));
        launches.check_room(OWNER, JobId(1), &large).expect("and it has room again");
    }

    #[test]
    fn jobs_of_one_user_have_a_bound_together_and_programs_of_ranks_count() {
        let launches = StepLaunches::default();
        let text = r#"{"name":"x","argv":[],"environment":"","work_dir":"/","listen":[],"key":""}"#;
        let small: StepLaunch = serde_json::from_str(text).expect("a launch");
        let programs = vec![vec!["x".repeat(1 << 10)]; 1 << 10];
        let large = StepLaunch { programs, ..small.clone() };
        assert!(launch_bytes(&large) > 1 << 20);
        // As if each of so many jobs had a long launch under way, and none came near its own bound.
        let bytes = LAUNCHES_BYTES.most / 2;
        let under_way = |job: u32| {
            let (launch, delivered_to) = (Arc::new(small.clone()), Vec::new());
            let one = Undelivered { launch, owner: OWNER, bytes, delivered_to };
            launches.undelivered().insert((JobId(job), StepId::Number(0)), one);
        };
        let count = (USER_LAUNCHES_BYTES.most / bytes) as u32;
        (1..count).for_each(under_way);
        launches.check_room(OWNER, JobId(count), &large).expect("room for one more");
        under_way(count);
        let refused = launches.check_room(OWNER, JobId(count + 1), &large).expect_err("full");
        assert!(refused.to_string().contains(USER_LAUNCHES_BYTES.what), "{refused}");
        launches.check_room(OWNER + 1, JobId(count + 1), &large).expect("another user's");
        launches.check_room(ROOT, JobId(count + 1), &large).expect("root has no such bound");
    }
}
