//! Principals and tokens of those who ask, and the server's own keys.

pub mod accounts;
pub mod identity;
pub mod json_web_token;
pub mod key_files;
pub mod logins;
pub mod oidc;
pub mod principal;
pub mod secret_keys;
pub mod shared_keys;
pub mod subordinate_ids;
pub mod token;
pub mod token_accounts;
