//! Who may use how much, who goes first, and what was used: accounts, QOS, TRES, priority, preemption, what is private, and the books'
//! record of a job.

pub mod account;
pub mod activity;
pub mod budget;
pub mod deleted;
pub mod outage;
pub mod preempt;
pub mod priority;
pub mod private_data;
pub mod project;
pub mod qos;
pub mod raw_usage;
pub mod record;
pub mod tres;
pub mod usage_report;
