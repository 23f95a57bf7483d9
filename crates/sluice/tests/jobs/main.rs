//! Jobs through the built program: from submit to the books, holding, changing, signalling and listing them.

#[path = "../harness/mod.rs"]
mod harness;

mod admin_options;
mod bad_input;
mod byte_texts;
mod check_files;
mod cpu_time;
mod held_allocations;
mod job_lifecycle;
mod listing;
mod login_environment;
mod mail;
mod report_options;
mod requeue;
mod rlimits;
mod signals;
mod sreport;
mod suspend;
mod time_limits;
mod top;
mod triggers;
mod update_job;
mod usage;
mod view_options;
mod yaml_errors;
