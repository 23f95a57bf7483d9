//! Attacks on a cluster of the built program, each by somebody with an account of its own and nothing more than it says.

#[path = "../harness/mod.rs"]
mod harness;

mod floods;
mod forged_lines;
mod impersonation;
mod kept_files;
mod planted_links;
mod private_data;
mod privileges;
mod random_client;
mod root_files;
mod secrets;
mod stale_identity;
mod step_links;
mod strange_requests;
mod user_namespace;
