//! The agent of a node: what the machine has, the job's supervisor, control groups, I/O and usage.
//!
//! Three kinds of processes, so that a job outlives its agent:
//! - the agent ([`run`]) holds the link to the server and verifies its orders;
//! - the launcher ([`Launcher`]), forked before the agent has threads, forks the supervisors;
//! - a supervisor for each attempt of a job runs it in a group of its own and keeps its end until it is taken.

pub mod cgroup;
pub mod detect;
#[doc(hidden)]
pub mod measure;

mod agent;
mod conversation;
mod cpu_map;
mod credentials;
mod devices;
mod error;
mod facts;
mod gate;
mod kernel_file;
mod launcher;
mod link;
mod liveness;
mod log_reader;
mod login_door;
mod node;
mod reports;
mod seen;
mod session;
mod spool;
mod stream;
mod supervisor;
mod wall_clock;

pub use error::AgentError;
pub use launcher::Launcher;
pub use session::{AgentConfig, run};
