//! What a new job asks for beyond its partitions: it is taken, as in Slurm, and waits until that changes.

use cluster::visibility::Viewer;
use cluster::{State, requested};
use model::id::JobId;
use model::partition::Partition;
use model::principal::Principal;
use model::qos::QosFlag;
use model::reason::PartitionBound;
use model::time::TimeLimit;

/// The bounds of partitions that a job is beyond in every one of them.
#[derive(Default)]
pub struct BeyondPartition {
    pub nodes: Option<PartitionBound>,
    pub time: Option<PartitionBound>,
}

/// What the caller is told of a job of his; nothing where partitions are private to him.
pub fn beyond_partition(state: &State, by: &Principal, id: JobId) -> BeyondPartition {
    let shown = Viewer::new(state, by).partitions();
    let Some(job) = state.job(id).filter(|_| shown) else { return BeyondPartition::default() };
    let names: Vec<&str> = requested::partitions(state, job).collect();
    let known = state.partitions.iter().filter(|known| names.contains(&known.name.as_str()));
    let known: Vec<&Partition> = known.map(|partition| &**partition).collect();
    let request = job.spec.request();
    let qos = state.qos.get(&*job.qos);
    let is_lifted = qos.is_some_and(|qos| qos.has(QosFlag::PartitionTimeLimit));
    let time = longest(&known).filter(|_| !is_lifted).and_then(|longest| {
        let asked = |partition: &Partition| sched::time_limit(request, partition);
        let is_beyond = known.iter().all(|partition| asked(partition) > partition.max_time);
        is_beyond.then(|| PartitionBound {
            partition: longest.name.clone(),
            most: minutes(longest.max_time),
            asked: minutes(asked(longest)),
        })
    });
    BeyondPartition { nodes: widest_bound(state, &known, request.nodes.min), time }
}

/// The most nodes that one of the partitions gives, where fewer than asked. One that machines are made for has as many as they are.
fn widest_bound(state: &State, known: &[&Partition], asked: u32) -> Option<PartitionBound> {
    let most = |partition: &Partition| {
        let there = partition.nodes.len() as u64;
        let nodes = if state.may_grow(partition) { u64::MAX } else { there };
        partition.max_nodes.map_or(nodes, |most| nodes.min(u64::from(most)))
    };
    let widest = known.iter().max_by_key(|partition| most(partition))?;
    let (partition, most) = (widest.name.clone(), most(widest));
    (u64::from(asked) > most).then(|| PartitionBound { partition, most, asked: asked.into() })
}

fn longest<'p>(known: &[&'p Partition]) -> Option<&'p Partition> {
    known.iter().copied().max_by_key(|partition| partition.max_time)
}

/// As a bound has a time limit: none is more than any.
fn minutes(limit: TimeLimit) -> u64 {
    limit.minutes().map_or(u64::MAX, u64::from)
}
