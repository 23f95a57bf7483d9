//! The bodies of dstack's HTTP API: what its client sends, and what it requires of an answer.
//!
//! A request may leave out what it has nothing to say of, and may hold more than is known here: clients of several versions
//! send them. An answer has every field that the client knows, null where there is nothing to say. Identifiers are UUIDs of
//! version 4, and times have a time zone: the client insists on both. Configurations and profiles travel as JSON: they are read
//! with `configuration::from_json` and written with `effective::for_client`.

pub mod error;
pub mod event;
pub mod fleet;
pub mod gpu;
pub mod instance;
pub mod job;
pub mod plan;
pub mod project;
pub mod run;
pub mod stored;
pub mod time;
pub mod volume;
