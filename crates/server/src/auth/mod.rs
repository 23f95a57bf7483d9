//! Principals and tokens of those who ask, and the server's own keys.

pub mod accounts;
pub mod identity;
pub mod logins;
pub mod principal;
pub mod secret_keys;
pub mod subordinate_ids;
pub mod token;
pub mod token_accounts;
