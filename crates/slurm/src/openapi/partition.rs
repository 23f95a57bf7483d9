//! Partitions, as slurmrestd answers with them: one flat object in v0.0.38, groups of fields later.

use super::Version;
use super::field::Form::{Absent, Plain, Zero};
use super::field::{Cell, Context, Field, Number, field, number, optional_text, text};
use crate::output::text::node_text;
use crate::words::partition as words;
use model::hostlist;
use model::partition::{Access, DefaultMemory, OverSubscribe, Partition};
use model::tres::{Tres, TresKind};
use serde_json::{Value, json};
use std::borrow::Cow;
use wire::view::ClusterView;

/// A partition with what its nodes have together.
pub struct PartitionTotals {
    partition: Partition,
    nodes: u64,
    tres: Tres,
}

impl PartitionTotals {
    pub fn of(cluster: &ClusterView, partition: &Partition) -> Self {
        let is_member = |name: &String| partition.nodes.contains(name);
        let members: Vec<_> =
            cluster.nodes.iter().filter(|node| is_member(&node.config.name)).collect();
        let mut tres = Tres::new();
        members.iter().for_each(|node| tres.merge(&node_text::configured_tres(&node.config)));
        tres.set(TresKind::Node, members.len() as u64);
        Self { partition: partition.clone(), nodes: members.len() as u64, tres }
    }

    fn cpus(&self) -> u64 {
        self.tres.amount(&TresKind::Cpu)
    }
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub static PARTITION: &[Field<PartitionTotals>] = &[
    field("name",                     Plain,  Plain,  |_, p| text(&*p.partition.name)),
    field("allowed_accounts",         Plain,  Absent, |_, p| text(allowed(&p.partition.allow_accounts))),
    field("allowed_allocation_nodes", Plain,  Absent, |_, _| text("")),
    field("allowed_groups",           Plain,  Absent, |_, p| text(allowed(&p.partition.allow_groups))),
    field("allowed_qos",              Plain,  Absent, |_, p| text(allowed(&p.partition.allow_qos))),
    field("alternative",              Plain,  Absent, |_, _| text("")),
    field("billing_weights",          Plain,  Absent, |_, p| text(billing_weights(p))),
    field("default_memory_per_cpu",   Plain,  Absent, |_, p| number(per_cpu(p.partition.default_memory))),
    field("default_memory_per_node",  Plain,  Absent, |_, p| number(per_node(p.partition.default_memory))),
    field("default_time_limit",       Plain,  Absent, |_, p| number(p.partition.default_time.and_then(|limit| limit.minutes()))),
    field("denied_accounts",          Plain,  Absent, |_, p| text(denied(&p.partition.allow_accounts))),
    field("denied_qos",               Plain,  Absent, |_, p| text(denied(&p.partition.allow_qos))),
    field("flags",                    Plain,  Absent, |_, p| Cell::Words(flags(&p.partition))),
    field("preemption_grace_time",    Plain,  Absent, |_, p| number(p.partition.grace_time_s)),
    field("maximum_cpus_per_node",    Plain,  Absent, |_, p| number(p.partition.max_cpus_per_node)),
    field("maximum_memory_per_cpu",   Plain,  Absent, |_, p| number(per_cpu(p.partition.max_memory))),
    field("maximum_memory_per_node",  Plain,  Absent, |_, p| number(per_node(p.partition.max_memory))),
    field("maximum_nodes_per_job",    Plain,  Absent, |_, p| number(p.partition.max_nodes)),
    field("max_time_limit",           Plain,  Absent, |_, p| number(p.partition.max_time)),
    field("min_nodes_per_job",        Plain,  Absent, |_, p| number(p.partition.min_nodes)),
    field("over_time_limit",          Zero,   Absent, |_, p| number(p.partition.over_time_limit.and_then(|limit| limit.minutes()))),
    field("preemption_mode",          Plain,  Absent, |_, p| Cell::Words(preempt_modes(&p.partition))),
    field("priority_job_factor",      Plain,  Absent, |_, p| number(p.partition.priority_job_factor)),
    field("priority_tier",            Plain,  Absent, |_, p| number(p.partition.priority_tier)),
    field("state",                    Plain,  Absent, |_, p| text(words::long(p.partition.state))),
    field("total_cpus",               Plain,  Absent, |_, p| number(p.cpus())),
    field("total_nodes",              Plain,  Absent, |_, p| number(p.nodes)),
    // Texts in v0.0.38, groups of fields later.
    field("nodes",                    Plain,  Plain,  nodes),
    field("qos",                      Plain,  Plain,  qos),
    field("tres",                     Plain,  Plain,  tres),
    field("accounts",                 Absent, Plain,  |_, p| Cell::Value(json!({"allowed": allowed(&p.partition.allow_accounts), "deny": denied(&p.partition.allow_accounts)}))),
    field("alternate",                Absent, Plain,  |_, _| text("")),
    field("cluster",                  Absent, Plain,  |c, _| text(&*c.cluster)),
    field("cpus",                     Absent, Plain,  |_, p| Cell::Value(json!({"task_binding": 0, "total": p.cpus()}))),
    field("defaults",                 Absent, Plain,  |c, p| Cell::Value(defaults(c, &p.partition))),
    field("grace_time",               Absent, Plain,  |_, p| number(p.partition.grace_time_s)),
    field("groups",                   Absent, Plain,  |_, p| Cell::Value(json!({"allowed": allowed(&p.partition.allow_groups)}))),
    field("maximums",                 Absent, Plain,  |c, p| Cell::Value(maximums(c, &p.partition))),
    field("minimums",                 Absent, Plain,  |_, p| Cell::Value(json!({"nodes": p.partition.min_nodes}))),
    field("node_sets",                Absent, Plain,  |_, _| text("")),
    field("partition",                Absent, Plain,  |_, p| Cell::Value(json!({"state": [words::long(p.partition.state)]}))),
    field("priority",                 Absent, Plain,  |_, p| Cell::Value(json!({"job_factor": p.partition.priority_job_factor, "tier": p.partition.priority_tier}))),
    field("select_type",              Absent, Plain,  |_, _| Cell::Words(Vec::new())).since(Version::V41),
    field("suspend_time",             Absent, Plain,  |c, _| Cell::Value(c.number(Number::Unset))),
    field("timeouts",                 Absent, Plain,  |c, _| Cell::Value(json!({"resume": c.number(Number::Unset), "suspend": c.number(Number::Unset)}))),
];

/// The names that a list allows; empty for all.
fn allowed(access: &Access) -> String {
    if let Access::Only(names) = access { names.join(",") } else { String::new() }
}

fn denied(access: &Access) -> String {
    if let Access::Except(names) = access { names.join(",") } else { String::new() }
}

fn per_cpu(memory: Option<DefaultMemory>) -> Option<u64> {
    if let Some(DefaultMemory::PerCpu(each)) = memory { Some(each.mib()) } else { None }
}

fn per_node(memory: Option<DefaultMemory>) -> Option<u64> {
    if let Some(DefaultMemory::PerNode(each)) = memory { Some(each.mib()) } else { None }
}

fn billing_weights(of: &PartitionTotals) -> String {
    let weights = &of.partition.billing_weights;
    let pairs = weights.iter().map(|(name, weight)| format!("{name}={weight}"));
    pairs.collect::<Vec<_>>().join(",")
}

fn flags<'a>(partition: &Partition) -> Vec<Cow<'a, str>> {
    let flags = [
        ("default", partition.default),
        ("hidden", partition.hidden),
        ("no_root", partition.disable_root_jobs),
        ("root_only", partition.root_only),
        ("req_resv", partition.require_reservation),
        ("exclusive_user", partition.exclusive_user),
        ("lln", partition.least_loaded),
    ];
    flags.into_iter().filter(|(_, set)| *set).map(|(word, _)| word.into()).collect()
}

fn preempt_modes<'a>(partition: &Partition) -> Vec<Cow<'a, str>> {
    let mode = partition.preempt_mode.as_deref().unwrap_or("disabled");
    let mode = if mode.eq_ignore_ascii_case("off") { "disabled" } else { mode };
    mode.split(',').map(|word| word.to_ascii_lowercase().into()).collect()
}

fn nodes<'a>(context: &Context, of: &PartitionTotals) -> Cell<'a> {
    let names = hostlist::compress(&of.partition.nodes);
    if !context.version.is_typed() {
        return text(names);
    }
    Cell::Value(json!({"allowed_allocation": "", "configured": names, "total": of.nodes}))
}

fn qos<'a>(context: &Context, of: &'a PartitionTotals) -> Cell<'a> {
    let own = of.partition.qos.as_deref();
    if !context.version.is_typed() {
        return optional_text(own);
    }
    let (allowed, deny) = (allowed(&of.partition.allow_qos), denied(&of.partition.allow_qos));
    let assigned = own.unwrap_or("");
    Cell::Value(json!({"allowed": allowed, "deny": deny, "assigned": assigned}))
}

fn tres<'a>(context: &Context, of: &PartitionTotals) -> Cell<'a> {
    let configured = of.tres.to_string();
    if !context.version.is_typed() {
        return text(configured);
    }
    let weights = billing_weights(of);
    Cell::Value(json!({"billing_weights": weights, "configured": configured}))
}

fn defaults(context: &Context, partition: &Partition) -> Value {
    let memory = partition.default_memory;
    let time = partition.default_time.map_or(Number::Unset, Number::from);
    json!({
        "memory_per_cpu": per_cpu(memory).or(per_node(memory)).unwrap_or(0),
        "partition_memory_per_cpu": context.number(per_cpu(memory)),
        "partition_memory_per_node": context.number(per_node(memory)),
        "time": context.number(time),
        "job": "",
    })
}

fn maximums(context: &Context, partition: &Partition) -> Value {
    let unbounded =
        |count: Option<u32>| context.number(count.map_or(Number::Infinite, Number::from));
    let memory = partition.max_memory;
    let (shares, forced) = match partition.over_subscribe {
        OverSubscribe::No | OverSubscribe::Exclusive => (1, false),
        OverSubscribe::Yes(count) => (count, false),
        OverSubscribe::Force(count) => (count, true),
    };
    let flags = if forced { vec!["force"] } else { Vec::new() };
    let over_time = partition.over_time_limit.map_or(Number::Unset, Number::from);
    json!({
        "cpus_per_node": unbounded(partition.max_cpus_per_node),
        "cpus_per_socket": unbounded(partition.max_cpus_per_socket),
        "memory_per_cpu": per_cpu(memory).or(per_node(memory)).unwrap_or(0),
        "partition_memory_per_cpu": context.number(per_cpu(memory)),
        "partition_memory_per_node": context.number(per_node(memory)),
        "nodes": unbounded(partition.max_nodes),
        "shares": shares,
        "oversubscribe": { "jobs": shares, "flags": flags },
        "time": context.number(Number::from(partition.max_time)),
        "over_time_limit": context.number(over_time),
    })
}
