//! What a job needs: the arithmetic of nodes, tasks and CPUs, the forms of memory, and generic resources.

use crate::option::JobOptions;
use crate::option::job_options::{Exclusive, GresFlag};
use model::gres::GresCount;
use model::range::Range;
use model::request::{
    DeviceMake, GresBinding, GresRequest, Memory, Per, Request, Sharing, Switches, WaitPolicy,
};
use model::time::Timestamp;
use std::collections::HashSet;

/// `--immediate` without a number means one second, and that means at once.
const IMMEDIATE_NOW_SECS: u32 = 1;

/// The request, and lines for the user about options that were changed to fit together.
pub fn request(options: &JobOptions, now: Timestamp) -> (Request, Vec<String>) {
    let (counts, mut notes) = counts(options);
    let node_list = fitting_node_list(options, &counts, &mut notes);
    for (value, option) in [(options.core_spec, "-S"), (options.thread_spec, "--thread-spec")] {
        if value.is_some() {
            notes.push(format!(
                "error: Ignoring {option} since it's not allowed by configuration \
                 (AllowSpecResourcesUsage = No)"
            ));
        }
    }
    let request = Request {
        partitions: options.partitions.clone(),
        nodes: counts.nodes.unwrap_or(Range::exactly(1)),
        nodes_given: counts.nodes.is_some(),
        node_counts: options.node_counts.clone(),
        fewest_nodes: options.use_min_nodes,
        spread: options.spread_job,
        tasks: options.ntasks.or_else(|| tasks_by_node_list(options)),
        tasks_per_node: counts.tasks_per_node,
        tasks_per_socket: options.ntasks_per_socket,
        tasks_per_core: options
            .ntasks_per_core
            .or(hinted(options, &["compute_bound", "memory_bound"])),
        tasks_per_gpu: options.ntasks_per_gpu,
        cpus_per_task: Range::exactly(options.cpus_per_task.unwrap_or(1)),
        cpus_per_task_given: options.cpus_per_task.is_some(),
        cpus_per_gpu: options.cpus_per_gpu,
        cpus_per_node: options.mincpus,
        memory: memory(options),
        gres: gres(options),
        disk: options.tmp,
        constraint: options.constraint.clone(),
        prefer: options.prefer.clone(),
        node_list,
        exclude: options.exclude.clone(),
        sharing: sharing(options),
        overcommit: options.overcommit,
        contiguous: options.contiguous,
        threads_per_core: options.threads_per_core.or_else(|| threads_by_hint(options)),
        sockets_per_node: options.sockets_per_node,
        cores_per_socket: options.cores_per_socket,
        time_limit: options.time,
        time_min: options.time_min,
        begin: options.begin,
        deadline: options.deadline,
        wait_policy: wait_policy(options, now),
        licenses: licenses(options),
        reservation: options.reservation.clone(),
        switches: options.switches.map(|switches| Switches {
            count: switches.count,
            wait_s: switches
                .wait
                .and_then(|wait| wait.secs())
                .map(|secs| u32::try_from(secs).unwrap_or(u32::MAX)),
        }),
        segment: options.segment,
        gres_binding: match options.gres_flags {
            Some(GresFlag::EnforceBinding) => GresBinding::Enforce,
            Some(GresFlag::DisableBinding) => GresBinding::Ignore,
            None => GresBinding::Prefer,
        },
        ..Request::default()
    };
    (request, notes)
}

/// Three of the hints use one thread of each core.
fn threads_by_hint(options: &JobOptions) -> Option<u32> {
    let hint = options.hint.as_deref()?;
    ["compute_bound", "memory_bound", "nomultithread"].contains(&hint).then_some(1)
}

/// Numbers of nodes and tasks that agree with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeTaskCounts {
    /// `None` if no number of nodes was given.
    pub nodes: Option<Range<u32>>,
    pub tasks_per_node: Option<u32>,
}

/// Takes nodes away until each has a task. A bound on the tasks of a node that leaves too few slots is refused by the
/// server.
pub(super) fn counts(options: &JobOptions) -> (NodeTaskCounts, Vec<String>) {
    let mut counts =
        NodeTaskCounts { nodes: options.nodes, tasks_per_node: options.ntasks_per_node };
    let mut notes = Vec::new();
    let (Some(tasks), Some(nodes)) = (options.ntasks, options.nodes) else {
        return (counts, notes);
    };
    let nodes_max = nodes.max.unwrap_or(u32::MAX);
    if tasks < nodes.min {
        notes.push(fewer_nodes_note(tasks, nodes.min));
        counts.nodes = Some(Range::exactly(tasks));
    } else {
        counts.nodes = Some(Range::between(nodes.min, nodes_max.min(tasks)));
    }
    (counts, notes)
}

/// `Some(1)` if `--hint` is one of these.
fn hinted(options: &JobOptions, hints: &[&str]) -> Option<u32> {
    let given = options.hint.as_deref()?;
    hints.iter().any(|hint| hint.eq_ignore_ascii_case(given)).then_some(1)
}

/// With `-m arbitrary` there is a task for each entry of the node list.
fn tasks_by_node_list(options: &JobOptions) -> Option<u32> {
    options.is_arbitrary().then_some(options.nodelist.len() as u32)
}

/// `-w`, cut to the number of nodes.
fn fitting_node_list(
    options: &JobOptions,
    counts: &NodeTaskCounts,
    notes: &mut Vec<String>,
) -> Vec<String> {
    let named = options.nodelist.len();
    let most = counts.nodes.and_then(|nodes| nodes.max).map_or(named, |max| max as usize);
    if named > most {
        notes.push(cut_node_list_note(named, most));
    }
    // A host that is named for several tasks counts as one node.
    let mut known = HashSet::new();
    options.nodelist.iter().take(most).filter(|name| known.insert(*name)).cloned().collect()
}

/// The line about a node list that is cut to `most` nodes.
pub(super) fn cut_node_list_note(named: usize, most: usize) -> String {
    format!(
        "error: Required nodelist includes more nodes than permitted by max-node count \
         ({named} > {most}). Eliminating nodes from the nodelist."
    )
}

/// The line about a number of nodes that is lowered to the number of tasks.
pub(super) fn fewer_nodes_note(tasks: u32, nodes: u32) -> String {
    format!("Warning: can't run {tasks} processes on {nodes} nodes, setting nnodes to {tasks}")
}

/// The memory option that was given. Zero, in any of them, asks for all memory of a node.
pub(super) fn memory(options: &JobOptions) -> Memory {
    match (options.mem, options.mem_per_cpu, options.mem_per_gpu) {
        (Some(bytes), _, _) | (None, Some(bytes), _) | (None, None, Some(bytes))
            if bytes.0 == 0 =>
        {
            Memory::WholeNode
        }
        (Some(bytes), _, _) => Memory::PerNode(Range::exactly(bytes)),
        (None, Some(bytes), _) => Memory::PerCpu(bytes),
        (None, None, Some(bytes)) => Memory::PerGpu(bytes),
        (None, None, None) => Memory::Default,
    }
}

pub(super) fn gres(options: &JobOptions) -> Vec<GresRequest> {
    let forms = [
        (Per::Node, &options.gres),
        (Per::Job, &options.gpus),
        (Per::Node, &options.gpus_per_node),
        (Per::Socket, &options.gpus_per_socket),
        (Per::Task, &options.gpus_per_task),
        (Per::Task, &options.gres_per_task),
    ];
    let request = |per: Per, asked: &GresCount| GresRequest {
        per,
        name: asked.name.clone(),
        kinds: asked.kind.iter().cloned().collect(),
        count: Range::exactly(asked.count),
        by_model: false,
        make: DeviceMake::default(),
        device_memory: None,
        total_memory: None,
    };
    forms
        .into_iter()
        .flat_map(|(per, list)| list.iter().map(move |asked| (per, asked)))
        .filter(|(_, asked)| asked.count > 0)
        .map(|(per, asked)| request(per, asked))
        .collect()
}

/// `--exclusive=mcs` separates jobs by security labels. There are none, so it changes nothing, as in a Slurm without labels.
fn sharing(options: &JobOptions) -> Sharing {
    match options.exclusive {
        Some(Exclusive::AnyJob) => Sharing::Node,
        Some(Exclusive::OtherUsers) => Sharing::User,
        _ if options.oversubscribe => Sharing::Oversubscribe,
        Some(Exclusive::OtherLabels) | None => Sharing::Share,
    }
}

fn wait_policy(options: &JobOptions, now: Timestamp) -> WaitPolicy {
    match options.immediate_secs {
        None => WaitPolicy::Forever,
        Some(secs) if secs <= IMMEDIATE_NOW_SECS => WaitPolicy::Now,
        Some(secs) => WaitPolicy::Until(Timestamp(now.0 + i64::from(secs) * 1_000)),
    }
}

fn licenses(options: &JobOptions) -> Vec<(String, u32)> {
    let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    options.licenses.iter().map(|asked| (asked.name.clone(), count(asked.count))).collect()
}
