//! Preemption: which jobs may be preempted, and what becomes of them.

use serde::{Deserialize, Serialize};

/// `PreemptType`, `PreemptMode`, `PreemptExemptTime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PreemptPolicy {
    pub by: PreemptBy,
    /// The mode unless the victim's partition or QOS sets another.
    pub mode: PreemptMode,
    /// A job that has run for less is not preempted.
    pub exempt_s: u32,
    /// `WITHIN`: also jobs of the same QOS and a lower priority.
    pub within: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreemptBy {
    #[default]
    Nothing,
    /// Jobs of partitions with a lower tier are preempted.
    Partition,
    /// Jobs whose QOS the preempting job's QOS names are preempted.
    Qos,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PreemptMode {
    #[default]
    Off,
    Cancel,
    /// Requeued, or cancelled if the job may not be requeued.
    Requeue,
    /// Suspended with its memory and devices until its cores are free again.
    Suspend,
}

impl PreemptMode {
    /// The mode in Slurm's words, as `SUSPEND,GANG`; `GANG` and `WITHIN` are skipped.
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
