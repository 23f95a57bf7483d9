//! Tokens: what is handed out, and the hash that is kept.

use crate::clock;

/// A new token: 32 random bytes as hex.
pub fn generate() -> String {
    clock::random::<32>().iter().map(|b| format!("{b:02x}")).collect()
}

/// What the state keeps of a token.
pub fn hash(token: &str) -> String {
    crate::auth::identity::fingerprint(token.trim().as_bytes())
}
