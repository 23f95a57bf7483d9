//! What travels between client, server, agent and supervisor: versioned, bounded, and free of I/O.

mod call_kind;
pub mod client;
pub mod diagnostics;
pub mod explain;
pub mod frame;
pub mod job_list;
pub mod link;
pub mod listing;
pub mod login;
pub mod order;
pub mod report;
pub mod reservation;
pub mod resume;
pub mod step;
pub mod step_channel;
pub mod stream;
pub mod supervisor;
pub mod version;
pub mod view;
