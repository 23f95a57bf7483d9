//! What starts where and when, through the built program: placement, limits, priorities, reservations, het jobs, and the commands that explain it.

#[path = "../harness/mod.rs"]
mod harness;

mod explain;
mod het_jobs;
mod het_requeue;
mod licenses;
mod limits;
mod placement;
mod preempt;
mod reservations;
mod sdiag;
mod simulator;
mod start_times;
mod topology;
