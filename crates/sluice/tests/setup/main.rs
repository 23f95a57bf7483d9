//! Starting a cluster: its configuration, its users and their rights, several hosts, and the licenses of what it is built from.

#[path = "../harness/mod.rs"]
mod harness;

mod audit;
mod backup;
mod bad_config;
mod client_hosts;
mod dependency_licenses;
mod fleets;
mod guide;
mod laptop;
mod many_declared_nodes;
mod membership;
mod metrics;
mod newcomer;
mod operation;
mod ordinary_user;
mod permissions;
mod power;
mod several_hosts;
mod site_certificate;
mod site_limits;
mod tokens;
mod versions;
