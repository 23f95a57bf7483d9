//! The parts of a job that more than one command prints, in Slurm's notation.

use super::push;
use crate::words::NULL;
use model::allocation::{Allocation, GresShare};
use model::amount::{Bytes, format_slurm_mb};
use model::array::{IndexSet, format_pending};
use model::filename::FilenameContext;
use model::gres::{self, GresCount};
use model::hostlist;
use model::partition::DefaultMemory;
use model::request::{GresRequest, Memory, Per, Request, Sharing};
use model::run::{HetComponent, JobState, WORK_DIR_FALLBACK};
use model::streams::{Stream, Streams};
use std::fmt::Write;
use std::sync::Arc;
use wire::view::JobView;

/// Writes a number without the machinery of `write!`: a listing has tens of thousands of them.
pub fn push_number(out: &mut String, number: u32) {
    out.push_str(itoa::Buffer::new().format(number));
}

/// `12`, `14_3`, `14_[16-23%2]`; `task` is one pending task shown by itself.
pub fn push_id(out: &mut String, job: &JobView, task: Option<u32>) {
    match &job.array {
        None => match job.het {
            Some(of) => push!(out, "{}+{}", of.first, of.offset),
            None => push_number(out, job.id.0),
        },
        Some(array) => match (task.or(array.index), &array.pending) {
            (Some(index), _) => {
                push_number(out, array.array.0);
                out.push('_');
                push_number(out, index);
            }
            (None, Some(pending)) => {
                push!(out, "{}_[{}]", array.array, format_pending(pending, array.throttle));
            }
            (None, None) => push!(out, "{}", array.array),
        },
    }
}

/// `3`, `16-23%2`; `N/A` for a job outside an array.
pub fn array_task(job: &JobView, task: Option<u32>) -> String {
    let Some(array) = &job.array else { return "N/A".to_owned() };
    match (task.or(array.index), &array.pending) {
        (Some(index), _) => index.to_string(),
        (None, Some(pending)) => format_pending(pending, array.throttle),
        (None, None) => "N/A".to_owned(),
    }
}

/// `5-7`: the ids of all components.
pub fn component_ids(het: HetComponent) -> String {
    let first = het.first;
    format!("{first}-{}", first.0 + het.size.saturating_sub(1))
}

/// `node[1-2]`; empty before the job has nodes.
pub fn node_list(job: &JobView) -> String {
    job.allocation.as_deref().map(allocated_nodes).unwrap_or_default()
}

pub fn allocated_nodes(allocation: &Allocation) -> String {
    match allocation.nodes.as_slice() {
        [one] => one.node.clone(),
        _ => hostlist::compress(allocation.node_names()),
    }
}

pub fn node_count(job: &JobView) -> u32 {
    match (&job.allocation, &job.sched_nodes) {
        (Some(allocation), _) => allocation.nodes.len() as u32,
        // A single name, the common case, needs no expansion.
        (None, Some(nodes)) if nodes.contains(['[', ',']) => {
            let expected = hostlist::expand(nodes).map_or(0, |names| names.len() as u32);
            job.nodes.min.max(expected)
        }
        (None, _) => job.nodes.min,
    }
}

/// Whether NODELIST(REASON) shows the reason: of a waiting job, and of one that ended for a reason.
pub fn shows_reason(state: JobState) -> bool {
    matches!(
        state,
        JobState::Pending
            | JobState::SpecialExit
            | JobState::ReservationGone
            | JobState::Timeout
            | JobState::OutOfMemory
            | JobState::Deadline
            | JobState::Failed
    )
}

/// A host list, or `(null)` for none.
pub fn names_or_null(names: &[String]) -> String {
    if names.is_empty() { NULL.to_owned() } else { hostlist::compress(names) }
}

/// CPUs that each node of the job must have.
pub fn min_cpus_per_node(request: &Request) -> u32 {
    let by_tasks = request.cpus_per_task.min.saturating_mul(request.tasks_per_node.unwrap_or(1));
    request.cpus_per_node.unwrap_or(0).max(by_tasks)
}

/// The memory that the job asked for, or the default.
pub fn memory(job: &JobView) -> DefaultMemory {
    match &job.spec.request().memory {
        Memory::PerNode(range) => DefaultMemory::PerNode(range.min),
        Memory::PerCpu(each) => DefaultMemory::PerCpu(*each),
        Memory::PerGpu(each) => DefaultMemory::PerGpu(*each),
        Memory::WholeNode => DefaultMemory::PerNode(Bytes(0)),
        Memory::Default => job.default_memory.unwrap_or(DefaultMemory::PerNode(Bytes(0))),
    }
}

/// `8G`, `1000M`, `0`.
pub fn memory_text(memory: DefaultMemory) -> String {
    match memory {
        DefaultMemory::PerCpu(each) | DefaultMemory::PerNode(each) => format_slurm_mb(each.mib()),
        DefaultMemory::PerGpu(_) => "0".to_owned(),
    }
}

/// `gres:gpu:2`: what the job asked for per node, job, task or socket; `None` if nothing.
pub fn gres_request(request: &Request, per: Per) -> Option<String> {
    let of = |gres: &&GresRequest| gres.per == per;
    let counts: Vec<GresCount> = request.gres.iter().filter(of).map(gres_count).collect();
    (!counts.is_empty()).then(|| gres::format_request(&counts))
}

fn gres_count(gres: &GresRequest) -> GresCount {
    let kind = match gres.kinds.as_slice() {
        [] => None,
        kinds => Some(kinds.join("|")),
    };
    GresCount { name: gres.name.clone(), kind, count: gres.count.min }
}

/// `gpu:h100:2`, and with the devices that were granted `gpu:h100:2(IDX:0-1)`.
pub fn gres_share(share: &GresShare, indices: bool) -> String {
    let count = GresCount::new(&share.name, share.kind.as_deref(), share.count);
    if indices {
        count.display_with_indices(&share.indices.iter().copied().collect::<IndexSet>())
    } else {
        count.to_string()
    }
}

/// `OK`, `NO`, `USER`, `YES`.
pub fn over_subscribe(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Share => "OK",
        Sharing::Node => "NO",
        Sharing::User => "USER",
        Sharing::Oversubscribe => "YES",
    }
}

/// A count, or `*` for any.
pub fn star(count: Option<u32>) -> String {
    count.map_or_else(|| "*".to_owned(), |count| count.to_string())
}

/// `*:*:*`: the sockets, cores and threads that the job asked for.
pub fn sockets_cores_threads(request: &Request) -> String {
    let parts = [request.sockets_per_node, request.cores_per_socket, request.threads_per_core];
    parts.map(star).join(":")
}

/// `ansys:2,matlab`; `(null)` for none.
pub fn licenses(request: &Request) -> String {
    let one = |(name, count): &(String, u32)| format!("{name}:{count}");
    match request.licenses.as_slice() {
        [] => NULL.to_owned(),
        some => some.iter().map(one).collect::<Vec<_>>().join(","),
    }
}

/// The script with its arguments; `(null)` for a script from `--wrap` or standard input.
pub fn command(job: &JobView) -> String {
    let launch = &job.spec.launch;
    let Some(command) = &launch.command else { return NULL.to_owned() };
    let mut text = command.to_string();
    for argument in &launch.arguments {
        push!(text, " {argument}");
    }
    text
}

/// Where a stream of a job is whose working directory a node does not have; `None` for a path that does not depend on it.
pub fn in_fallback(job: &JobView, path: &str) -> Option<String> {
    let work_dir = job.spec.launch.work_dir.trim_end_matches('/');
    let name = path.strip_prefix(work_dir)?.strip_prefix('/')?;
    let is_named = |pattern: &Option<Arc<str>>| {
        pattern.as_deref().is_some_and(|pattern| pattern.starts_with('/'))
    };
    let launch = &job.spec.launch;
    let is_absolute =
        is_named(&launch.stdout) && (launch.stderr.is_none() || is_named(&launch.stderr));
    (!is_absolute).then(|| format!("{WORK_DIR_FALLBACK}/{name}"))
}

/// The files of a batch job, with what is known of its nodes.
pub fn streams(job: &JobView) -> Option<Streams> {
    Streams::of(&job.spec.launch, job.array.is_some(), &filename_context(job))
}

/// One file of a batch job: a long listing makes no more texts than it shows.
pub fn stream(job: &JobView, stream: Stream) -> Option<String> {
    stream.path(&job.spec.launch, job.array.is_some(), &filename_context(job))
}

fn filename_context(job: &JobView) -> FilenameContext<'_> {
    let first = job.allocation.as_ref().and_then(|allocation| allocation.nodes.first());
    FilenameContext {
        job_id: job.id.0,
        array_job_id: job.array.as_ref().map_or(job.id, |array| array.array).0,
        array_task_id: job.array.as_ref().and_then(|array| array.index),
        step: None,
        node_name: first.map_or("", |share| &share.node),
        node_index: 0,
        task: 0,
        user: &job.spec.owner.name,
        job_name: &job.spec.name,
    }
}
