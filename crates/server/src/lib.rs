//! The server: a single writer around `cluster`, and the doors through which it is asked.
//!
//! A command goes to the writer, which decides, journals, applies and only then answers. Plans are
//! made beside it on a copy of the state and come back as commands. Agents dial in; what an event
//! asks of them goes out as signed orders.

mod agents;
mod await_change;
mod books;
mod calls;
pub mod clock;
pub mod configure;
mod conversation;
mod dispatch;
mod error;
mod http;
mod identity;
mod launch;
mod log_stream;
mod planner;
mod principal;
mod queue;
mod recover;
mod serve;
mod shared;
mod shares;
mod tick;
mod token;
mod views;
mod writer;

pub use error::ServerError;
pub use serve::{Doors, ServerOptions, run};
