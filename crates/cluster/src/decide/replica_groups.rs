//! Groups of replicas of one service: each is an array of its own, and all are submitted together or none.

use crate::command::{Context, Decision, Reply, Submit};
use crate::event::Event;
use crate::state::State;
use model::array::{ArraySpec, IndexSet};
use model::id::{JobId, RunId};
use model::reason::Refusal;
use model::run::{Hold, JobSpec, LaunchKind};
use model::service::{Service, check_groups};

impl State {
    /// All of them or none. The arrays have consecutive numbers, and the first names the service.
    pub(super) fn decide_submit_replica_groups(
        &self,
        submit: &Submit,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        if submit.array.is_some() {
            return Err(Refusal::InvalidArray);
        }
        let specs: Vec<&JobSpec> =
            std::iter::once(&submit.spec).chain(&submit.het_components).collect();
        check_alike(&specs)?;
        let services: Vec<Option<&Service>> =
            specs.iter().map(|spec| spec.launch.service.as_deref()).collect();
        check_groups(&services).map_err(Refusal::Other)?;
        let parameters = &self.config.parameters;
        let alive = self.jobs.len() - self.ended.len();
        let free_jobs = (parameters.max_job_count as usize).saturating_sub(alive);
        let free_ids = u64::from(parameters.max_job_id).saturating_add(1);
        let free_ids = free_ids.saturating_sub(self.next_job.into()) as usize;
        if specs.len() > free_jobs.min(free_ids) {
            return Err(Refusal::TooManyJobs { limit: free_jobs.min(free_ids) as u64 });
        }
        let first = JobId(self.next_job);
        let all: u64 = services.iter().flatten().map(|service| u64::from(service.replicas)).sum();
        let mut events = Vec::with_capacity(specs.len());
        for ((spec, service), offset) in specs.iter().zip(services.iter().flatten()).zip(0..) {
            let one = of_group(submit, spec, service);
            // Limits on jobs count the replicas of all groups.
            let others = all.saturating_sub(u64::from(service.replicas));
            let decided = self.decide_submit_job(&one, 1 + others, context)?;
            for mut event in decided.events {
                if let Event::Submitted(submitted) = &mut event {
                    submitted.job = JobId(first.0 + offset);
                    let random = context.random.wrapping_add(offset.into());
                    submitted.run = RunId::from_random(random);
                }
                events.push(event);
            }
        }
        if submit.test_only {
            return Ok(Decision::default());
        }
        let run = RunId::from_random(context.random);
        Ok(Decision { events, reply: Reply::Submitted { job: first, run } })
    }
}

/// The submit of one group: its replicas are the tasks of an array, which are held where the load, or the router, is to say when they start.
fn of_group(submit: &Submit, spec: &JobSpec, service: &Service) -> Submit {
    let last = service.replicas.saturating_sub(1);
    let array = ArraySpec {
        indices: IndexSet::from_range(0, last),
        throttle: None,
        text: format!("0-{last}"),
    };
    Submit {
        spec: spec.clone(),
        array: Some(array),
        hold: submit.hold.or(service.is_held_at_first().then_some(Hold::User)),
        priority: submit.priority,
        het_components: Vec::new(),
        test_only: submit.test_only,
        unique_name: submit.unique_name,
    }
}

/// Groups of one service go by one name and are charged to one account.
fn check_alike(specs: &[&JobSpec]) -> Result<(), Refusal> {
    let is_alike = |spec: &&JobSpec| {
        spec.launch.kind == LaunchKind::Task
            && spec.name == specs[0].name
            && spec.account == specs[0].account
            && spec.owner.uid == specs[0].owner.uid
    };
    if specs.iter().all(is_alike) {
        return Ok(());
    }
    Err(Refusal::Other("the groups of a service have one name, account and owner".into()))
}
