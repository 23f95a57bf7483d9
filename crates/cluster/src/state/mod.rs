//! The state of the cluster: one value, changed only by `apply`.
//!
//! - What it holds: `job`, `node`, `machine`, `power`, `restore_wait`, `id_ranges`, `disk_use`.
//! - What is charged: `association_tree`, `charged_usage`, `account_cost`, `held_bytes`.
//! - What is derived and kept: `cache`, `change_log`, `hardware`, `priority_totals`, `last_runs`, `user_jobs`. `intern` shares equal parts of jobs.

pub mod account_cost;
pub mod association_tree;
pub mod cache;
pub(crate) mod change_log;
pub mod charged_usage;
pub mod disk_use;
pub mod hardware;
pub mod held_bytes;
pub mod id_ranges;
pub mod intern;
pub mod job;
pub mod last_runs;
pub mod machine;
pub mod node;
pub mod power;
pub mod priority_totals;
pub mod restore_wait;
pub mod user_jobs;

use crate::config::ClusterConfig;
use crate::membership::{JoinRecord, RecentJoin};
use crate::token::{JoinToken, UserToken};
use crate::web_session::WebSession;
use association_tree::AssociationTree;
use cache::Cache;
use change_log::ChangeLog;
use charged_usage::ChargedUsage;
use hardware::Hardware;
use held_bytes::HeldBytes;
use id_ranges::IdRangeTable;
use intern::Interner;
use job::Job;
use last_runs::LastRuns;
use model::account::{Account, Association, NORMAL_QOS, Qos};
use model::activity::Activities;
use model::backend::Backend;
use model::deleted::DeletedEntries;
use model::dynamic_node::DynamicNode;
use model::hostlist;
use model::id::{JobId, RunId};
use model::machine::{Machine, Offer};
use model::partition::Partition;
use model::power::PowerCounts;
use model::price::Cost;
use model::principal::Role;
use model::project::{KnownUser, Project};
use model::reservation::Reservation;
use model::run::Run;
use model::secret::Sealed;
use model::ssh_fleet::SshFleet;
use model::time::Timestamp;
use model::topology::Topology;
use model::trigger::Trigger;
use model::volume::Volume;
use node::Node;
use priority_totals::PriorityTotals;
use restore_wait::RestoreWait;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use user_jobs::UserJobs;

/// The priority of the first job under `priority/basic`; each later one has one less.
pub const FIRST_PRIORITY: u64 = 4_294_901_760;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub term: u64,
    /// When the first server of the cluster took over. Absent in states of before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Timestamp>,
    pub config: Arc<ClusterConfig>,
    pub nodes: BTreeMap<String, Node>,
    /// In the order of the configuration.
    pub partitions: Vec<Arc<Partition>>,
    /// Shared with the copies that snapshots and plans are made from; changed by copy on write.
    pub jobs: BTreeMap<JobId, Arc<Job>>,
    /// Runs of many jobs: arrays. A run of one job follows from the job.
    pub runs: BTreeMap<RunId, Run>,
    /// Tasks with a record of their own, by array and index; an array leaves with its last task.
    pub arrays: BTreeMap<JobId, BTreeMap<u32, JobId>>,
    pub accounts: BTreeMap<String, Account>,
    pub associations: Vec<Association>,
    pub qos: BTreeMap<String, Arc<Qos>>,
    /// What was deleted of these three.
    #[serde(default, skip_serializing_if = "DeletedEntries::is_empty")]
    pub deleted: DeletedEntries,
    pub roles: BTreeMap<String, Role>,
    /// By the name of their account; an account without an entry has no administrators of its own.
    #[serde(default)]
    pub projects: BTreeMap<String, Project>,
    /// The default gateways of projects that have one of their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub default_gateways: BTreeMap<String, String>,
    #[serde(default)]
    pub users: BTreeMap<String, KnownUser>,
    /// What was done beside the jobs.
    #[serde(default)]
    pub activities: Activities,
    pub reservations: BTreeMap<String, Arc<Reservation>>,
    /// The number of the newest reservation.
    #[serde(default)]
    pub last_reservation: u32,
    pub tokens: BTreeMap<String, JoinToken>,
    /// Node to the fingerprint of the certificate that identifies it.
    pub agents: BTreeMap<String, String>,
    /// How each of them joined; see [`JoinRecord`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub joins: BTreeMap<String, JoinRecord>,
    /// Joins of the last minutes, by the digest of their certificate requests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub recent_joins: BTreeMap<String, RecentJoin>,
    /// Nodes that may join once more, until then.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejoins: BTreeMap<String, Timestamp>,
    /// Nodes whose machines were removed: they join by a file of their own, or by an administrator's word.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub shut_out: BTreeSet<String>,
    pub user_tokens: BTreeMap<String, UserToken>,
    /// Browsers that are signed in, by the hashes of their secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub web_sessions: BTreeMap<String, WebSession>,
    /// By project and name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, BTreeMap<String, Sealed>>,
    /// Sources of machines that calls have made, by name. Those of sluice.toml are in `config`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backends: BTreeMap<String, Backend>,
    /// Fleets over SSH, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fleets: BTreeMap<String, SshFleet>,
    /// Nodes that no configuration file names, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dynamic_nodes: BTreeMap<String, DynamicNode>,
    /// Machines that were asked of sources, by token; of those that are gone, the newest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub machines: BTreeMap<String, Machine>,
    /// The number of the newest machine.
    #[serde(default)]
    pub last_machine: u32,
    /// What machines have cost that are not kept any more, by source and month.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub former_machine_costs: BTreeMap<String, BTreeMap<String, Cost>>,
    /// What the jobs of each account have cost, by month. An account has what those below it have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub account_costs: BTreeMap<String, BTreeMap<String, Cost>>,
    /// What jobs were charged for the machines of each source, by month.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub served_costs: BTreeMap<String, BTreeMap<String, Cost>>,
    /// What each source offers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub offers: BTreeMap<String, Arc<Vec<Offer>>>,
    /// By project and name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, BTreeMap<String, Volume>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub triggers: BTreeMap<u32, Trigger>,
    /// The number of the newest trigger.
    #[serde(default)]
    pub last_trigger: u32,
    /// How many nodes went up and down in the last minute.
    #[serde(default, skip_serializing_if = "PowerCounts::is_default")]
    pub power_counts: PowerCounts,
    pub next_job: u32,
    /// When the state was last restored from a backup, or the loss of the journal's end was settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<Timestamp>,
    /// Nodes that jobs of before that wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_wait: Option<RestoreWait>,
    pub next_priority: u64,
    /// Which ids the users of an account's images have on nodes.
    #[serde(default, skip_serializing_if = "IdRangeTable::is_empty")]
    pub id_ranges: IdRangeTable,
    #[serde(default, rename = "spending")]
    pub charged_usage: ChargedUsage,
    /// Kept only where priorities depend on it.
    #[serde(default, skip_serializing_if = "LastRuns::is_empty")]
    pub last_runs: LastRuns,
    /// Derived: ended jobs by their end, for the purge of old records.
    #[serde(skip)]
    pub ended: BTreeSet<(Timestamp, JobId)>,
    /// Derived: jobs that hold resources.
    #[serde(skip)]
    pub active: BTreeSet<JobId>,
    /// Derived: jobs that wait and are not held, which the plan considers.
    #[serde(skip)]
    pub queue: BTreeSet<JobId>,
    /// Derived: the jobs of each user.
    #[serde(skip)]
    pub user_jobs: UserJobs,
    /// Derived: the replicas of services, and the records that hold their pending ones.
    #[serde(skip)]
    pub replicas: BTreeSet<JobId>,
    /// Derived: what the jobs hold of memory and disk, by user.
    #[serde(skip)]
    pub held_bytes: HeldBytes,
    /// Derived: the parts that equal jobs share in memory.
    #[serde(skip)]
    pub interner: Interner,
    /// Derived: accounts and users as a tree.
    #[serde(skip)]
    pub(crate) tree: Cache<AssociationTree>,
    /// Derived: the tree with its raw usage, for the scheduler.
    #[serde(skip)]
    pub(crate) accounting: Cache<sched::accounting::Accounting>,
    /// Derived: the rank of each association by fair share.
    #[serde(skip)]
    pub(crate) fair_share_ranks: Cache<Vec<sched::order::fair_tree::BranchRank>>,
    /// Derived: the totals that priorities are computed against.
    #[serde(skip)]
    pub(crate) priority_totals: Cache<PriorityTotals>,
    /// Derived: nodes and partitions with nothing on them, for feasibility at submit.
    #[serde(skip)]
    pub(crate) hardware: Cache<Hardware>,
    /// Derived: what jobs ask for, for placements that keep GPUs usable. Counted anew each `PriorityCalcPeriod`.
    #[serde(skip)]
    pub(crate) typical_jobs: Cache<Vec<sched::view::TypicalJob>>,
    /// Derived: the switches of topology.conf with the nodes that name one themselves.
    #[serde(skip)]
    pub(crate) topology: Cache<Topology>,
    /// Derived: what changed lately, for views.
    #[serde(skip)]
    pub(crate) change_log: ChangeLog,
}

impl Default for State {
    fn default() -> Self {
        Self {
            term: 0,
            begun: None,
            config: Arc::default(),
            nodes: BTreeMap::new(),
            partitions: Vec::new(),
            jobs: BTreeMap::new(),
            runs: BTreeMap::new(),
            arrays: BTreeMap::new(),
            accounts: [("root".to_string(), root_account())].into(),
            associations: Vec::new(),
            qos: [(NORMAL_QOS.to_string(), Arc::new(Qos::named(NORMAL_QOS)))].into(),
            deleted: DeletedEntries::default(),
            roles: BTreeMap::new(),
            projects: BTreeMap::new(),
            default_gateways: BTreeMap::new(),
            users: BTreeMap::new(),
            activities: Activities::default(),
            reservations: BTreeMap::new(),
            last_reservation: 0,
            tokens: BTreeMap::new(),
            agents: BTreeMap::new(),
            joins: BTreeMap::new(),
            recent_joins: BTreeMap::new(),
            rejoins: BTreeMap::new(),
            shut_out: BTreeSet::new(),
            user_tokens: BTreeMap::new(),
            web_sessions: BTreeMap::new(),
            secrets: BTreeMap::new(),
            backends: BTreeMap::new(),
            fleets: BTreeMap::new(),
            dynamic_nodes: BTreeMap::new(),
            machines: BTreeMap::new(),
            last_machine: 0,
            former_machine_costs: BTreeMap::new(),
            account_costs: BTreeMap::new(),
            served_costs: BTreeMap::new(),
            offers: BTreeMap::new(),
            volumes: BTreeMap::new(),
            triggers: BTreeMap::new(),
            last_trigger: 0,
            power_counts: PowerCounts::default(),
            next_job: 1,
            restored: None,
            restore_wait: None,
            next_priority: FIRST_PRIORITY,
            id_ranges: IdRangeTable::default(),
            ended: BTreeSet::new(),
            active: BTreeSet::new(),
            queue: BTreeSet::new(),
            user_jobs: UserJobs::default(),
            replicas: BTreeSet::new(),
            held_bytes: HeldBytes::default(),
            interner: Interner::default(),
            charged_usage: ChargedUsage::default(),
            last_runs: LastRuns::default(),
            tree: Cache::default(),
            accounting: Cache::default(),
            fair_share_ranks: Cache::default(),
            priority_totals: Cache::default(),
            hardware: Cache::default(),
            typical_jobs: Cache::default(),
            topology: Cache::default(),
            change_log: ChangeLog::default(),
        }
    }
}

/// The root of the account tree, which always exists.
fn root_account() -> Account {
    Account {
        name: "root".into(),
        description: "default root account".into(),
        organization: "root".into(),
        parent: None,
        coordinators: Vec::new(),
    }
}

impl State {
    /// Whether the configuration has a machine of this name: a node, or a login node.
    pub fn has_machine(&self, name: &str) -> bool {
        self.nodes.contains_key(name) || self.config.login_nodes.iter().any(|node| node == name)
    }

    /// Whether a join file for a group of nodes covers this name.
    pub(crate) fn fits_group_token(&self, name: &str) -> bool {
        let mut groups = self.tokens.values().filter_map(|token| token.group.as_ref());
        groups.any(|group| hostlist::contains(&group.pattern, name))
    }

    /// Whether the holder of this certificate is the agent of this node.
    pub fn speaks_for(&self, node: &str, fingerprint: &str) -> bool {
        let is_current = self.agents.get(node).is_some_and(|known| known == fingerprint);
        let former = self.joins.get(node).and_then(|record| record.former.as_deref());
        is_current || former == Some(fingerprint)
    }

    /// Whether the node's agent has a certificate that has not ended.
    pub fn has_live_certificate(&self, node: &str, now: Timestamp) -> bool {
        let has_ended = self.joins.get(node).is_some_and(|record| record.certificate_end <= now);
        self.agents.contains_key(node) && !has_ended
    }

    /// Whether the node is a machine that became a FUTURE node which it is like.
    pub fn is_dynamic_future(&self, node: &str) -> bool {
        self.joins.get(node).is_some_and(|record| record.future)
    }

    /// The network between the nodes; `None` where the site describes none.
    pub fn topology(&self) -> Option<Arc<Topology>> {
        let configured = self.config.topology.as_ref()?;
        Some(self.topology.get(|| {
            configured.with_nodes(
                self.nodes.iter().filter_map(|(name, node)| {
                    Some((name.as_str(), node.config.topology.as_deref()?))
                }),
            )
        }))
    }

    pub fn partition(&self, name: &str) -> Option<&Arc<Partition>> {
        self.partitions.iter().find(|p| p.name == name)
    }

    pub fn default_partition(&self) -> Option<&Arc<Partition>> {
        self.partitions.iter().find(|p| p.default)
    }

    /// The indices of the partitions that a request names, in its order; the default if it names none. `None` if one is
    /// unknown.
    pub fn partition_indices(&self, asked: &[String]) -> Option<Vec<u32>> {
        let position = |name: &str| self.partitions.iter().position(|p| p.name == name);
        if asked.is_empty() {
            let default = self.partitions.iter().position(|p| p.default)?;
            return Some(vec![default as u32]);
        }
        asked.iter().map(|name| position(name).map(|i| i as u32)).collect()
    }

    /// The same without those that are gone since it was asked for; `None` if no other is left.
    pub fn known_partition_indices(&self, asked: &[String]) -> Option<Vec<u32>> {
        let position = |name: &String| self.partitions.iter().position(|p| p.name == *name);
        match asked {
            [] => self.partition_indices(asked),
            asked => {
                let known: Vec<u32> =
                    asked.iter().filter_map(position).map(|at| at as u32).collect();
                (!known.is_empty()).then_some(known)
            }
        }
    }

    /// The record of an array's task, if it has one of its own.
    pub fn task_job(&self, array: JobId, index: u32) -> Option<&Job> {
        self.jobs.get(self.arrays.get(&array)?.get(&index)?).map(Arc::as_ref)
    }

    /// Every record of an array: the one for its pending tasks, and one for each other task.
    pub fn array_jobs(&self, array: JobId) -> Vec<&Arc<Job>> {
        let whole = self.jobs.get(&array).filter(|j| j.pending.is_some());
        let tasks = self.arrays.get(&array).into_iter().flat_map(|tasks| tasks.values());
        whole.into_iter().chain(tasks.filter_map(|id| self.jobs.get(id))).collect()
    }

    /// The array that the job belongs to and how many of its tasks may run at a time (`%N`); `None` where that has no bound. A
    /// task that was requeued has a record of its own, and the bound is for it too.
    pub fn throttle(&self, job: &Job) -> Option<(JobId, u32)> {
        let array = job.task.map_or(job.id, |task| task.array);
        let whole = self.job(array)?;
        let most = whole.pending.as_ref().map_or(whole.throttle, |pending| pending.throttle)?;
        Some((array, most))
    }

    /// How many tasks of an array run.
    pub(crate) fn running_tasks(&self, array: JobId) -> u32 {
        let tasks = self.arrays.get(&array).into_iter().flat_map(|tasks| tasks.values());
        tasks.filter(|id| self.active.contains(id)).count() as u32
    }

    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).map(Arc::as_ref)
    }

    /// Puts a job into the queue or takes it out, by its present phase and hold.
    pub(crate) fn enqueue(&mut self, id: JobId) {
        if self.job(id).is_some_and(|job| job.is_waiting() && job.hold.is_none()) {
            self.queue.insert(id)
        } else {
            self.queue.remove(&id)
        };
    }

    /// The same state with the lists of its nodes whose order carries no meaning in one order: two states compare as equal
    /// however their jobs came and went.
    pub fn with_sorted_lists(&self) -> Self {
        let mut state = self.clone();
        for node in state.nodes.values_mut() {
            node.holders.sort_unstable();
            node.used.sort_lists();
        }
        state
    }

    /// Fills in what is derived from the stored fields, after a snapshot was read.
    pub fn rebuild_derived(&mut self) {
        self.change_log.note_anything();
        self.runs.retain(|_, run| !run.tasks.is_empty());
        self.ended.clear();
        self.active.clear();
        self.queue.clear();
        self.user_jobs = UserJobs::default();
        self.replicas.clear();
        self.held_bytes = HeldBytes::default();
        let ids: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in ids {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            if let Some(job) = Arc::get_mut(job) {
                job.intern(&mut self.interner);
            }
            self.user_jobs.add(job);
            if job.spec.launch.service.is_some() {
                self.replicas.insert(id);
            }
            self.held_bytes.add(job);
            if let Some(ended) = job.ended() {
                self.ended.insert((ended.end, id));
            }
            // Snapshots of before had no ranges; whoever has a job that was started has one.
            let has_started =
                job.attempt().is_some() || job.ended().is_some_and(|ended| ended.start.is_some());
            if has_started {
                self.id_ranges.give(job.spec.owner.uid);
            }
            if job.attempt().is_some() {
                self.active.insert(id);
            }
            self.enqueue(id);
        }
        self.count_node_use();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Snapshots of before told a run of one job too, and no run its tasks.
    #[test]
    fn snapshot_from_before_runs_had_tasks_is_read() {
        let mut old = serde_json::to_value(State::default()).expect("state");
        old["runs"] = serde_json::json!({"00000000-0000-4000-8000-000000000005": {"id": "00000000-0000-4000-8000-000000000005", "name": "x", "kind": "batch", "owner": "ann", "job": 5}});
        let mut state: State = serde_json::from_value(old).expect("the old snapshot");
        state.rebuild_derived();
        assert!(state.runs.is_empty(), "a run of one job is told by the job: {:?}", state.runs);
    }
}
