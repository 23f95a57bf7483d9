//! Nodes: their hardware, their state, and what the machine reports of itself.

use crate::amount::Bytes;
use crate::cpuset::CpuSet;
use crate::gpu::ComputeCapability;
use crate::gpu_health::GpuReading;
use crate::gres::GPU;
use crate::machine_choice::MachineKind;
use crate::price::Price;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A node as configured or detected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeConfig {
    pub name: String,
    #[serde(default)]
    pub address: String,
    #[serde(default)]
    pub hostname: String,
    pub cpus: u32,
    pub boards: u32,
    pub sockets: u32,
    pub cores_per_socket: u32,
    pub threads_per_core: u32,
    pub memory: Bytes,
    #[serde(default)]
    pub tmp_disk: Bytes,
    #[serde(default)]
    pub features: Vec<String>,
    #[serde(default)]
    pub gres: Vec<NodeGres>,
    #[serde(default = "one")]
    pub weight: u32,
    /// `MemSpecLimit`: kept back for the system.
    #[serde(default)]
    pub memory_reserved: Bytes,
    /// Cores that jobs do not get (`CpuSpecList`, `CoreSpecCount`).
    #[serde(default)]
    pub cpus_reserved: CpuSet,
    /// The counts are declared, not measured: `doctor` and `scontrol show node` say so.
    #[serde(default)]
    pub declared: bool,
    /// The node's GPUs are those that its agent detects (`AutoDetect`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gpus_detected: bool,
    /// The architecture of its processors, as its agent reported it; `None` until it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<Architecture>,
    /// The fleet that owns the node.
    #[serde(default = "static_fleet")]
    pub fleet: String,
    /// Into how many equal shares it is offered, where its fleet says so; else one for each GPU, or for each core where there is
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u32>,
    /// What an hour of it costs, where the site says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// For a machine of a source: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Box<MachineKind>>,
    /// `State=` of the configuration for a node never seen before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<AdminState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_reason: Option<String>,
    /// `State=CLOUD`: there is no machine until the node is powered up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cloud: bool,
    /// `Topology=`: the switch or block that it is connected to, where topology.conf does not name the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// No configuration file names it: see [`crate::dynamic_node`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dynamic: bool,
}

/// A family of processors, as dstack tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    X86,
    Arm,
}

impl Architecture {
    /// From the kernel's name of the machine; `None` for another family.
    pub fn of_machine(name: &str) -> Option<Self> {
        match name {
            "x86_64" | "i686" | "i386" => Some(Self::X86),
            "aarch64" | "arm64" => Some(Self::Arm),
            _ if name.starts_with("arm") => Some(Self::Arm),
            _ => None,
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X86 => "x86",
            Self::Arm => "arm",
        })
    }
}

fn one() -> u32 {
    1
}

fn static_fleet() -> String {
    crate::fleet::STATIC.to_string()
}

impl NodeConfig {
    /// A node of `cpus` single-thread cores on one socket.
    pub fn plain(name: &str, cpus: u32, memory: Bytes) -> Self {
        Self {
            name: name.to_string(),
            address: String::new(),
            hostname: String::new(),
            cpus,
            boards: 1,
            sockets: 1,
            cores_per_socket: cpus,
            threads_per_core: 1,
            memory,
            tmp_disk: Bytes(0),
            features: Vec::new(),
            gres: Vec::new(),
            weight: 1,
            memory_reserved: Bytes(0),
            cpus_reserved: CpuSet::new(),
            declared: false,
            gpus_detected: false,
            architecture: None,
            fleet: static_fleet(),
            blocks: None,
            price: None,
            machine: None,
            initial: None,
            initial_reason: None,
            cloud: false,
            topology: None,
            dynamic: false,
        }
    }

    /// CPUs that jobs may get: `CPUEfctv`.
    pub fn usable_cpus(&self) -> CpuSet {
        let mut cpus = CpuSet::first(self.cpus);
        cpus.subtract(&self.cpus_reserved);
        cpus
    }

    pub fn usable_memory(&self) -> Bytes {
        Bytes(self.memory.0.saturating_sub(self.memory_reserved.0))
    }

    pub fn gres_total(&self, name: &str) -> u64 {
        self.gres.iter().filter(|g| g.name == name).map(|g| g.count).sum()
    }

    /// How many blocks these of its CPUs and GPUs take up, and how many it has.
    pub fn blocks_of(&self, cpus: u32, gpus: u64) -> (u32, u32) {
        let all_gpus = self.gres_total(GPU);
        let (taken, all) = match all_gpus {
            0 => (u64::from(cpus), u64::from(self.cpus)),
            _ => (gpus, all_gpus),
        };
        let total = self.blocks_total(u64::from(self.cpus), all_gpus);
        let count = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
        (count((taken * total).div_ceil(all.max(1))), count(total))
    }

    /// Its blocks, where jobs can have this many of its CPUs or cores, and so many GPUs. A number of the fleet that does not
    /// divide them would leave some to nobody: it is not kept to.
    pub fn blocks_total(&self, cpus: u64, gpus: u64) -> u64 {
        let asked = self.blocks.map(u64::from).filter(|count| *count > 0);
        let fits = |count: &u64| cpus.is_multiple_of(*count) && gpus.is_multiple_of(*count);
        asked.filter(fits).unwrap_or(if gpus > 0 { gpus } else { cpus })
    }
}

/// One line of a node's generic resources: units of one name and kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGres {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub count: u64,
    /// The index of the first unit among the node's units of this name.
    #[serde(default)]
    pub first_index: u32,
    /// Device files, one a unit; empty for a GRES that is only a count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The name of each unit for libraries, if its number is not enough (slices of a GPU); empty for numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_names: Vec<String>,
    /// The device's links to each device of the node, by number; only on a line of one device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<i32>,
    /// CPUs close to these units, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<CpuSet>,
    /// Memory of each device, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_memory: Option<Bytes>,
    /// Environment variables that list the granted units; `None` for the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<Vec<String>>,
    /// Never used up: any number of jobs may have it at once.
    #[serde(default)]
    pub no_consume: bool,
    /// The units are shares of the GPU with this index, which is granted whole or in shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_of: Option<u32>,
    /// Known of GPUs whose vendor's library says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<ComputeCapability>,
}

impl NodeGres {
    /// `count` units of a name and a kind, with nothing else known.
    pub fn plain(name: &str, kind: Option<&str>, count: u64) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            count,
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
        }
    }

    /// Takes the names of devices with the same files that were found, and their memory, variables and compute capability if
    /// these are the same for all of the line. What nothing was found of stays as it is.
    pub fn take_found(&mut self, found: &[NodeGres]) {
        let sorted = |files: &str| {
            let mut files: Vec<&str> = files.split(',').collect();
            files.sort_unstable();
            files.join(",")
        };
        let units = found.iter().filter(|line| line.name == self.name).flat_map(|line| {
            let unit = |(at, files): (usize, &String)| {
                (
                    sorted(files),
                    FoundUnit {
                        name: line.device_names.get(at).cloned(),
                        memory: line.device_memory,
                        variables: line.variables.clone(),
                        capability: line.compute_capability,
                    },
                )
            };
            line.files.iter().enumerate().map(unit)
        });
        let known: BTreeMap<String, FoundUnit> = units.collect();
        let found = self.files.iter().map(|files| known.get(&sorted(files)));
        let found: Vec<FoundUnit> = found.map(|unit| unit.cloned().unwrap_or_default()).collect();
        if found.iter().any(|unit| unit.name.is_some()) {
            let name = |unit: &FoundUnit| unit.name.clone().unwrap_or_default();
            self.device_names = found.iter().map(name).collect();
        }
        let Some((first, others)) = found.split_first() else { return };
        if let Some(memory) = first.memory
            && others.iter().all(|other| other.memory == first.memory)
        {
            self.device_memory.get_or_insert(memory);
        }
        if let (None, Some(variables)) = (&self.variables, &first.variables)
            && others.iter().all(|other| other.variables == first.variables)
        {
            self.variables = Some(variables.clone());
        }
        if let Some(capability) = first.capability
            && others.iter().all(|other| other.capability == first.capability)
        {
            self.compute_capability.get_or_insert(capability);
        }
    }
}

/// What was found of one unit.
#[derive(Debug, Clone, Default)]
struct FoundUnit {
    name: Option<String>,
    memory: Option<Bytes>,
    variables: Option<Vec<String>>,
    capability: Option<ComputeCapability>,
}

/// Whether the agent of a node answers. A node exists before its machine does; `power` says whether there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotState {
    /// The machine is expected to answer; a static node that has never joined is here.
    #[default]
    Joining,
    /// The agent answers.
    Up,
    /// The agent stopped answering less than `SlurmdTimeout` ago.
    Silent,
    /// The agent has not answered for `SlurmdTimeout`, or an administrator set the node down.
    Down,
}

/// An administrator's state of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdminState {
    Drain,
    Down,
    Fail,
    Future,
}

/// The machine as its agent reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeFacts {
    pub hostname: String,
    pub address: String,
    pub arch: String,
    pub os: String,
    pub version: String,
    pub boot_time: Timestamp,
    pub agent_start: Timestamp,
    pub free_memory: Bytes,
    /// Load average times 100.
    pub cpu_load: u32,
    /// One line for each limit that the agent cannot enforce.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_enforced: Vec<String>,
    /// What the machine's GPUs report of themselves, where a library of their vendor could be asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuReading>,
    /// The power of its processors and GPUs, where they count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_w: Option<u64>,
    /// The mean of it since the agent's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_power_w: Option<u64>,
}

impl NodeFacts {
    /// What `not_enforced` is about, without the reasons: `memory`, `swap`.
    pub fn gaps(&self) -> BTreeSet<&str> {
        self.not_enforced.iter().filter_map(|line| line.split(':').next()).collect()
    }
}
