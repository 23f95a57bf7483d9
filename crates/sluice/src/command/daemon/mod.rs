//! The long-running processes: `sluice up`, `down`, `server`, `agent` and `gateway`, and the state folder they share.
//!
//! - The verbs: `up`, `down`, `server`, `handover` (`sluice server handover`), `agent`, `gateway`. `keeper` starts a dead server or agent again.
//! - The state folder: `state_dir` (its layout), `folder_identity`, `folder_watch`, `last_start`, `process_lock`, `admin_token`,
//!   `local_cluster` (what `sluice up` started in it).
//! - The server's user: `server_user`, `as_server_user`, `state_mount`.
//! - Sockets: `listen_addresses`, `inherited_sockets`, `service_manager`.
//! - The log: `log`, `log_json`, `log_journal`, `log_journal_socket`.
//! - The process itself: `core_dump`, `session_weight`.

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
pub(super) mod local_cluster;
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
