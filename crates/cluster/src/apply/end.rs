//! Ended jobs: their record, with all their steps.

use crate::books;
use crate::state::State;
use crate::state::job::{EndRecord, Phase};
use model::id::JobId;
use model::record::JobRecord;
use model::time::Timestamp;

impl State {
    pub(super) fn apply_ended(&mut self, id: JobId, ended: &EndRecord) -> Option<JobRecord> {
        self.charge(id, ended.end);
        self.note_run(id, ended.end);
        let is_recorded = self.config.parameters.book_jobs;
        let record = is_recorded.then(|| books::record_of(self, id, Some(ended)));
        if let Some(attempt) = self.jobs[&id].attempt() {
            assert!(attempt.held_nodes.is_empty(), "job {id} ends while it holds nodes");
        }
        self.active.remove(&id);
        self.ease_throttle(id, ended.end);
        self.ended.insert((ended.end, id));
        if let Some(run) = self.runs.get_mut(&self.jobs[&id].run) {
            run.ends.add(1, ended.outcome, ended.exit);
        }
        let mut ended = ended.clone();
        let job = self.job_mut(id);
        if let Phase::Active(attempt) = &mut job.phase {
            let stored = std::mem::take(&mut attempt.steps);
            ended.steps = books::with_changed_steps(stored, ended.steps);
        }
        job.phase = Phase::Ended(Box::new(ended));
        record
    }

    /// Notes how long the job ran, where the priorities of its owner's next jobs depend on it.
    fn note_run(&mut self, id: JobId, end: Timestamp) {
        if !self.config.parameters.priority.expansion {
            return;
        }
        let job = &self.jobs[&id];
        if let Some(attempt) = job.attempt() {
            let run_s = u32::try_from(end.since(attempt.start).as_secs()).unwrap_or(u32::MAX);
            self.last_runs.note(job.spec.owner.uid, run_s);
        }
    }
}
