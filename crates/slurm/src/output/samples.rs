//! The cluster of the captures, as views: two nodes with eight GPUs each, alice of physics and bob of chem.

use super::Moment;
use jiff::tz::TimeZone;
use model::allocation::{Allocation, GresShare, NodeShare};
use model::amount::Bytes;
use model::array::IndexSet;
use model::cpuset::CpuSet;
use model::id::{JobId, RunId, StepId};
use model::node::{NodeConfig, NodeFacts, NodeGres, SlotState};
use model::partition::{DefaultMemory, Partition};
use model::principal::{Principal, Role};
use model::range::Range;
use model::reason::Reason;
use model::request::{DeviceMake, GresRequest, Memory, Per, Request};
use model::run::{Component, ExitStatus, JobSpec, JobState, Launch, LaunchKind, Step, Usage};
use model::time::{TimeLimit, Timestamp};
use model::tres::Tres;
use std::sync::Arc;
use wire::view::{ArrayView, ClusterView, JobView, NodeView};

/// 2026-11-15T00:00:00 UTC, the night of the captures.
const MIDNIGHT: i64 = 1_794_700_800;

/// A time of that night.
pub fn at(hours: i64, minutes: i64, seconds: i64) -> Timestamp {
    Timestamp::from_secs(MIDNIGHT + hours * 3_600 + minutes * 60 + seconds)
}

pub fn moment(now: Timestamp) -> Moment<'static> {
    Moment::at(now, &UTC)
}

static UTC: TimeZone = TimeZone::UTC;

pub fn node(name: &str) -> NodeView {
    let config = NodeConfig {
        address: "127.0.0.1".into(),
        hostname: "vm".into(),
        sockets: 2,
        cores_per_socket: 16,
        features: vec!["h100".into(), "ib".into()],
        gres: vec![NodeGres {
            name: "gpu".into(),
            kind: Some("h100".into()),
            count: 8,
            first_index: 0,
            files: Vec::new(),
            device_names: Vec::new(),
            links: Vec::new(),
            cores: None,
            device_memory: None,
            variables: None,
            no_consume: false,
            share_of: None,
            compute_capability: None,
        }],
        ..NodeConfig::plain(name, 32, Bytes::from_mib(128_000))
    };
    NodeView {
        config,
        slot: SlotState::Up,
        power: Default::default(),
        admin: None,
        reason: None,
        facts: NodeFacts {
            arch: "x86_64".into(),
            os: "Linux 6.18.44-fc-v310 #1 SMP @0".into(),
            version: "22.05.8".into(),
            boot_time: at(0, 37, 8),
            agent_start: at(0, 44, 55),
            free_memory: Bytes::from_mib(if name == "node1" { 18_358 } else { 18_351 }),
            cpu_load: 101,
            ..NodeFacts::default()
        },
        cpus_allocated: 0,
        memory_allocated: Bytes(0),
        gres_used: Vec::new(),
        job_count: 0,
        completing: false,
        partitions: if name == "node1" {
            vec!["gpu".into(), "debug".into()]
        } else {
            vec!["gpu".into()]
        },
        reserved_for: None,
        dynamic_future: false,
        last_busy: Some(at(0, 45, 49)),
    }
}

pub fn gpus(indices: &[u32]) -> GresShare {
    GresShare {
        name: "gpu".into(),
        kind: Some("h100".into()),
        count: indices.len() as u64,
        indices: indices.to_vec(),
    }
}

/// Node 1 while the job `train` runs on it.
pub fn busy_node() -> NodeView {
    NodeView {
        cpus_allocated: 4,
        memory_allocated: Bytes::from_gib(8),
        gres_used: vec![gpus(&[0, 1])],
        job_count: 1,
        ..node("node1")
    }
}

pub fn partitions() -> Vec<Partition> {
    let gpu = Partition {
        default: true,
        max_time: TimeLimit::Minutes(7 * 24 * 60),
        default_time: Some(TimeLimit::Minutes(60)),
        preempt_mode: Some("REQUEUE".into()),
        ..Partition::over("gpu", vec!["node1".into(), "node2".into()])
    };
    let debug = Partition {
        max_time: TimeLimit::Minutes(30),
        priority_tier: 10,
        preempt_mode: Some("REQUEUE".into()),
        ..Partition::over("debug", vec!["node1".into()])
    };
    vec![gpu, debug]
}

pub fn cluster(nodes: Vec<NodeView>) -> ClusterView {
    ClusterView {
        name: "lab".into(),
        now: at(0, 46, 21),
        nodes,
        partitions: partitions(),
        topology: None,
        notices: Vec::new(),
        proxy_url: None,
    }
}

pub fn alice() -> Principal {
    user("alice", 1001)
}

pub fn bob() -> Principal {
    user("bob", 1002)
}

fn user(name: &str, id: u32) -> Principal {
    let (name, group) = (name.to_owned(), name.to_owned());
    Principal {
        name,
        uid: id,
        gid: id,
        group,
        groups: Vec::new(),
        role: Role::User,
        token_limit: None,
    }
}

pub fn gpu_request(per: Per, count: u64) -> GresRequest {
    GresRequest {
        per,
        name: "gpu".into(),
        kinds: Vec::new(),
        count: Range::exactly(count),
        by_model: false,
        make: DeviceMake::default(),
        device_memory: None,
        total_memory: None,
    }
}

/// A batch job by `--wrap`, in `/lab/jobs`.
pub fn spec(name: &str, owner: Principal, request: Request) -> JobSpec {
    JobSpec {
        name: name.into(),
        owner: owner.into(),
        account: None,
        qos: None,
        components: [Component { request: request.into() }].into(),
        launch: Launch {
            kind: LaunchKind::Batch,
            script: None,
            environment: None,
            arguments: Vec::new(),
            work_dir: "/lab/jobs".into(),
            command: None,
            stdin: None,
            stdout: None,
            stderr: None,
            first_step: None,
            configuration: None,
            secret_variables: Vec::new(),
            has_project_secrets: false,
            volumes: Vec::new(),
            without_container: false,
            shared_memory: None,
            startup_order: Default::default(),
            ends_with_first_node: false,
            limit_s: None,
            stop_s: None,
            login_environment: None,
            registry_auth: None,
            workspace: None,
            git_credentials: None,
            blob_bytes: Default::default(),
            append_output: false,
            unattended: false,
            umask: 0o022,
            rlimits: Default::default(),
            rlimits_asked: false,
            sample_s: None,
            container: None,
            service: None,
            port_forwards: None,
        }
        .into(),
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
        submit_host: "localhost".into(),
        submit_sid: 3295,
        mail: None,
        schedule: None,
        utilization: None,
        inactivity_s: None,
        call: None,
    }
}

pub fn share(node: &str, cpus: u32, mib: u64, gpu_indices: &[u32], tasks: u32) -> NodeShare {
    NodeShare {
        node: node.into(),
        cpus: CpuSet::first(cpus),
        memory: Bytes::from_mib(mib),
        gres: if gpu_indices.is_empty() { Vec::new() } else { vec![gpus(gpu_indices)] },
        tasks,
        sharers: 1,
        disk: Bytes(0),
        price: None,
    }
}

pub fn allocation(shares: Vec<NodeShare>) -> Allocation {
    Allocation { partition: "gpu".into(), nodes: shares }
}

/// A job of one CPU and 1000M that waits.
pub fn pending(id: u32, name: &str, owner: Principal, reason: Reason) -> JobView {
    let account = if owner.name == "alice" { "physics" } else { "chem" };
    JobView {
        id: JobId(id),
        run: Some(RunId(u128::from(id))),
        name: name.into(),
        array: None,
        het: None,
        spec: Arc::new(spec(name, owner, Request::default())),
        state: JobState::Pending,
        reason,
        hold: None,
        partition: "gpu".into(),
        account: account.into(),
        qos: "normal".into(),
        priority: 1000,
        submit: at(0, 46, 19),
        eligible: Some(at(0, 46, 19)),
        start: None,
        end: None,
        time_limit: TimeLimit::Minutes(60),
        restarts: 0,
        exit: ExitStatus::default(),
        derived_exit: ExitStatus::default(),
        allocation: None,
        nodes: Range::exactly(1),
        cpus: 1,
        tasks: 1,
        tres: Tres::parse("cpu=1,mem=1000M,node=1,billing=1").expect("a good list").into(),
        steps: Vec::new(),
        usage: Usage::default(),
        suspended_s: 0,
        dependency: None,
        last_planned: Some(at(0, 46, 19)),
        default_memory: Some(DefaultMemory::PerCpu(Bytes::from_mib(1000))),
        cancelled_by: None,
        extras: None,
        sched_nodes: None,
    }
}

/// The same, running on one node since `start`.
pub fn running(id: u32, name: &str, owner: Principal, node: &str, start: Timestamp) -> JobView {
    let mut job = pending(id, name, owner, Reason::None);
    job.state = JobState::Running;
    job.start = Some(start);
    job.end = job.time_limit.duration().map(|limit| start + limit);
    job.allocation = Some(Box::new(allocation(vec![share(node, 1, 1000, &[], 1)])));
    job
}

/// The job of `s1-*`: four CPUs, 8G and two GPUs.
pub fn train() -> JobView {
    let mut job = running(3, "train", alice(), "node1", at(0, 46, 19));
    let request = Request {
        cpus_per_task: Range::exactly(4),
        cpus_per_task_given: true,
        memory: Memory::PerNode(Range::exactly(Bytes::from_gib(8))),
        gres: vec![gpu_request(Per::Node, 2)],
        ..Request::default()
    };
    job.spec = Arc::new(spec("train", alice(), request));
    job.priority = 1412;
    job.time_limit = TimeLimit::Minutes(10);
    job.end = Some(at(0, 56, 19));
    job.cpus = 4;
    job.allocation = Some(Box::new(allocation(vec![share("node1", 4, 8192, &[0, 1], 1)])));
    job.tres = Tres::parse("cpu=4,mem=8G,node=1,billing=4,gres/gpu=2").expect("a good list").into();
    job.steps = vec![Step {
        id: StepId::Batch,
        name: "batch".into(),
        start: at(0, 46, 19),
        nodes: vec!["node1".into()],
        tasks: 1,
        cpus: 4,
        waiting: vec!["node1".into()],
        layout: Vec::new(),
        shares: Vec::new(),
        overlap: false,
        ticket: 0,
        end: None,
        exit: ExitStatus::default(),
        usage: Usage::default(),
        submit_line: String::new(),
        cpu_frequency: None,
        image: None,
    }];
    job
}

/// The pending tasks of the array of `s4-*`.
pub fn sweep_pending() -> JobView {
    let mut job = pending(14, "sweep", alice(), Reason::Resources);
    sweep_common(&mut job);
    job.array = Some(Box::new(ArrayView {
        array: JobId(14),
        index: None,
        pending: Some(IndexSet::from_range(16, 23)),
        throttle: None,
    }));
    job
}

/// A running task of that array.
pub fn sweep_task(index: u32) -> JobView {
    let node = if index < 8 { "node2" } else { "node1" };
    let mut job = running(15 + index, "sweep", alice(), node, at(0, 46, 49));
    sweep_common(&mut job);
    job.end = Some(at(1, 6, 49));
    job.array = Some(Box::new(ArrayView {
        array: JobId(14),
        index: Some(index),
        pending: None,
        throttle: None,
    }));
    job
}

fn sweep_common(job: &mut JobView) {
    let request = Request { gres: vec![gpu_request(Per::Node, 1)], ..Request::default() };
    let mut spec = spec("sweep", alice(), request);
    std::sync::Arc::make_mut(&mut spec.launch).stdout = Some("sweep-%A_%a.out".into());
    job.spec = Arc::new(spec);
    job.priority = 1321;
    job.submit = at(0, 46, 48);
    job.eligible = Some(at(0, 46, 49));
    job.last_planned = Some(at(0, 46, 49));
    job.time_limit = TimeLimit::Minutes(20);
    job.tres =
        Tres::parse("cpu=1,mem=1000M,node=1,billing=1,gres/gpu=1").expect("a good list").into();
}
