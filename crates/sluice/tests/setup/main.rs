//! Starting a cluster: its configuration, its users and their rights, several hosts, and the licenses of what it is built from.

#[path = "../harness/mod.rs"]
mod harness;

mod audit;
mod backup;
mod bad_config;
mod browser;
mod call_ids;
mod clear_answers;
mod client_hosts;
mod clocks;
mod clouds;
mod demo_lab;
mod dependency_licenses;
mod dynamic_nodes;
mod every_command;
mod fleet_network;
mod fleets;
mod guide;
mod ipv6;
mod laptop;
mod last_start;
mod machines;
mod many_declared_nodes;
mod membership;
mod metrics;
mod networks;
mod newcomer;
mod operation;
mod ordinary_user;
mod package_user;
mod permissions;
mod power;
mod proxy;
mod python_clients;
mod several_hosts;
mod site_certificate;
mod site_limits;
mod tokens;
mod versions;
mod web_page;
mod web_shell;
