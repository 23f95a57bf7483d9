//! Requeued jobs: they wait again after an attempt, or after their end.

use crate::books;
use crate::event::Event;
use crate::state::State;
use crate::state::job::{EndRecord, Phase};
use model::id::JobId;
use model::record::JobRecord;

impl State {
    pub(super) fn apply_requeued(
        &mut self,
        id: JobId,
        ended: &EndRecord,
        event: &Event,
    ) -> JobRecord {
        let Event::Requeued { begin, hold, reason, special_exit, retries, .. } = event else {
            panic!("job {id} is requeued by {event:?}")
        };
        self.charge(id, ended.end);
        let record = books::record_of(self, id, Some(ended));
        let held = self.attempt_of(id).held_nodes.len();
        assert_eq!(held, 0, "job {id} is requeued while it holds nodes");
        self.active.remove(&id);
        self.ease_throttle(id, ended.end);
        let job = self.job_mut(id);
        job.phase = Phase::Waiting;
        job.begin = Some(*begin);
        // A job that was held while it ran stays held.
        job.hold = hold.or(job.hold);
        job.fixed_reason = reason.clone().map(Box::new);
        job.special_exit = *special_exit;
        job.requeued = Some(ended.end);
        job.retries = *retries;
        record
    }

    pub(super) fn apply_revived(&mut self, id: JobId, event: &Event) {
        let Event::EndedJobRequeued { at, hold, begin, reason, special_exit, retries, .. } = event
        else {
            panic!("job {id} is revived by {event:?}")
        };
        let job = self.job_mut(id);
        let Phase::Ended(ended) = &job.phase else { panic!("job {id} has not ended") };
        let end = ended.end;
        // The books recorded a job that never started under the number of its next attempt.
        job.attempts += u32::from(ended.start.is_none());
        job.phase = Phase::Waiting;
        job.begin = Some(begin.unwrap_or(*at));
        job.hold = *hold;
        job.fixed_reason = reason.clone().map(Box::new);
        job.special_exit = *special_exit;
        job.requeued = Some(*at);
        job.retries = *retries;
        // It runs again, and is listed again.
        job.deleted = false;
        self.ended.remove(&(end, id));
    }
}
