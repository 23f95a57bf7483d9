//! How many jobs of runs one answer shows: each of them repeats the commands and variables of its run.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the jobs of one run that are shown whatever else an answer has.
const OF_RUN_BYTES: usize = 1 << 20;
/// Bytes of the jobs of all runs of an answer that take more.
const OF_ANSWER_BYTES: usize = 64 << 20;
/// What a job takes beside the texts of its run.
const JOB_BYTES: usize = 4 << 10;

/// What one answer has left for jobs of runs that take much.
pub struct JobRoom(AtomicUsize);

impl Default for JobRoom {
    fn default() -> Self {
        Self(AtomicUsize::new(OF_ANSWER_BYTES))
    }
}

impl JobRoom {
    /// Whether so little is left that a run may be shown with few of its jobs.
    pub fn is_low(&self) -> bool {
        self.0.load(Ordering::Relaxed) < OF_RUN_BYTES
    }

    /// How many of so many jobs of a run are shown, one of them at least. `text_bytes`: those of the run.
    pub fn shown(&self, jobs: usize, text_bytes: usize) -> usize {
        let each = text_bytes + JOB_BYTES;
        if jobs <= 1 || jobs.saturating_mul(each) <= OF_RUN_BYTES {
            return jobs;
        }
        // One answer is made by one thread.
        let left = self.0.load(Ordering::Relaxed);
        let shown = jobs.min((left / each).max(1));
        self.0.store(left.saturating_sub(shown * each), Ordering::Relaxed);
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_commands_of_many_jobs_are_not_repeated_without_end() {
        let (room, text) = (JobRoom::default(), 1 << 20);
        assert!(!room.is_low());
        let first = room.shown(1000, text);
        assert!(room.is_low());
        assert!(first > 1 && first * text <= OF_ANSWER_BYTES, "{first}");
        let others: Vec<usize> = (0..100).map(|_| room.shown(1000, text)).collect();
        assert!(others.iter().all(|shown| *shown <= 1), "{others:?}");
        assert_eq!(room.shown(100, 1000), 100, "those of an ordinary run are shown all the same");
        assert_eq!((room.shown(1, text), room.shown(0, text)), (1, 0));
    }
}
