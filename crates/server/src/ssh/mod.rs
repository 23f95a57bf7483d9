//! The SSH endpoint: a shell, commands, files and ports inside a job, with no `sshd` on its node.
//!
//! - `endpoint`: takes connections in, within bounds; `login_places`: those that no key has let in yet; `host_key`: the
//!   endpoint's own key.
//! - `access`: which job a user name means, and whether a key opens it. Authorisation itself is `cluster/authorise.rs`.
//! - `entry`: whether the key of a connection still opens its job, asked for as long as the connection lasts.
//! - `connection`: one client's connection: authentication, channels and their requests; `input_limit`: what it may have
//!   sent and nobody has taken.
//! - `session`: one shell, command or subsystem; `launch`: what its step runs; `step_client`: the step itself, in the
//!   place of an `srun`, over the agents' streams.
//! - `forward`: TCP connections in the job's network, made by a step (`forward_step`); `tunnel`: one of them.
//! - `log_socket`: the log of a run as dstack's client reads it; `nested`: the second connection that it makes inside the first.
//!
//! Nothing here opens a connection or a file on behalf of a client: what a client asks for is done by a step of its job.

pub mod access;
mod channel_end;
mod connection;
pub mod endpoint;
mod entry;
pub mod forward;
mod forward_step;
pub mod host_key;
mod input_limit;
pub mod launch;
mod log_socket;
mod login_places;
mod nested;
mod session;
pub mod step_client;
pub mod tunnel;

pub use forward_step::FORWARDED_OF_USER_MAX;
