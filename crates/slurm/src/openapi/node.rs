//! Nodes, as `sinfo --json` prints them and slurmrestd answers with them.

use super::Version;
use super::field::Form::{Absent, Plain, Set, Zero};
use super::field::{Cell, Context, Field, Number, field, number, text, time};
use crate::output::text::node_text;
use crate::words::node::{self, NodeState};
use serde_json::json;
use std::borrow::Cow;
use wire::view::NodeView;

/// Not formatted by rustfmt: a row is one line. Fields that have no meaning here have the value that Slurm gives them where nothing
/// is configured.
#[rustfmt::skip]
pub static NODE: &[Field<NodeView>] = &[
    field("active_features",               Plain,  Plain,  features),
    field("address",                       Plain,  Plain,  |_, n| text(node_text::address(n))),
    field("alloc_cpus",                    Plain,  Plain,  |_, n| number(n.cpus_allocated)),
    field("alloc_idle_cpus",               Absent, Plain,  |_, n| number(idle(n))),
    field("alloc_memory",                  Plain,  Plain,  |_, n| number(n.memory_allocated.mib())),
    field("architecture",                  Plain,  Plain,  |_, n| text(&*n.facts.arch)),
    field("boards",                        Plain,  Plain,  |_, n| number(n.config.boards)),
    field("boot_time",                     Plain,  Set,    |_, n| time(Some(n.facts.boot_time))),
    field("burstbuffer_network_address",   Plain,  Plain,  |_, _| text("")),
    field("cluster_name",                  Absent, Plain,  |_, _| text("")),
    field("comment",                       Plain,  Plain,  |_, _| text("")),
    field("cores",                         Plain,  Plain,  |_, n| number(n.config.cores_per_socket)),
    field("cpu_binding",                   Plain,  Plain,  |_, _| Cell::Int(0)),
    field("cpu_load",                      Plain,  Plain,  |_, n| number(n.facts.cpu_load)),
    field("cpus",                          Plain,  Plain,  |_, n| number(n.config.cpus)),
    field("effective_cpus",                Absent, Plain,  |_, n| number(n.config.cpus.saturating_sub(n.config.cpus_reserved.len()))),
    field("energy",                        Absent, Plain,  energy),
    field("external_sensors",              Absent, Plain,  |_, _| Cell::Value(json!({}))),
    field("extra",                         Plain,  Plain,  |_, _| text("")),
    field("features",                      Plain,  Plain,  features),
    field("free_mem",                      Absent, Set,    |_, n| number(n.facts.free_memory.mib_floor())),
    field("free_memory",                   Plain,  Absent, |_, n| number(n.facts.free_memory.mib_floor())),
    field("gpu_spec",                      Absent, Plain,  |_, _| text("")).since(Version::V41),
    field("gres",                          Plain,  Plain,  |_, n| text(if n.config.gres.is_empty() { String::new() } else { node_text::gres(&n.config) })),
    field("gres_drained",                  Plain,  Plain,  |_, _| text("N/A")),
    field("gres_used",                     Plain,  Plain,  |_, n| text(if n.config.gres.is_empty() { String::new() } else { node_text::gres_used(n) })),
    field("hostname",                      Plain,  Plain,  |_, n| text(node_text::hostname(n))),
    field("idle_cpus",                     Plain,  Absent, |_, n| number(idle(n))),
    field("instance_id",                   Absent, Plain,  |_, _| text("")),
    field("instance_type",                 Absent, Plain,  |_, _| text("")),
    field("last_busy",                     Plain,  Set,    |_, n| time(n.last_busy)),
    field("mcs_label",                     Plain,  Plain,  |_, _| text("")),
    field("name",                          Plain,  Plain,  |_, n| text(&*n.config.name)),
    field("next_state_after_reboot",       Plain,  Plain,  |c, _| if c.version.is_typed() { Cell::Words(vec!["INVALID".into()]) } else { text("invalid") }),
    field("next_state_after_reboot_flags", Plain,  Absent, |_, _| Cell::Words(Vec::new())),
    field("operating_system",              Plain,  Plain,  |_, n| text(&*n.facts.os)),
    field("owner",                         Plain,  Plain,  |c, _| if c.version.is_typed() { text("") } else { Cell::Null }),
    field("partitions",                    Plain,  Plain,  |_, n| Cell::Words(n.partitions.iter().map(|name| Cow::Borrowed(name.as_str())).collect())),
    field("port",                          Plain,  Plain,  |_, _| Cell::Int(0)),
    field("power",                         Absent, Plain,  |_, _| Cell::Value(json!({}))),
    field("real_memory",                   Plain,  Plain,  |_, n| number(n.config.memory.mib_floor())),
    field("reason",                        Plain,  Plain,  |_, n| text(n.reason.as_ref().map_or("", node::reason_text))),
    field("reason_changed_at",             Plain,  Set,    |_, n| time(n.reason.as_ref().map(|reason| reason.at))),
    field("reason_set_by_user",            Plain,  Plain,  reason_user),
    field("res_cores_per_gpu",             Absent, Plain,  |_, _| Cell::Int(0)).since(Version::V41),
    field("reservation",                   Absent, Plain,  |_, _| text("")),
    field("resume_after",                  Absent, Set,    |_, _| number(0_u32)),
    field("slurmd_start_time",             Plain,  Set,    |_, n| time(Some(n.facts.agent_start))),
    field("slurmd_version",                Plain,  Absent, |_, n| text(&*n.facts.version)),
    field("sockets",                       Plain,  Plain,  |_, n| number(n.config.sockets)),
    field("specialized_cores",             Absent, Zero,   |_, _| Cell::Number(Number::Unset)),
    field("specialized_cpus",              Absent, Plain,  |_, n| text(if n.config.cpus_reserved.is_empty() { String::new() } else { n.config.cpus_reserved.to_string() })),
    field("specialized_memory",            Absent, Plain,  |_, n| number(n.config.memory_reserved.mib())),
    field("state",                         Plain,  Plain,  state),
    field("state_flags",                   Plain,  Absent, |_, n| Cell::Words(NodeState::of(n).flags().into_iter().map(Cow::Borrowed).collect())),
    field("temporary_disk",                Plain,  Plain,  |_, n| number(n.config.tmp_disk.mib_floor())),
    field("threads",                       Plain,  Plain,  |_, n| number(n.config.threads_per_core)),
    field("tres",                          Plain,  Plain,  |_, n| text(node_text::configured_tres(&n.config).to_string())),
    field("tres_used",                     Plain,  Plain,  tres_used),
    field("tres_weighted",                 Plain,  Plain,  |_, n| Cell::Float(n.cpus_allocated.into())),
    field("version",                       Absent, Plain,  |_, n| text(&*n.facts.version)),
    field("weight",                        Plain,  Plain,  |_, n| number(n.config.weight)),
];

fn idle(node: &NodeView) -> u32 {
    let [_, idle, ..] = node_text::cpu_counts(node);
    idle
}

/// A text with commas in v0.0.38, an array later.
fn features<'a>(context: &Context, node: &'a NodeView) -> Cell<'a> {
    let features = &node.config.features;
    if context.version.is_typed() {
        return Cell::Words(features.iter().map(|word| Cow::Borrowed(word.as_str())).collect());
    }
    text(features.join(","))
}

/// The base state with its flags apart in v0.0.38, one array of both later.
fn state<'a>(context: &Context, node: &NodeView) -> Cell<'a> {
    let state = NodeState::of(node);
    if !context.version.is_typed() {
        return text(state.base_lower());
    }
    let base = state.base_lower().to_ascii_uppercase();
    let flags = state.flags().into_iter().map(Cow::Borrowed);
    Cell::Words(std::iter::once(Cow::Owned(base)).chain(flags).collect())
}

fn reason_user<'a>(context: &Context, node: &'a NodeView) -> Cell<'a> {
    match node.reason.as_ref() {
        Some(reason) => text(node::reason_user(reason).0),
        None if context.version.is_typed() => text(""),
        None => Cell::Null,
    }
}

fn tres_used<'a>(context: &Context, node: &NodeView) -> Cell<'a> {
    let used = node_text::allocated_tres(node);
    if used.is_empty() && !context.version.is_typed() {
        return Cell::Null;
    }
    text(used.to_string())
}

/// Watts, where the machine counts them.
fn energy<'a>(context: &Context, node: &NodeView) -> Cell<'a> {
    Cell::Value(json!({
        "average_watts": node.facts.mean_power_w.unwrap_or(0),
        "base_consumed_energy": 0,
        "consumed_energy": 0,
        "current_watts": context.number(node.facts.power_w),
        "previous_consumed_energy": 0,
        "last_collected": 0,
    }))
}
