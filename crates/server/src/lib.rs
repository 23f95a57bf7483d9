//! The server: a single writer around `cluster`, and the doors through which it is asked.
//!
//! A command goes to the writer, which decides, journals, applies and only then answers. Plans are
//! made beside it on a copy of the state and come back as commands. Agents dial in; what an event
//! asks of them goes out as signed orders.

mod agents;
mod await_change;
mod bodies;
mod books;
mod calls;
pub mod clock;
pub mod configure;
mod conversation;
mod counters;
mod devices;
mod dispatch;
mod doors;
mod error;
mod explained;
mod foresight;
mod goodbye;
mod http;
mod identity;
mod impatient;
mod launch;
mod list;
mod measure;
mod planner;
mod principal;
mod probe;
mod process_policy;
mod queue;
mod recover;
mod reservations;
mod serve;
mod shapes;
mod shared;
mod shares;
mod step_queue;
mod step_stream;
mod steps;
mod stream;
mod tick;
mod token;
mod views;
mod writer;

pub use doors::DoorLimits;
pub use error::ServerError;
pub use serve::{Doors, ServerOptions, run};
