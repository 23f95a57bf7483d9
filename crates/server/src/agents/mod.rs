//! The agents' side: their connections, what they report, and what they found on their machines.

pub mod devices;
pub mod listen;
pub mod receive;
