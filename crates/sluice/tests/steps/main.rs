//! Steps of a job through the built program: `srun`, `sattach`, `sbcast`, and what tasks are given.

#[path = "../harness/mod.rs"]
mod harness;

mod allocation;
mod code_server;
mod cpu_bind;
mod environment_and_shares;
mod event_stream;
mod gateway;
mod gateway_routes;
mod het_steps;
mod inactivity;
mod input_output;
mod job_control;
mod load;
mod log_socket;
mod replica_groups;
mod sbcast;
mod server_stream;
mod service_attacks;
mod service_connections;
mod service_faults;
mod service_restart;
mod service_updates;
mod services;
mod ssh_bounds;
mod ssh_editor;
mod ssh_endpoint;
mod ssh_keys;
mod ssh_network;
mod tasks;
mod verbose;
mod web_pages;
mod web_server;
mod websocket;
