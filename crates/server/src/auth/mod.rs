//! Who asks, and how the server proves itself: principals, tokens, keys.

pub mod identity;
pub mod principal;
pub mod token;
