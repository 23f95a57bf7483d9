//! The scheduler: `plan(&View, now, &mut Memo) -> Plan`. No I/O, no clock, no randomness.
//!
//! Daemon, simulator, `--test-only`, estimates and explanations all call the same `plan`. What a
//! submit is refused for, and what a dstack plan lists, is answered by the same placement:
//! [`feasible::check`] and [`offers::offers`].

pub mod feasible;
pub mod memo;
pub mod offers;
pub mod plan;
pub mod view;

mod backfill;
mod free;
mod gate;
mod order;
mod place;
mod profile;
mod shape;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use feasible::check;
pub use memo::Memo;
pub use offers::{NodeOffer, offers};
pub use plan::plan;
pub use view::{NodeInfo, PartitionInfo, Plan, Running, Start, View, Waiting};
