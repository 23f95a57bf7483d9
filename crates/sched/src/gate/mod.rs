//! What holds a job back before nodes are looked at: holds, dependencies, times, its partition's policy, limits.

pub mod limits;

use crate::place::demand::Demand;
use crate::view::{DependencyState, PartitionInfo, PendingJob};
use model::partition::{Partition, PartitionState};
use model::reason::Reason;
use model::request::Request;
use model::run::Hold;
use model::time::{TimeLimit, Timestamp};

/// Why the job itself cannot start now, whatever the partition.
pub fn job(waiting: &PendingJob, now: Timestamp) -> Option<Reason> {
    if let Some(reason) = &waiting.fixed_reason {
        return Some(reason.clone());
    }
    match waiting.hold {
        Some(Hold::User | Hold::Update) => return Some(Reason::HeldByUser),
        Some(Hold::Admin) => return Some(Reason::HeldByAdmin),
        None => {}
    }
    match waiting.dependency {
        DependencyState::Waiting => return Some(Reason::Dependency),
        DependencyState::Never => return Some(Reason::DependencyNeverSatisfied),
        DependencyState::Met => {}
    }
    if waiting.begin.is_some_and(|begin| begin > now) {
        return Some(Reason::BeginTime);
    }
    // A job of several requests has no allocation to start on yet; `feasible` refuses it at submit.
    (waiting.spec.components.len() != 1).then_some(Reason::BadConstraints)
}

/// Why the partition's policy holds the job back.
pub fn partition(info: &PartitionInfo, demand: &Demand<'_>) -> Option<Reason> {
    partition_of(&info.partition, info.nodes.len(), demand)
}

/// As [`partition`], of a partition with so many nodes.
pub fn partition_of(partition: &Partition, nodes: usize, demand: &Demand<'_>) -> Option<Reason> {
    match partition.state {
        PartitionState::Down => return Some(Reason::PartitionDown),
        PartitionState::Inactive => return Some(Reason::PartitionInactive),
        PartitionState::Up | PartitionState::Drain => {}
    }
    if partition.require_reservation && demand.request.reservation.is_none() {
        return Some(Reason::Reservation);
    }
    if exceeds(partition, nodes, demand) {
        return Some(Reason::PartitionNodeLimit);
    }
    (time_limit(demand.request, partition) > partition.max_time)
        .then_some(Reason::PartitionTimeLimit)
}

/// Whether the job asks for more nodes than the partition has or allows one job, or for fewer than its minimum.
pub fn exceeds_nodes(info: &PartitionInfo, demand: &Demand<'_>) -> bool {
    exceeds(&info.partition, info.nodes.len(), demand)
}

fn exceeds(partition: &Partition, nodes: usize, demand: &Demand<'_>) -> bool {
    let request = demand.request;
    let most = partition.max_nodes.unwrap_or(u32::MAX).min(nodes as u32);
    let too_few =
        request.nodes_given && request.nodes.max.is_some_and(|max| max < partition.min_nodes);
    let asked = if request.nodes_given { request.nodes.min } else { 1 };
    asked.max(partition.min_nodes) > most || too_few
}

/// The time limit that was asked for, else the partition's default, else its maximum.
pub fn time_limit(request: &Request, partition: &Partition) -> TimeLimit {
    request
        .time_limit
        .map(TimeLimit::zero_is_unlimited)
        .or(partition.default_time)
        .unwrap_or(partition.max_time)
}
