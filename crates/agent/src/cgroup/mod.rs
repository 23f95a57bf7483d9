//! Control groups: one interface over cgroup v1, v2, hybrid mounts, and machines where none can be used.
//!
//! [`Hierarchy`] is found once per agent. Each attempt of a job gets one [`JobGroup`], made before its
//! first process and removed after its last. Everything here is synchronous and allocates little, because
//! the supervisor that holds a group is a small single-threaded process.
//!
//! What must hold:
//! - a group is never used twice: the kernel kills a process that is cloned into a group that was killed before;
//! - nothing mounted is changed, and nothing outside our own root group is removed;
//! - files are reached through directory descriptors, so that a replaced path cannot redirect a write.

mod adopt;
mod capability;
mod control;
mod device_limits;
mod device_program;
mod device_rule;
mod dir;
mod entry;
mod error;
mod group;
mod hierarchy;
mod limits;
mod mounts;
mod plugin;
mod prepare;
mod root_group;
mod signal;
mod tracked_processes;
mod tree_group;
mod usage;
mod watch;

pub use capability::{Capabilities, Layout};
pub use device_rule::{DeviceKind, DeviceRule};
pub use entry::{EntryFds, Forked};
pub use error::CgroupError;
pub use group::JobGroup;
pub use hierarchy::Hierarchy;
pub use limits::GroupLimits;
pub use plugin::Plugin;
pub(crate) use signal::signal_listed;
pub use tracked_processes::MARKER_VARIABLE;
pub(crate) use tracked_processes::find_mark;
pub use usage::Usage;
pub use watch::EmptyWatch;
