//! The handles that the server's threads and handlers share: the sending ends of queues, locks, caches.
//!
//! - The state and its threads: `state_lock`, `writer_queue`, `books_queue`, `dispatch_queue`, `planner_signal`, `forecast_queue`,
//!   `log_queue`, `mail_queue`; who waits for a commit: `commit_watch`, `change_log`; other servers: `server_list`, and
//!   the database that they share: `store_contact`.
//! - Agents: `agent_links`, `agent_queries`, `agent_streams`, `agent_rates`, `left_hosts`, `link_shutdown`, `health_reports`, `live_loads`, `relayed_series`.
//! - Steps: `step_queue`, `step_launches`. Machines on demand: `source_status`.
//! - Who signs in: `failed_sign_ins`, `token_uses`, `sign_ons`, `web_sessions`, `shell_tickets`, `proxy_sessions`, `ssh_keys`, `ssh_connections`.
//! - Runs and services: `run_texts`, `uploads`, `probe_streaks`, `service_counts`, `gateways`.
//! - Figures: `counters`, `totals`, `run_totals`, `load_history`, `scrapes`.
//! - Threads: `runtime_thread` says whether this one has others beside it.
//! - Bounds: `long_calls` on calls that take long, `books_room` on what jobs leave in the books.
//!
//! Nothing in this folder knows the threads or handlers that use it. It imports only `auth`, `clock`, `configure`,
//! `error`, `per_user`, `rate_limit`, `user_shares` and its own files, so that everything else may import it.

pub mod agent_links;
pub mod agent_queries;
pub mod agent_rates;
pub mod agent_streams;
pub mod books_queue;
pub mod books_room;
pub mod change_log;
pub mod commit_watch;
pub mod counters;
pub mod dispatch_queue;
pub mod failed_sign_ins;
pub mod forecast_queue;
pub mod gateways;
pub mod health_reports;
pub mod left_hosts;
pub mod link_shutdown;
pub mod live_loads;
pub mod load_history;
pub mod log_queue;
pub mod long_calls;
pub mod mail_queue;
pub mod planner_signal;
pub mod probe_streaks;
pub mod proxy_sessions;
pub mod relayed_series;
pub mod run_texts;
pub mod run_totals;
pub mod runtime_thread;
pub mod scrapes;
pub mod server_list;
pub mod service_counts;
pub mod shell_tickets;
pub mod sign_ons;
pub mod source_status;
pub mod ssh_connections;
pub mod ssh_keys;
pub mod state_lock;
pub mod step_launches;
pub mod step_queue;
pub mod store_contact;
pub mod token_uses;
pub mod totals;
pub mod uploads;
pub mod web_sessions;
pub mod writer_queue;

use crate::auth::identity::Identity;
use crate::auth::key_files::KeyFiles;
use crate::auth::logins::Logins;
use crate::auth::oidc::provider::ProviderCache;
use crate::auth::secret_keys::SecretKeys;
use crate::auth::subordinate_ids::SubordinateIds;
use crate::auth::token_accounts::TokenAccounts;
use crate::configure::Machine;
use crate::error::ServerError;
use crate::per_user::UserCounts;
use crate::rate_limit::LineRates;
use agent_links::AgentLinks;
use agent_rates::{AgentWarnings, LinkRates, RegistrationRates};
use books_queue::BooksQueue;
use books_room::BooksRoom;
use change_log::ChangeLog;
use cluster::State;
use commit_watch::CommitWatch;
use counters::Counters;
use dispatch_queue::DispatchQueue;
use failed_sign_ins::FailedSignIns;
use foldhash::fast::RandomState;
use forecast_queue::ForecastQueue;
use gateways::Gateways;
use health_reports::HealthReports;
use left_hosts::LeftHosts;
use live_loads::LiveLoads;
use load_history::LoadHistory;
use log_queue::LogQueue;
use long_calls::LongCalls;
use mail_queue::MailQueue;
use model::id::{BlobRef, JobId};
use model::machine::MachineAnswer;
use model::node::{NodeConfig, NodeFacts, NodeGres};
use model::reason::Reason;
use model::site;
use model::time::Timestamp;
use planner_signal::PlannerSignal;
use probe_streaks::ProbeStreaks;
use proxy_sessions::ProxySessions;
use relayed_series::RelayedSeries;
use run_texts::RunTexts;
use run_totals::RunTotals;
use scrapes::Scrapes;
use server_list::ServerList;
use service_counts::ServiceCounts;
use shell_tickets::ShellTickets;
use sign_ons::SignOns;
use source_status::SourceStatuses;
use ssh_connections::{InactivityTimes, SshConnections};
use ssh_keys::SshKeys;
use state_lock::{StateLock, StateRead};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};
use step_launches::StepLaunches;
use step_queue::StepQueue;
use token_uses::TokenUses;
use totals::Totals;
use uploads::Uploads;
use web_sessions::WebSessionUses;
use wire::diagnostics::LogLevel;
use wire::ssh::SshEndpoint;
use writer_queue::WriterQueue;

pub struct Shared {
    pub state: StateLock,
    pub blobs: Mutex<store::Blobs>,
    pub writer: WriterQueue,
    pub planner: PlannerSignal,
    pub forecasts: ForecastQueue,
    pub dispatch: DispatchQueue,
    pub books: BooksQueue,
    pub agents: AgentLinks,
    pub logs: LogQueue,
    pub mail: MailQueue,
    pub identity: Identity,
    /// The folder of the keys.
    pub key_files: KeyFiles,
    pub secret_keys: SecretKeys,
    pub uploads: Uploads,
    /// With which keys users come in by SSH.
    pub ssh_keys: SshKeys,
    /// Held for reading while a value that was encrypted is on its way into the state, so that its key is not removed.
    pub sealing: tokio::sync::RwLock<()>,
    pub commits: CommitWatch,
    pub volatile: Volatile,
    pub setup: Setup,
}

/// A node's machine, as its agent found it.
pub struct FoundMachine {
    pub config: NodeConfig,
    /// What of its devices has changed under running jobs.
    pub device_change: Option<String>,
}

/// Handles to what is lost with the process without harm: it is found out again.
#[derive(Default)]
pub struct Volatile {
    /// Calls that wait for a job, by user.
    pub waiting_calls: UserCounts,
    /// Kept logs that are being read, by user.
    pub log_readers: UserCounts,
    /// Calls that read the books or have a plan made.
    pub long_calls: LongCalls,
    /// What the jobs of each user added to the books lately, and what room there is.
    pub books_room: BooksRoom,
    /// Calls that list all there is of many jobs.
    pub whole_lists: LongCalls,
    /// Calls for long listings of jobs as lines.
    pub long_listings: LongCalls,
    /// Connections that are forwarded into jobs and out of them, by user.
    pub forwarded: UserCounts,
    pub token_uses: TokenUses,
    /// The owners of subordinate ids, which have no account.
    pub subordinate_ids: Arc<SubordinateIds>,
    /// Homes and shells of those who submit over HTTP.
    pub logins: Logins,
    /// The accounts of tokens' users.
    pub token_accounts: TokenAccounts,
    /// Held while the books are read for a login over SSH by a key that is nobody's.
    pub stranger_at_books: Mutex<()>,
    /// Replaced whole, so that a reader never holds up the planner.
    last_plan: RwLock<Arc<LastPlan>>,
    /// Load and memory of nodes, from their beats.
    pub facts: RwLock<HashMap<String, NodeFacts>>,
    /// What agents said about the health of nodes, and is too soon to be decided on.
    pub health_reports: HealthReports,
    /// Links that each agent, by its certificate, began lately.
    pub link_rates: LinkRates,
    /// How often each dynamic node became another lately.
    pub registration_rates: RegistrationRates,
    /// Lines of the log about nodes, and about strangers at the agents' port.
    pub agent_warnings: AgentWarnings,
    /// Hosts that left their fleets lately.
    pub left_hosts: LeftHosts,
    /// Lines of the log about the calls of each user.
    pub call_lines: LineRates<String>,
    /// Lines of the log about limits that each user has reached.
    pub limit_lines: LineRates<String>,
    /// Lines of the log about connections into jobs that each user could not have.
    pub forward_lines: LineRates<u32>,
    /// Lines of the log about keys and providers by which nobody can be let in.
    pub sign_in_lines: LineRates<&'static str>,
    /// Sign-ins that failed lately, by address and by account.
    pub failed_sign_ins: FailedSignIns,
    /// What exporters on nodes say of GPUs.
    pub relayed: RelayedSeries,
    /// The GPUs that agents found on their machines, by node.
    pub detected: RwLock<HashMap<String, Vec<NodeGres>>>,
    /// The machines of nodes as their agents found them.
    pub machines: RwLock<HashMap<String, FoundMachine>>,
    /// Launches of steps whose orders may not have arrived.
    pub step_launches: StepLaunches,
    /// Steps that wait for others of their job.
    pub step_queue: StepQueue,
    /// For `sdiag`.
    pub counters: Counters,
    /// For `/metrics`, with the texts of the last scrapes.
    pub totals: Totals,
    pub run_totals: RunTotals,
    /// The texts of runs that were shown lately.
    pub run_texts: RunTexts,
    pub live_loads: LiveLoads,
    /// How much of the cluster was in use.
    pub load_history: LoadHistory,
    pub scrapes: Scrapes,
    /// The configuration files could not be used at the start, and have not been read since.
    pub config_is_remembered: AtomicBool,
    /// How the sources of machines fare.
    pub source_statuses: SourceStatuses,
    /// A backup is being made.
    pub backup_runs: AtomicBool,
    /// The texts that the leader stores, of a server that waits for the lead: its own `blobs` has none.
    pub followed_blobs: Option<Arc<store::FollowedBlobs>>,
    /// Held by who moves or removes the blobs' files, and by who copies them.
    pub blob_files: Mutex<()>,
    /// Jobs were purged, or their texts' retention is over, since the last pass over the blobs.
    pub unneeded_blobs: AtomicBool,
    /// How many connections hold each interactive allocation.
    pub holders: Mutex<HashMap<JobId, u32>>,
    /// Connections by SSH, by job.
    pub ssh_connections: SshConnections,
    pub inactivity_times: InactivityTimes,
    /// Links and cookies for web pages of jobs.
    pub proxy: ProxySessions,
    /// When browsers that are signed in to the server's own page used their sessions last.
    pub web_session_uses: WebSessionUses,
    /// Browsers that are at an identity provider; and the provider.
    pub sign_ons: SignOns,
    pub oidc_provider: ProviderCache,
    /// Streams of changes that pages have open, by user; and what changed.
    pub web_streams: UserCounts,
    pub changes: ChangeLog,
    /// Shells in browsers: those that are asked for, and those that are open, by user.
    pub shell_tickets: ShellTickets,
    pub web_shells: UserCounts,
    /// Requests to services.
    pub service_counts: ServiceCounts,
    /// Gateways beside the server.
    pub gateways: Gateways,
    /// The lead is to be given up; the writer has stopped.
    pub handover: tokio::sync::Notify,
    /// The servers of the cluster, where there may be several.
    pub servers: Arc<ServerList>,
    /// How the probes of replicas went.
    pub probe_streaks: ProbeStreaks,
}

/// The reasons and estimates that the last plan gave the jobs that wait.
#[derive(Default)]
pub struct LastPlan {
    pub planned: Option<Timestamp>,
    /// Why each waits. Made anew with each plan, of a long queue many times a second.
    pub reasons: HashMap<JobId, Reason, RandomState>,
    /// When jobs with a backfill reservation are expected to start.
    pub estimates: HashMap<JobId, Timestamp, RandomState>,
    /// Whether a machine is made for jobs that wait for nodes, and why not.
    pub machines: HashMap<JobId, MachineAnswer, RandomState>,
}

impl LastPlan {
    /// A job that a machine could serve waits for resources, also where its partition has no node that could hold it.
    pub fn await_machines(&mut self) {
        for (job, answer) in &self.machines {
            if let Some(reason) = self.reasons.get_mut(job) {
                *reason = answer.reason(reason);
            }
        }
    }
}

impl Volatile {
    pub fn last_plan(&self) -> Arc<LastPlan> {
        self.last_plan.read().expect("no panic while a plan is stored").clone()
    }

    pub fn set_last_plan(&self, plan: LastPlan) {
        let mut last = self.last_plan.write().expect("no panic while a plan is stored");
        let former = std::mem::replace(&mut *last, Arc::new(plan));
        drop(last);
        // Outside of the lock: it may have a reason for each of a hundred thousand jobs.
        drop(former);
    }
}

/// How the server was started.
#[derive(Debug, Clone)]
pub struct Setup {
    pub machine: Option<Machine>,
    pub config_dir: Option<PathBuf>,
    /// The server's own part of the state folder.
    pub server_dir: PathBuf,
    pub agents_addresses: Vec<String>,
    pub listen: String,
    /// Where other machines find the clients' port.
    pub listen_addresses: Vec<String>,
    /// The port of services and web pages of jobs; `None` where they are found at the clients' port.
    pub proxy: Option<SocketAddr>,
    /// Where SSH clients find the server; `None` where it has no endpoint for them.
    pub ssh: Option<SshEndpoint>,
    /// The public key of the SSH endpoint, which nodes of one run reach one another by, as in `known_hosts`.
    pub ssh_host_key: String,
    /// The state folder as clients on this machine name it: what jobs get as `SLUICE_STATE`.
    pub client_state: Option<String>,
    pub hostname: String,
    /// The network stack of this process, as `agent::network_stack` names it; `None` where that cannot be told.
    pub network_stack: Option<String>,
    /// A snapshot is due after this many events.
    pub snapshot_events: u64,
    pub started: Timestamp,
    /// Sets how much this process logs.
    pub set_log_level: fn(LogLevel),
}

impl Shared {
    #[track_caller]
    pub fn read(&self) -> StateRead<'_> {
        self.state.read()
    }

    /// Whom a user counts as where each has a bound. Ids of a range, as of containers, count as the account that has the range: it
    /// could have thousands of users otherwise. What root and the server's own user may have is not for their ranges, which are a
    /// user each.
    pub fn counted_user(&self, uid: u32) -> u32 {
        self.counted_user_by(uid, |number| self.read().id_ranges.account_of(number))
    }

    /// The same for who holds the state.
    pub fn counted_user_in(&self, state: &State, uid: u32) -> u32 {
        self.counted_user_by(uid, |number| state.id_ranges.account_of(number))
    }

    fn counted_user_by(&self, uid: u32, account_of: impl FnOnce(u32) -> Option<u32>) -> u32 {
        let range = match site::id_range_of(uid) {
            Some(number) => {
                let first = site::ID_RANGE_FIRST + number * site::ID_RANGE_IDS;
                account_of(number).map(|owner| (owner, first))
            }
            None => self.volatile.subordinate_ids.owner(uid),
        };
        let own = nix::unistd::geteuid().as_raw();
        match range {
            Some((owner, first)) if [0, own].contains(&owner) => first,
            Some((owner, _)) => owner,
            None => uid,
        }
    }

    pub fn blob_bytes(&self, blob: &BlobRef) -> Result<Vec<u8>, ServerError> {
        let id = blob.into();
        let content = match &self.volatile.followed_blobs {
            Some(followed) => followed.get(&id)?,
            None => self.blobs.lock().expect("no panic with the blobs held").get(&id)?,
        };
        content.ok_or_else(|| ServerError::Other(format!("blob {blob} is missing")))
    }

    /// Whether this server waits for the lead: of what only the leader's memory has, it knows nothing.
    pub fn is_standby(&self) -> bool {
        self.volatile.followed_blobs.is_some()
    }

    /// The text of a blob that is UTF-8: of any but the script of a batch job.
    pub fn blob_text(&self, blob: &BlobRef) -> Result<String, ServerError> {
        let bytes = self.blob_bytes(blob)?;
        let not_text = |_| ServerError::Other(format!("blob {blob} is not UTF-8 text"));
        String::from_utf8(bytes).map_err(not_text)
    }
}
