//! Fleets over SSH: hosts that are named by address become nodes.
//!
//! - `request`: from a configuration to the command that makes the fleet; private keys are sealed here.
//! - `choice`: where runs go that name no fleet.
//! - `installer`: which hosts need something done, many at once, again with growing pauses while one fails.
//! - `install`: the steps on one host: check, upload, join, start; and the way back.
//! - `internal_address`: a host's address in its fleet's network.
//! - `found_machine`: a host's machine, held to what a machine may have.
//! - `script`: what is run there, as shell text. `ssh_client`: connections, host keys, commands. `program`: the file that is
//!   uploaded.
//!
//! The hosts of a fleet and what is known of them are in the state; this folder only does and reports.

pub mod choice;
pub mod found_machine;
pub mod install;
pub mod installer;
pub mod internal_address;
pub mod program;
pub mod request;
pub mod script;
pub mod ssh_client;
