//! Partition states: `scontrol`'s word and `sinfo`'s.

use model::partition::{Access, OverSubscribe, Partition, PartitionState};
use model::select::{PartitionSelect, Unit};

/// `UP`, as `scontrol show partition` has it.
pub fn long(state: PartitionState) -> &'static str {
    match state {
        PartitionState::Up => "UP",
        PartitionState::Down => "DOWN",
        PartitionState::Drain => "DRAIN",
        PartitionState::Inactive => "INACTIVE",
    }
}

/// `up`, the column AVAIL of `sinfo`.
pub fn available(state: PartitionState) -> &'static str {
    match state {
        PartitionState::Up => "up",
        PartitionState::Down => "down",
        PartitionState::Drain => "drain",
        PartitionState::Inactive => "inact",
    }
}

/// The name with a star behind the default partition's.
pub fn starred(partition: &Partition) -> String {
    let star = if partition.default { "*" } else { "" };
    format!("{}{star}", partition.name)
}

/// `NO`, `EXCLUSIVE`, `YES:4`, `FORCE:4`.
pub fn over_subscribe(value: OverSubscribe) -> String {
    match value {
        OverSubscribe::No => "NO".to_owned(),
        OverSubscribe::Exclusive => "EXCLUSIVE".to_owned(),
        OverSubscribe::Yes(count) => format!("YES:{count}"),
        OverSubscribe::Force(count) => format!("FORCE:{count}"),
    }
}

/// `NONE`, or the partition's own way of granting: `CR_CORE_MEMORY`.
pub fn select(own: Option<PartitionSelect>) -> &'static str {
    let Some(own) = own else { return "NONE" };
    match (own.unit, own.memory) {
        (Unit::Socket, true) => "CR_SOCKET_MEMORY",
        (Unit::Socket, false) => "CR_SOCKET",
        (_, true) => "CR_CORE_MEMORY",
        (_, false) => "CR_CORE",
    }
}

/// The key and value of one access list: `AllowAccounts=ALL`, `DenyAccounts=chem`.
pub fn access(what: &str, access: &Access) -> String {
    match access {
        Access::All => format!("Allow{what}=ALL"),
        Access::Only(names) => format!("Allow{what}={}", names.join(",")),
        Access::Except(names) => format!("Deny{what}={}", names.join(",")),
    }
}
