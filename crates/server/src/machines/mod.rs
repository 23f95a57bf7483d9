//! Machines on demand: the sources that make them, and the task that has them made and deleted.
//!
//! `source` is the trait; `program_source` is a provider program, called by `program_call`. `driver` is the task, `node_order` what
//! it gives machines along; `reconcile` compares what a source tells with what was asked of it; `budget_warning` has the lines of the log about budgets.

mod budget_warning;
pub mod driver;
mod node_order;
mod program_call;
mod program_source;
mod reconcile;
mod source;
