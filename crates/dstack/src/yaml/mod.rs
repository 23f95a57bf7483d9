//! The YAML configurations: from bytes to a tree that knows its places, and from there to types.
//!
//! `node` bounds what a file may grow to, `property` says what may stand in it and what becomes of
//! it here, `field` reads one value, and `configuration` is where a caller comes in.

pub mod configuration;
pub mod env;
pub mod fault;
mod field;
mod node;
pub mod profile;
pub mod property;
pub mod resources;
pub mod task;
