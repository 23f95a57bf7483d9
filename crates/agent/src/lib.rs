//! The agent of a node: it takes signed orders from the server and runs the jobs of its machine.
//!
//! Three kinds of processes, so that a job outlives its agent:
//! - the agent ([`run`]) holds the link to the server and verifies its orders: `agent/`, with `link/` (TLS connection,
//!   credentials, reports, streams), `order_gate/` (signature, expiry, replay guard), `node/` (policy, facts),
//!   `login_listener` (logins of users into their jobs) and `client_socket` (commands of users on the node);
//! - the launcher ([`Launcher`], `launcher`), forked before the agent has threads, forks the supervisors;
//! - a supervisor for each attempt of a job (`supervisor/`) runs it in a control group of its own and keeps its end
//!   until an agent has taken it: prolog and epilog, script, steps, time limit, scratch folders.
//!
//! `gpu_monitor/` is a fourth: it asks the library of the GPUs' vendor. `output_reader` is a fifth: it reads a job's output
//! file as the job's owner. `in_job/` are programs of ours that run as steps.
//!
//! What they share: `spool/` (the attempts on disk), `cgroup/` (control groups), `detect/` (the machine's processors,
//! memory and GPUs), `device_access` (which device files a job may open), `cdi/` (what vendors' files say of devices), `volume` and `disk` (folders and disks of volumes). Small pieces: `launch_request`, `attempt_key`,
//! `ownership` (files given to the user), `privilege` (whether the agent acts as every user), `trusted_dir` (where root may make files), `pidfd`, `killed_child`, `kernel_file` (reads `/proc`),
//! `network_stack` (whose loopback it is), `wall_clock`, `cpu_frequency`, `refused_nodes` (what `sluice doctor` shows of the server's answer). `load/` is for benchmarks and tests, with the feature `load`.
//!
//! Where the next things belong: container runtimes start a process and go to `supervisor/container/`; the store of
//! their images is the agent's, `images/`; metrics of jobs on GPUs are sampled with the processes' own usage, `supervisor/attempt/sampling.rs`.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod cgroup;
pub mod detect;
pub mod gpu_monitor;
pub mod in_job;
#[cfg(feature = "load")]
pub mod load;
pub mod output_reader;
pub mod socket_folder;
pub mod trusted_dir;

mod agent;
mod attempt_key;
mod cdi;
mod client_socket;
mod cpu_frequency;
mod device_access;
mod disk;
mod error;
mod kernel_file;
mod killed_child;
mod launch_request;
mod launcher;
mod link;
mod login_listener;
mod network_stack;
mod node;
mod order_gate;
mod ownership;
mod pidfd;
mod privilege;
mod refused_nodes;
mod spool;
mod supervisor;
mod volume;
mod wall_clock;

/// The program's part inside a container.
pub use supervisor::container::{init as container_init, inside as container};

pub use agent::{AgentConfig, SpotCloud, SpotConfig, has_joined, run};
pub use cdi::own_text as cdi_specification;
pub use error::AgentError;
pub use launcher::Launcher;
pub use network_stack::network_stack;
pub use privilege::set_pod_user;
pub use refused_nodes::read as refused_nodes;
pub use spool::nodes_with_attempts;
