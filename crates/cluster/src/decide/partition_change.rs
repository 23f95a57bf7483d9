//! `scontrol update PartitionName=…`: which changes go together with what the partition has, and the trail's words for them.

use model::change::PartitionChange as Change;
use model::partition::{Access, Partition, PartitionState};
use model::reason::Refusal;

/// Refuses what slurm.conf could not have either.
pub(super) fn check(partition: &Partition, change: &Change) -> Result<(), Refusal> {
    match change {
        Change::DefaultTime(Some(limit)) if *limit > partition.max_time => {
            Err(Refusal::Other(format!(
                "DefaultTime={limit} is above MaxTime={} of partition {}",
                partition.max_time, partition.name
            )))
        }
        Change::MinNodes(min) if partition.max_nodes.is_some_and(|max| *min > max) => {
            Err(disordered(partition, *min, partition.max_nodes))
        }
        Change::MaxNodes(Some(max)) if partition.min_nodes > *max => {
            Err(disordered(partition, partition.min_nodes, Some(*max)))
        }
        _ => Ok(()),
    }
}

fn disordered(partition: &Partition, min: u32, max: Option<u32>) -> Refusal {
    Refusal::Other(format!(
        "MinNodes={min} is above MaxNodes={} of partition {}",
        count(max),
        partition.name
    ))
}

/// `MaxTime=1:00:00`: the change as it is typed.
pub(super) fn words(change: &Change) -> String {
    let yes = |set: &bool| if *set { "YES" } else { "NO" };
    match change {
        Change::State(state) => {
            let word = match state {
                PartitionState::Up => "UP",
                PartitionState::Down => "DOWN",
                PartitionState::Drain => "DRAIN",
                PartitionState::Inactive => "INACTIVE",
            };
            format!("State={word}")
        }
        Change::MaxTime(limit) => format!("MaxTime={limit}"),
        Change::Default(default) => format!("Default={}", yes(default)),
        Change::DefaultTime(None) => "DefaultTime=NONE".to_owned(),
        Change::DefaultTime(Some(limit)) => format!("DefaultTime={limit}"),
        Change::MaxNodes(max) => format!("MaxNodes={}", count(*max)),
        Change::MinNodes(min) => format!("MinNodes={min}"),
        Change::MaxCpusPerNode(max) => format!("MaxCPUsPerNode={}", count(*max)),
        Change::PriorityTier(tier) => format!("PriorityTier={tier}"),
        Change::PriorityJobFactor(factor) => format!("PriorityJobFactor={factor}"),
        Change::AllowAccounts(who) => access("Accounts", who),
        Change::AllowQos(which) => access("Qos", which),
        Change::GraceTime(seconds) => format!("GraceTime={seconds}"),
        Change::Hidden(hidden) => format!("Hidden={}", yes(hidden)),
        Change::RootOnly(only) => format!("RootOnly={}", yes(only)),
        Change::DisableRootJobs(disable) => format!("DisableRootJobs={}", yes(disable)),
        Change::RequireReservation(needed) => format!("ReqResv={}", yes(needed)),
        Change::LeastLoaded(first) => format!("LLN={}", yes(first)),
    }
}

fn count(count: Option<u32>) -> String {
    count.map_or_else(|| "UNLIMITED".to_owned(), |count| count.to_string())
}

fn access(what: &str, access: &Access) -> String {
    match access {
        Access::All => format!("Allow{what}=ALL"),
        Access::Only(names) => format!("Allow{what}={}", names.join(",")),
        Access::Except(names) => format!("Deny{what}={}", names.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::time::TimeLimit;

    #[test]
    fn bounds_of_a_partition_stay_in_order() {
        let mut partition = Partition::over("main", Vec::new());
        partition.max_time = TimeLimit::Minutes(60);
        (partition.min_nodes, partition.max_nodes) = (2, Some(4));
        let hours = |hours: u32| Some(TimeLimit::Minutes(60 * hours));
        let table = [
            (Change::DefaultTime(hours(1)), true),
            (Change::DefaultTime(hours(2)), false),
            (Change::DefaultTime(Some(TimeLimit::Unlimited)), false),
            (Change::DefaultTime(None), true),
            (Change::MinNodes(4), true),
            (Change::MinNodes(5), false),
            (Change::MaxNodes(Some(2)), true),
            (Change::MaxNodes(Some(1)), false),
            (Change::MaxNodes(None), true),
        ];
        for (change, right) in table {
            assert_eq!(check(&partition, &change).is_ok(), right, "{}", words(&change));
        }
    }
}
