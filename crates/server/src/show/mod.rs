//! The answers to clients, one file for each kind. They read the state and never change it, but for
//! `reservations`, which also takes the calls that create and change them.

pub mod activity_history;
pub mod cluster_view;
pub mod diagnostics;
pub mod dstack_id;
pub mod explain;
pub mod history;
pub mod job_list;
pub mod job_view;
pub mod kept_text;
pub mod machine_list;
pub mod projects;
pub mod queue_head;
pub mod reservations;
pub mod service_address;
pub mod shares;
pub mod sstat;
pub mod submit_test;
pub mod usage_report;
pub mod view_cache;
pub mod what_if;
