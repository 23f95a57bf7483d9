//! The agents' side: their port and links, how they join, what they report, and what each node is told (`alive`: that the server lives).

mod alive;
mod client_stream;
pub mod devices;
pub mod dynamic_node;
pub mod hardware;
pub mod join;
pub mod listen;
mod message_bounds;
pub mod policies;
pub mod receive;
#[cfg(test)]
mod rogue_tests;
mod session;
