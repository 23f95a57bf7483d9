//! Every property that a configuration may have, by the thing that has it: its form, its default, what it does here.

pub mod fleet;
pub mod gateway;
pub mod preset;
pub mod profile;
pub mod resources;
pub mod run;
pub mod service;
pub mod volume;
