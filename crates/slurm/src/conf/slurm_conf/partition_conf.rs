//! The `PartitionName` lines of slurm.conf.

use std::collections::BTreeMap;

use model::amount::Bytes;
use model::partition::{Access, DefaultMemory, OverSubscribe, Partition};
use model::printable::is_unprintable;
use model::select::{PartitionSelect, Unit};
use model::time::TimeLimit;

use super::globals::power;
use super::memory_keys::{self, DEFAULT_MEMORY, MAX_MEMORY};
use super::tres_weights;
use crate::conf::error::{ConfLocation, Findings, NoticeKind};
use crate::conf::keys::choices::{Choice, PreemptMode, SelectParameter};
use crate::conf::keys::fields::{Field, field};
use crate::conf::keys::record::Record;
use crate::conf::keys::record_keys::PARTITION;
use crate::conf::keys::value;
use crate::conf::text::lines::Pair;

/// Keys that say the same thing in different ways: one on a partition's own line replaces the default's.
const SAME_MEANING: &[&[&str]] = &[
    &["DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU"],
    &["MaxMemPerCPU", "MaxMemPerNode"],
    &["OverSubscribe", "Shared"],
    &["AllowAccounts", "DenyAccounts"],
    &["AllowQos", "DenyQos"],
];

/// How many jobs share a resource where `YES` or `FORCE` has no number.
const SHARING_JOBS_DEFAULT: u32 = 4;

/// One partition as slurm.conf declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionConf {
    /// The partition in the words of the model. Its `nodes` are filled in when all lines have been read.
    pub partition: Partition,
    /// `Nodes=` as written.
    pub nodes_text: Option<String>,
    pub cpu_bind: Option<String>,
    /// `None` for the value of the whole cluster.
    pub disable_root_jobs: Option<bool>,
    pub def_cpu_per_gpu: Option<u64>,
    pub preempt_mode: Option<Vec<PreemptMode>>,
    pub select_parameters: Option<Vec<SelectParameter>>,
    pub place: ConfLocation,
}

/// The keys that set one field and need no further check.
const FIELDS: &[Field<PartitionConf>] = &[
    field!("MaxTime", time, partition.max_time),
    field!("DefaultTime", some_time, partition.default_time),
    field!("MaxNodes", limit, partition.max_nodes),
    field!("MinNodes", number, partition.min_nodes),
    field!("MaxCPUsPerNode", limit, partition.max_cpus_per_node),
    field!("MaxCPUsPerSocket", limit, partition.max_cpus_per_socket),
    field!("Default", flag, partition.default),
    field!("Hidden", flag, partition.hidden),
    field!("RootOnly", flag, partition.root_only),
    field!("DisableRootJobs", some_flag, disable_root_jobs),
    field!("ExclusiveUser", flag, partition.exclusive_user),
    field!("LLN", flag, partition.least_loaded),
    field!("ReqResv", flag, partition.require_reservation),
    field!("PriorityTier", number, partition.priority_tier),
    field!("PriorityJobFactor", number, partition.priority_job_factor),
    field!("State", choice, partition.state),
    field!("QOS", name_or_none, partition.qos),
    field!("GraceTime", number, partition.grace_time_s),
    field!("PowerDownOnIdle", flag, partition.power.down_on_idle),
    field!("ResumeTimeout", some_number, partition.power.resume_timeout_s),
    field!("SuspendTimeout", some_number, partition.power.suspend_timeout_s),
    field!("Nodes", some_text, nodes_text),
    field!("CpuBind", some_text, cpu_bind),
    field!("PreemptMode", some_choices, preempt_mode),
    field!("SelectTypeParameters", some_choices, select_parameters),
];

impl PartitionConf {
    /// A partition by its line, with the defaults before it merged in. The order of the checks is that in
    /// which their errors are told.
    fn read(
        name: &str,
        place: ConfLocation,
        record: &Record,
        findings: &mut Findings,
    ) -> PartitionConf {
        let mut conf = PartitionConf {
            partition: Partition::over(name, Vec::new()),
            nodes_text: None,
            cpu_bind: None,
            disable_root_jobs: None,
            def_cpu_per_gpu: None,
            preempt_mode: None,
            select_parameters: None,
            place,
        };
        FIELDS.iter().for_each(|field| field.store(record, &mut conf));
        let partition = &mut conf.partition;
        set_priority(partition, record);
        check_times(partition, record, findings);
        check_bounds(partition, record, findings);
        partition.default_memory = memory_keys::read(record, &DEFAULT_MEMORY, findings);
        partition.max_memory = memory_keys::read(record, &MAX_MEMORY, findings);
        partition.power.suspend_time = power::suspend_time(record, findings);
        partition.over_time_limit = record
            .limit("OverTimeLimit")
            .map(|minutes| minutes.map_or(TimeLimit::Unlimited, TimeLimit::Minutes));
        partition.allow_accounts = access(record, "AllowAccounts", Some("DenyAccounts"));
        partition.allow_groups = access(record, "AllowGroups", None);
        partition.allow_qos = access(record, "AllowQos", Some("DenyQos"));
        partition.over_subscribe = over_subscribe(record, findings);
        partition.billing_weights =
            tres_weights::BILLING.read(record, findings).into_iter().collect();
        let by_gpu = GpuDefaults::read(record, findings);
        partition.default_memory = partition.default_memory.or(by_gpu.memory);
        conf.def_cpu_per_gpu = record.number("DefCpuPerGPU").or(by_gpu.cpus);
        partition.cpus_per_gpu = conf
            .def_cpu_per_gpu
            .filter(|cpus| *cpus > 0)
            .map(|cpus| u32::try_from(cpus).unwrap_or(u32::MAX));
        partition.select = conf.select_parameters.as_deref().and_then(select);
        partition.preempt_mode = conf.preempt_mode.as_deref().map(mode_words);
        conf
    }
}

/// `Priority` is both priorities of a partition, where they are not given themselves.
fn set_priority(partition: &mut Partition, record: &Record) {
    let Some(both) = record.number("Priority") else { return };
    if !record.has("PriorityTier") {
        partition.priority_tier = both;
    }
    if !record.has("PriorityJobFactor") {
        partition.priority_job_factor = both;
    }
}

/// A `DefaultTime` above `MaxTime` is none: jobs without a limit have `MaxTime` then.
fn check_times(partition: &mut Partition, record: &Record, findings: &mut Findings) {
    if let Some(entry) = record.entry("DefaultTime")
        && partition.default_time.is_some_and(|time| time > partition.max_time)
    {
        let how = format!("{} is above MaxTime={}, which counts", entry.text, partition.max_time);
        findings.notice(&entry.place, "DefaultTime", NoticeKind::Corrected { how });
        partition.default_time = None;
    }
}

fn check_bounds(partition: &Partition, record: &Record, findings: &mut Findings) {
    if let Some(entry) = record.entry("MinNodes")
        && let Some(max) = partition.max_nodes.filter(|max| partition.min_nodes > *max)
    {
        let expected = format!("expected at most MaxNodes, which is {max}");
        findings.wrong(&entry.place, "MinNodes", &entry.text, expected);
    }
}

/// Who may use a partition. A deny list counts only where the allow key is not given.
fn access(record: &Record, allow: &str, deny: Option<&str>) -> Access {
    let allowed = record.words(allow);
    if record.has(allow) {
        let everybody =
            allowed.is_empty() || allowed.iter().any(|name| name.eq_ignore_ascii_case("ALL"));
        return if everybody { Access::All } else { Access::Only(allowed) };
    }
    let denied = deny.map(|key| record.words(key)).unwrap_or_default();
    if denied.is_empty() { Access::All } else { Access::Except(denied) }
}

fn over_subscribe(record: &Record, findings: &mut Findings) -> OverSubscribe {
    // `Shared` is the former name of the key.
    let given = ["OverSubscribe", "Shared"]
        .into_iter()
        .find_map(|key| record.entry(key).map(|entry| (key, entry)));
    let Some((key, entry)) = given else { return OverSubscribe::No };
    parse_over_subscribe(&entry.text).unwrap_or_else(|| {
        let expected = "expected NO, EXCLUSIVE, YES[:jobs] or FORCE[:jobs]";
        findings.wrong(&entry.place, key, &entry.text, expected);
        OverSubscribe::No
    })
}

fn parse_over_subscribe(text: &str) -> Option<OverSubscribe> {
    let (word, jobs) = match text.split_once(':') {
        Some((word, jobs)) => {
            let jobs = value::digits(jobs).and_then(|jobs| u32::try_from(jobs).ok());
            (word, Some(jobs.filter(|jobs| *jobs > 0)?))
        }
        None => (text, None),
    };
    let jobs_or_default = jobs.unwrap_or(SHARING_JOBS_DEFAULT);
    match (word.to_ascii_uppercase().as_str(), jobs) {
        ("NO", None) => Some(OverSubscribe::No),
        ("EXCLUSIVE", None) => Some(OverSubscribe::Exclusive),
        ("YES", _) => Some(OverSubscribe::Yes(jobs_or_default)),
        ("FORCE", _) => Some(OverSubscribe::Force(jobs_or_default)),
        _ => None,
    }
}

/// `JobDefaults`: what a job gets for each of its GPUs.
#[derive(Default)]
struct GpuDefaults {
    cpus: Option<u64>,
    memory: Option<DefaultMemory>,
}

impl GpuDefaults {
    fn read(record: &Record, findings: &mut Findings) -> GpuDefaults {
        const KEY: &str = "JobDefaults";
        let mut defaults = GpuDefaults::default();
        for word in record.words(KEY) {
            let setting = word.split_once('=').and_then(|(name, number)| {
                Some((name.to_ascii_lowercase(), value::digits(number)?))
            });
            match setting.as_ref().map(|(name, number)| (name.as_str(), *number)) {
                Some(("defcpupergpu", cpus)) => defaults.cpus = Some(cpus),
                // The first of several DefMemPerGPU counts.
                Some(("defmempergpu", mib)) => {
                    let memory = DefaultMemory::PerGpu(Bytes::from_mib(mib));
                    defaults.memory.get_or_insert(memory);
                }
                _ => {
                    let Some(entry) = record.entry(KEY) else { continue };
                    let expected = "expected DefCpuPerGPU=number or DefMemPerGPU=megabytes";
                    findings.wrong(&entry.place, KEY, &entry.text, expected);
                }
            }
        }
        defaults
    }
}

/// The first of the words that says what a partition grants as a whole.
fn select(parameters: &[SelectParameter]) -> Option<PartitionSelect> {
    parameters.iter().find_map(|parameter| {
        let (unit, memory) = match parameter {
            SelectParameter::Core => (Unit::Core, false),
            SelectParameter::CoreMemory => (Unit::Core, true),
            SelectParameter::Socket => (Unit::Socket, false),
            SelectParameter::SocketMemory => (Unit::Socket, true),
            _ => return None,
        };
        Some(PartitionSelect { unit, memory })
    })
}

fn mode_words(modes: &[PreemptMode]) -> String {
    modes.iter().map(|mode| mode.word()).collect::<Vec<_>>().join(",")
}

/// The partitions read so far, and what `PartitionName=DEFAULT` lines have said for those that follow.
#[derive(Debug)]
pub struct PartitionLines {
    defaults: Record,
    /// Where each name was declared.
    places: BTreeMap<String, ConfLocation>,
    pub partitions: Vec<PartitionConf>,
}

impl Default for PartitionLines {
    fn default() -> Self {
        Self { defaults: Record::new(PARTITION), places: BTreeMap::new(), partitions: Vec::new() }
    }
}

impl PartitionLines {
    /// Adds one line, from its `PartitionName=` on.
    pub fn add(&mut self, line: &[Pair], findings: &mut Findings) {
        const KEY: &str = "PartitionName";
        let record = Record::read(PARTITION, line, findings);
        let Some(entry) = record.entry(KEY) else { return };
        let (name, place) = (entry.text.clone(), entry.place.clone());
        let record = record.with_defaults(&self.defaults, SAME_MEANING);
        if name.eq_ignore_ascii_case("DEFAULT") {
            self.defaults = record;
            return;
        }
        if name.is_empty() || name.contains([',', ' ', '=']) {
            let expected = "expected one name, without commas, spaces or =";
            return findings.wrong(&place, KEY, name, expected);
        }
        if name.contains(is_unprintable) {
            return findings.wrong(&place, KEY, name, "expected no control characters");
        }
        if let Some(first) = self.places.get(&name) {
            let expected = format!("this partition is declared already, at {first}");
            return findings.wrong(&place, KEY, name, expected);
        }
        let conf = PartitionConf::read(&name, place.clone(), &record, findings);
        if conf.partition.default {
            self.take_over_default(&place, findings);
        }
        self.places.insert(name, place);
        self.partitions.push(conf);
    }

    /// Only the last `Default=YES` makes a default partition.
    fn take_over_default(&mut self, place: &ConfLocation, findings: &mut Findings) {
        for former in self.partitions.iter_mut().filter(|conf| conf.partition.default) {
            former.partition.default = false;
            let former = former.partition.name.clone();
            findings.notice(place, "Default", NoticeKind::SecondDefault { former });
        }
    }
}
