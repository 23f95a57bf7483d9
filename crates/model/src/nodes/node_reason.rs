//! Why a node is out of service, and who said so. The dialect has the words for it.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredReason", into = "StoredReason")]
pub struct NodeReason {
    pub cause: NodeCause,
    pub author: ReasonAuthor,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeCause {
    /// The node does not answer. The cause goes when it answers again.
    NotResponding,
    /// The text of an administrator, or of an agent that found its node unfit.
    Text(String),
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
}

const STORED_SYSTEM: &str = "slurm";
const STORED_NOT_RESPONDING: &str = "Not responding";

impl From<NodeReason> for StoredReason {
    fn from(reason: NodeReason) -> Self {
        let text = match reason.cause {
            NodeCause::NotResponding => STORED_NOT_RESPONDING.to_owned(),
            NodeCause::Text(text) => text,
        };
        let (by, uid) = match reason.author {
            ReasonAuthor::System => (STORED_SYSTEM.to_owned(), 0),
            ReasonAuthor::User { name, uid } => (name, uid),
        };
        Self { text, by, uid, at: reason.at }
    }
}

impl From<StoredReason> for NodeReason {
    fn from(stored: StoredReason) -> Self {
        let StoredReason { text, by, uid, at } = stored;
        let author = match (by.as_str(), uid) {
            (STORED_SYSTEM, 0) => ReasonAuthor::System,
            _ => ReasonAuthor::User { name: by, uid },
        };
        // An administrator may write the same text: only the server's own stands for the state.
        let cause = match (text.as_str(), &author) {
            (STORED_NOT_RESPONDING, ReasonAuthor::System) => NodeCause::NotResponding,
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
    }
}
