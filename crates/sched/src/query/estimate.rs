//! Estimates: when every job that waits is expected to start, from the same walk over the queue as the plan, with a
//! backfill slot for each.

use crate::memo::{Memo, Replay};
use crate::plan::{Planner, Purpose};
use crate::view::{Estimate, View};
use model::id::JobId;
use model::time::Timestamp;

/// An estimate for every entry of the queue that can ever start, as far as is known now, in queue order. A job that would
/// start now is expected now; the estimate of an array is that of its next task.
pub fn estimates(view: &View, now: Timestamp, memo: &mut Memo) -> Vec<Estimate> {
    memo.refresh(view, now);
    let mut planner = Planner::new(view, now, memo, Replay::default(), Purpose::Estimates);
    planner.walk();
    planner.forecast_deferred();
    planner.into_estimates()
}

/// The estimate for one entry. No more of the queue is walked than that takes.
pub fn estimate_of(view: &View, now: Timestamp, memo: &mut Memo, job: JobId) -> Option<Estimate> {
    memo.refresh(view, now);
    Planner::new(view, now, memo, Replay::default(), Purpose::Estimates).expect(job)
}
