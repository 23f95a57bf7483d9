//! A job's request with the defaults of its partition: partitions, time limit, memory, trackable resources.

use crate::state::State;
use crate::state::job::Job;
use model::amount::Bytes;
use model::gres::GPU;
use model::partition::{DefaultMemory, Partition};
use model::request::{Memory, Per, Request};
use model::time::TimeLimit;
use model::tres::{Tres, TresKind};

/// The names of the partition that the job runs or ran in; of one that never started, all that it may start in.
pub fn partitions<'a>(state: &'a State, job: &'a Job) -> impl Iterator<Item = &'a str> {
    let allocated = job.allocation().map(|allocation| allocation.partition.as_str());
    let asked: &[String] = match allocated {
        Some(_) => &[],
        None => &job.spec.request().partitions,
    };
    let default = || state.default_partition().map(|p| p.name.as_str());
    let single = allocated.or_else(|| default().filter(|_| asked.is_empty()));
    single.into_iter().chain(asked.iter().map(String::as_str))
}

/// The partition whose defaults apply: the first of [`partitions`].
pub fn first_partition<'a>(state: &'a State, job: &'a Job) -> Option<&'a Partition> {
    partitions(state, job).next().and_then(|name| state.partition(name)).map(|p| &**p)
}

/// The requested time limit, or the default of the job's first partition.
pub fn effective_limit(state: &State, job: &Job) -> TimeLimit {
    if let Some(limit) = job.spec.request().time_limit {
        return limit;
    }
    let partition = first_partition(state, job);
    partition.map_or(TimeLimit::Unlimited, |p| p.default_time.unwrap_or(p.max_time))
}

/// The default that applies to a job which named no memory.
pub fn default_memory(state: &State, job: &Job) -> Option<DefaultMemory> {
    let of_partition = first_partition(state, job).and_then(|p| p.default_memory);
    let cluster = state.config.parameters.default_memory;
    DefaultMemory::applicable(of_partition, cluster, job.spec.request().asks_for_gpus())
}

/// The memory that the job asks for by node, CPU or GPU, or the default if it named none. `None` if the job asks for
/// whole nodes, or named none where there is no default.
pub fn memory_per_unit(state: &State, job: &Job) -> Option<DefaultMemory> {
    match &job.spec.request().memory {
        Memory::PerNode(range) => Some(DefaultMemory::PerNode(range.min)),
        Memory::PerCpu(each) => Some(DefaultMemory::PerCpu(*each)),
        Memory::PerGpu(each) => Some(DefaultMemory::PerGpu(*each)),
        Memory::WholeNode => None,
        Memory::Default => default_memory(state, job),
    }
}

/// The memory that the job asks for in total; `None` if it depends on the placement.
fn requested_memory(state: &State, job: &Job, request: &Request) -> Option<Bytes> {
    let per_unit = memory_per_unit(state, job)?;
    let units = match per_unit {
        DefaultMemory::PerNode(_) => u64::from(request.nodes.min),
        DefaultMemory::PerCpu(_) => u64::from(request.cpu_count()),
        DefaultMemory::PerGpu(_) => requested_gres(request, GPU),
    };
    Some(Bytes(per_unit.amount().0.saturating_mul(units)))
}

/// The GPUs of all nodes together.
pub fn requested_gpus(request: &Request) -> u64 {
    requested_gres(request, GPU)
}

fn requested_gres(request: &Request, name: &str) -> u64 {
    let of_name = request.gres.iter().filter(|g| g.name == name);
    of_name.map(|g| g.count.min.saturating_mul(times(request, g.per))).sum()
}

fn times(request: &Request, per: Per) -> u64 {
    match per {
        Per::Job => 1,
        Per::Node => u64::from(request.nodes.min),
        Per::Task => u64::from(request.task_count()),
        Per::Socket => {
            u64::from(request.sockets_per_node.unwrap_or(1)) * u64::from(request.nodes.min)
        }
    }
}

/// The request as trackable resources, with their billing.
pub fn requested_tres(state: &State, job: &Job) -> Tres {
    let request = job.spec.request();
    let mut tres = Tres::new();
    let cpus = u64::from(request.cpu_count());
    tres.set(TresKind::Cpu, cpus);
    if let Some(memory) = requested_memory(state, job, request) {
        tres.set(TresKind::Mem, memory.mib());
    }
    tres.set(TresKind::Node, u64::from(request.nodes.min));
    tres.set(TresKind::Billing, cpus);
    for gres in &request.gres {
        let kind = TresKind::Gres { name: gres.name.clone(), kind: None };
        tres.add(kind, gres.count.min.saturating_mul(times(request, gres.per)));
    }
    tres
}
