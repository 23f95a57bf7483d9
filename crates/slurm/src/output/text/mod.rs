//! Texts in Slurm's notation that more than one command prints: parts of a job, of a node, of a step's usage, and of its
//! CPU frequency; and the search for a job by such a text.

pub mod frequency_text;
pub mod job_search;
pub mod job_text;
pub mod node_text;
pub mod usage_text;

/// Appends formatted text. Writing into a `String` cannot fail.
macro_rules! push {
    ($out:expr, $($arg:tt)*) => {{
        let _ = write!($out, $($arg)*);
    }};
}
pub(crate) use push;
