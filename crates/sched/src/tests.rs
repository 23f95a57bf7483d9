//! The scheduler as a whole: plans as text, reasons, refusals, and what must hold for any cluster
//! and queue.

mod backfill;
mod feasible;
mod limits;
mod placement;
mod properties;
mod reasons;
mod scale;
