//! Sessions of browsers that are signed in to the server's page: what the state keeps of them, so that they outlive a server. Only
//! hashes are kept; the secret of a session is in its browser's cookie alone.

use crate::token::UserToken;
use model::principal::Principal;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a session lasts, however often it is used.
pub const LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Sessions of one user; the oldest goes first. And of all: beyond it, nobody signs in.
pub const OF_USER_MAX: usize = 32;
pub const ALL_MAX: usize = 16_384;

/// What the name of a sign-on's token begins with. It is the hash of no text, so no text is taken for the token.
const SIGN_ON: &str = "sign-on ";

/// A browser that is signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebSession {
    /// The hash of the cookie's secret: whoever reads the journal cannot sign in with it.
    pub hash: String,
    /// The user at the time of signing in.
    pub who: Principal,
    pub made: Timestamp,
    pub proof: SignInProof,
}

/// What a browser signed in with. Its session ends with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignInProof {
    /// A token, by its hash.
    Token { hash: String },
    /// The word of the site's identity provider, which holds until then.
    SingleSignOn { expires: Timestamp },
}

impl WebSession {
    pub fn has_ended(&self, now: Timestamp) -> bool {
        let end = match self.proof {
            SignInProof::Token { .. } => self.made + LIFE,
            SignInProof::SingleSignOn { expires } => expires.min(self.made + LIFE),
        };
        end <= now
    }

    /// The token that the session stands for, by its hash or by what stands for one.
    pub fn token_hash(&self) -> String {
        match &self.proof {
            SignInProof::Token { hash } => hash.clone(),
            SignInProof::SingleSignOn { .. } => format!("{SIGN_ON}{}", self.hash),
        }
    }

    /// The session of a sign-on whose token this is.
    pub fn of_sign_on(token_hash: &str) -> Option<&str> {
        token_hash.strip_prefix(SIGN_ON)
    }

    /// The token of a sign-on, which nobody has the text of.
    pub fn sign_on_token(&self) -> Option<UserToken> {
        let SignInProof::SingleSignOn { expires } = self.proof else { return None };
        Some(UserToken {
            hash: self.token_hash(),
            name: self.who.name.clone(),
            token_name: "single-sign-on".into(),
            made: Some(self.made),
            expires: Some(expires),
            ..UserToken::default()
        })
    }
}
