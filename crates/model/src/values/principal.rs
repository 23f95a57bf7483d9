//! Principals: the user of a request, with the kernel's numbers, and roles.

use serde::{Deserialize, Serialize};

/// A person or service as the kernel (peer credentials) or a token says it is.
/// The same name is the same person in the books, whether the request came by socket or with a token.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Principal {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// The name of the primary group, as Slurm shows it.
    #[serde(default)]
    pub group: String,
    #[serde(default)]
    pub groups: Vec<u32>,
    #[serde(default)]
    pub role: Role,
    /// The most that the token lets it do that says who this is; `None` where the kernel says so. Belongs to one request.
    #[serde(skip)]
    pub token_limit: Option<Role>,
}

/// A principal's rights beyond its own jobs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A gateway's: it asks for the routes of services, and may do nothing else. For tokens alone.
    Gateway,
    #[default]
    User,
    /// May hold, release and cancel anybody's job; may drain nodes.
    Operator,
    /// May do everything.
    Admin,
}

/// Whether a token is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenStatus {
    Good,
    Expired,
    Revoked,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Gateway, Role::User, Role::Operator, Role::Admin];

    /// The word for it on command lines.
    pub fn word(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::User => "user",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl Principal {
    /// Whether a request of this role is within the limit of its token.
    pub fn token_permits(&self, role: Role) -> bool {
        self.token_limit.is_none_or(|limit| role <= limit)
    }
}
