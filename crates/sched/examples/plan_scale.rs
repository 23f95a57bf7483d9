//! A large cluster and a long queue, planned: the numbers of the specification.
//!
//! `cargo run --release -p sched --example plan_scale [seed]`: 100,000 pending jobs of 1,000
//! users in 200 shapes (a fifth on several nodes), 10,000 nodes of 8 GPUs in 8 classes, 90 % busy. At the end, machines for
//! 1,000 jobs in 1,000 shapes over 1,400 types in 3 regions; `plan_scale SEED machines` is that alone, some times over.

#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock, its arguments and its own memory"
)]

use model::allocation::{Allocation, GresShare, NodeShare};
use model::amount::Bytes;
use model::cpuset::CpuSet;
use model::id::JobId;
use model::machine::{Offer, OfferedGpus};
use model::node::{NodeConfig, NodeGres};
use model::partition::Partition;
use model::price::Price;
use model::principal::{Principal, Role};
use model::range::Range;
use model::request::{DeviceMake, GresRequest, Memory, Per, Request};
use model::run::{Component, JobSpec, Launch, LaunchKind};
use model::time::{TimeLimit, Timestamp};
use sched::machines::{MachineView, Source};
use sched::view::{Availability, DependencyState, NodeUse};
use sched::{HeldShares, Memo, NodeInfo, PartitionInfo, PendingJob, Plan, RunningJob, View};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NODES: u32 = 10_000;
const CLASSES: u32 = 8;
const JOBS: u32 = 100_000;
const USERS: u64 = 1_000;
const SHAPES: u64 = 200;
const RESERVATIONS: u32 = 1_000;
/// Jobs that machines are made for, and the types and regions that there are for them.
const MACHINE_JOBS: usize = 1_000;
const TYPES: u64 = 1_400;
const REGIONS: u64 = 3;
/// How often machines are decided on where nothing else is measured.
const MACHINE_ROUNDS: u32 = 11;
/// Rounds whose plan is compared with one from nothing.
const CHECKED: u64 = 3;
const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

/// A small generator (splitmix64): the same seed gives the same cluster everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn class_kind(class: u32) -> String {
    ["h100", "h200", "a100", "b200", "l40s", "a40", "gh200", "mi300"][class as usize].to_string()
}

fn node(at: u32) -> NodeConfig {
    let class = at % CLASSES;
    let cpus = [64, 96, 128, 96, 64, 48, 72, 128][class as usize];
    let mut node = NodeConfig::plain(&format!("node{at:05}"), cpus, Bytes::from_gib(1_024));
    (node.sockets, node.cores_per_socket) = (2, cpus / 2);
    node.features = vec![format!("class{class}")];
    node.gres = vec![NodeGres::plain("gpu", Some(&class_kind(class)), 8)];
    node
}

/// A fifth on several whole nodes of one kind; the rest a part of one node, of any kind or of one.
fn shapes(random: &mut Random) -> Vec<Request> {
    (0..SHAPES)
        .map(|at| {
            let several = at % 5 == 0;
            let gpus = if several { 8 } else { 1 << random.below(4) };
            let kinds = if several || random.below(2) == 0 {
                vec![class_kind(random.below(u64::from(CLASSES)) as u32)]
            } else {
                Vec::new()
            };
            let cpus_each = 1 + random.below(6) as u32;
            Request {
                nodes: Range::exactly(if several { 2 << random.below(5) } else { 1 }),
                nodes_given: several,
                tasks_per_node: Some(gpus as u32),
                cpus_per_task: Range::exactly(cpus_each),
                memory: Memory::PerNode(Range::exactly(Bytes::from_gib(
                    gpus * (4 + 4 * random.below(16)),
                ))),
                gres: vec![GresRequest {
                    per: Per::Node,
                    name: "gpu".to_string(),
                    kinds,
                    count: Range::exactly(gpus),
                    by_model: false,
                    make: DeviceMake::default(),
                    device_memory: None,
                    total_memory: None,
                }],
                time_limit: Some(TimeLimit::Minutes(30 + 10 * random.below(280) as u32)),
                ..Request::default()
            }
        })
        .collect()
}

fn spec(request: Request, uid: u32) -> JobSpec {
    JobSpec {
        name: "job".into(),
        owner: Principal {
            name: format!("user{uid}"),
            uid,
            gid: uid,
            group: format!("user{uid}"),
            groups: Vec::new(),
            role: Role::User,
            token_limit: None,
        }
        .into(),
        account: None,
        qos: None,
        components: [Component { request: request.into() }].into(),
        launch: Launch {
            kind: LaunchKind::Batch,
            script: None,
            environment: None,
            arguments: Vec::new(),
            work_dir: "/tmp".into(),
            command: None,
            stdin: None,
            stdout: None,
            stderr: None,
            first_step: None,
            configuration: None,
            service: None,
            port_forwards: None,
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
        submit_host: "".into(),
        submit_sid: 0,
        mail: None,
        schedule: None,
        utilization: None,
        inactivity_s: None,
        call: None,
    }
}

/// Fills nodes with jobs of 1, 2, 4 or 8 GPUs until nine tenths of the GPUs are held.
fn occupy(nodes: &mut [NodeInfo], random: &mut Random) -> Vec<Arc<RunningJob>> {
    let mut running = Vec::new();
    for (at, node) in nodes.iter_mut().enumerate() {
        let mut gpu = 0u32;
        while gpu < 8 {
            let gpus = (1u32 << random.below(4)).min(8 - gpu);
            let first = gpu;
            gpu += gpus;
            if random.below(10) == 0 {
                continue;
            }
            let each = node.config.cpus / 8;
            let share = NodeShare {
                node: node.config.name.clone(),
                cpus: (first * each..(first + gpus) * each).collect::<CpuSet>(),
                memory: Bytes::from_gib(u64::from(gpus) * 100),
                gres: vec![GresShare {
                    name: "gpu".to_string(),
                    kind: node.config.gres[0].kind.clone(),
                    count: u64::from(gpus),
                    indices: (first..first + gpus).collect(),
                }],
                tasks: gpus,
                sharers: 1,
                disk: Bytes(0),
                price: None,
            };
            let uid = 1_000 + random.below(USERS) as u32;
            hold(&mut node.used, &share, uid);
            let allocation = Allocation { partition: "main".to_string(), nodes: vec![share] };
            running.push(Arc::new(RunningJob {
                job: JobId(running.len() as u32 + 1),
                uid,
                account: format!("account{}", uid % 50),
                qos: "normal".to_string(),
                association: None,
                partition: 0,
                shares: HeldShares::of(&Arc::new(allocation), |_| Some(at as u32)),
                end: Some(NOW + Duration::from_secs(60 + random.below(172_800))),
                exclusive: false,
                reservation: None,
                start: NOW,
                requeue: true,
                priority: 0,
                is_ending: false,
                suspended: false,
                resume_when_free: false,
                licenses: Vec::new(),
            }));
        }
    }
    running
}

fn hold(used: &mut NodeUse, share: &NodeShare, uid: u32) {
    used.cpus.union(&share.cpus);
    used.memory = Bytes(used.memory.0 + share.memory.0);
    used.gres.extend(share.gres.iter().cloned());
    used.jobs += 1;
    used.users.push(uid);
    used.users.sort_unstable();
    used.users.dedup();
}

fn world(seed: u64) -> View {
    let mut random = Random(seed);
    let mut nodes: Vec<NodeInfo> = (0..NODES)
        .map(|at| NodeInfo {
            config: Arc::new(node(at)),
            availability: Availability::Available,
            used: NodeUse::default(),
        })
        .collect();
    let running = occupy(&mut nodes, &mut random);
    let shapes = shapes(&mut random);
    let first = running.len() as u32 + 1;
    let queue = (0..JOBS).map(|at| {
        let request = shapes[random.below(SHAPES) as usize].clone();
        let uid = 1_000 + random.below(USERS) as u32;
        Arc::new(PendingJob {
            job: JobId(first + at),
            tasks: 1,
            tasks_allowed: None,
            spec: Arc::new(spec(request, uid)),
            priority: random.below(1_000_000),
            priorities: Vec::new(),
            submit: NOW - Duration::from_secs(u64::from(JOBS - at)),
            hold: None,
            dependency: DependencyState::Met,
            begin: None,
            partitions: vec![0],
            account: format!("account{}", uid % 50),
            qos: "normal".to_string(),
            association: None,
            fixed_reason: None,
            awaits: Vec::new(),
            awaits_any: false,
            het: None,
        })
    });
    let queue = queue.collect();
    let names = nodes.iter().map(|node| node.config.name.clone()).collect();
    let mut view = View {
        partitions: vec![PartitionInfo {
            partition: Arc::new(Partition::over("main", names)),
            nodes: (0..NODES).collect(),
        }],
        nodes: nodes.into_iter().map(Arc::new).collect(),
        running,
        queue,
        ..View::default()
    };
    view.policy.backfill_slots_max = RESERVATIONS;
    view
}

/// What the cluster would do: the starts run and leave the queue.
fn carry_out(view: &mut View, plan: &Plan) {
    let by_job: std::collections::HashMap<JobId, &Arc<PendingJob>> =
        view.queue.iter().map(|waiting| (waiting.job, waiting)).collect();
    let mut started = Vec::new();
    for start in &plan.starts {
        let waiting = by_job[&start.job];
        let number = |share: &NodeShare| share.node[4..].parse::<u32>().expect("a number");
        let shares = HeldShares::of(&start.allocation, |share| Some(number(share)));
        let uid = waiting.spec.owner.uid;
        for (node, share) in shares.iter() {
            hold(&mut Arc::make_mut(&mut view.nodes[node as usize]).used, share, uid);
        }
        started.push(Arc::new(RunningJob {
            job: start.job,
            uid,
            account: waiting.account.clone(),
            qos: waiting.qos.clone(),
            association: None,
            partition: 0,
            shares,
            end: start.time_limit.duration().map(|length| NOW + length),
            exclusive: false,
            reservation: None,
            start: NOW,
            requeue: true,
            priority: 0,
            is_ending: false,
            suspended: false,
            resume_when_free: false,
            licenses: Vec::new(),
        }));
    }
    let gone: std::collections::HashSet<JobId> = plan.starts.iter().map(|s| s.job).collect();
    view.queue.retain(|waiting| !gone.contains(&waiting.job));
    view.running.extend(started);
    view.running.sort_by_key(|running| running.job);
}

/// One running job is over.
fn end_one(view: &mut View, at: usize) {
    let ended = view.running.remove(at);
    let rest: Vec<Arc<RunningJob>> = view.running.clone();
    for node in ended.shares.nodes() {
        let info = Arc::make_mut(&mut view.nodes[node as usize]);
        info.used = NodeUse::default();
        for other in &rest {
            for (_, share) in other.shares.iter().filter(|(on, _)| *on == node) {
                hold(&mut info.used, share, other.uid);
            }
        }
    }
}

fn memory_peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1_024
}

/// The time that this thread has had a processor for, where the machine says so: beside other work
/// the wall's clock says little.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

struct Watch {
    began: Instant,
    on_processor: Duration,
}

impl Watch {
    fn start() -> Self {
        Self { on_processor: on_processor(), began: Instant::now() }
    }

    fn said(&self, what: &str, results: &str) {
        let wall = self.began.elapsed().as_secs_f64() * 1e3;
        let own = (on_processor() - self.on_processor).as_secs_f64() * 1e3;
        println!("{what}: {wall:.1} ms, {own:.1} ms on the processor; {results}");
    }
}

fn counts(plan: &Plan) -> String {
    format!(
        "{} start, {} wait, {} keep a place",
        plan.starts.len(),
        plan.reasons.len(),
        plan.estimates.len()
    )
}

/// The types of a cloud in three regions: without GPUs, and with 1 to 8 of each kind.
fn offers(random: &mut Random) -> Vec<Offer> {
    let kinds = u64::from(CLASSES);
    let offer = |at: u64, region: u64, random: &mut Random| {
        let cpus: u32 = 2 << (at % 7);
        let gpus = (at.is_multiple_of(4)).then(|| OfferedGpus {
            kind: class_kind((at / 4 % kinds) as u32),
            count: 1 << (at / 32 % 4),
            memory: Some(Bytes::from_gib(80)),
        });
        let dollars = f64::from(cpus) * 0.04
            + gpus.as_ref().map_or(0.0, |gpus| f64::from(gpus.count) * 2.0)
            + random.below(100) as f64 / 1_000.0;
        Offer {
            id: format!("type{at}"),
            cpus,
            memory: Bytes::from_gib(u64::from(cpus) * (2 + 2 * (at % 4))),
            disk: Bytes::from_gib(100),
            gpus,
            region: format!("region{region}"),
            price: Price::from_dollars(dollars).expect("a price"),
            spot: at.is_multiple_of(2),
        }
    };
    let places = (0..TYPES).flat_map(|at| (0..REGIONS).map(move |region| (at, region)));
    places.map(|(at, region)| offer(at, region, random)).collect()
}

/// Machines for jobs that all ask for something else, on a cluster without nodes.
fn machines(view: &View, seed: u64) {
    let mut random = Random(seed);
    let queue = view.queue.iter().take(MACHINE_JOBS).enumerate().map(|(at, waiting)| {
        let asked = waiting.spec.components[0].request.clone();
        let memory = Memory::PerNode(Range::exactly(Bytes::from_mib(1_024 + 7 * at as u64)));
        let gres = if at % 3 == 0 { asked.gres.clone() } else { Vec::new() };
        let request = Request { memory, gres, ..(*asked).clone() };
        let spec = Arc::new(spec(request, waiting.spec.owner.uid));
        Arc::new(PendingJob { spec, ..(**waiting).clone() })
    });
    let mut partition = Partition::over("main", Vec::new());
    partition.dynamic_members.all = true;
    let cluster = View {
        partitions: vec![PartitionInfo { partition: Arc::new(partition), nodes: Vec::new() }],
        queue: queue.collect(),
        ..View::default()
    };
    let source = Source {
        name: "cloud".to_string(),
        backend: "remote".to_string(),
        makes_pods: false,
        makes_root_pods: false,
        features: vec!["cloud".to_string()],
        offers: Arc::new(offers(&mut random)),
        failed: Vec::new(),
        machines: 0,
        price_hour: Price::default(),
        machines_max: 10_000,
        price_hour_max: None,
        budget_left: None,
        boot: Duration::from_secs(600),
        own_first: true,
        project: None,
        fleet: None,
    };
    let count = source.offers.len();
    let there = MachineView { sources: vec![source], room: 100_000, ..MachineView::default() };
    let plan = sched::plan(&cluster, NOW, &mut Memo::default());
    let watch = Watch::start();
    let made = sched::machines::machines(&cluster, &plan, NOW, &there);
    let what = format!("machines for {} jobs over {count} offers", cluster.queue.len());
    watch.said(&what, &format!("{} are asked for", made.orders.len()));
}

fn main() {
    let seed = std::env::args().nth(1).and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut view = world(seed);
    if std::env::args().nth(2).as_deref() == Some("machines") {
        for _ in 0..MACHINE_ROUNDS {
            machines(&view, seed);
        }
        return;
    }
    println!(
        "seed {seed}: {} nodes, {} running, {} waiting; {} MiB before the first plan",
        view.nodes.len(),
        view.running.len(),
        view.queue.len(),
        memory_peak_mib()
    );
    let mut memo = Memo::default();
    let watch = Watch::start();
    let plan = sched::plan(&view, NOW, &mut memo);
    watch.said("a plan from nothing", &counts(&plan));
    carry_out(&mut view, &plan);
    drop(plan);
    let plan = sched::plan(&view, NOW, &mut memo);
    carry_out(&mut view, &plan);
    let rounds = std::env::args().nth(2).and_then(|rounds| rounds.parse().ok()).unwrap_or(5u64);
    for round in 1..=rounds {
        end_one(&mut view, 100 * round as usize);
        let later = NOW + Duration::from_secs(round);
        let watch = Watch::start();
        let plan = sched::plan(&view, later, &mut memo);
        watch.said("after one job ended", &counts(&plan));
        if round <= CHECKED {
            let anew = sched::plan(&view, later, &mut Memo::default());
            assert!(plan == anew, "a memo changed the plan");
        }
        carry_out(&mut view, &plan);
    }
    let watch = Watch::start();
    let estimates = sched::estimates(&view, NOW, &mut Memo::default());
    watch.said("estimates for all", &format!("{} of {}", estimates.len(), view.queue.len()));
    println!("memory at most: {} MiB", memory_peak_mib());
    machines(&view, seed);
}
