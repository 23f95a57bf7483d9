//! Machines on demand: the sources that make them, and the task that has them made and deleted.
//!
//! `source` is the trait; `program_source` and `program_disks` are a provider program, called by `program_call`; `cloud/` has the
//! clouds, `kubernetes/` pods. `open_source` keeps the sources that are in use, and `answer_bounds` is what they may say. `driver`
//! is the task, `node_order` what it gives machines along; what is due is in `cluster::machine_reconcile`. `disk_driver` is the
//! same for the disks of volumes. `budget_warning` has the lines of the log about budgets.

mod answer_bounds;
mod budget_warning;
mod cloud;
pub mod disk_driver;
pub mod driver;
mod kubernetes;
mod node_order;
mod open_source;
mod program_call;
mod program_disks;
mod program_source;
mod source;
