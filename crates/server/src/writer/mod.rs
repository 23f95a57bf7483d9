//! The single writer: `thread` decides, journals, applies and answers; `recover` reads the state back from disk, and
//! `lost_history` settles what it found to be lost.
//! `commit` holds what a batch is to write, as commits that each fit into the journal; `gathered` what comes together with its first command;
//! `inline_commit` is its thread, and lets a submission that comes alone be committed on the thread that has it.
//!
//! `copy` is what a backup copies: the files as they are between two commits.
//!
//! `submission` is what is checked before a job is queued, `new_work` whether the books have room for what it will leave there,
//! `resubmit` finds the job of one that comes twice, `books` the thread behind the writer, `collect` the removal of
//! scripts and environments that nothing needs any more, `tick` the timer.

pub mod books;
pub mod collect;
mod commit;
mod copy;
mod gathered;
mod inline_commit;
pub mod lost_history;
mod new_work;
pub mod recover;
mod resubmit;
mod roll_back;
pub mod snapshot;
pub mod submission;
#[cfg(test)]
mod tests;
pub mod thread;
pub mod tick;
