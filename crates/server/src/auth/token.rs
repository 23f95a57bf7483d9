//! Tokens: the text that is handed out, and the hash that the state keeps.

use crate::clock;

/// A new token: 32 random bytes as hex.
pub fn generate() -> String {
    clock::random::<32>().iter().map(|b| format!("{b:02x}")).collect()
}

/// The hash that stands for a token in the state.
pub fn hash(token: &str) -> String {
    crate::auth::identity::fingerprint(token.trim().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_their_hash_ignores_surrounding_blanks() {
        let (one, other) = (generate(), generate());
        assert!(one.len() == 64 && one != other);
        assert_eq!(hash(&format!(" {one}\n")), hash(&one));
        assert_ne!(hash(&one), hash(&other));
        assert!(!hash(&one).contains(&one));
    }
}
