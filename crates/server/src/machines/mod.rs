//! Machines on demand: the sources that make them, and the task that has them made and deleted.
//!
//! `source` is the trait; `program_source` is a provider program, called by `program_call`; `cloud/` has the clouds. `open_source`
//! keeps the sources that are in use. `driver` is the task; what is due is in `cluster::machine_reconcile`.

mod cloud;
pub mod driver;
mod open_source;
mod program_call;
mod program_source;
mod source;
