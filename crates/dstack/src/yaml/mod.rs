//! The YAML configurations: from bytes to a tree that knows its positions, and from there to types.
//!
//! `configuration` is the entry point. `node` bounds what a file may grow to, `property` has the tables of properties and
//! what each does here, `field` reads one value, `task`, `resources`, `profile` and `env` read the parts of a task.

pub mod configuration;
pub mod env;
pub mod fault;
mod field;
mod node;
pub mod notice;
pub mod profile;
pub mod property;
pub mod resources;
pub mod task;
