//! The output of runs, collected from the nodes into the server's store.

pub mod collector;
pub mod log_key;
