//! The scheduling policies of a replay, as settings of the cluster. Each of them is what the server does with the same
//! settings in slurm.conf.

use cluster::Parameters;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Strictly in the order of the queue: `SchedulerType=sched/builtin`.
    Fcfs,
    /// A job may overtake if it does not delay the first that waits: backfill with one slot (`bf_max_job_test=1`).
    Easy,
    /// A job may overtake if it delays nobody: backfill with a slot for every job that waits.
    Conservative,
}

impl Policy {
    pub const ALL: [Self; 3] = [Self::Fcfs, Self::Easy, Self::Conservative];

    /// The word for it on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Easy => "easy",
            Self::Conservative => "conservative",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.word() == word)
    }

    /// Sets the parameters that make the cluster schedule so.
    pub fn apply(self, parameters: &mut Parameters) {
        (parameters.backfill, parameters.backfill_slots_max) = match self {
            Self::Fcfs => (false, 0),
            Self::Easy => (true, 1),
            Self::Conservative => (true, u32::MAX),
        };
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
