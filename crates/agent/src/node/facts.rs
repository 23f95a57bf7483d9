//! The facts that a node reports about itself: its hardware, its load and free memory, and what it cannot enforce.

use crate::cgroup::{Capabilities, Layout};
use crate::detect::Machine;
use crate::device_access;
use crate::privilege;
use crate::supervisor::folders::quota;
use model::amount::Bytes;
use model::limits::CgroupPolicy;
use model::node::{NodeConfig, NodeFacts, NodeGres};
use model::time::Timestamp;
use std::fs;
use std::path::Path;
use wire::link::NodePolicy;

/// The promises to every job, by the keys of [`Capabilities::why_not`].
const PROMISES: [&str; 8] =
    ["containment", "memory", "swap", "cpuset", "devices", "pids", "freeze", "kill"];

/// The prefix of a line about a device file.
const UNREACHABLE: &str = "gres";

/// What changes all the time, read once for all nodes of the machine.
#[derive(Clone, Copy)]
pub(crate) struct MachineLoad {
    free_memory: Bytes,
    cpu_load: u32,
}

impl MachineLoad {
    pub fn read() -> MachineLoad {
        let free_memory = free_memory(&read("/proc/meminfo"));
        MachineLoad { free_memory, cpu_load: cpu_load(&read("/proc/loadavg")) }
    }
}

pub(crate) fn facts(
    machine: &Machine,
    load: MachineLoad,
    agent_start: Timestamp,
    not_enforced: Vec<String>,
) -> NodeFacts {
    let boot_secs = i64::try_from(machine.boot_time).unwrap_or(0);
    NodeFacts {
        hostname: machine.hostname.clone(),
        address: String::new(),
        arch: machine.arch.clone(),
        os: machine.os.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_time: Timestamp::from_secs(boot_secs),
        agent_start,
        free_memory: load.free_memory,
        cpu_load: load.cpu_load,
        not_enforced,
        gpus: Vec::new(),
        power_w: None,
        mean_power_w: None,
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Load average of the last minute, times 100.
fn cpu_load(loadavg: &str) -> u32 {
    let load: Option<f64> = loadavg.split_whitespace().next().and_then(|word| word.parse().ok());
    load.map_or(0, |load| (load * 100.0) as u32)
}

fn free_memory(meminfo: &str) -> Bytes {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemFree:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Bytes(kib.unwrap_or(0) << 10)
}

/// The promises of the policy that this node cannot enforce, one line each. `folder` is the node's own.
pub(crate) fn not_enforced(
    can: &Capabilities,
    policy: Option<&NodePolicy>,
    folder: &Path,
) -> Vec<String> {
    let mut lines: Vec<String> = PROMISES
        .iter()
        .filter_map(|what| Some(format!("{what}: {}", can.reason_against(what)?)))
        .collect();
    lines.extend(policy.into_iter().flat_map(|policy| of_policy(can, &policy.limits)));
    lines.extend(policy.and_then(|policy| scratch_lacks(policy, folder)));
    if let Some(own) = privilege::only_user() {
        lines.push(format!("users: this agent is not root and runs only jobs of user {own}"));
    }
    lines
}

/// The settings of this policy that this node cannot enforce.
fn of_policy(can: &Capabilities, policy: &CgroupPolicy) -> Vec<String> {
    let mut lines = Vec::new();
    if policy.constrain_devices {
        let files = policy.devices.iter().flat_map(|line| &line.files);
        let wrong = device_access::not_devices(files.flat_map(|files| files.split(',')));
        let files = policy.devices.iter().flat_map(|line| &line.files);
        let wrong = wrong.into_iter().chain(device_access::not_ready(files.map(String::as_str)));
        lines.extend(wrong.map(|line| format!("{UNREACHABLE}: {line}")));
    }
    if policy.swappiness.is_some() && can.layout == Layout::V2 {
        lines.push("MemorySwappiness: cgroup v2 has none for a group".to_owned());
    }
    if let (true, Some(reason)) = (policy.constrain_cpu_time, can.reason_against("cpu_time")) {
        lines.push(format!("cpu_time: {reason}"));
    }
    lines
}

/// Reported only if the site gives every job a limit of disk; for jobs that ask for disk the documentation says so.
fn scratch_lacks(policy: &NodePolicy, folder: &Path) -> Option<String> {
    let promised = policy.limits.constrain_scratch && policy.limits.scratch_max.is_some();
    let place = policy.site.scratch.as_deref().map_or(folder, Path::new);
    let why = promised.then(|| quota::unsupported_at(place)).flatten()?;
    Some(format!("scratch: {why}"))
}

/// What a machine's own files say of the devices of one of its nodes.
pub type GresOfNode = dyn Fn(&NodeConfig) -> Vec<NodeGres>;

/// The machine as a node, with what its own files say of its devices.
pub(crate) fn with_own_gres(name: &str, machine: &Machine, gres_of: &GresOfNode) -> NodeConfig {
    let found = detected(name, machine);
    let said = gres_of(&found);
    with_own_lines(found, said)
}

/// The machine as a node's configuration.
fn detected(name: &str, machine: &Machine) -> NodeConfig {
    let variables = machine.gpu_variables();
    let gpus = machine.gpus.iter().enumerate().map(|(index, gpu)| NodeGres {
        name: "gpu".into(),
        kind: Some(gpu.gres_type()),
        count: 1,
        first_index: index as u32,
        files: vec![gpu.files()],
        device_names: gpu.uuid.clone().into_iter().collect(),
        links: gpu.links.clone(),
        cores: machine.cpus_near(gpu),
        device_memory: gpu.memory,
        variables: variables.clone(),
        no_consume: false,
        share_of: None,
        compute_capability: gpu.compute_capability,
    });
    NodeConfig {
        hostname: machine.hostname.clone(),
        boards: machine.boards,
        sockets: machine.sockets,
        cores_per_socket: machine.cores_per_socket,
        threads_per_core: machine.threads_per_core,
        tmp_disk: Bytes::from_mib(machine.tmp_disk_mb),
        gres: gpus.collect(),
        ..NodeConfig::plain(name, machine.cpus, Bytes::from_mib(machine.real_memory_mb))
    }
}

/// The machine with what its own files say of its devices, which counts before what was found.
fn with_own_lines(mut found: NodeConfig, mut said: Vec<NodeGres>) -> NodeConfig {
    said.iter_mut().for_each(|line| line.take_found(&found.gres));
    found.gres.retain(|gres| said.iter().all(|line| line.name != gres.name));
    found.gres.extend(said);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::gpu::ComputeCapability;

    #[test]
    fn devices_keep_what_was_found_of_them_where_the_machines_own_files_name_them() {
        let unit = |file: &str, name: Option<&str>, gib: u64| NodeGres {
            files: vec![file.to_owned()],
            device_names: name.map(str::to_owned).into_iter().collect(),
            device_memory: Some(Bytes::from_gib(gib)),
            compute_capability: Some(ComputeCapability(if gib == 80 { 9 } else { 8 }, 0)),
            ..NodeGres::plain("gpu", Some("h100"), 1)
        };
        let found = NodeConfig {
            gres: vec![
                unit("/dev/b,/dev/c1,/dev/c2", Some("MIG-x"), 80),
                unit("/dev/a", None, 80),
                unit("/dev/d", None, 40),
            ],
            ..NodeConfig::plain("n", 4, Bytes::from_gib(1))
        };
        let own = |files: &[&str]| {
            let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
            let line = NodeGres::plain("gpu", Some("own"), files.len() as u64);
            let line = NodeGres { files, ..line };
            let mut all = with_own_lines(found.clone(), vec![line]).gres;
            assert_eq!(all.len(), 1, "what was found is replaced");
            let line = all.remove(0);
            (line.device_names, line.device_memory, line.compute_capability)
        };
        let names = vec!["MIG-x".to_owned(), String::new()];
        let same = (names, Some(Bytes::from_gib(80)), Some(ComputeCapability(9, 0)));
        assert_eq!(own(&["/dev/b,/dev/c2,/dev/c1", "/dev/a"]), same);
        assert_eq!(own(&["/dev/a", "/dev/d"]), (Vec::new(), None, None), "not the same");
        assert_eq!(own(&["/dev/a", "/dev/z"]), (Vec::new(), None, None), "one is not known");
        assert_eq!(with_own_lines(found.clone(), Vec::new()), found);
    }

    #[test]
    fn load_and_free_memory_are_parsed_from_proc() {
        assert_eq!(cpu_load("1.25 0.30 0.22 1/200 99"), 125);
        assert_eq!(cpu_load(""), 0);
        let meminfo = "MemTotal:  100 kB\nMemFree:     64 kB\nMemAvailable: 80 kB\n";
        assert_eq!(free_memory(meminfo), Bytes(64 << 10));
        assert_eq!(free_memory("nonsense"), Bytes(0));
    }
}
