//! Slurm's words for the types of the model: states, reasons, refusals, the notes that explain a refusal,
//! and what helps where a limit keeps a job from ever starting.

pub mod job;
pub mod limit_remedy;
pub mod mail;
pub mod node;
pub mod note;
pub mod partition;
pub mod reason;
pub mod refusal;
pub mod reservation;
pub mod reservation_refusal;
pub mod rpc;
pub mod stage;
pub mod step;

/// What Slurm prints for an absent text.
pub const NULL: &str = "(null)";
