//! The cluster as a state machine: commands in, events out, `apply(event)`.
//!
//! Deterministic: time and random bits come in with the command, and there is no I/O. What was journalled replays to the
//! same state. The words of Slurm and dstack are not here: refusals and reasons are typed.
//!
//! - `command`, `event`, `config`: what is asked, what happened, and the configuration that is journalled with it.
//! - `state/`: the state and its parts: jobs, nodes, raw usage, and what is derived from them and cached.
//! - `decide/`: from a command to events or a refusal, one file for each kind of command. It looks and never changes.
//! - `apply/`: from an event to the next state. It changes and never judges; its assertions stay on in release builds.
//! - `view/`: the state as the scheduler is shown it, with priorities and fair share.
//! - `requeue`: how a job's end becomes a requeue. `requested`: what a job asks for, with its partition's defaults.
//! - `dependency`, `job_selection`, `licenses`: whether a dependency is met, which jobs a filter selects, how many licenses
//!   are free. `dropped`: what a configuration would take away from jobs. `hypothesis`: the state as it would be under one.
//! - `rights`, `authorise`, `visibility`: somebody's roles, who may do what, who sees what.
//! - `hello_answer`: what a node that says hello must do to agree with the state.
//! - `machine_reconcile`: what is to be done about machines on demand, and what a source tells compared with what was asked of it.
//! - `volume_reconcile`: the same of disks of clouds, which are volumes.
//! - `token`, `web_session`, `membership`: what is kept of tokens, of browsers that are signed in, and of how nodes joined. `billing`, `books`: what resources cost, and the books' record of a job.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod authorise;
pub mod billing;
pub mod books;
pub mod command;
pub mod config;
pub mod decide;
pub mod dependency;
pub mod dropped;
pub mod event;
pub mod hello_answer;
pub mod job_selection;
pub mod licenses;
pub mod machine_reconcile;
pub mod membership;
pub mod requested;
pub mod rights;
pub mod state;
pub mod token;
pub mod view;
pub mod visibility;
pub mod volume_reconcile;
pub mod web_session;

mod apply;
mod changed_spec;
mod hypothesis;
mod requeue;

pub use command::{Command, Context, Decision, Reply};
pub use config::{CertificateFiles, ClusterConfig, Parameters, ProxyConfig, ProxyListen};
pub use event::Event;
pub use state::State;
pub use state::job::{EndRecord, Job, Phase};
pub use state::node::Node;
