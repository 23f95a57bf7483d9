//! Machines on demand: the sources that make them, and the task that has them made and deleted.
//!
//! `source` is the trait; `program_source` is a provider program, called by `program_call`.

mod program_call;
pub mod program_source;
pub mod source;
