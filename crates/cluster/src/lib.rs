//! The cluster as a state machine: commands in, events out, `apply(event)`; and the books.
//!
//! Deterministic: time and random bits come in with the command. `decide` looks and never changes;
//! `apply` changes and never judges. What was journalled replays to the same state.

pub mod authorise;
pub mod billing;
pub mod books;
pub mod command;
pub mod config;
pub mod decide;
pub mod dependency;
pub mod event;
pub mod job_selection;
pub mod licenses;
pub mod requested;
pub mod state;
pub mod view;

mod apply;
mod requeue;

pub use command::{Command, Context, Decision, Reply};
pub use config::{ClusterConfig, Parameters};
pub use event::Event;
pub use state::State;
pub use state::job::{EndRecord, Job, Phase};
pub use state::node::Node;
