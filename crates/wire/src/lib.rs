//! What travels between client, server, agent and supervisor: versioned, bounded, and free of I/O.
//!
//! - Client and server: [`client`] (calls and answers), `call_body` (what they carry), `call_kind`; the views in [`view`], [`job_list`] (many jobs, what
//!   they share once), [`explain`], [`diagnostics`], [`reservation`], [`token`], [`volume`], [`machine`], [`what_if`]; [`listing`] (squeue's options).
//! - Server and agent: [`link`] (join, hello, heartbeat), [`order`] (signed; [`order_fence`]: whether one is new; [`launched_attempts`]: whether one may go out), [`report`] (acknowledged).
//! - Agent and supervisor: [`supervisor`]. PAM module and agent: [`login`].
//! - Supervisor and `srun`: [`step`], encrypted and proven by [`step_channel`]. Byte streams over the agent's link with credit: [`stream`]; bytes that are resent
//!   after a broken connection: [`resume`]. A file for the nodes of a job: [`file_copy`].
//! - Machines whose server is behind a proxy: [`proxy`]. Gateways of services: [`gateway`].
//! - Texts of users, which need not be UTF-8: [`byte_text`].
//! - All of them: [`frame`] (length, channel, payload) and [`version`].
//!
//! `golden` holds the JSON of each kind of message, word for word.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod agent_view;
pub mod byte_text;
mod call_body;
mod call_kind;
pub mod client;
pub mod diagnostics;
pub mod explain;
pub mod file_copy;
pub mod fleet;
pub mod forward;
pub mod frame;
pub mod gateway;
#[cfg(test)]
mod golden;
pub mod job_list;
pub mod launched_attempts;
pub mod link;
pub mod listing;
pub mod login;
pub mod machine;
pub mod order;
pub mod order_fence;
pub mod project;
pub mod proxy;
pub mod report;
pub mod reservation;
pub mod resume;
#[cfg(test)]
mod samples;
pub mod ssh;
pub mod step;
pub mod step_channel;
pub mod stream;
pub mod supervisor;
pub mod term;
pub mod token;
pub mod version;
pub mod view;
pub mod volume;
pub mod what_if;
pub mod workspace;
