//! The writer's thread, and what feeds it: recovery at the start and the tick.

pub mod recover;
pub mod thread;
pub mod tick;
