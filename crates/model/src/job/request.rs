//! A job's request, from either dialect: every amount is a range.

use crate::amount::Bytes;
use crate::constraint::Constraint;
use crate::gpu::{ComputeCapability, GpuVendor};
use crate::machine_choice::{MachineChoice, MachineKind};
use crate::node::Architecture;
use crate::pod::PodTemplate;
use crate::price::Price;
use crate::range::Range;
use crate::time::{TimeLimit, Timestamp};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The demand of one component of a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// Any one of these; empty means the default partition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<String>,
    pub nodes: Range<u32>,
    /// Whether the user gave `nodes`; else it follows from the tasks and what fits.
    #[serde(default)]
    pub nodes_given: bool,
    /// The only acceptable node counts (`-N 1,2,4`); empty: any within `nodes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_counts: Vec<u32>,
    /// Prefers the smallest node count within `nodes`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fewest_nodes: bool,
    /// Spreads evenly over as many nodes as possible (`--spread-job`).
    #[serde(default, skip_serializing_if = "is_false")]
    pub spread: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_per_node: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_per_socket: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_per_core: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_per_gpu: Option<u32>,
    pub cpus_per_task: Range<u32>,
    /// Whether the user gave `-c`: Slurm sets SLURM_CPUS_PER_TASK only then.
    #[serde(default)]
    pub cpus_per_task_given: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus_per_gpu: Option<u32>,
    /// `--mincpus`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus_per_node: Option<u32>,
    pub memory: Memory,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gres: Vec<GresRequest>,
    /// Local scratch, `--tmp` and dstack's `disk`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Bytes>,
    /// The processors of the nodes: dstack's `cpu: arm:4..`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<Architecture>,
    /// The most that an hour of a node may cost: dstack's `max_price`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_max: Option<Price>,
    /// Which machines on demand will do. Without it any will; of a run of dstack's language, which asks for an offer, any that
    /// is not spot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machines: Option<Box<MachineChoice>>,
    /// The pod that the job would run in, where a source makes pods; `None` for one that cannot run in a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Box<PodTemplate>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Constraint>,
    /// Tried before `constraint`, which is then ignored (`--prefer`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<Constraint>,
    /// Nodes that must all be allocated (`-w`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_list: Vec<String>,
    /// Nodes that must not be allocated (`-x`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Nodes of which alone some may be allocated: dstack's `instances`. Empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_pool: Vec<String>,
    #[serde(default)]
    pub sharing: Sharing,
    #[serde(default)]
    pub overcommit: bool,
    #[serde(default)]
    pub contiguous: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads_per_core: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets_per_node: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores_per_socket: Option<u32>,
    /// `None` for the partition's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<TimeLimit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_min: Option<TimeLimit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    #[serde(default, rename = "patience")]
    pub wait_policy: WaitPolicy,
    #[serde(default)]
    pub grant: Grant,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub licenses: Vec<(String, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<Switches>,
    /// Nodes of each block come in this number, or a multiple of it (`--segment`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<u32>,
    /// All nodes are below one switch, the lowest that is large enough: dstack's `placement: cluster`, which its runs on
    /// several nodes need.
    #[serde(default, skip_serializing_if = "is_false")]
    pub one_switch: bool,
    #[serde(default)]
    pub gres_binding: GresBinding,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Default for Request {
    /// One task of one CPU on one node, with the partition's memory and time.
    fn default() -> Self {
        Self {
            partitions: Vec::new(),
            nodes: Range::exactly(1),
            nodes_given: false,
            node_counts: Vec::new(),
            fewest_nodes: false,
            spread: false,
            tasks: None,
            tasks_per_node: None,
            tasks_per_socket: None,
            tasks_per_core: None,
            tasks_per_gpu: None,
            cpus_per_task: Range::exactly(1),
            cpus_per_task_given: false,
            cpus_per_gpu: None,
            cpus_per_node: None,
            memory: Memory::Default,
            gres: Vec::new(),
            disk: None,
            architecture: None,
            price_max: None,
            machines: None,
            pod: None,
            constraint: None,
            prefer: None,
            node_list: Vec::new(),
            exclude: Vec::new(),
            node_pool: Vec::new(),
            sharing: Sharing::default(),
            overcommit: false,
            contiguous: false,
            threads_per_core: None,
            sockets_per_node: None,
            cores_per_socket: None,
            time_limit: None,
            time_min: None,
            begin: None,
            deadline: None,
            wait_policy: WaitPolicy::default(),
            grant: Grant::default(),
            licenses: Vec::new(),
            reservation: None,
            switches: None,
            segment: None,
            one_switch: false,
            gres_binding: GresBinding::default(),
        }
    }
}

impl Request {
    /// The request without its times and licenses: what it asks of nodes.
    pub fn without_times(&self) -> Self {
        Self {
            time_limit: None,
            time_min: None,
            begin: None,
            deadline: None,
            wait_policy: WaitPolicy::default(),
            licenses: Vec::new(),
            ..self.clone()
        }
    }

    /// The request without the time until which its job waits. What is planned and listed does not depend on it, and each run of dstack's
    /// with a `retry` has one of its own.
    pub fn undated(&self) -> Cow<'_, Self> {
        match self.wait_policy {
            WaitPolicy::Until(_) => {
                Cow::Owned(Self { wait_policy: WaitPolicy::Forever, ..self.clone() })
            }
            WaitPolicy::Forever | WaitPolicy::Now => Cow::Borrowed(self),
        }
    }

    /// Whether the job may be on the node that is such a machine, or none.
    pub fn allows_machine(&self, kind: Option<&MachineKind>) -> bool {
        if kind.is_some_and(|kind| !kind.pod.admits(self.pod.as_deref())) {
            return false;
        }
        match (&self.machines, kind) {
            (Some(choice), Some(kind)) => choice.allows(kind),
            (Some(choice), None) => choice.allows_own(),
            (None, Some(kind)) => self.grant != Grant::Offer || !kind.spot,
            (None, None) => true,
        }
    }

    pub fn asks_for_gpus(&self) -> bool {
        self.gres.iter().any(|gres| gres.name == crate::gres::GPU && gres.count.min > 0)
    }

    /// The number of tasks the job is for, before anything is placed.
    pub fn task_count(&self) -> u32 {
        match (self.tasks, self.tasks_per_node) {
            (Some(n), _) => n,
            (None, Some(per_node)) => per_node.saturating_mul(self.nodes.min),
            (None, None) => self.nodes.min,
        }
    }

    /// The CPUs that the job asks for at least.
    pub fn cpu_count(&self) -> u32 {
        if self.overcommit {
            return self.nodes.min;
        }
        self.task_count().saturating_mul(self.cpus_per_task.min)
    }
}

/// The requested memory. Slurm's `--mem=16G` is the range `16G..16G`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// The job asked for no memory: it gets `DefMemPer*`, or the node's memory divided by its cores.
    Default,
    PerNode(Range<Bytes>),
    PerCpu(Bytes),
    PerGpu(Bytes),
    /// `--mem=0`
    WholeNode,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GresRequest {
    pub per: Per,
    /// `gpu`, `fpga`, …
    pub name: String,
    /// Any one of these kinds, without regard to case; empty means any kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// dstack's `gpu: H100`: the kinds are models, which the kind of a node's devices may name in more words.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_model: bool,
    pub count: Range<u64>,
    /// dstack's `gpu: 24GB..`: the memory that each device must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<Range<Bytes>>,
    /// dstack's `gpu: {total_memory: 80GB..}`: the memory that the devices of a node must have together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_memory: Option<Range<Bytes>>,
    #[serde(default, skip_serializing_if = "DeviceMake::is_any")]
    pub make: DeviceMake,
}

/// Whose devices will do, and what they must be able to run: dstack's `gpu: {vendor: amd}`, `{compute_capability: 8.0}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct DeviceMake {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<GpuVendor>,
    /// The least that will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<ComputeCapability>,
}

impl DeviceMake {
    pub fn is_any(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    Node,
    Job,
    Task,
    Socket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// Shares nodes with other jobs, but not CPUs, memory or devices.
    #[default]
    Share,
    /// `--exclusive`: whole nodes.
    Node,
    /// `--exclusive=user`: nodes that run only this user's jobs.
    User,
    /// `--oversubscribe`: may share the very same resources where the partition lets it.
    Oversubscribe,
}

/// Whether devices and cores must be close to each other (`--gres-flags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GresBinding {
    /// Prefers close devices and cores where there is a choice.
    #[default]
    Prefer,
    /// `enforce-binding`
    Enforce,
    /// `disable-binding`
    Ignore,
}

/// How long the request waits when it cannot start at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitPolicy {
    #[default]
    Forever,
    /// Ends as failed if it has not started by then.
    Until(Timestamp),
    /// At once or never: `srun -I`, a dstack run without `retry`.
    Now,
}

/// Which end of its ranges the request is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// Slurm: the lower end of each range.
    #[default]
    Asked,
    /// dstack: an offer, the smallest share of the host's blocks that satisfies the ranges.
    Offer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Switches {
    pub count: u32,
    #[serde(default)]
    pub wait_s: Option<u32>,
}
