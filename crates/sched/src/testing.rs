//! Builders for tests: a cluster and its jobs in a few lines, and plans as text.

use crate::free::node_free::{NodeFree, ShareHolder};
use crate::place::demand::Demand;
use crate::view::{
    Availability, DependencyState, HeldShares, NodeInfo, NodeUse, PartitionInfo, PendingJob, Plan,
    Preemption, RunningJob, View,
};
use model::account::NORMAL_QOS;
use model::allocation::{GresShare, NodeShare};
use model::amount::Bytes;
use model::id::JobId;
use model::node::{NodeConfig, NodeGres};
use model::partition::Partition;
use model::principal::{Principal, Role};
use model::range::Range;
use model::request::{DeviceMake, GresRequest, Memory, Per, Request, Sharing};
use model::run::{Component, JobSpec, Launch, LaunchKind};
use model::time::{TimeLimit, Timestamp};
use std::fmt::Write as _;
use std::sync::Arc;

pub const NOW: Timestamp = Timestamp::from_secs(1_000_000);

pub fn after_min(minutes: i64) -> Timestamp {
    Timestamp::from_secs(NOW.secs() + minutes * 60)
}

pub fn gpus(kind: &str, count: u64, first_index: u32) -> NodeGres {
    NodeGres { first_index, ..NodeGres::plain("gpu", Some(kind), count) }
}

/// 32 CPUs, 128,000 MiB, eight H100: a node of the reference lab.
pub fn gpu_node(name: &str) -> NodeConfig {
    let mut node = NodeConfig::plain(name, 32, Bytes::from_mib(128_000));
    (node.sockets, node.cores_per_socket) = (2, 16);
    node.gres = vec![gpus("h100", 8, 0)];
    node
}

/// `node1` and so on, all alike.
pub fn gpu_nodes(count: u32) -> Vec<NodeConfig> {
    (1..=count).map(|at| gpu_node(&format!("node{at}"))).collect()
}

/// These nodes, idle, in one partition `main`.
pub fn cluster(nodes: Vec<NodeConfig>) -> View {
    let names = nodes.iter().map(|node| node.name.clone()).collect();
    let members = (0..nodes.len() as u32).collect();
    let idle = |config| {
        Arc::new(NodeInfo {
            config: Arc::new(config),
            availability: Availability::Available,
            used: NodeUse::default(),
        })
    };
    View {
        nodes: nodes.into_iter().map(idle).collect(),
        partitions: vec![PartitionInfo {
            partition: Arc::new(Partition::over("main", names)),
            nodes: members,
        }],
        ..View::default()
    }
}

impl View {
    pub fn with_partition(
        mut self,
        name: &str,
        nodes: &[u32],
        set: impl Fn(&mut Partition),
    ) -> Self {
        let names = nodes.iter().map(|&at| self.nodes[at as usize].config.name.clone()).collect();
        let mut partition = Partition::over(name, names);
        set(&mut partition);
        self.partitions
            .push(PartitionInfo { partition: Arc::new(partition), nodes: nodes.to_vec() });
        self
    }

    pub fn with_main(mut self, set: impl Fn(&mut Partition)) -> Self {
        set(Arc::make_mut(&mut self.partitions[0].partition));
        self
    }

    pub fn with_jobs(mut self, jobs: impl IntoIterator<Item = PendingJob>) -> Self {
        self.queue.extend(jobs.into_iter().map(Arc::new));
        self
    }

    pub fn plan(&self) -> Plan {
        crate::plan(self, NOW, &mut crate::Memo::default())
    }

    /// Carries out a plan as the cluster would: the starts run, and leave the queue.
    pub fn carry_out(&mut self, plan: &Plan) {
        for start in &plan.starts {
            let at = self.queue.iter().position(|w| w.job == start.job).expect("it waited");
            let waiting = self.queue[at].clone();
            let partition_at = self
                .partitions
                .iter()
                .position(|p| p.partition.name == start.allocation.partition)
                .expect("a partition of the view");
            let partition = &self.partitions[partition_at].partition;
            let shares = HeldShares::of(&start.allocation, |share| {
                let named = |n: &Arc<NodeInfo>| n.config.name == share.node;
                Some(self.nodes.iter().position(named).expect("a node of the view") as u32)
            });
            let sharing = waiting.spec.request().sharing;
            let request = waiting.spec.request();
            let demand = Demand::new(request, partition, &self.policy, 0);
            let holder = ShareHolder {
                uid: waiting.spec.owner.uid,
                whole_node: demand.holder.whole_node,
                user_exclusive: sharing == Sharing::User || partition.exclusive_user,
            };
            shares.iter().for_each(|(node, share)| {
                occupy(Arc::make_mut(&mut self.nodes[node as usize]), start.job, share, holder)
            });
            self.running.push(Arc::new(RunningJob {
                job: start.job,
                uid: holder.uid,
                account: waiting.account.clone(),
                qos: waiting.qos.clone(),
                association: waiting.association,
                partition: partition_at as u32,
                shares,
                end: start.time_limit.duration().map(|length| NOW + length),
                exclusive: holder.whole_node,
                reservation: waiting.spec.request().reservation.clone(),
                start: NOW,
                requeue: waiting.spec.requeue,
                priority: 0,
                is_ending: false,
                suspended: false,
                resume_when_free: false,
                licenses: waiting.spec.request().licenses.clone(),
            }));
            Arc::make_mut(&mut self.queue[at]).tasks -= 1;
            if self.queue[at].tasks == 0 {
                self.queue.remove(at);
            }
        }
    }
}

/// Takes a share of a node, and fails the test if any of it is taken already or not there at all.
fn occupy(node: &mut NodeInfo, job: JobId, share: &NodeShare, holder: ShareHolder) {
    let free = NodeFree::of(node);
    let usable = share.cpus.is_subset(&node.config.usable_cpus());
    assert!(usable && node.used.admits_cpus(share), "CPUs {} of {:?}", share.cpus, free);
    if share.sharers <= 1 {
        assert!(share.cpus.is_subset(&free.cpus), "CPUs {} of {:?}", share.cpus, free);
    }
    assert!(share.memory <= free.memory, "{:?} of {:?}", share.memory, free);
    assert!(!free.exclusive && (!holder.whole_node || free.jobs == 0), "beside a whole-node job");
    for gres in share.gres.iter().filter(|gres| is_used_up(&node.config, gres)) {
        occupy_gres(node, gres);
    }
    node.used.take_cpus(share);
    node.used.memory = Bytes(node.used.memory.0 + share.memory.0);
    node.used.gres.extend(share.gres.iter().cloned());
    node.used.exclusive |= holder.whole_node;
    node.used.jobs += 1;
    node.used.users.push(holder.uid);
    node.used.users.sort_unstable();
    node.used.users.dedup();
    if holder.user_exclusive {
        node.used.user_exclusive.push((job, holder.uid));
    }
}

/// Fails the test if units of it are taken already, or not there.
fn occupy_gres(node: &NodeInfo, gres: &GresShare) {
    let held: Vec<&GresShare> = node.used.gres.iter().filter(|g| g.name == gres.name).collect();
    let parts = crate::free::node_free::gpus_shared_by(&node.config, gres);
    let whole =
        |g: &&GresShare| g.name == model::gres::GPU && g.indices.iter().any(|i| parts.contains(i));
    assert!(!node.used.gres.iter().any(|g| whole(&g)), "{gres:?} is given whole");
    if let [gpu] = parts {
        let lines = node.config.gres.iter().filter(|line| line.share_of == Some(*gpu));
        let there: u64 = lines.map(|line| line.count).sum();
        let taken: u64 = held.iter().filter(|g| g.indices == [*gpu]).map(|g| g.count).sum();
        assert!(taken + gres.count <= there, "{gres:?}");
        return;
    }
    let taken: Vec<u32> = held.iter().flat_map(|g| g.indices.clone()).collect();
    let total = node.config.gres_total(&gres.name) as u32;
    assert_eq!(gres.indices.len() as u64, gres.count);
    let is_free = |index: &u32| *index < total && !taken.contains(index);
    assert!(gres.indices.iter().all(is_free), "{gres:?}");
}

fn is_used_up(config: &NodeConfig, share: &GresShare) -> bool {
    !config.gres.iter().any(|line| line.name == share.name && line.no_consume)
}

/// One task of one CPU with 1 GiB for an hour, of user 1000 in partition `main`.
pub fn job(id: u32) -> PendingJob {
    let request = Request {
        memory: Memory::PerNode(Range::exactly(Bytes::from_gib(1))),
        time_limit: Some(TimeLimit::Minutes(60)),
        ..Request::default()
    };
    PendingJob {
        job: JobId(id),
        tasks: 1,
        tasks_allowed: None,
        spec: Arc::new(spec(request)),
        priority: 100,
        priorities: Vec::new(),
        submit: Timestamp::from_secs(i64::from(id)),
        hold: None,
        dependency: DependencyState::Met,
        begin: None,
        partitions: vec![0],
        account: "physics".to_string(),
        qos: NORMAL_QOS.to_string(),
        association: None,
        fixed_reason: None,
        awaits: Vec::new(),
        awaits_any: false,
        het: None,
    }
}

impl PendingJob {
    pub fn asking(mut self, ask: impl FnOnce(&mut Request)) -> Self {
        ask(Arc::make_mut(
            &mut Arc::make_mut(&mut Arc::make_mut(&mut self.spec).components)[0].request,
        ));
        self
    }

    pub fn with(mut self, set: impl FnOnce(&mut PendingJob)) -> Self {
        set(&mut self);
        self
    }

    pub fn of_user(mut self, uid: u32) -> Self {
        Arc::make_mut(&mut Arc::make_mut(&mut self.spec).owner).uid = uid;
        self
    }

    pub fn for_min(self, minutes: u32) -> Self {
        self.asking(|r| r.time_limit = Some(TimeLimit::Minutes(minutes)))
    }

    pub fn nodes(self, count: u32) -> Self {
        self.asking(|r| (r.nodes, r.nodes_given) = (Range::exactly(count), true))
    }

    pub fn cpus(self, count: u32) -> Self {
        self.asking(|r| r.cpus_per_task = Range::exactly(count))
    }

    pub fn gpus(self, per: Per, count: u64) -> Self {
        self.asking(|r| r.gres.push(gpu_request(per, &[], count)))
    }
}

pub fn gpu_request(per: Per, kinds: &[&str], count: u64) -> GresRequest {
    GresRequest {
        per,
        name: "gpu".to_string(),
        kinds: kinds.iter().map(|kind| kind.to_string()).collect(),
        count: Range::exactly(count),
        by_model: false,
        make: DeviceMake::default(),
        device_memory: None,
        total_memory: None,
    }
}

pub fn spec(request: Request) -> JobSpec {
    JobSpec {
        name: "job".into(),
        owner: Arc::new(Principal {
            name: "alice".to_string(),
            uid: 1000,
            gid: 1000,
            group: "alice".to_string(),
            groups: Vec::new(),
            role: Role::User,
            token_limit: None,
        }),
        account: None,
        qos: None,
        components: [Component { request: Arc::new(request) }].into(),
        launch: Arc::new(Launch {
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
            unattended: false,
            append_output: false,
            umask: 0o022,
            rlimits: Arc::default(),
            rlimits_asked: false,
            sample_s: None,
            container: None,
            service: None,
            port_forwards: None,
        }),
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

/// A plan as text: starts with their shares, waits with their reasons, estimates in minutes from now.
pub fn text(plan: &Plan) -> String {
    let mut text = String::new();
    for start in &plan.starts {
        let shares: Vec<String> = start.allocation.nodes.iter().map(share_text).collect();
        writeln!(text, "{} starts: {}", start.job, shares.join("; ")).expect("a string takes all");
    }
    for (job, reason) in &plan.reasons {
        writeln!(text, "{job} waits: {reason:?}").expect("a string takes all");
    }
    for gone in &plan.preemptions {
        let Preemption { victim, mode, grace_s, by } = gone;
        writeln!(text, "{victim} makes room for {by}: {mode:?} after {grace_s} s")
            .expect("a string takes all");
    }
    for job in &plan.resumes {
        writeln!(text, "{job} goes on").expect("a string takes all");
    }
    for estimate in &plan.estimates {
        let minutes = (estimate.start.secs() - NOW.secs()) / 60;
        writeln!(
            text,
            "{} expected in {minutes} min on {}",
            estimate.job,
            estimate.nodes.names().join(",")
        )
        .expect("a string takes all");
    }
    text
}

fn share_text(share: &NodeShare) -> String {
    let gres: Vec<String> = share
        .gres
        .iter()
        .map(|g| format!(" {}:{}{:?}", g.name, g.kind.as_deref().unwrap_or("-"), g.indices))
        .collect();
    let memory = share.memory.mib();
    format!("{} cpu {} mem {memory}M{} x{}", share.node, share.cpus, gres.concat(), share.tasks)
}

impl View {
    /// Ends the running job at this index.
    pub fn end(&mut self, at: usize) {
        let ended = self.running.remove(at);
        for (node, share) in ended.shares.iter() {
            let used = &mut Arc::make_mut(&mut self.nodes[node as usize]).used;
            if let Some(at) =
                used.shared.iter().position(|held| *held == (share.cpus.clone(), share.sharers))
            {
                used.shared.remove(at);
            }
            used.cpus.subtract(&share.cpus);
            used.shared.iter().for_each(|(cpus, _)| used.cpus.union(cpus));
            used.memory = Bytes(used.memory.0 - share.memory.0);
            for gres in &share.gres {
                let held = used.gres.iter().position(|held| held == gres).expect("it was held");
                used.gres.remove(held);
            }
            used.exclusive &= !ended.exclusive;
            used.jobs -= 1;
            used.user_exclusive.retain(|(job, _)| *job != ended.job);
            let on = |running: &&Arc<RunningJob>| running.shares.nodes().any(|on| on == node);
            used.users = self.running.iter().filter(on).map(|running| running.uid).collect();
            used.users.sort_unstable();
            used.users.dedup();
        }
    }
}
