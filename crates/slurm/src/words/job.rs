//! Job states: Slurm's long word and its compact one.

use model::record::RecordState;
use model::run::{JobState, Outcome};

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const STATES: [(JobState, &str, &str); 17] = [
    (JobState::Pending,     "PENDING",       "PD"),
    (JobState::Configuring, "CONFIGURING",   "CF"),
    (JobState::Running,     "RUNNING",       "R"),
    (JobState::Suspended,   "SUSPENDED",     "S"),
    (JobState::Completing,  "COMPLETING",    "CG"),
    (JobState::Completed,   "COMPLETED",     "CD"),
    (JobState::Cancelled,   "CANCELLED",     "CA"),
    (JobState::Failed,      "FAILED",        "F"),
    (JobState::Timeout,     "TIMEOUT",       "TO"),
    (JobState::NodeFail,    "NODE_FAIL",     "NF"),
    (JobState::Preempted,   "PREEMPTED",     "PR"),
    (JobState::BootFail,    "BOOT_FAIL",     "BF"),
    (JobState::Deadline,    "DEADLINE",      "DL"),
    (JobState::OutOfMemory, "OUT_OF_MEMORY", "OOM"),
    (JobState::Requeued,    "REQUEUED",      "RQ"),
    (JobState::SpecialExit, "SPECIAL_EXIT",  "SE"),
    (JobState::ReservationGone, "RESV_DEL_HOLD", "RD"),
];

fn row(state: JobState) -> &'static (JobState, &'static str, &'static str) {
    STATES.iter().find(|(known, ..)| *known == state).expect("every state has a row")
}

/// `RUNNING`
pub fn long(state: JobState) -> &'static str {
    row(state).1
}

/// `R`
pub fn compact(state: JobState) -> &'static str {
    row(state).2
}

/// Either word, in any case.
pub fn parse(word: &str) -> Option<JobState> {
    let is = |name: &str| name.eq_ignore_ascii_case(word);
    STATES.iter().find(|(_, long, compact)| is(long) || is(compact)).map(|(state, ..)| *state)
}

/// All long words, for a message that says what would be right.
pub fn all_long() -> impl Iterator<Item = &'static str> {
    STATES.iter().map(|(_, long, _)| *long)
}

/// The state in the books.
pub fn of_record(state: RecordState) -> JobState {
    match state {
        RecordState::Pending => JobState::Pending,
        RecordState::Running => JobState::Running,
        RecordState::Suspended => JobState::Suspended,
        RecordState::Ended(outcome) => outcome.state(),
    }
}

/// sacct's word for a job: who cancelled it is part of it.
pub fn in_books(state: RecordState) -> String {
    match state {
        RecordState::Ended(Outcome::Cancelled { by }) => format!("CANCELLED by {by}"),
        state => long(of_record(state)).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_reads_back_from_both_its_words() {
        for (state, long_word, compact_word) in STATES {
            assert_eq!(parse(long_word), Some(state));
            assert_eq!(parse(&compact_word.to_lowercase()), Some(state));
            assert_eq!((long(state), compact(state)), (long_word, compact_word));
        }
        assert_eq!(parse("BOGUS"), None);
    }

    #[test]
    fn the_books_name_who_cancelled() {
        let cancelled = RecordState::Ended(Outcome::Cancelled { by: 1001 });
        assert_eq!(in_books(cancelled), "CANCELLED by 1001");
        assert_eq!(in_books(RecordState::Ended(Outcome::LaunchFailed)), "FAILED");
        assert_eq!(in_books(RecordState::Running), "RUNNING");
    }
}
