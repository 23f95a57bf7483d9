//! Why a node is out of service, and who said so. The dialect has the words for it.

use crate::health::HealthSource;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredReason", into = "StoredReason")]
pub struct NodeReason {
    pub cause: NodeCause,
    pub author: ReasonAuthor,
    pub at: Timestamp,
}

impl NodeReason {
    /// The text, where a person or a program wrote one.
    pub fn text(&self) -> Option<&str> {
        match &self.cause {
            NodeCause::NotResponding => None,
            NodeCause::Text(text) | NodeCause::Unhealthy { text, .. } => Some(text),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeCause {
    /// The node does not answer. The cause goes when it answers again.
    NotResponding,
    /// The text of an administrator, or of an agent that found its node unfit.
    Text(String),
    /// The node was found unhealthy. The cause goes when the same source finds it well again.
    Unhealthy { source: HealthSource, text: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReasonAuthor {
    /// The server itself.
    System,
    User {
        name: String,
        uid: u32,
    },
}

/// [`NodeReason`] as journals, snapshots and the wire hold it: in words.
#[derive(Serialize, Deserialize)]
struct StoredReason {
    text: String,
    by: String,
    uid: u32,
    at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unhealthy: Option<HealthSource>,
}

const STORED_SYSTEM: &str = "slurm";
const STORED_NOT_RESPONDING: &str = "Not responding";

impl From<NodeReason> for StoredReason {
    fn from(reason: NodeReason) -> Self {
        let (text, unhealthy) = match reason.cause {
            NodeCause::NotResponding => (STORED_NOT_RESPONDING.to_owned(), None),
            NodeCause::Text(text) => (text, None),
            NodeCause::Unhealthy { source, text } => (text, Some(source)),
        };
        let (by, uid) = match reason.author {
            ReasonAuthor::System => (STORED_SYSTEM.to_owned(), 0),
            ReasonAuthor::User { name, uid } => (name, uid),
        };
        Self { text, by, uid, at: reason.at, unhealthy }
    }
}

impl From<StoredReason> for NodeReason {
    fn from(stored: StoredReason) -> Self {
        let StoredReason { text, by, uid, at, unhealthy } = stored;
        let author = match (by.as_str(), uid) {
            (STORED_SYSTEM, 0) => ReasonAuthor::System,
            _ => ReasonAuthor::User { name: by, uid },
        };
        // An administrator may write the same text: only the server's own stands for the state.
        let cause = match (text.as_str(), &author, unhealthy) {
            (_, _, Some(source)) => NodeCause::Unhealthy { source, text },
            (STORED_NOT_RESPONDING, ReasonAuthor::System, None) => NodeCause::NotResponding,
            _ => NodeCause::Text(text),
        };
        Self { cause, author, at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_stored_in_words_and_read_back() {
        let at = Timestamp(5);
        let root = || ReasonAuthor::User { name: "root".into(), uid: 0 };
        let table = [
            (NodeCause::NotResponding, ReasonAuthor::System, "Not responding", "slurm"),
            (NodeCause::Text("bad gpu".into()), root(), "bad gpu", "root"),
            (NodeCause::Text("Not responding".into()), root(), "Not responding", "root"),
        ];
        for (cause, author, text, by) in table {
            let reason = NodeReason { cause, author, at };
            let stored = serde_json::json!({"text": text, "by": by, "uid": 0, "at": 5});
            assert_eq!(serde_json::to_value(&reason).expect("written"), stored);
            assert_eq!(serde_json::from_value::<NodeReason>(stored).expect("read"), reason);
        }
        let cause = NodeCause::Unhealthy { source: HealthSource::Check, text: "disk full".into() };
        let reason = NodeReason { cause, author: ReasonAuthor::System, at };
        let stored = serde_json::json!({
            "text": "disk full", "by": "slurm", "uid": 0, "at": 5, "unhealthy": "check"
        });
        assert_eq!(serde_json::to_value(&reason).expect("written"), stored);
        assert_eq!(serde_json::from_value::<NodeReason>(stored).expect("read"), reason);
    }
}
