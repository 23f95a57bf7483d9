//! Where a job belongs: its account, QOS and partitions, by the rules of its association. A submit and `scontrol update`
//! go through the same function.

use super::limits::Submitter;
use crate::command::Context;
use crate::job_selection::SelectedJob;
use crate::state::State;
use model::change::JobField;
use model::id::JobId;
use model::reason::Refusal;
use model::run::JobSpec;
use std::sync::Arc;

/// The account and the QOS of a job, and the partitions that admit it.
pub(super) struct Assignment {
    pub account: Arc<str>,
    pub qos: Arc<str>,
    pub partitions: Vec<u32>,
}

impl State {
    /// Assigns `asked` tasks of this specification. Refuses what the association's account, list of QOS or limits on
    /// submitted jobs do not permit. `moved` is the waiting job that they are part of already, if there is one.
    pub(super) fn assign(
        &self,
        spec: &JobSpec,
        asked: u64,
        moved: Option<JobId>,
        context: &Context,
    ) -> Result<Assignment, Refusal> {
        let account = self.effective_account(spec)?;
        let mut partitions = self.admitted_partitions(spec, &account)?;
        let qos = self.effective_qos(spec, &account, &partitions)?;
        self.keep_admitted(&mut partitions, &account, &qos);
        let moved = moved.map(|id| (id, asked));
        let who = Submitter { spec, account: &account, qos: &qos, partitions: &partitions, moved };
        self.check_submit_limits(&who, asked)?;
        if let Some(reservation) = &spec.request().reservation {
            self.check_reservations(reservation, &spec.owner, &account)?;
        }
        if moved.is_some() {
            self.check_alone(spec, &account, &qos, &partitions, context)?;
        }
        Ok(Assignment { account, qos, partitions })
    }

    /// The assignment of a waiting job once these fields are set; `None` when none of them changes it.
    pub(super) fn reassign(
        &self,
        chosen: &SelectedJob<'_>,
        fields: &[JobField],
        context: &Context,
    ) -> Result<Option<Assignment>, Refusal> {
        let job = chosen.job;
        let mut spec = (*job.spec).clone();
        spec.account = Some(job.account.to_string()).filter(|name| !name.is_empty());
        spec.qos = Some(job.qos.to_string());
        let mut changes = false;
        for field in fields {
            match field {
                JobField::Account(name) => spec.account = Some(name.clone()),
                JobField::Qos(name) => spec.qos = Some(name.clone()).filter(|n| !n.is_empty()),
                JobField::Partition(names) => {
                    let component = &mut Arc::make_mut(&mut spec.components)[0];
                    Arc::make_mut(&mut component.request).partitions.clone_from(names);
                }
                _ => continue,
            }
            changes = true;
        }
        if !changes || !job.is_waiting() {
            return Ok(None);
        }
        let pending = || job.pending.as_ref().map_or(1, |pending| pending.indices.len());
        let tasks = chosen.tasks.as_ref().map_or_else(pending, |tasks| tasks.len());
        self.assign(&spec, tasks, Some(job.id), context).map(Some)
    }
}
