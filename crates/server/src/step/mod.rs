//! Steps of a job: how one is created. Its bytes are `http/step_stream.rs`, its orders `dispatch/launch/step.rs`.

pub mod ask;
pub mod create;
