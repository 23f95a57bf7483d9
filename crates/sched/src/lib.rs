//! The scheduler: `plan(&View, now, &mut Memo) -> Plan`. No I/O, no clock, no randomness.
//!
//! Daemon, simulator, `--test-only`, estimates and explanations all call the same `plan`. What a
//! submit is refused for, and what a dstack plan lists, is answered by the same placement:
//! [`feasible::check`] and [`offers::offers`].

pub mod accounting;
pub mod estimate;
pub mod explain;
pub mod feasible;
pub mod memo;
pub mod offers;
pub mod order;
pub mod plan;
pub mod reserved;
pub mod view;

mod backfill;
mod board;
mod class;
mod footprint;
mod free;
mod gate;
mod place;
mod preempt;
mod search;
mod shape;
mod timeline;
mod topology;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use estimate::estimates;
pub use explain::{Explanation, explain};
pub use feasible::check;
pub use free::devices_of;
pub use gate::limits::refused_alone;
pub use memo::Memo;
pub use offers::{NodeOffer, offers};
pub use place::demand::is_whole_node;
pub use place::gres::GPU;
pub use plan::plan;
pub use shape::is_in_service;
pub use view::{NodeInfo, PartitionInfo, Plan, Running, Start, View, Waiting};
