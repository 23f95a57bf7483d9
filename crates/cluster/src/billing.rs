//! What resources cost: the billing of an allocation, by the weights of its partition.

use crate::state::State;
use model::allocation::Allocation;
use model::priority::billing;
use model::tres::{Tres, TresKind};

/// What an allocation is charged for: its trackable resources, those with a type too, and the billing.
pub fn charged_tres(state: &State, allocation: &Allocation) -> Tres {
    let mut tres = allocation.tres();
    let typed = allocation.nodes.iter().flat_map(|share| &share.gres);
    for gres in typed.filter(|gres| gres.kind.is_some()) {
        tres.add(TresKind::gres(&gres.name, gres.kind.as_deref()), gres.count);
    }
    let cost = bill(state, &allocation.partition, &tres);
    tres.set(TresKind::Billing, cost);
    tres
}

/// The billing of these resources in a partition, rounded down.
pub fn bill(state: &State, partition: &str, tres: &Tres) -> u64 {
    let largest = state.config.parameters.priority.flags.max_tres;
    match state.partition(partition) {
        Some(partition) => billing(tres, &partition.billing_weights, largest) as u64,
        None => tres.amount(&TresKind::Cpu),
    }
}
