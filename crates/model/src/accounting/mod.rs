//! Who may use how much, who goes first, and what was used: accounts, QOS, TRES, priority, preemption, and the books'
//! record of a job.

pub mod account;
pub mod preempt;
pub mod priority;
pub mod qos;
pub mod raw_usage;
pub mod record;
pub mod tres;
