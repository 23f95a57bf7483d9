//! The scheduling policies of a replay, as settings of the cluster. Each of them is what the server does with the same
//! settings in slurm.conf.

use cluster::Parameters;
use model::priority::PriorityPolicy;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Strictly in the order of the queue: `SchedulerType=sched/builtin`.
    Fcfs,
    /// A job may overtake if it does not delay the first that waits: backfill with one slot (`bf_max_job_test=1`). Of jobs that are
    /// expected to end at the second at which the first is to start, only as many count as it needs, the narrow ones first.
    Easy,
    /// A job may overtake if it delays nobody: backfill with a slot for every job that waits.
    Conservative,
    /// The policy that we recommend: `PriorityType=priority/sluice` with `PriorityMaxAge=2-12`, `PriorityCalcPeriod=1` and
    /// backfill with one slot.
    Sluice,
}

/// `PriorityMaxAge` of the recommended policy: two and a half days.
const MAX_AGE_S: u64 = 60 * 3_600;

/// Its `PriorityCalcPeriod`: the factors of short jobs grow within minutes.
const CALC_PERIOD_S: u64 = 60;

impl Policy {
    pub const ALL: [Self; 4] = [Self::Fcfs, Self::Easy, Self::Conservative, Self::Sluice];

    /// The word for it on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Easy => "easy",
            Self::Conservative => "conservative",
            Self::Sluice => "sluice",
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
            Self::Sluice => (true, 1),
        };
        // As the published replays count: the figures of a trace are comparable.
        parameters.backfill_limits.narrow_jobs_end_first = self == Self::Easy;
        if self == Self::Sluice {
            parameters.priority = PriorityPolicy {
                multifactor: false,
                expansion: true,
                max_age_s: MAX_AGE_S,
                calc_period_s: CALC_PERIOD_S,
                ..parameters.priority.clone()
            };
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
