//! What is free, now and later.
//!
//! ```text
//!   class            nodes of equal hardware are worked out once
//!   cores            CPU ids in whole cores
//!   node_free        the very CPUs, bytes and devices that are free on one node now
//!   timeline         amounts that are free on one node from when to when
//!   backfill_slot    what a waiting job has reserved for later
//!   needs            what a job takes of a node of each class
//!   node_timelines   every node's timeline during one plan
//!   search           the earliest start for jobs of one shape
//!   shape            jobs that ask for the same are worked out once
//!   waiting_shape    what later plans may know of a shape
//!   free_now         a quick refusal of such shapes
//!   slot_finder      a placement now, or a slot for later
//! ```

pub mod backfill_slot;
pub mod class;
pub mod cores;
pub mod free_now;
pub mod needs;
pub mod node_free;
pub mod node_timelines;
pub mod search;
pub mod shape;
pub mod slot_finder;
pub mod timeline;
pub mod waiting_shape;
