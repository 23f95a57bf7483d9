//! `dstack delete`: a run that has ended leaves the lists of runs. Its records stay in the books.

use super::activity;
use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision, EndedRun};
use crate::event::Event;
use crate::state::State;
use model::activity::{ActivityKind, ActivityTarget};
use model::reason::Refusal;

impl State {
    pub(super) fn decide_delete_runs(
        &self,
        runs: &[EndedRun],
        context: &Context,
    ) -> Result<Decision, Refusal> {
        for EndedRun { run, owner, account, .. } in runs {
            authorise(self, &context.by, Act::ManageRun { owner: *owner, account })?;
            let alive = self.jobs.values().find(|job| job.run == *run && !job.has_ended());
            if let Some(job) = alive {
                let text = format!("job {} of the run has not ended: stop it first", job.id);
                return Err(Refusal::Other(text));
            }
        }
        let deleted = runs.iter().map(|ended| ended.run).collect();
        let noted = runs.iter().cloned().map(|EndedRun { run, name, owner, account }| {
            let target = ActivityTarget::Run { run, name, owner, account };
            activity::noted(context, target, ActivityKind::Deleted)
        });
        Ok([Event::RunsDeleted { runs: deleted }]
            .into_iter()
            .chain(noted)
            .collect::<Vec<_>>()
            .into())
    }
}
