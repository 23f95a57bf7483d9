//! The cluster as a state machine: commands in, events out, `apply(event)`; and the books.
//!
//! Deterministic: time and random bits come in with the command. `decide` looks and never changes;
//! `apply` changes and never judges. What was journalled replays to the same state.

pub mod association_tree;
pub mod authorise;
pub mod books;
pub mod cache;
pub mod charged_usage;
pub mod command;
pub mod config;
pub mod decide;
pub mod dependency;
pub mod event;
pub mod hardware;
pub mod intern;
pub mod job;
pub mod job_selection;
pub mod licenses;
pub mod node;
pub mod priority;
pub mod state;
pub mod view;
pub mod view_builder;

mod apply;

pub use command::{Command, Context, Decision, Reply};
pub use config::{ClusterConfig, Parameters};
pub use event::Event;
pub use job::{Job, Phase};
pub use node::Node;
pub use state::State;
