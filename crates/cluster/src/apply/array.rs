//! Tasks that leave an array's pending set: they get records of their own, or are cancelled.

use crate::books;
use crate::state::State;
use crate::state::job::{EndRecord, Job, Phase};
use model::id::JobId;
use model::record::JobRecord;
use model::run::ArrayTask;
use model::time::Timestamp;
use std::sync::Arc;

impl State {
    /// Takes task `index` out of the array's pending set into a record of its own.
    /// The last task takes over the array's own record and id.
    pub(super) fn apply_split(&mut self, array: JobId, index: u32, id: JobId) {
        let whole = self.job_mut(array);
        let pending = whole.pending.as_mut().expect("a task splits off a pending array");
        assert!(pending.indices.remove(index), "task {array}_{index} is not pending");
        let last = pending.indices.is_empty();
        assert_eq!(last, id == array, "only the last task takes the array's own id");
        let task = Some(ArrayTask { array, index });
        if last {
            whole.throttle = whole.pending.take().and_then(|pending| pending.throttle);
            whole.task = task;
        } else {
            let job = Job { id, task, pending: None, ..whole.clone() };
            assert!(id.0 >= self.next_job, "job id {id} is given a second time");
            self.next_job = id.0 + 1;
            self.user_jobs.add(&job);
            if job.spec.launch.service.is_some() {
                self.replicas.insert(id);
            }
            self.jobs.insert(id, Arc::new(job));
        }
        self.arrays.entry(array).or_default().insert(index, id);
    }

    /// Notes that a task of an array with `%N` runs no longer, so that another may.
    pub(super) fn ease_throttle(&mut self, id: JobId, at: Timestamp) {
        let Some(array) = self.jobs[&id].task.map(|task| task.array) else { return };
        let is_throttled = |job: &Job| job.pending.as_ref().is_some_and(|p| p.throttle.is_some());
        if !self.job(array).is_some_and(is_throttled) {
            return;
        }
        if let Some(pending) = &mut self.job_mut(array).pending {
            pending.throttle_eased = Some(at);
        }
    }

    pub(super) fn apply_tasks_cancelled(
        &mut self,
        array: JobId,
        indices: &model::array::IndexSet,
        ended: &EndRecord,
    ) -> JobRecord {
        let mut record = books::record_of(self, array, Some(ended));
        record.array_job = Some(array);
        record.array_pending = Some(model::array::format_pending(indices, None));
        let run = self.jobs[&array].run;
        if let Some(run) = self.runs.get_mut(&run) {
            run.cancelled = run.cancelled.union(indices);
            run.ends.add(indices.len(), ended.outcome, ended.exit);
        }
        let whole = self.job_mut(array);
        let pending = whole.pending.as_mut().expect("tasks of a pending array are cancelled");
        let left = pending.indices.difference(indices);
        if left.is_empty() {
            // The last tasks stay in the record, which is shown until it is purged.
            pending.throttle = None;
            whole.phase = Phase::Ended(Box::new(ended.clone()));
            self.ended.insert((ended.end, array));
        } else {
            pending.indices = left;
        }
        record
    }
}
