//! `dstack delete`: a run that has ended leaves the lists of runs. Its records stay in the books.

use super::activity;
use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision, EndedRun};
use crate::event::Event;
use crate::state::State;
use model::activity::{ActivityKind, ActivityTarget};
use model::id::RunId;
use model::reason::Refusal;
use std::collections::BTreeSet;

impl State {
    pub(super) fn decide_delete_runs(
        &self,
        runs: &[EndedRun],
        context: &Context,
    ) -> Result<Decision, Refusal> {
        for EndedRun { owner, account, .. } in runs {
            authorise(self, &context.by, Act::ManageRun { owner: *owner, account })?;
        }
        let deleted: BTreeSet<RunId> = runs.iter().map(|ended| ended.run).collect();
        let alive = self.jobs.values().find(|job| !job.has_ended() && deleted.contains(&job.run));
        if let Some(job) = alive {
            let text = format!("job {} of the run has not ended: stop it first", job.id);
            return Err(Refusal::Other(text));
        }
        let mut left = deleted.clone();
        let each_once = runs.iter().filter(|ended| left.remove(&ended.run)).cloned();
        let noted = each_once.map(|EndedRun { run, name, owner, account }| {
            let target = ActivityTarget::Run { run, name, owner, account };
            activity::noted(context, target, ActivityKind::Deleted)
        });
        let noted: Vec<Event> = noted.collect();
        let deleted = Event::RunsDeleted { runs: deleted.into_iter().collect() };
        Ok(std::iter::once(deleted).chain(noted).collect::<Vec<_>>().into())
    }
}
