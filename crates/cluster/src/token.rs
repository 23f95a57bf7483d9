//! Tokens: what the state keeps of them. Only hashes are kept; the text of a token is with its holder alone.

use crate::membership::JoinGroup;
use model::principal::Role;
pub use model::principal::TokenStatus;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The name of the administrator's token, of which there is one. It is replaced, never revoked.
pub const ADMIN_TOKEN: &str = "admin";

/// How many characters of its hash name a token that was given no name.
const HASH_SHOWN: usize = 8;

/// A token by its hash, and the user whom it authenticates. It is kept after its end, so that its holder is told why it is
/// refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserToken {
    pub hash: String,
    /// The user that it was made for.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix_user: Option<String>,
    /// What it was made for; gives no right. See [`UserToken::limit`].
    #[serde(default)]
    pub role: Role,
    /// The token's own name; see [`UserToken::shown_name`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token_name: String,
    /// The most that its holder may do, whoever its user is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Role>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Timestamp>,
    /// `None` for a token that does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Timestamp>,
}

impl UserToken {
    /// The user that its holder acts as.
    pub fn user(&self) -> &str {
        self.unix_user.as_deref().unwrap_or(&self.name)
    }

    pub fn shown_name(&self) -> String {
        if self.token_name.is_empty() {
            unnamed(&self.name, &self.hash)
        } else {
            self.token_name.clone()
        }
    }

    pub fn status(&self, now: Timestamp) -> TokenStatus {
        if self.revoked.is_some() {
            TokenStatus::Revoked
        } else if self.expires.is_some_and(|at| at <= now) {
            TokenStatus::Expired
        } else {
            TokenStatus::Good
        }
    }

    /// When it ended, if it has.
    pub fn ended(&self, now: Timestamp) -> Option<Timestamp> {
        self.revoked.or(self.expires.filter(|at| *at <= now))
    }

    pub fn is_admin_token(&self) -> bool {
        self.token_name == ADMIN_TOKEN
    }
}

/// A token with which an agent joins: for these nodes once, or for any of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    pub nodes: Vec<String>,
    pub expires: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Timestamp>,
    /// For every node of a pattern, instead of the nodes named. It is kept until its end, so that a node that comes too late is
    /// told why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<JoinGroup>,
}

impl JoinToken {
    pub fn shown_name(hash: &str) -> String {
        unnamed("join", hash)
    }
}

fn unnamed(of: &str, hash: &str) -> String {
    format!("{of}-{}", hash.get(..HASH_SHOWN).unwrap_or(hash))
}
