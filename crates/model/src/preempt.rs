//! Preemption: what becomes of a job that makes room for another.

use serde::{Deserialize, Serialize};

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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_beside_those_of_the_gang() {
        assert_eq!(PreemptMode::parse("suspend,gang"), Some(PreemptMode::Suspend));
        assert_eq!(PreemptMode::parse("GANG,REQUEUE"), Some(PreemptMode::Requeue));
        assert_eq!(PreemptMode::parse("GANG"), None);
    }
}
