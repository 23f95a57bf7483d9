//! Load for benchmarks and tests, which no product has: it is compiled with the feature `load` alone.
//!
//! `many_agents` is many agents in one process, as load on a server; `launch_path` runs jobs on a node without a server.

pub mod launch_path;
pub mod many_agents;
