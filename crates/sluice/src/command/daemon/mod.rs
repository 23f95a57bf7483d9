//! The long-running processes: `sluice up`, `down`, `server`, `agent` and `gateway`, and the state folder they share.

pub mod admin_token;
pub mod agent;
pub(super) mod as_server_user;
mod core_dump;
pub mod down;
mod folder_identity;
mod folder_watch;
pub mod gateway;
mod handover;
mod inherited_sockets;
mod keeper;
mod last_start;
mod listen_addresses;
mod log;
mod log_journal;
mod log_journal_socket;
mod log_json;
mod process_lock;
pub mod server;
mod server_user;
mod service_manager;
mod session_weight;
pub(super) mod state_dir;
mod state_mount;
pub mod up;
