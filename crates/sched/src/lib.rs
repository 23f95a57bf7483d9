//! The scheduler: `plan(&View, now, &mut Memo) -> Plan`. No I/O, no clock, no randomness.
//!
//! ```text
//!   view          the cluster as the scheduler is shown it, and the plan that it answers
//!   accounting    associations with their limits and usage
//!   plan/         one pass over the queue: starts, backfill slots, preemptions, reasons
//!   order/        priority, fair share and the order of the queue
//!   gate/         what holds a job back beside resources: holds, partitions, limits of QOS and accounts
//!   place/        which nodes, CPUs and devices a job gets
//!   free/         what is free on each node, now and later, and the search for the earliest start
//!   reservation/  advance reservations, and nodes for a new one
//!   preempt       which running jobs give way
//!   topology      switches and blocks
//!   machines      which machines to ask of sources for jobs that wait
//!   memo/         what `plan` may remember from call to call
//!   query/        estimates, explanations, refusals at submit, offers
//! ```
//!
//! Every caller uses the same `plan`: the daemon, `--test-only`, estimates and explanations. A refusal at submit
//! ([`query::feasible::check`]) and dstack's offers ([`query::offers::offers`]) come from the same placement.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod accounting;
pub mod machines;
pub mod memo;
pub mod order;
pub mod plan;
pub mod query;
pub mod reservation;
pub mod view;

mod free;
mod gate;
mod index;
mod place;
mod preempt;
mod topology;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use free::node_free::gpus_shared_by;
pub use gate::limits::{limit_denied, run_minutes};
pub use gate::time_limit;
pub use memo::Memo;
pub use place::demand::is_whole_node;
pub use plan::plan;
pub use query::estimate::estimates;
pub use query::explain::{Explanation, explain, explain_planned};
pub use view::{HeldShares, NodeInfo, PartitionInfo, PendingJob, Plan, RunningJob, Start, View};
