//! The scheduler's view with jobs that are not submitted.

use crate::command::{Context, Submit};
use crate::state::State;
use crate::state::job::Job;
use crate::view;
use crate::view::priority::Ranking;
use model::account::NORMAL_QOS;
use model::id::{JobId, RunId};
use model::run::{HetComponent, JobSpec};
use std::sync::Arc;

impl State {
    /// The scheduler's view with the job, or all components of a het job, as if submitted; and their ids.
    pub fn probe_all(
        &self,
        submit: &Submit,
        partitions: &[u32],
        context: &Context,
    ) -> (sched::View, Vec<JobId>) {
        let mut view = self.probe(&submit.spec, partitions, context);
        let first = JobId(self.next_job);
        if submit.het_components.is_empty() {
            return (view, vec![first]);
        }
        let size = 1 + submit.het_components.len() as u32;
        let of_first = view.queue.pop();
        let others = submit.het_components.iter().map(|spec| {
            let partitions = self.partition_indices(&spec.request().partitions);
            self.probe_one(spec, &partitions.unwrap_or_default(), context)
        });
        let entries: Vec<Arc<sched::PendingJob>> = of_first.into_iter().chain(others).collect();
        for (mut entry, offset) in entries.into_iter().zip(0..) {
            let own = Arc::make_mut(&mut entry);
            own.job = JobId(first.0 + offset);
            own.het = Some(HetComponent { first, offset, size });
            view.queue.push(entry);
        }
        (view, (first.0..).take(size as usize).map(JobId).collect())
    }

    /// The scheduler's view with one job that was not submitted.
    pub fn probe(&self, spec: &JobSpec, partitions: &[u32], context: &Context) -> sched::View {
        let mut view = view::view(self, context.now);
        view.queue.push(self.probe_one(spec, partitions, context));
        view
    }

    fn probe_one(
        &self,
        spec: &JobSpec,
        partitions: &[u32],
        context: &Context,
    ) -> Arc<sched::PendingJob> {
        // The submit was checked before: the fallbacks are for jobs that were refused.
        let account = self.effective_account(spec).unwrap_or_else(|_| "".into());
        let qos = self.effective_qos(spec, &account, partitions);
        let qos = qos.unwrap_or_else(|_| NORMAL_QOS.into());
        Arc::new(self.probe_entry(spec, &account, &qos, partitions, context))
    }

    pub(super) fn probe_entry(
        &self,
        spec: &JobSpec,
        account: &str,
        qos: &str,
        partitions: &[u32],
        context: &Context,
    ) -> sched::PendingJob {
        let (id, run) = (JobId(self.next_job), RunId::from_random(context.random));
        let names = (&Arc::from(account), &Arc::from(qos));
        let spec = Arc::new(spec.clone());
        let job = Job::waiting(id, run, &spec, names, self.next_priority, context.now);
        let ranking = Ranking::new(self, context.now);
        let priorities = ranking.priorities(&job, partitions, context.now);
        let (priority, priorities) = view::shown_priorities(priorities);
        let first = partitions.first().map(|at| self.partitions[*at as usize].name.as_str());
        sched::PendingJob {
            job: job.id,
            tasks: 1,
            tasks_allowed: None,
            association: ranking.association(&job, first),
            spec: job.spec,
            priority,
            priorities,
            submit: context.now,
            hold: None,
            dependency: sched::view::DependencyState::Met,
            begin: job.begin,
            partitions: partitions.to_vec(),
            account: account.to_owned(),
            qos: qos.to_owned(),
            fixed_reason: None,
            awaits: Vec::new(),
            awaits_any: false,
            het: None,
        }
    }
}
