//! The `PartitionName` lines of slurm.conf.

use std::collections::BTreeMap;

use model::amount::Bytes;
use model::partition::{Access, DefaultMemory, OverSubscribe, Partition};
use model::select::{PartitionSelect, Unit};
use model::time::TimeLimit;
use model::tres::TresKind;

use super::choices::{Choice, PreemptMode, SelectParameter};
use super::error::{Findings, NoticeKind, Place};
use super::lines::Pair;
use super::record::Record;
use super::record_keys::PARTITION;
use super::value::{digits, split_words};

const DEFAULT_MEMORY: &[&str] = &["DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU"];
const MAX_MEMORY: &[&str] = &["MaxMemPerCPU", "MaxMemPerNode"];

/// Keys of which one replaces the others; see `Record::over`.
const GROUPS: &[&[&str]] = &[
    DEFAULT_MEMORY,
    MAX_MEMORY,
    &["OverSubscribe", "Shared"],
    &["AllowAccounts", "DenyAccounts"],
    &["AllowQos", "DenyQos"],
];

/// How many jobs share a resource under `OverSubscribe=YES` or `FORCE` without a number.
const SHARE_DEFAULT: u32 = 4;

/// One partition as slurm.conf declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionConf {
    /// The partition in the words of the model; its nodes are filled in when all are known.
    pub partition: Partition,
    /// `Nodes=` as written.
    pub nodes_text: Option<String>,
    /// Hosts that jobs may be submitted from; none named is all.
    pub alloc_nodes: Vec<String>,
    pub alternate: Option<String>,
    pub cpu_bind: Option<String>,
    pub def_cpu_per_gpu: Option<u64>,
    pub preempt_mode: Option<Vec<PreemptMode>>,
    pub select_parameters: Option<Vec<SelectParameter>>,
    pub place: Place,
}

/// The partitions read so far.
#[derive(Debug)]
pub struct PartitionLines {
    defaults: Record,
    pub partitions: Vec<PartitionConf>,
}

impl Default for PartitionLines {
    fn default() -> Self {
        PartitionLines { defaults: Record::new(PARTITION), partitions: Vec::new() }
    }
}

impl PartitionLines {
    /// Takes a line whose first pair is `PartitionName`.
    pub fn add(&mut self, line: &[Pair], findings: &mut Findings) {
        let record = Record::read(PARTITION, line, findings);
        let Some(name) = record.entry("PartitionName").cloned() else { return };
        if name.text.eq_ignore_ascii_case("DEFAULT") {
            self.defaults = record.over(&self.defaults, GROUPS);
            return;
        }
        if name.text.is_empty() || name.text.contains([',', ' ', '=']) {
            let expected = "expected one name, without commas, spaces or =";
            return findings.wrong(&name.place, "PartitionName", name.text, expected);
        }
        if let Some(twin) = self.partitions.iter().find(|p| p.partition.name == name.text) {
            let expected = format!("this partition is declared already, at {}", twin.place);
            return findings.wrong(&name.place, "PartitionName", name.text, expected);
        }
        let record = record.over(&self.defaults, GROUPS);
        let conf = read_partition(&record, &name.text, &name.place, findings);
        if conf.partition.default {
            self.take_over_default(&conf, findings);
        }
        self.partitions.push(conf);
    }

    fn take_over_default(&mut self, next: &PartitionConf, findings: &mut Findings) {
        for conf in self.partitions.iter_mut().filter(|conf| conf.partition.default) {
            conf.partition.default = false;
            let former = conf.partition.name.clone();
            findings.notice(&next.place, "Default", NoticeKind::SecondDefault { former });
        }
    }
}

fn read_partition(
    record: &Record,
    name: &str,
    place: &Place,
    findings: &mut Findings,
) -> PartitionConf {
    let mut partition = Partition::over(name, Vec::new());
    read_limits(record, &mut partition, findings);
    read_access(record, &mut partition);
    partition.priority_tier = record.number("PriorityTier").unwrap_or(1);
    partition.priority_job_factor = record.number("PriorityJobFactor").unwrap_or(1);
    partition.state = record.choice("State").unwrap_or_default();
    partition.qos = record.text("QOS").filter(|qos| !is_none(qos));
    partition.over_subscribe = read_over_subscribe(record, findings);
    partition.grace_time_s = record.number("GraceTime").unwrap_or(0);
    partition.billing_weights = read_billing_weights(record, findings);
    let def_cpu_per_gpu = read_job_defaults(record, &mut partition, findings);
    partition.cpus_per_gpu =
        def_cpu_per_gpu.map(|cpus| u32::try_from(cpus).unwrap_or(u32::MAX)).filter(|c| *c > 0);
    let select_parameters: Option<Vec<SelectParameter>> = record.choices("SelectTypeParameters");
    partition.select = select_parameters.as_deref().and_then(partition_select);
    let preempt_mode: Option<Vec<PreemptMode>> = record.choices("PreemptMode");
    partition.preempt_mode = preempt_mode
        .as_ref()
        .map(|modes| modes.iter().map(|m| m.word()).collect::<Vec<_>>().join(","));
    PartitionConf {
        partition,
        nodes_text: record.text("Nodes"),
        alloc_nodes: all_or_hosts(record, "AllocNodes", findings),
        alternate: record.text("Alternate").filter(|name| !is_none(name)),
        cpu_bind: record.text("CpuBind"),
        def_cpu_per_gpu,
        preempt_mode,
        select_parameters,
        place: place.clone(),
    }
}

/// The four that a partition may have of its own.
fn partition_select(words: &[SelectParameter]) -> Option<PartitionSelect> {
    words.iter().find_map(|word| {
        let (unit, memory) = match word {
            SelectParameter::Core => (Unit::Core, false),
            SelectParameter::CoreMemory => (Unit::Core, true),
            SelectParameter::Socket => (Unit::Socket, false),
            SelectParameter::SocketMemory => (Unit::Socket, true),
            _ => return None,
        };
        Some(PartitionSelect { unit, memory })
    })
}

fn read_limits(record: &Record, partition: &mut Partition, findings: &mut Findings) {
    partition.max_time = record.time("MaxTime").unwrap_or(TimeLimit::Unlimited);
    partition.default_time = record.time("DefaultTime");
    if let (Some(entry), Some(default)) = (record.entry("DefaultTime"), partition.default_time)
        && default > partition.max_time
    {
        let expected = format!("expected at most MaxTime, which is {}", partition.max_time);
        findings.wrong(&entry.place, "DefaultTime", &entry.text, expected);
    }
    partition.max_nodes = record.limit("MaxNodes").flatten();
    partition.min_nodes = record.number("MinNodes").unwrap_or(0);
    if let (Some(entry), Some(max)) = (record.entry("MinNodes"), partition.max_nodes)
        && partition.min_nodes > max
    {
        let expected = format!("expected at most MaxNodes, which is {max}");
        findings.wrong(&entry.place, "MinNodes", &entry.text, expected);
    }
    partition.max_cpus_per_node = record.limit("MaxCPUsPerNode").flatten();
    partition.max_cpus_per_socket = record.limit("MaxCPUsPerSocket").flatten();
    partition.default_memory = read_memory(record, DEFAULT_MEMORY, findings);
    partition.max_memory = read_memory(record, MAX_MEMORY, findings);
    let over_time = record.limit::<u32>("OverTimeLimit");
    partition.over_time_limit =
        over_time.map(|minutes| minutes.map_or(TimeLimit::Unlimited, TimeLimit::Minutes));
}

fn read_access(record: &Record, partition: &mut Partition) {
    partition.default = record.flag("Default").unwrap_or(false);
    partition.hidden = record.flag("Hidden").unwrap_or(false);
    partition.root_only = record.flag("RootOnly").unwrap_or(false);
    partition.disable_root_jobs = record.flag("DisableRootJobs").unwrap_or(false);
    partition.exclusive_user = record.flag("ExclusiveUser").unwrap_or(false);
    partition.least_loaded = record.flag("LLN").unwrap_or(false);
    partition.require_reservation = record.flag("ReqResv").unwrap_or(false);
    partition.allow_accounts = access(record, "AllowAccounts", Some("DenyAccounts"));
    partition.allow_groups = access(record, "AllowGroups", None);
    partition.allow_qos = access(record, "AllowQos", Some("DenyQos"));
}

/// A list of those allowed wins over a list of those denied, as in Slurm.
fn access(record: &Record, allow: &str, deny: Option<&str>) -> Access {
    let allowed = record.words(allow);
    let denied = deny.map_or_else(Vec::new, |deny| record.words(deny));
    if !allowed.is_empty() && !allowed.iter().any(|name| name.eq_ignore_ascii_case("ALL")) {
        Access::Only(allowed)
    } else if !denied.is_empty() && !record.has(allow) {
        Access::Except(denied)
    } else {
        Access::All
    }
}

/// At most one of the keys of a group; zero and `UNLIMITED` set nothing.
pub fn read_memory(
    record: &Record,
    group: &[&'static str],
    findings: &mut Findings,
) -> Option<DefaultMemory> {
    let given: Vec<&str> = group.iter().copied().filter(|key| record.has(key)).collect();
    if let [first, second, ..] = given[..] {
        if let Some(entry) = record.entry(second) {
            let expected = format!("excludes {first}; expected only one of {}", group.join(", "));
            findings.wrong(&entry.place, second, &entry.text, expected);
        }
        return None;
    }
    let key = *given.first()?;
    let mib: u64 = record.limit(key).flatten().filter(|mib| *mib > 0)?;
    let bytes = Bytes::from_mib(mib);
    Some(match &key[key.len() - 3..] {
        "CPU" => DefaultMemory::PerCpu(bytes),
        "GPU" => DefaultMemory::PerGpu(bytes),
        _ => DefaultMemory::PerNode(bytes),
    })
}

fn read_over_subscribe(record: &Record, findings: &mut Findings) -> OverSubscribe {
    let key = if record.has("OverSubscribe") { "OverSubscribe" } else { "Shared" };
    let Some(entry) = record.entry(key) else { return OverSubscribe::No };
    let (word, count) = match entry.text.split_once(':') {
        Some((word, count)) => (word, digits(count).and_then(|n| u32::try_from(n).ok())),
        None => (entry.text.as_str(), Some(SHARE_DEFAULT)),
    };
    let numbered = entry.text.contains(':');
    match (word.to_ascii_uppercase().as_str(), count) {
        ("NO", _) if !numbered => OverSubscribe::No,
        ("EXCLUSIVE", _) if !numbered => OverSubscribe::Exclusive,
        ("YES", Some(count)) if count > 0 => OverSubscribe::Yes(count),
        ("FORCE", Some(count)) if count > 0 => OverSubscribe::Force(count),
        _ => {
            let expected = "expected NO, EXCLUSIVE, YES[:jobs] or FORCE[:jobs]";
            findings.wrong(&entry.place, key, &entry.text, expected);
            OverSubscribe::No
        }
    }
}

/// Memory weights are for a megabyte, so `Mem=0.25G` is divided by 1024.
fn read_billing_weights(record: &Record, findings: &mut Findings) -> BTreeMap<String, f64> {
    let Some(entry) = record.entry("TRESBillingWeights") else { return BTreeMap::new() };
    let mut weights = BTreeMap::new();
    for word in split_words(&entry.text) {
        match billing_weight(&word) {
            Some((tres, weight)) => {
                weights.insert(tres, weight);
            }
            None => {
                let expected = format!("{word:?}: expected weights such as CPU=1.0,Mem=0.25G");
                findings.wrong(&entry.place, "TRESBillingWeights", &entry.text, expected);
            }
        }
    }
    weights
}

fn billing_weight(word: &str) -> Option<(String, f64)> {
    let (tres, text) = word.split_once('=')?;
    let suffix = text.chars().last().filter(char::is_ascii_alphabetic);
    let number = &text[..text.len() - suffix.map_or(0, char::len_utf8)];
    let power = suffix.map_or(Some(0), |letter| {
        let at = "KMGTP".find(letter.to_ascii_uppercase())?;
        i32::try_from(at).ok().map(|power| power - 1)
    })?;
    let weight: f64 = number.parse().ok()?;
    let tres = tres.to_ascii_lowercase();
    let sound = tres.parse::<TresKind>().is_ok() && weight.is_finite() && weight >= 0.0;
    sound.then(|| (tres, weight / 1024f64.powi(power)))
}

/// `JobDefaults`: an older way to write `DefCpuPerGPU` and `DefMemPerGPU`, which win over it.
fn read_job_defaults(
    record: &Record,
    partition: &mut Partition,
    findings: &mut Findings,
) -> Option<u64> {
    let mut cpus_per_gpu = None;
    for word in record.words("JobDefaults") {
        let (name, value) = word.split_once('=').unwrap_or((&word, ""));
        match (name.to_ascii_lowercase().as_str(), digits(value)) {
            ("defcpupergpu", count @ Some(_)) => cpus_per_gpu = count,
            ("defmempergpu", Some(mib)) => {
                let memory = DefaultMemory::PerGpu(Bytes::from_mib(mib));
                partition.default_memory.get_or_insert(memory);
            }
            _ => {
                if let Some(entry) = record.entry("JobDefaults") {
                    let expected = "expected DefCpuPerGPU=number or DefMemPerGPU=megabytes";
                    findings.wrong(&entry.place, "JobDefaults", &entry.text, expected);
                }
            }
        }
    }
    record.number("DefCpuPerGPU").or(cpus_per_gpu)
}

fn all_or_hosts(record: &Record, key: &str, findings: &mut Findings) -> Vec<String> {
    let Some(entry) = record.entry(key).filter(|e| !e.text.eq_ignore_ascii_case("ALL")) else {
        return Vec::new();
    };
    model::hostlist::expand(&entry.text).unwrap_or_else(|e| {
        findings.wrong(&entry.place, key, &entry.text, format!("expected {}", e.expected));
        Vec::new()
    })
}

fn is_none(text: &str) -> bool {
    text.eq_ignore_ascii_case("none") || text.eq_ignore_ascii_case("N/A")
}
