//! The scheduler's threads: the planner, and forecasts on demand.

pub mod forecast;
pub mod planner;
