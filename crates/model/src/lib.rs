//! The types of the domain and their grammars. No I/O, no clock, no randomness.
//!
//! - From request to usage: [`request`] (asked) → [`allocation`] (granted) → [`limits`], `device`, [`binding`] (enforced) →
//!   [`usage`] (used) → [`record`] (the books' entry).
//! - What is run: [`run`] (run, job, step), [`attempt`], [`step`], [`id`], [`array`], [`dependency`].
//! - What it runs on: [`node`], [`fleet`], [`partition`], [`topology`], [`reservation`], [`site`] (prolog, epilog, scratch).
//! - Who may use how much: [`principal`], [`account`], [`qos`], [`priority`], [`raw_usage`], [`preempt`], [`select`].
//! - Commands and refusals: [`change`] (`scontrol`), [`reservation_request`], [`reason`] (why a job waits or a command is
//!   refused), [`shortage`] (what a node lacks).
//! - Grammars of single values: [`amount`], [`range`], [`gpu`], [`gres`], [`tres`], [`hostlist`], [`cpuset`],
//!   [`constraint`], [`time`], [`time_spec`], [`filename`]; [`grammar`] is the error of all of them.

pub mod account;
pub mod allocation;
pub mod amount;
pub mod array;
pub mod attempt;
pub mod binding;
pub mod change;
pub mod constraint;
pub mod cpuset;
pub mod dependency;
mod device;
pub mod filename;
pub mod fleet;
pub mod gpu;
pub mod grammar;
pub mod gres;
pub mod hostlist;
pub mod id;
pub mod limits;
pub mod node;
pub mod node_reason;
pub mod partition;
pub mod preempt;
pub mod principal;
pub mod printable;
pub mod priority;
pub mod qos;
pub mod range;
pub mod raw_usage;
pub mod reason;
pub mod record;
pub mod request;
pub mod reservation;
pub mod reservation_request;
pub mod run;
pub mod select;
pub mod shortage;
pub mod site;
pub mod step;
pub mod time;
pub mod time_spec;
pub mod topology;
pub mod tres;
pub mod usage;
