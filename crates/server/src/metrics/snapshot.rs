//! What a scrape shows, taken from one state of the cluster.

use crate::auth::principal::server_principal;
use crate::clock;
use crate::shared::counters::CounterSnapshot;
use crate::shared::run_totals::{RunCounts, project_of_account};
use crate::shared::scrapes::Reader;
use crate::shared::service_counts::{ServiceName, ServiceValues};
use crate::shared::totals::TotalValues;
use crate::shared::{LastPlan, Shared};
use crate::show::{cluster_view, job_view, machine_list};
use cluster::state::account_cost::AccountCost;
use cluster::{Job, State, requested};
use model::fleet::MAIN_PROJECT;
use model::gpu_series::GpuSeries;
use model::private_data::PrivateKind;
use model::run::JobState;
use model::time::Timestamp;
use slurm::words;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use wire::client::ServerView;
use wire::machine::MachinesView;
use wire::view::{ClusterView, NodeView};

/// Jobs with series of their own: the newest that hold resources.
const JOBS_MAX: usize = 10_000;

/// Reasons that are told apart; the jobs of further ones are counted together.
const REASONS_MAX: usize = 64;

const OTHER_REASON: &str = "Other";

/// The values of one scrape.
pub struct Snapshot {
    /// For totals all nodes, also where the reader is told of none by its name.
    pub cluster: ClusterView,
    pub names_nodes: bool,
    pub queue: Queue,
    /// Jobs that hold resources; empty for a reader who may not see them.
    pub active: Vec<Arc<Job>>,
    /// What exporters on nodes say, by node.
    pub relayed: HashMap<String, Arc<GpuSeries>>,
    pub agents: u64,
    pub orders_queued: u64,
    pub counters: CounterSnapshot,
    pub totals: TotalValues,
    /// Runs by project and user; without their names for a reader who may not see them.
    pub runs: RunCounts,
    /// The accounts of `active` that are projects.
    pub projects: HashSet<Arc<str>>,
    /// The project of each fleet over SSH.
    pub fleet_projects: BTreeMap<String, String>,
    /// Requests to services; empty for a reader who may not see whose they are.
    pub services: Vec<(ServiceName, ServiceValues)>,
    /// Machines on demand; empty, as the costs of accounts, for a reader who may not see them.
    pub machines: MachinesView,
    pub account_costs: BTreeMap<String, AccountCost>,
    pub started: Timestamp,
    pub term: u64,
    /// The servers of the cluster, where there may be several.
    pub servers: Vec<ServerView>,
    /// How long ago this server has heard from their database.
    pub store_heard: Option<Duration>,
}

/// Numbers of jobs. A pending task of an array is a job.
#[derive(Default)]
pub struct Queue {
    pub by_state: BTreeMap<&'static str, u64>,
    pub by_partition: BTreeMap<(String, &'static str), u64>,
    pub by_reason: BTreeMap<String, u64>,
    /// When the job that has waited longest could have started.
    pub oldest: Option<Timestamp>,
}

impl Snapshot {
    pub fn take(shared: &Shared, reader: Reader) -> Snapshot {
        let now = clock::now();
        let last_plan = shared.volatile.last_plan();
        let counters = shared.volatile.counters.snapshot();
        let services = match reader {
            Reader::Operator => shared.volatile.service_counts.values(),
            Reader::Anonymous => Vec::new(),
        };
        let (agents, orders_queued) = shared.agents.queued();
        let facts = shared.volatile.facts.read().expect("no panic while writing facts").clone();
        let state = shared.read();
        let mut cluster = cluster_view::cluster_of(&state, &facts, &server_principal(), now);
        let mut queue = Queue::of(&state, &last_plan);
        let fleet_projects: BTreeMap<String, String> = state
            .fleets
            .iter()
            .map(|(name, fleet)| (name.clone(), fleet.project.clone()))
            .collect();
        if reader == Reader::Anonymous {
            // A fleet of a project is shown to its members alone, and nobody says who an anonymous reader is.
            let is_shown = |fleet: &str| {
                fleet_projects.get(fleet).is_none_or(|project| project == MAIN_PROJECT)
            };
            cluster.nodes.retain(|node| is_shown(&node.config.fleet));
            cluster.partitions.retain(|partition| is_shown(&partition.name));
            queue.by_partition.retain(|(partition, _), _| is_shown(partition));
        }
        // What is private is so to whoever may ask without being an operator.
        let private = &state.config.parameters.private_data;
        let is_hidden = |kind| reader == Reader::Anonymous && private.hides(kind);
        let names_nodes = !is_hidden(PrivateKind::Nodes);
        if is_hidden(PrivateKind::Partitions) {
            cluster.partitions.clear();
            queue.by_partition.clear();
            cluster.nodes.iter_mut().for_each(|node| node.partitions.clear());
        }
        let mut relayed = shared.volatile.relayed.shown(now);
        if reader == Reader::Anonymous {
            let nodes = cluster.nodes.iter().filter(|_| names_nodes);
            let named: HashSet<&str> = nodes.map(|node| node.config.name.as_str()).collect();
            relayed.retain(|node, _| named.contains(node.as_str()));
        }
        let shown = match reader {
            Reader::Operator => JOBS_MAX,
            Reader::Anonymous => 0,
        };
        let newest = state.active.iter().rev().take(shown);
        let active: Vec<Arc<Job>> = newest.filter_map(|id| state.jobs.get(id).cloned()).collect();
        let accounts = active.iter().map(|job| job.account.clone());
        let projects =
            accounts.filter(|name| project_of_account(&state, name) == &**name).collect();
        let mut runs = shared.volatile.run_totals.counts();
        if reader == Reader::Anonymous {
            runs.hide_names();
        }
        let (machines, account_costs) = match reader {
            Reader::Operator => {
                let statuses = &shared.volatile.source_statuses;
                let bound = &shared.setup.agents_addresses;
                let machines = machine_list::view(&state, statuses, bound, now);
                (machines, state.account_costs_at(now))
            }
            Reader::Anonymous => Default::default(),
        };
        Snapshot {
            cluster,
            names_nodes,
            queue,
            active,
            relayed,
            agents,
            orders_queued,
            counters,
            totals: shared.volatile.totals.values(),
            runs,
            projects,
            fleet_projects,
            services,
            machines,
            account_costs,
            started: shared.setup.started,
            term: state.term,
            servers: shared.volatile.servers.views(),
            store_heard: shared.volatile.servers.contact.last_heard().map(|at| at.elapsed()),
        }
    }

    /// The nodes that have series of their own.
    pub fn named_nodes(&self) -> &[NodeView] {
        if self.names_nodes { &self.cluster.nodes } else { &[] }
    }
}

impl Queue {
    fn of(state: &State, last_plan: &LastPlan) -> Queue {
        let mut queue = Queue::default();
        // Jobs of one partition and state follow one another often: their counts are added at once.
        let mut partitions: BTreeMap<&str, BTreeMap<&'static str, u64>> = BTreeMap::new();
        for job in state.jobs.values().filter(|job| !job.has_ended()) {
            let jobs = job.pending.as_ref().map_or(1, |pending| pending.indices.len());
            let word = words::job::long(job.state());
            *queue.by_state.entry(word).or_default() += jobs;
            let partition = match job.allocation() {
                Some(allocation) => Some(allocation.partition.as_str()),
                None => requested::partitions(state, job).next(),
            };
            let counts = partitions.entry(partition.unwrap_or_default()).or_default();
            *counts.entry(word).or_default() += jobs;
            if job.state() == JobState::Pending {
                queue.add_reason(
                    &words::reason::text(&job_view::reason(state, job, last_plan)),
                    jobs,
                );
                let since = job.begin.unwrap_or(job.submit).max(job.submit);
                if job.hold.is_none() {
                    queue.oldest = Some(queue.oldest.map_or(since, |oldest| oldest.min(since)));
                }
            }
        }
        queue.by_partition = partitions
            .into_iter()
            .flat_map(|(name, counts)| {
                counts.into_iter().map(move |(word, jobs)| ((name.to_owned(), word), jobs))
            })
            .collect();
        queue
    }

    /// Counts the jobs of a reason by its first words: what follows names nodes and accounts.
    fn add_reason(&mut self, reason: &str, jobs: u64) {
        let short = reason.split([',', '(']).next().unwrap_or_default().trim();
        if let Some(count) = self.by_reason.get_mut(short) {
            *count += jobs;
            return;
        }
        let key = if self.by_reason.len() < REASONS_MAX { short } else { OTHER_REASON };
        *self.by_reason.entry(key.to_owned()).or_default() += jobs;
    }
}
