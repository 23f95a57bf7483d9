//! A job of the trace as the cluster is asked for it. Equal parts are made once.

use crate::machine::{GPU_SHARE, pod_cpus};
use crate::trace::TraceJob;
use crate::trace::pods::Pod;
use cluster::ClusterConfig;
use cluster::command::Submit;
use model::amount::Bytes;
use model::gres::GPU;
use model::principal::{Principal, Role};
use model::range::Range;
use model::request::{DeviceMake, GresRequest, Memory, Per, Request};
use model::run::{Component, JobSpec, Launch, LaunchKind};
use model::time::TimeLimit;
use std::collections::HashMap;
use std::sync::Arc;

/// Users of a trace are numbered from here on: below are the accounts of the system.
const FIRST_UID: u32 = 1_000;

/// Jobs of which the trace does not say whose they are have users from here on, one each: what the last of them ran says nothing
/// about the next.
const FIRST_UNKNOWN_UID: u32 = 1 << 31;

/// How a number of processors is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// As many nodes, of one processor each.
    Nodes,
    /// As many tasks of one CPU, on whichever nodes.
    Tasks,
}

impl Width {
    /// Nodes are what is asked for where none has more than one CPU: whichever serve, and a plan is made faster.
    pub fn on(config: &ClusterConfig) -> Self {
        let are_single = config.nodes.iter().all(|node| node.cpus == 1);
        if are_single { Self::Nodes } else { Self::Tasks }
    }
}

pub struct JobSpecs {
    width: Width,
    owners: HashMap<i64, Arc<Principal>>,
    launches: HashMap<u32, Arc<Launch>>,
    /// By processors, estimate and partition.
    requests: HashMap<(u32, u32, Option<u16>), Arc<[Component]>>,
    /// The names of the partitions that jobs have by position.
    partitions: Vec<String>,
}

impl JobSpecs {
    pub fn new(width: Width, partitions: &[String]) -> Self {
        Self {
            width,
            owners: HashMap::new(),
            launches: HashMap::new(),
            requests: HashMap::new(),
            partitions: partitions.to_vec(),
        }
    }

    pub fn submit(&mut self, job: &TraceJob) -> Submit {
        let owner = if job.user < 0 {
            Arc::new(unknown_owner(job.line))
        } else {
            let known = self.owners.entry(job.user);
            known.or_insert_with(|| Arc::new(owner(job.user))).clone()
        };
        let launch = self.launches.entry(job.estimate_s).or_insert_with(|| {
            let limit_s = Some(job.estimate_s);
            Arc::new(Launch { limit_s, ..Launch::empty(LaunchKind::Batch) })
        });
        let components = self
            .requests
            .entry((job.processors, job.estimate_s, job.partition))
            .or_insert_with(|| {
                let named = job.partition.and_then(|at| self.partitions.get(usize::from(at)));
                let partitions = named.into_iter().cloned().collect();
                let request = Request { partitions, ..request(self.width, job) };
                [Component { request: Arc::new(request) }].into()
            });
        submit_of(spec(owner, launch.clone(), components.clone()))
    }
}

fn submit_of(spec: JobSpec) -> Submit {
    Submit {
        spec,
        array: None,
        hold: None,
        priority: None,
        het_components: Vec::new(),
        test_only: false,
        unique_name: false,
    }
}

/// Pods as jobs of one user without a time limit.
pub struct PodSpecs {
    owner: Arc<Principal>,
    launch: Arc<Launch>,
    requests: HashMap<Pod, Arc<[Component]>>,
}

impl Default for PodSpecs {
    fn default() -> Self {
        Self {
            owner: Arc::new(owner(0)),
            launch: Arc::new(Launch::empty(LaunchKind::Batch)),
            requests: HashMap::new(),
        }
    }
}

impl PodSpecs {
    pub fn submit(&mut self, pod: &Pod) -> Submit {
        let components = self
            .requests
            .entry(pod.clone())
            .or_insert_with(|| [Component { request: Arc::new(pod_request(pod)) }].into());
        submit_of(spec(self.owner.clone(), self.launch.clone(), components.clone()))
    }
}

fn pod_request(pod: &Pod) -> Request {
    let (name, count) = if pod.shares_a_gpu() {
        (GPU_SHARE, u64::from(pod.gpu_milli))
    } else {
        (GPU, u64::from(pod.gpus))
    };
    let gres = GresRequest {
        per: Per::Node,
        name: name.to_owned(),
        kinds: pod.models.clone(),
        by_model: false,
        count: Range::exactly(count),
        device_memory: None,
        total_memory: None,
        make: DeviceMake::default(),
    };
    Request {
        nodes_given: true,
        cpus_per_task: Range::exactly(pod_cpus(pod.cpu_milli)),
        memory: Memory::PerNode(Range::exactly(Bytes::from_mib(pod.memory_mib))),
        gres: if pod.gpus > 0 { vec![gres] } else { Vec::new() },
        time_limit: Some(TimeLimit::Unlimited),
        ..Request::default()
    }
}

fn owner(user: i64) -> Principal {
    let number = u32::try_from(user).ok().and_then(|user| FIRST_UID.checked_add(user));
    let (uid, name) = match number {
        Some(uid) => (uid, format!("user{user}")),
        None => (FIRST_UID, "unknown".to_owned()),
    };
    user_account(uid, name)
}

/// The owner of the job on this line, of whom nothing is known.
fn unknown_owner(line: u64) -> Principal {
    let number = (line % u64::from(FIRST_UNKNOWN_UID)) as u32;
    user_account(FIRST_UNKNOWN_UID + number, "unknown".to_owned())
}

fn user_account(uid: u32, name: String) -> Principal {
    Principal {
        group: name.clone(),
        name,
        uid,
        gid: uid,
        groups: Vec::new(),
        role: Role::User,
        token_limit: None,
    }
}

fn request(width: Width, job: &TraceJob) -> Request {
    let time_limit = Some(TimeLimit::Minutes(job.estimate_s.div_ceil(60)));
    match width {
        Width::Nodes => Request {
            nodes: Range::exactly(job.processors),
            nodes_given: true,
            time_limit,
            ..Request::default()
        },
        Width::Tasks => Request { tasks: Some(job.processors), time_limit, ..Request::default() },
    }
}

fn spec(owner: Arc<Principal>, launch: Arc<Launch>, components: Arc<[Component]>) -> JobSpec {
    JobSpec {
        name: "job".into(),
        owner,
        account: None,
        qos: None,
        components,
        launch,
        dependency: None,
        kill_on_invalid_dependency: false,
        nice: 0,
        dstack_priority: None,
        requeue: true,
        retry: None,
        signal: None,
        comment: None,
        wckey: None,
        submit_line: "".into(),
        submit_host: "".into(),
        submit_sid: 0,
        mail: None,
        schedule: None,
        utilization: None,
        inactivity_s: None,
        call: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_one_user_are_known_as_such_and_those_of_unknown_ones_are_not() {
        let mut specs = JobSpecs::new(Width::Nodes, &[]);
        let mut uid = |line: u64, user: i64| {
            let job = TraceJob { line, processors: 1, user, ..TraceJob::default() };
            specs.submit(&job).spec.owner.uid
        };
        assert_eq!([uid(1, 7), uid(2, 7)], [1_007, 1_007]);
        assert_ne!(uid(3, -1), uid(4, -1));
    }
}
