//! What a site does around jobs on its nodes: prolog and epilog, health check, sampling of usage, scratch and private
//! folders, containers.

use crate::amount::Bytes;
use crate::container::Mount;
use crate::cpu_frequency::CpuFrequencyPolicy;
use crate::gpu_series::ExporterAddress;
use crate::health::HealthCheck;
use crate::run::LaunchKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The default of [`Site::sample_s`].
pub const SAMPLE_S_DEFAULT: u32 = 30;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Site {
    /// Run by root on each node before a job's processes, and `epilog` after them: paths, folders or patterns.
    pub prolog: Vec<String>,
    pub epilog: Vec<String>,
    /// Run by the job's user around each task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_prolog: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_epilog: Option<String>,
    /// Run by `srun` itself, as its user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srun_prolog: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srun_epilog: Option<String>,
    /// Run by the server, as its user, before a job's nodes are told of it and after its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_prolog: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_epilog: Option<String>,
    /// Run by the server, as its user, for each mail; `None` for the usual program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mail_program: Option<String>,
    /// What makes an address of a user's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mail_domain: Option<String>,
    /// `Alloc`: the prolog runs with the allocation, not before the first step on the node.
    pub prolog_at_allocation: bool,
    /// `NoHold`: the client of an allocation does not wait for the prologs; only its steps do.
    pub no_hold: bool,
    /// `DeferBatch`: a script waits for the prologs of all its nodes, not only of its own.
    pub defer_batch: bool,
    /// One prolog or epilog at a time on a node.
    pub one_at_a_time: bool,
    /// `None` for no timeout of prolog and epilog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u32>,
    /// A job whose prolog failed is requeued and held.
    pub hold_on_failure: bool,
    /// `None` where nodes are not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// Seconds between two samples of tasks' usage; 0: only at their ends.
    pub sample_s: u32,
    /// The parent of the jobs' scratch folders; `None` for the node's own files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private: Option<PrivateFolders>,
    /// Nodes whose private folders differ from `private`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub private_of: BTreeMap<String, Option<PrivateFolders>>,
    #[serde(skip_serializing_if = "ContainerSite::is_default")]
    pub containers: ContainerSite,
    /// NVIDIA's DCGM exporter on each node, whose series the server relays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dcgm_exporter: Option<ExporterAddress>,
    #[serde(skip_serializing_if = "CpuFrequencyPolicy::is_default")]
    pub cpu_frequency: CpuFrequencyPolicy,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            prolog: Vec::new(),
            epilog: Vec::new(),
            task_prolog: None,
            task_epilog: None,
            srun_prolog: None,
            srun_epilog: None,
            controller_prolog: None,
            controller_epilog: None,
            mail_program: None,
            mail_domain: None,
            prolog_at_allocation: false,
            no_hold: false,
            defer_batch: false,
            one_at_a_time: false,
            timeout_s: None,
            hold_on_failure: true,
            health_check: None,
            sample_s: SAMPLE_S_DEFAULT,
            scratch: None,
            private: None,
            private_of: BTreeMap::new(),
            containers: ContainerSite::default(),
            dcgm_exporter: None,
            cpu_frequency: CpuFrequencyPolicy::default(),
        }
    }
}

impl Site {
    pub fn has_prolog_epilog(&self) -> bool {
        let own = self.private_of.values().chain([&self.private]).flatten();
        let inits = own.filter(|folders| folders.init_script.is_some()).count();
        !self.prolog.is_empty() || !self.epilog.is_empty() || inits > 0
    }

    /// The settings of one node.
    pub fn on(&self, node: &str) -> Site {
        let private = self.private_of.get(node).unwrap_or(&self.private).clone();
        Site { private, private_of: BTreeMap::new(), ..self.clone() }
    }

    /// Whether a job's script or client waits until the prolog is over on all its nodes.
    pub fn prolog_is_awaited(&self, kind: LaunchKind, nodes: usize) -> bool {
        let waited = match kind {
            LaunchKind::Interactive => !self.no_hold,
            // On one node the script starts after the prolog anyway.
            LaunchKind::Batch => self.defer_batch && nodes > 1,
            LaunchKind::Task => false,
        };
        waited && self.prolog_at_allocation && !self.prolog.is_empty()
    }
}

/// `job_container.conf`: folders of which each job has its own version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateFolders {
    /// The parent of the private versions.
    pub base: String,
    /// `base` is made if it does not exist.
    pub make_base: bool,
    pub dirs: Vec<String>,
    /// Run by root before the private versions are mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_script: Option<String>,
}

/// The least bound of what a container may write: a smaller file system has no room for its own tables.
pub const CONTAINER_DISK_MIN: Bytes = Bytes(16 << 20);

/// dstack's own image with a Docker daemon, which its users know.
const DOCKER_IMAGE: &str = "dstackai/dind";

/// How containers run on the nodes of the site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerSite {
    /// The program that starts containers; `None` for the first of `runc` and `crun` that is found on the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// The image of dstack runs that name none; `None`: these run on the node's own file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_image: Option<String>,
    /// Whoever may run a job may have a privileged container, `docker: true` among them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub privileged: bool,
    /// The image of runs with `docker: true`.
    pub docker_image: String,
    /// The folder of images on each node; `None` for the node's own files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// The images on a node take no more than this.
    pub store_size: Bytes,
    /// Pulls at a time on a node.
    pub pulls: u32,
    /// When a registry is asked what a tag leads to.
    #[serde(skip_serializing_if = "ImagePull::is_always")]
    pub pull: ImagePull,
    /// What one container may write to its own files; `None` for as much as the node has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Bytes>,
    /// The home folder is mounted where a job does not say otherwise.
    pub mount_home: bool,
    /// Mounted into every container, where they exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Registries to ask instead of the one named, in this order.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mirrors: BTreeMap<String, Vec<String>>,
    /// Registries that are asked without TLS.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub insecure: Vec<String>,
    /// Certificates of authorities beside those of the node, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorities: Option<String>,
    #[serde(skip_serializing_if = "TaskUser::is_of_image")]
    pub task_user: TaskUser,
    /// The network of dstack's tasks that share their node.
    #[serde(skip_serializing_if = "NetworkPolicy::is_auto")]
    pub network: NetworkPolicy,
    /// The addresses of containers that have a network of their own.
    pub addresses: AddressRange,
    /// The ports of a node that lead into containers.
    pub ports: PortRange,
    /// Folders with vendors' files on devices (CDI); what a later one says of a device counts.
    pub cdi: Vec<String>,
    /// The ids that users of images have on nodes.
    #[serde(skip_serializing_if = "IdRanges::is_by_uid")]
    pub ids: IdRanges,
}

/// The ranges of ids that the server gives to accounts ([`IdRanges::Uid`]).
pub const ID_RANGES: u32 = 32_000;
/// The first id of all ranges: directories give accounts lower numbers, and so do distributions to subordinate ids.
pub const ID_RANGE_FIRST: u32 = 0x8000_0000;
/// From the first id of a range to that of the next.
pub const ID_RANGE_IDS: u32 = 65_536;

/// The number of the range that this id is in.
pub fn id_range_of(id: u32) -> Option<u32> {
    let number = id.checked_sub(ID_RANGE_FIRST)? / ID_RANGE_IDS;
    (number < ID_RANGES).then_some(number)
}

/// Where the ids come from that users of an image have on the node, beside its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdRanges {
    /// The server gives them: they follow from the number of the job's account, unless those are another account's.
    #[default]
    Uid,
    /// The account's in the node's `/etc/subuid` and `/etc/subgid`.
    Subuid,
}

impl IdRanges {
    fn is_by_uid(&self) -> bool {
        *self == Self::Uid
    }
}

/// Whether a registry is asked about the tag of an image that the node has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImagePull {
    /// At every start of a container: a tag may lead to another image since.
    #[default]
    Always,
    /// Only if the node has no image of that name: containers start without their registry.
    Missing,
}

impl ImagePull {
    fn is_always(&self) -> bool {
        *self == Self::Always
    }
}

/// Whom dstack's tasks are in their containers, where they name nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskUser {
    /// The image's user, else root; outside the job's user.
    #[default]
    Image,
    /// The job's user, inside too: engines run such containers.
    Job,
}

impl TaskUser {
    fn is_of_image(&self) -> bool {
        *self == Self::Image
    }
}

/// Which containers have a network of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkPolicy {
    /// Containers that share their node, if the node forwards packets; else they have the node's network.
    #[default]
    Auto,
    /// Containers that share their node, also where the node forwards no packets.
    Bridge,
    /// No container.
    Host,
}

impl NetworkPolicy {
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// A range of IPv4 addresses: `10.213.0.0/16`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressRange {
    pub first: Ipv4Addr,
    pub prefix: u8,
}

/// At least 64 networks of four addresses.
const PREFIX_MAX: u8 = 24;

impl AddressRange {
    /// The addresses of the node and of the container in the network with this number, four addresses each.
    pub fn link(self, number: u32) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let networks = 1u64 << (30 - self.prefix);
        let base = (u64::from(number) < networks).then(|| u32::from(self.first) + number * 4)?;
        Some((Ipv4Addr::from(base + 1), Ipv4Addr::from(base + 2)))
    }

    pub fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::MAX << (32 - self.prefix))
    }
}

impl TryFrom<String> for AddressRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}`: expected private addresses such as 10.213.0.0/16, from /8 to /{PREFIX_MAX}"
            )
        };
        let (first, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let range = Self {
            first: first.parse().map_err(|_| wrong())?,
            prefix: prefix
                .parse()
                .ok()
                .filter(|bits| (8..=PREFIX_MAX).contains(bits))
                .ok_or_else(wrong)?,
        };
        let is_first = u32::from(range.first) & !u32::from(range.mask()) == 0;
        if is_first && range.first.is_private() { Ok(range) } else { Err(wrong()) }
    }
}

impl From<AddressRange> for String {
    fn from(range: AddressRange) -> String {
        format!("{}/{}", range.first, range.prefix)
    }
}

/// Ports from the first to the last: `20000-29999`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortRange {
    pub first: u16,
    pub last: u16,
}

impl TryFrom<String> for PortRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port >= 1024);
        let range = text.split_once('-').and_then(|(first, last)| port(first).zip(port(last)));
        let range = range.filter(|(first, last)| first <= last);
        let wrong = || format!("`{text}`: expected ports such as 20000-29999, above 1023");
        range.map(|(first, last)| Self { first, last }).ok_or_else(wrong)
    }
}

impl From<PortRange> for String {
    fn from(range: PortRange) -> String {
        format!("{}-{}", range.first, range.last)
    }
}

/// A container engine: a runtime with images and settings of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    Docker,
    Podman,
}

/// What a program that runs containers is, by its name or path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeKind {
    /// It runs a bundle that is made for it.
    Oci,
    Engine(EngineKind),
    /// It runs as the job's user, with images and containers of that user's own.
    Enroot,
    /// It runs as the job's user, from a `.sif`.
    Apptainer,
}

impl RuntimeKind {
    pub fn of(runtime: &str) -> RuntimeKind {
        match runtime.rsplit('/').next().unwrap_or_default() {
            "docker" => RuntimeKind::Engine(EngineKind::Docker),
            "podman" => RuntimeKind::Engine(EngineKind::Podman),
            "enroot" => RuntimeKind::Enroot,
            "apptainer" | "singularity" => RuntimeKind::Apptainer,
            _ => RuntimeKind::Oci,
        }
    }
}

impl Default for ContainerSite {
    fn default() -> Self {
        Self {
            runtime: None,
            default_image: None,
            privileged: false,
            docker_image: DOCKER_IMAGE.to_owned(),
            store: None,
            store_size: Bytes(100 << 30),
            pulls: 3,
            pull: ImagePull::Always,
            disk: None,
            mount_home: true,
            mounts: Vec::new(),
            mirrors: BTreeMap::new(),
            insecure: Vec::new(),
            authorities: None,
            task_user: TaskUser::Image,
            network: NetworkPolicy::Auto,
            addresses: AddressRange { first: Ipv4Addr::new(10, 213, 0, 0), prefix: 16 },
            ports: PortRange { first: 20_000, last: 29_999 },
            cdi: vec!["/etc/cdi".to_owned(), "/var/run/cdi".to_owned()],
            ids: IdRanges::Uid,
        }
    }
}

impl ContainerSite {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
