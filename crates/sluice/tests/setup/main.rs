//! Starting a cluster: its configuration, its users and their rights, several hosts, and the licenses of what it is built from.

#[path = "../harness/mod.rs"]
mod harness;

mod audit;
mod bad_config;
mod client_hosts;
mod dependency_licenses;
mod fleets;
mod laptop;
mod metrics;
mod operation;
mod ordinary_user;
mod permissions;
mod several_hosts;
mod site_certificate;
mod site_limits;
mod tokens;
