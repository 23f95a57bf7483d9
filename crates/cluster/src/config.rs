//! The configuration as the state machine knows it: journalled, so that a replay needs no files.

use model::binding::BindPolicy;
use model::budget::Budget;
use model::ip_network::IpNetwork;
use model::limits::CgroupPolicy;
use model::machine::SourceConfig;
use model::node::NodeConfig;
use model::partition::{DefaultMemory, Partition};
use model::power::PowerPolicy;
use model::preempt::PreemptPolicy;
use model::price::Price;
use model::priority::PriorityPolicy;
use model::private_data::PrivateData;
use model::project::ProjectRole;
use model::run::{NicePolicy, RlimitPolicy};
use model::select::Select;
use model::site::Site;
use model::topology::Topology;
use sched::view::{BackfillLimits, SchedulerPolicy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterConfig {
    pub name: String,
    pub nodes: Vec<NodeConfig>,
    /// In the order of the file, which is the order of `sinfo`.
    pub partitions: Vec<Partition>,
    pub parameters: Parameters,
    /// Canonical key to value, for `scontrol show config`.
    pub shown: BTreeMap<String, String>,
    /// `topology.conf`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Arc<Topology>>,
    /// `cgroup.conf`; the default constrains all that can be.
    pub limits: CgroupPolicy,
    /// `autodetect`, `cgroup/v1`, `cgroup/v2`, `disabled`.
    pub cgroup_plugin: String,
    /// Prolog and epilog programs, usage sampling, scratch folders.
    #[serde(default)]
    pub site: Site,
    /// `host:port` of the agents' port as the nodes find it; empty: at this machine's own addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub server_addresses: Vec<String>,
    /// `SlurmctldHost`: hosts that the server may move to, beside its own machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<String>,
    /// The certificate that the clients' port shows; without one, the cluster's own authority makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_certificate: Option<CertificateFiles>,
    /// Machines whose agents vouch for every ordinary user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub login_nodes: Vec<String>,
    /// How long an agent's certificate is good for; it renews itself when half of it is over.
    #[serde(default = "certificate_life", skip_serializing_if = "is_certificate_life")]
    pub certificate_life: Duration,
    /// `/metrics` is shown to anybody.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open_metrics: bool,
    /// Web pages of jobs are shown.
    #[serde(default = "job_pages", skip_serializing_if = "is_job_pages")]
    pub job_pages: bool,
    /// Where services and web pages of jobs are found.
    #[serde(default, skip_serializing_if = "ProxyConfig::is_default")]
    pub proxy: ProxyConfig,
    /// Folders that nodes share, for volumes, with the nodes that have each; `None` for all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shared_folders: BTreeMap<String, Option<Vec<String>>>,
    /// What an hour of a node costs, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prices: BTreeMap<String, Price>,
    /// Where machines come from that are made for waiting jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceConfig>,
    /// What the jobs of accounts may cost in a month.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Budget>,
    /// The most bytes of one upload of a client; `None` for the usual bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_bytes_max: Option<u64>,
    /// `AuthAltTypes=auth/jwt`: JSON Web Tokens are taken, and what signs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwt_key: Option<JwtKey>,
    /// Single sign-on by OpenID Connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oidc: Option<OidcConfig>,
}

/// A provider of identities, and what its users become here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OidcConfig {
    /// The provider's address, as its tokens name it.
    pub issuer: String,
    pub client_id: String,
    /// The file of the client's secret, by its absolute path; `None` for a client without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<String>,
    /// Certificates of authorities to trust beside the machine's, by an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorities: Option<String>,
    /// Where the provider sends browsers back to.
    pub redirect_url: String,
    pub scopes: Vec<String>,
    /// The claim that is the name of a user of this machine.
    pub user_claim: String,
    /// The claim that has the user's groups.
    pub groups_claim: String,
    /// What members of each group become.
    #[serde(default)]
    pub groups: BTreeMap<String, Vec<GroupGrant>>,
}

/// What a member of a provider's group becomes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupGrant {
    /// A member of this project.
    Project { name: String, role: ProjectRole },
    /// A user of this account.
    Account { name: String },
}

/// Where the key of JSON Web Tokens is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JwtKey {
    /// In a file that the server makes among its own keys.
    Own,
    /// In this file of the site, by its absolute path.
    File(String),
}

/// Where services and web pages of jobs are found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProxyConfig {
    /// The port of their own; `None` for the usual one.
    pub listen: Option<ProxyListen>,
    /// The domain below which each service has a host name, with a port where it is not the usual one.
    pub domain: Option<String>,
    /// Each request to a service is logged.
    pub access_log: bool,
    /// The gateway of services that name none; without it every gateway is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_gateway: Option<String>,
    /// Proxies of the site before this one, whose word for a client's address and scheme is believed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trusted_proxies: Vec<IpNetwork>,
}

impl ProxyConfig {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The port of services and web pages of jobs. It is bound at the start of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyListen {
    /// They are found at the clients' port, and share its origin.
    Off,
    At(SocketAddr),
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// How long an agent's certificate is good for where the site says nothing.
pub const CERTIFICATE_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

fn certificate_life() -> Duration {
    CERTIFICATE_LIFE
}

/// Pages of jobs are shown where the site says nothing.
fn job_pages() -> bool {
    true
}

fn is_job_pages(given: &bool) -> bool {
    *given == job_pages()
}

fn is_certificate_life(life: &Duration) -> bool {
    *life == CERTIFICATE_LIFE
}

/// A certificate of the site and its key, as absolute paths of PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateFiles {
    pub certificate: String,
    pub key: String,
}

/// `PurgeJobAfter` of slurmdbd.conf, and where the records go then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeJobs {
    pub after: PurgeAge,
    /// `ArchiveDir`, where `ArchiveJobs` says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
}

/// How old a record becomes. Whole hours, days and months of the server's clock: a purge takes place at the start of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PurgeAge {
    Hours(u32),
    Days(u32),
    Months(u32),
}

/// The parameters of slurm.conf that the state machine honours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parameters {
    pub slurmd_timeout_s: u32,
    pub kill_wait_s: u32,
    pub min_job_age_s: u32,
    pub max_job_count: u32,
    /// `MaxNodeCount`: how many nodes there may be, with dynamic ones; fewer than are configured: no dynamic ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_node_count: u32,
    pub max_array_size: u32,
    /// The most tasks of one array; `None` for as many as there are indices.
    pub max_array_tasks: Option<u32>,
    /// The most bytes of a batch script; `None` for the program's own bound.
    pub max_script_bytes: Option<u32>,
    /// Tasks of one step on one node.
    pub max_tasks_per_node: u32,
    /// Steps that one attempt of a job may create.
    pub max_step_count: u32,
    pub first_job_id: u32,
    pub max_job_id: u32,
    pub job_requeue: bool,
    pub return_to_service: u8,
    pub default_memory: Option<DefaultMemory>,
    pub max_memory: Option<DefaultMemory>,
    /// Without a configuration a core brings its part of the node's memory.
    pub memory_by_core: bool,
    pub backfill: bool,
    pub enforce_associations: bool,
    pub enforce_limits: bool,
    pub enforce_qos: bool,
    /// `AccountingStorageEnforce=safe`.
    pub enforce_safe: bool,
    /// Whether jobs are recorded in the books; `AccountingStorageEnforce=nojobs` turns it off.
    pub book_jobs: bool,
    /// Whether steps are recorded in the books; `nosteps` and `nojobs` turn it off.
    pub book_steps: bool,
    /// `AccountingStoreFlags=job_script`: the scripts of ended jobs are kept with the books.
    pub keep_scripts: bool,
    /// `AccountingStoreFlags=job_env`
    pub keep_environments: bool,
    /// How many days after the end of its last job a kept script or environment goes, and how many MiB all of them may be.
    pub kept_text_days: u32,
    pub kept_text_mib: u32,
    /// When the records of jobs leave the books; `None`: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purge_jobs: Option<PurgeJobs>,
    /// `EnforcePartLimits`: refuse at submit what a partition's limits forbid.
    pub enforce_partition_limits: bool,
    /// `EnforcePartLimits=ALL`: every partition that a job names must admit it.
    pub enforce_all_partitions: bool,
    pub select: Select,
    /// `DefCpuPerGPU`
    pub cpus_per_gpu: Option<u32>,
    /// `max_switch_wait`
    pub switch_wait_s: u32,
    /// `OverTimeLimit`; `u32::MAX`: without a limit.
    pub over_time_limit_min: u32,
    pub unkillable_step_timeout_s: u32,
    pub bind: BindPolicy,
    pub rlimits: RlimitPolicy,
    pub nice: NicePolicy,
    pub job_file_append: bool,
    /// `GresTypes`, and every name that a node has.
    pub gres_types: Vec<String>,
    pub priority: PriorityPolicy,
    /// `Licenses`: how many there are of each.
    pub licenses: BTreeMap<String, u64>,
    /// `ResvOverRun`: how long a job may run on after its reservation; none: without a limit.
    pub reservation_over_run_min: Option<u32>,
    pub preempt: PreemptPolicy,
    /// `PreemptMode=GANG`: jobs that share the same cores take turns of so many seconds.
    #[serde(rename = "slice_s")]
    pub gang_slice_s: Option<u32>,
    /// Waiting jobs of each partition for which backfill keeps a slot.
    #[serde(rename = "places_kept")]
    pub backfill_slots_max: u32,
    #[serde(rename = "reserve")]
    pub backfill_limits: BackfillLimits,
    /// How long a requeued job waits before it may start again.
    pub requeue_wait_s: u32,
    /// Exit codes of scripts that requeue them, as ranges from, to.
    pub requeue_exits: Vec<(i32, i32)>,
    /// Exit codes of scripts that requeue and hold them.
    pub requeue_exits_held: Vec<(i32, i32)>,
    /// `enable_user_top`
    pub user_top: bool,
    /// `pack_serial_at_end`: jobs of one CPU get the last nodes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pack_serial_at_end: bool,
    /// `kill_invalid_depend`: a job whose dependency can never be met is cancelled.
    pub kill_invalid_dependency: bool,
    /// `PrivateData`: what ordinary users are not shown of others.
    pub private_data: PrivateData,
    /// Power saving, and reboots.
    #[serde(skip_serializing_if = "PowerPolicy::is_default")]
    pub power: PowerPolicy,
}

impl Parameters {
    /// Limits also apply where `AccountingStorageEnforce` is not set.
    pub fn enforces_limits(&self) -> bool {
        self.enforce_limits || !self.enforce_associations
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            slurmd_timeout_s: 300,
            kill_wait_s: 30,
            min_job_age_s: 300,
            max_job_count: 10_000,
            max_node_count: 0,
            max_array_size: 1001,
            max_array_tasks: None,
            max_script_bytes: None,
            max_tasks_per_node: 512,
            max_step_count: model::bounds::STEPS.most as u32,
            first_job_id: 1,
            max_job_id: 0x03ff_0000,
            job_requeue: true,
            return_to_service: 0,
            default_memory: None,
            max_memory: None,
            memory_by_core: false,
            backfill: true,
            enforce_associations: false,
            enforce_limits: false,
            enforce_qos: false,
            enforce_safe: false,
            book_jobs: true,
            book_steps: true,
            keep_scripts: false,
            keep_environments: false,
            kept_text_days: 365,
            kept_text_mib: 10 << 10,
            purge_jobs: None,
            enforce_partition_limits: false,
            enforce_all_partitions: false,
            select: Select::default(),
            cpus_per_gpu: None,
            switch_wait_s: SchedulerPolicy::default().switch_wait_s,
            over_time_limit_min: 0,
            unkillable_step_timeout_s: 60,
            bind: BindPolicy::default(),
            rlimits: RlimitPolicy::default(),
            nice: NicePolicy::default(),
            job_file_append: false,
            gres_types: Vec::new(),
            priority: PriorityPolicy::default(),
            licenses: BTreeMap::new(),
            reservation_over_run_min: Some(0),
            preempt: PreemptPolicy::default(),
            gang_slice_s: None,
            backfill_slots_max: SchedulerPolicy::default().backfill_slots_max,
            backfill_limits: BackfillLimits::default(),
            requeue_wait_s: 0,
            requeue_exits: Vec::new(),
            requeue_exits_held: Vec::new(),
            user_top: false,
            pack_serial_at_end: false,
            kill_invalid_dependency: false,
            private_data: PrivateData::default(),
            power: PowerPolicy::default(),
        }
    }
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            name: "sluice".into(),
            nodes: Vec::new(),
            partitions: Vec::new(),
            parameters: Parameters::default(),
            shown: BTreeMap::new(),
            topology: None,
            limits: CgroupPolicy::default(),
            cgroup_plugin: "autodetect".into(),
            site: Site::default(),
            server_addresses: Vec::new(),
            controllers: Vec::new(),
            server_certificate: None,
            login_nodes: Vec::new(),
            certificate_life: CERTIFICATE_LIFE,
            open_metrics: false,
            job_pages: job_pages(),
            proxy: ProxyConfig::default(),
            shared_folders: BTreeMap::new(),
            prices: Default::default(),
            sources: Vec::new(),
            budgets: Vec::new(),
            upload_bytes_max: None,
            jwt_key: None,
            oidc: None,
        }
    }
}
