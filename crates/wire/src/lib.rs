//! The messages between client, server, agent and supervisor: versioned, bounded, and free of I/O.
//!
//! - Client and server: `client` (calls and answers), `call_kind`, `view` and `reservation` (what the server shows of its
//!   state), `job_list` (many jobs in one answer), `listing` (`squeue` as finished lines), `explain`, `diagnostics`.
//! - Server and agent: `link` (the conversation), `order` (signed), `report` (kept until acknowledged), `stream`
//!   (multiplexed bytes with credit).
//! - Agent and supervisor: `supervisor`. Agent and PAM module: `login`.
//! - Steps: `step` (a launch, and the bytes between tasks and `srun`), `resume` (bytes that survive a broken connection).
//! - All: `frame` (length, channel, payload), `version` (which neighbours work together).

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
pub mod stream;
pub mod supervisor;
pub mod version;
pub mod view;
