//! Preemption: what becomes of a job that makes room for another.

use serde::{Deserialize, Serialize};

/// `PreemptType`, `PreemptMode`, `PreemptExemptTime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PreemptPolicy {
    pub by: PreemptBy,
    /// Where the victim's partition or QOS says nothing else.
    pub mode: PreemptMode,
    /// A job that has run for less is left alone.
    pub exempt_s: u32,
    /// Also within a QOS: those of a lower priority (`WITHIN`).
    pub within: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreemptBy {
    #[default]
    Nothing,
    /// Those of a lower tier.
    Partition,
    /// Those whose QOS the job's QOS names.
    Qos,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreemptMode {
    #[default]
    Off,
    Cancel,
    /// Waits again, or is cancelled where it may not be requeued.
    Requeue,
    /// Keeps its memory and devices, gives its cores, and goes on when they are free again.
    Suspend,
}

impl PreemptMode {
    /// Slurm's words, `GANG` and `WITHIN` among them left aside: `SUSPEND,GANG`.
    pub fn parse(words: &str) -> Option<Self> {
        let known = |word: &str| match word.trim().to_ascii_uppercase().as_str() {
            "OFF" => Some(Self::Off),
            "CANCEL" => Some(Self::Cancel),
            "REQUEUE" => Some(Self::Requeue),
            "SUSPEND" => Some(Self::Suspend),
            _ => None,
        };
        words.split(',').find_map(known)
    }

    /// Whether `WITHIN` is among the words.
    pub fn is_within(words: &str) -> bool {
        words.split(',').any(|word| word.trim().eq_ignore_ascii_case("WITHIN"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_beside_those_of_the_gang() {
        assert_eq!(PreemptMode::parse("suspend,gang"), Some(PreemptMode::Suspend));
        assert_eq!(PreemptMode::parse("GANG,REQUEUE"), Some(PreemptMode::Requeue));
        assert_eq!(PreemptMode::parse("GANG"), None);
        assert_eq!(PreemptMode::parse("within,cancel"), Some(PreemptMode::Cancel));
        assert!(PreemptMode::is_within("within,cancel") && !PreemptMode::is_within("cancel"));
    }
}
