//! The columns of `sinfo`: letters of `-o`, names of `-O`, and how each bears on the grouping of nodes.

use crate::output::Moment;
use crate::output::table::format::column;
use crate::output::text::node_text;
use crate::output::text::push;
use crate::words::{self, node::NodeState};
use model::hostlist;
use model::node_reason::NodeReason;
use model::partition::{Access, OverSubscribe, Partition};
use model::time::format_limit;
use std::fmt::Write;
use wire::view::NodeView;

/// One line of `sinfo`: nodes of a partition that have the same text in the columns shown.
pub struct Group<'a> {
    pub partition: &'a Partition,
    pub nodes: Vec<&'a NodeView>,
    pub moment: Moment<'a>,
}

/// How a column takes part in the grouping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// Nodes of one line have the same text here.
    Same,
    /// The least value stands for all, with a `+`. With `-e` the values must be the same.
    Least,
    /// A total or a list over the nodes of the line.
    Sum,
}

pub struct NodeField {
    letter: Option<char>,
    name: &'static str,
    header: &'static str,
    pub grouping: Grouping,
    pub render: fn(&Group<'_>, &mut String),
}

column!(NodeField);

type Render = fn(&Group<'_>, &mut String);

const fn field(
    letter: char,
    name: &'static str,
    header: &'static str,
    grouping: Grouping,
    render: Render,
) -> NodeField {
    NodeField { letter: Some(letter), name, header, grouping, render }
}

const fn long(
    name: &'static str,
    header: &'static str,
    grouping: Grouping,
    render: Render,
) -> NodeField {
    NodeField { letter: None, name, header, grouping, render }
}

use Grouping::{Least, Same, Sum};

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub static NODE_FIELDS: &[NodeField] = &[
    // Columns of the partition.
    field('P', "Partition", "PARTITION", Same, |g, c| c.push_str(&words::partition::starred(g.partition))),
    field('R', "PartitionName", "PARTITION", Same, |g, c| c.push_str(&g.partition.name)),
    field('a', "Available", "AVAIL", Same, |g, c| c.push_str(words::partition::available(g.partition.state))),
    field('l', "Time", "TIMELIMIT", Same, |g, c| c.push_str(&infinite(g.partition.max_time))),
    field('L', "DefaultTime", "DEFAULTTIME", Same, |g, c| c.push_str(&g.partition.default_time.map_or_else(|| "n/a".into(), infinite))),
    field('s', "Size", "JOB_SIZE", Same, |g, c| job_size(g.partition, c)),
    field('r', "Root", "ROOT", Same, |g, c| c.push_str(yes_no(g.partition.root_only))),
    field('h', "OverSubscribe", "OVERSUBSCRIBE", Same, |g, c| c.push_str(&over_subscribe(g.partition.over_subscribe))),
    field('g', "Groups", "GROUPS", Same, |g, c| c.push_str(&groups(&g.partition.allow_groups))),
    field('B', "MaxCPUsPerNode", "MAX_CPUS_PER_NODE", Same, |g, c| match g.partition.max_cpus_per_node { Some(n) => push!(c, "{n}"), None => c.push_str("UNLIMITED") }),
    field('I', "PriorityJobFactor", "PRIO_JOB_FACTOR", Same, |g, c| push!(c, "{}", g.partition.priority_job_factor)),
    field('p', "PriorityTier", "PRIO_TIER", Same, |g, c| push!(c, "{}", g.partition.priority_tier)),
    field('M', "PreemptMode", "PREEMPT_MODE", Same, |g, c| c.push_str(g.partition.preempt_mode.as_deref().unwrap_or("OFF"))),
    field('S', "AllocNodes", "ALLOCNODES", Same, |_, c| c.push_str("all")),
    field('V', "Cluster", "CLUSTER", Same, |_, c| c.push_str("N/A")),
    // Columns in which the nodes of a line are equal.
    field('t', "StateCompact", "STATE", Same, |g, c| state(g, c, NodeState::compact)),
    field('T', "StateLong", "STATE", Same, |g, c| state(g, c, NodeState::long)),
    long("StateComplete", "STATE", Same, |g, c| state(g, c, |s| s.full().to_ascii_lowercase())),
    field('f', "Features", "AVAIL_FEATURES", Same, |g, c| first(g, c, |n, c| c.push_str(&node_text::features(&n.config)))),
    field('b', "features_act", "ACTIVE_FEATURES", Same, |g, c| first(g, c, |n, c| c.push_str(&node_text::features(&n.config)))),
    field('G', "Gres", "GRES", Same, |g, c| first(g, c, |n, c| c.push_str(&node_text::gres(&n.config)))),
    long("GresUsed", "GRES_USED", Same, |g, c| first(g, c, |n, c| c.push_str(&node_text::gres_used(n)))),
    field('E', "Reason", "REASON", Same, |g, c| first(g, c, |n, c| c.push_str(n.reason.as_ref().map_or("none", words::node::reason_text)))),
    field('H', "Timestamp", "TIMESTAMP", Same, |g, c| first(g, c, |n, c| c.push_str(&n.reason.as_ref().map_or_else(unknown, |r| g.moment.iso(r.at))))),
    field('u', "User", "USER", Same, |g, c| first(g, c, |n, c| c.push_str(n.reason.as_ref().map_or("Unknown", |r| words::node::reason_user(r).0)))),
    field('U', "UserLong", "USER", Same, |g, c| first(g, c, |n, c| c.push_str(&n.reason.as_ref().map_or_else(unknown, user_with_uid)))),
    field('n', "NodeHost", "HOSTNAMES", Same, |g, c| first(g, c, |n, c| c.push_str(node_text::hostname(n)))),
    field('o', "NodeAddr", "NODE_ADDR", Same, |g, c| first(g, c, |n, c| c.push_str(node_text::address(n)))),
    field('v', "Version", "VERSION", Same, |g, c| first(g, c, |n, c| c.push_str(&n.facts.version))),
    long("AllocMem", "ALLOCMEM", Same, |g, c| first(g, c, |n, c| push!(c, "{}", n.memory_allocated.mib()))),
    long("Comment", "COMMENT", Same, |_, c| c.push_str(words::NULL)),
    long("Port", "PORT", Same, |_, c| c.push('0')),
    // Columns with the least value of the nodes.
    field('c', "CPUs", "CPUS", Least, |g, c| least(g, c, |n| u64::from(n.config.cpus))),
    field('m', "Memory", "MEMORY", Least, |g, c| least(g, c, |n| n.config.memory.mib_floor())),
    field('d', "Disk", "TMP_DISK", Least, |g, c| least(g, c, |n| n.config.tmp_disk.mib_floor())),
    field('w', "Weight", "WEIGHT", Least, |g, c| least(g, c, |n| u64::from(n.config.weight))),
    field('X', "Sockets", "SOCKETS", Least, |g, c| least(g, c, |n| u64::from(n.config.sockets))),
    field('Y', "Cores", "CORES", Least, |g, c| least(g, c, |n| u64::from(n.config.cores_per_socket))),
    field('Z', "Threads", "THREADS", Least, |g, c| least(g, c, |n| u64::from(n.config.threads_per_core))),
    field('z', "SocketCoreThread", "S:C:T", Least, socket_core_thread),
    field('e', "FreeMem", "FREE_MEM", Least, |g, c| span(g, c, |n| n.facts.free_memory.mib_floor(), |mib| mib.to_string())),
    field('O', "CPUsLoad", "CPU_LOAD", Least, |g, c| span(g, c, |n| u64::from(n.facts.cpu_load), |load| format!("{}.{:02}", load / 100, load % 100))),
    // Columns with a sum or list over the nodes.
    field('N', "NodeList", "NODELIST", Sum, |g, c| c.push_str(&hostlist::compress_sorted(g.nodes.iter().map(|n| &n.config.name)))),
    field('D', "Nodes", "NODES", Sum, |g, c| push!(c, "{}", g.nodes.len())),
    field('C', "CPUsState", "CPUS(A/I/O/T)", Sum, cpu_states),
    field('F', "NodeAIOT", "NODES(A/I/O/T)", Sum, |g, c| { let [a, i, o, t] = node_counts(g); push!(c, "{a}/{i}/{o}/{t}") }),
    field('A', "NodeAI", "NODES(A/I)", Sum, |g, c| { let [a, i, ..] = node_counts(g); push!(c, "{a}/{i}") }),
];

fn unknown() -> String {
    "Unknown".to_owned()
}

fn user_with_uid(reason: &NodeReason) -> String {
    let (name, uid) = words::node::reason_user(reason);
    format!("{name}({uid})")
}

fn yes_no(set: bool) -> &'static str {
    if set { "yes" } else { "no" }
}

/// The time limit of a partition. `sinfo` prints `infinite` where `squeue` prints `UNLIMITED`.
fn infinite(limit: model::time::TimeLimit) -> String {
    match limit.minutes() {
        Some(_) => format_limit(limit),
        None => "infinite".to_owned(),
    }
}

fn job_size(partition: &Partition, cell: &mut String) {
    let min = partition.min_nodes.max(1);
    match partition.max_nodes {
        Some(max) if max == min => push!(cell, "{max}"),
        Some(max) => push!(cell, "{min}-{max}"),
        None => push!(cell, "{min}-infinite"),
    }
}

fn over_subscribe(value: OverSubscribe) -> String {
    match value {
        OverSubscribe::Exclusive => "EXCLUSIV".to_owned(),
        other => words::partition::over_subscribe(other),
    }
}

fn groups(access: &Access) -> String {
    match access {
        Access::All => "all".to_owned(),
        Access::Only(names) => names.join(","),
        Access::Except(names) => format!("all but {}", names.join(",")),
    }
}

fn first(group: &Group<'_>, cell: &mut String, write: impl Fn(&NodeView, &mut String)) {
    if let Some(node) = group.nodes.first() {
        write(node, cell);
    }
}

fn state(group: &Group<'_>, cell: &mut String, word: fn(NodeState) -> String) {
    match group.nodes.first() {
        Some(node) => cell.push_str(&word(NodeState::of(node))),
        None => cell.push_str("n/a"),
    }
}

/// The least and the greatest; zeros for no nodes.
fn extremes(group: &Group<'_>, value: fn(&NodeView) -> u64) -> (u64, u64) {
    let values = || group.nodes.iter().map(|node| value(node));
    (values().min().unwrap_or(0), values().max().unwrap_or(0))
}

fn least(group: &Group<'_>, cell: &mut String, value: fn(&NodeView) -> u64) {
    let (min, max) = extremes(group, value);
    push!(cell, "{min}{}", if max > min { "+" } else { "" });
}

fn span(
    group: &Group<'_>,
    cell: &mut String,
    value: fn(&NodeView) -> u64,
    text: fn(u64) -> String,
) {
    let (min, max) = extremes(group, value);
    cell.push_str(&text(min));
    if max > min {
        push!(cell, "-{}", text(max));
    }
}

fn socket_core_thread(group: &Group<'_>, cell: &mut String) {
    least(group, cell, |n| u64::from(n.config.sockets));
    cell.push(':');
    least(group, cell, |n| u64::from(n.config.cores_per_socket));
    cell.push(':');
    least(group, cell, |n| u64::from(n.config.threads_per_core));
}

fn cpu_states(group: &Group<'_>, cell: &mut String) {
    let mut sum = [0u64; 4];
    for node in &group.nodes {
        for (total, count) in sum.iter_mut().zip(node_text::cpu_counts(node)) {
            *total += u64::from(count);
        }
    }
    let [allocated, idle, other, total] = sum;
    push!(cell, "{allocated}/{idle}/{other}/{total}");
}

/// Nodes that are allocated, idle, neither, and all.
fn node_counts(group: &Group<'_>) -> [usize; 4] {
    let mut counts = [0, 0, 0, group.nodes.len()];
    for node in &group.nodes {
        let state = NodeState::of(node);
        let place = match (state.is_busy(), state.is_available()) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        counts[place] += 1;
    }
    counts
}
