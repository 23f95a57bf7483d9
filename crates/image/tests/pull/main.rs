//! Pulls from a registry that is played here, faults and all, and from a real one.

#![allow(clippy::unwrap_used, reason = "tests")]

mod faults;
mod local_files;
mod made;
mod played;
mod policy;
mod processes;
mod real_registry;
