//! The server: a single writer around `cluster`, and the doors through which it is asked.
//!
//! A command goes to the writer, which decides, journals, applies and only then answers. Plans are
//! made beside it on a copy of the state and come back as commands. Agents dial in; what an event
//! asks of them goes out as signed orders.

mod agents;
mod auth;
pub mod clock;
pub mod configure;
mod dispatch;
mod error;
mod http;
mod plan;
mod shared;
mod show;
mod startup;
mod writer;

pub use error::ServerError;
pub use http::connection_limits::DoorLimits;
pub use startup::{Doors, ServerOptions, run};
