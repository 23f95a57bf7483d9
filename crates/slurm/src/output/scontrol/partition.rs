//! `scontrol show partition`.

use super::Options;
use super::record::RecordWriter;
use crate::output::text::node_text;
use crate::words::partition as words;
use model::hostlist;
use model::partition::{DefaultMemory, Partition};
use model::time::{TimeLimit, format_limit_full};
use model::tres::{Tres, TresKind};
use wire::view::ClusterView;

pub fn push(out: &mut String, partition: &Partition, cluster: &ClusterView, options: Options) {
    let mut record = RecordWriter::new(out, options.oneliner);
    push_access(&mut record, partition);
    push_limits(&mut record, partition);
    push_resources(&mut record, partition, cluster);
    record.end();
}

fn yes_no(set: bool) -> &'static str {
    if set { "YES" } else { "NO" }
}

fn or_unlimited(count: Option<u32>) -> String {
    count.map_or_else(|| "UNLIMITED".to_owned(), |count| count.to_string())
}

fn push_access(record: &mut RecordWriter<'_>, partition: &Partition) {
    record.line(format!("PartitionName={}", partition.name));
    record.line(format!(
        "{} {} {}",
        words::access("Groups", &partition.allow_groups),
        words::access("Accounts", &partition.allow_accounts),
        words::access("Qos", &partition.allow_qos)
    ));
    record.line(format!(
        "AllocNodes=ALL Default={} QoS={}",
        yes_no(partition.default),
        partition.qos.as_deref().unwrap_or("N/A")
    ));
    record.line(format!(
        "DefaultTime={} DisableRootJobs={} ExclusiveUser={} GraceTime={} Hidden={}",
        partition.default_time.map_or_else(|| "NONE".to_owned(), format_limit_full),
        yes_no(partition.disable_root_jobs),
        yes_no(partition.exclusive_user),
        partition.grace_time_s,
        yes_no(partition.hidden)
    ));
}

fn push_limits(record: &mut RecordWriter<'_>, partition: &Partition) {
    record.line(format!(
        "MaxNodes={} MaxTime={} MinNodes={} LLN={} MaxCPUsPerNode={}",
        or_unlimited(partition.max_nodes),
        format_limit_full(partition.max_time),
        partition.min_nodes,
        yes_no(partition.least_loaded),
        or_unlimited(partition.max_cpus_per_node)
    ));
    record.line(format!("Nodes={}", hostlist::compress(&partition.nodes)));
    record.line(format!(
        "PriorityJobFactor={} PriorityTier={} RootOnly={} ReqResv={} OverSubscribe={}",
        partition.priority_job_factor,
        partition.priority_tier,
        yes_no(partition.root_only),
        yes_no(partition.require_reservation),
        words::over_subscribe(partition.over_subscribe)
    ));
    let over_time = match partition.over_time_limit {
        None => "NONE".to_owned(),
        Some(TimeLimit::Minutes(minutes)) => minutes.to_string(),
        Some(TimeLimit::Unlimited) => "UNLIMITED".to_owned(),
    };
    let preempt = partition.preempt_mode.as_deref().unwrap_or("OFF");
    record.line(format!("OverTimeLimit={over_time} PreemptMode={preempt}"));
}

fn push_resources(record: &mut RecordWriter<'_>, partition: &Partition, cluster: &ClusterView) {
    let mut tres = Tres::new();
    let mut nodes = 0u64;
    let members = cluster.nodes.iter().filter(|node| partition.nodes.contains(&node.config.name));
    for node in members {
        tres.merge(&node_text::configured_tres(&node.config));
        nodes += 1;
    }
    tres.set(TresKind::Node, nodes);
    record.line(format!(
        "State={} TotalCPUs={} TotalNodes={nodes} SelectTypeParameters={}",
        words::long(partition.state),
        tres.amount(&TresKind::Cpu),
        words::select(partition.select)
    ));
    record.line(format!("JobDefaults={}", job_defaults(partition)));
    // Memory per GPU is printed with `JobDefaults`.
    let by_gpu = |memory: &DefaultMemory| matches!(memory, DefaultMemory::PerGpu(_));
    record.line(format!(
        "{} {}",
        memory("Def", partition.default_memory.filter(|memory| !by_gpu(memory))),
        memory("Max", partition.max_memory)
    ));
    record.line(format!("TRES={tres}"));
    if !partition.billing_weights.is_empty() {
        record.line(format!("TRESBillingWeights={}", billing_weights(partition)));
    }
}

/// `cpu=1,mem=0.25G`: memory, which counts in megabytes, by the gigabyte as people write it.
fn billing_weights(partition: &Partition) -> String {
    let weights = partition.billing_weights.iter().map(|(name, weight)| {
        let is_memory = name.parse::<TresKind>().is_ok_and(|kind| kind.is_memory());
        if is_memory { format!("{name}={}G", weight * 1024.0) } else { format!("{name}={weight}") }
    });
    weights.collect::<Vec<_>>().join(",")
}

/// `DefCpuPerGPU=5,DefMemPerGPU=700`; `(null)` for none.
fn job_defaults(partition: &Partition) -> String {
    let cpus = partition.cpus_per_gpu.map(|cpus| format!("DefCpuPerGPU={cpus}"));
    let memory = match partition.default_memory {
        Some(DefaultMemory::PerGpu(each)) => Some(format!("DefMemPerGPU={}", each.mib())),
        _ => None,
    };
    let defaults: Vec<String> = cpus.into_iter().chain(memory).collect();
    if defaults.is_empty() { crate::words::NULL.to_owned() } else { defaults.join(",") }
}

/// `DefMemPerCPU=1000`; without a value the memory per node is unlimited.
fn memory(what: &str, value: Option<DefaultMemory>) -> String {
    match value {
        None => format!("{what}MemPerNode=UNLIMITED"),
        Some(DefaultMemory::PerNode(each)) => format!("{what}MemPerNode={}", each.mib()),
        Some(DefaultMemory::PerCpu(each)) => format!("{what}MemPerCPU={}", each.mib()),
        Some(DefaultMemory::PerGpu(each)) => format!("{what}MemPerGPU={}", each.mib()),
    }
}
