//! Principals and tokens of those who ask, and the server's own keys.

pub mod accounts;
pub mod identity;
pub mod key_files;
pub mod principal;
pub mod secret_keys;
pub mod shared_keys;
pub mod token;
