//! What clients are shown: one file for each kind of answer.

pub mod explain;
pub mod job_list;
pub mod job_view;
pub mod reservations;
pub mod shares;
pub mod sstat;
pub mod submit_test;
pub mod view_cache;
