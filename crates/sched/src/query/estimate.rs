//! Estimates: when every job that waits is expected to start, from the same walk over the line as
//! the plan, with a place kept for each.

use crate::memo::{Memo, Replay};
use crate::plan::{Planner, Purpose};
use crate::view::{Estimate, View};
use model::id::JobId;
use model::time::Timestamp;

/// One for every entry of the queue that can ever start, as far as is known now, in queue order. A
/// job that would start now is expected now; of an array it is the next task.
pub fn estimates(view: &View, now: Timestamp, memo: &mut Memo) -> Vec<Estimate> {
    memo.refresh(view, now);
    let mut planner = Planner::new(view, now, memo, Replay::default(), Purpose::Estimates);
    planner.walk();
    planner.forecast_deferred();
    planner.into_estimates()
}

/// The same for one entry: no more of the line is walked than it takes.
pub fn estimate_of(view: &View, now: Timestamp, memo: &mut Memo, job: JobId) -> Option<Estimate> {
    memo.refresh(view, now);
    Planner::new(view, now, memo, Replay::default(), Purpose::Estimates).expect(job)
}
