//! Projects as clients are shown them.

use model::project::Members;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectView {
    pub name: String,
    /// `None` for an account that was never made a project of.
    #[serde(default)]
    pub owner: Option<String>,
    #[serde(default)]
    pub created: Option<Timestamp>,
    /// The members that the caller may see: `PrivateData` may hide the others.
    #[serde(default)]
    pub members: Members,
    /// The gateway of its services that name none, where it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_gateway: Option<String>,
}
