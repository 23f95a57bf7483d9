//! The scheduler as a whole: plans as text, reasons, refusals, and what must hold for any cluster
//! and queue.

mod backfill;
mod closeness;
mod devices;
mod explain;
mod feasible;
mod forecast;
mod fragmentation;
mod het;
mod limits;
mod machines;
mod placement;
mod power;
mod preemption;
mod properties;
mod reasons;
mod reservations;
mod scale;
mod select;
mod times;
mod truth;
