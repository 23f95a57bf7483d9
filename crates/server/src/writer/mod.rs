//! The single writer: `thread` decides, journals, applies and answers; `recover` reads the state back from disk.
//!
//! `submission` is what is checked before a job is queued, `books` the thread behind the writer, `tick` the timer.

pub mod books;
pub mod recover;
pub mod snapshot;
pub mod submission;
#[cfg(test)]
mod tests;
pub mod thread;
pub mod tick;
