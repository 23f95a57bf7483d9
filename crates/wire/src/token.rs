//! Tokens as clients ask for them and see them.

use model::principal::{Role, TokenStatus};
use model::time::Timestamp;
use serde::{Deserialize, Serialize};

/// How long a token is good for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenLife {
    /// What the server has for its kind.
    #[default]
    Usual,
    Seconds(u64),
    Never,
}

impl TokenLife {
    pub fn is_usual(&self) -> bool {
        *self == Self::Usual
    }
}

/// Where the holder of a token logs in from another machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginHint {
    pub url: String,
    /// SHA-256 of the authority's certificate; `None` where the site has a certificate of its own.
    pub fingerprint: Option<String>,
    /// The server listens on its own machine alone: the address is for that machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loopback: bool,
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenView {
    pub name: String,
    pub of: TokenOf,
    pub made: Option<Timestamp>,
    /// `None` for one that does not expire.
    pub expires: Option<Timestamp>,
    /// Since the server was started.
    pub last_use: Option<Timestamp>,
    pub status: TokenStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenOf {
    /// `limit` is the most that it may do; `None` for all that its user may.
    User { name: String, limit: Option<Role> },
    /// Nodes that have not joined yet.
    Nodes(Vec<String>),
    /// Any node of a pattern, so many times.
    Group {
        pattern: String,
        count: u32,
        used: u32,
        /// Machines that no configuration file names may become nodes with it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dynamic: bool,
    },
}
