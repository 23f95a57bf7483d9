//! Parts of views that jobs in one answer have in common, worked out once and shared.

use cluster::Job;
use cluster::billing::bill;
use cluster::{State, requested};
use foldhash::fast::RandomState;
use model::partition::DefaultMemory;
use model::request::{Memory, Request};
use model::run::{JobSpec, Launch, LaunchKind, Retry};
use model::time::TimeLimit;
use model::tres::{Tres, TresKind};
use std::collections::HashMap;
use std::sync::Arc;

/// The columns of a job that follow from its request alone while it waits.
#[derive(Clone)]
pub struct RequestSummary {
    pub partition: Arc<str>,
    pub limit: TimeLimit,
    pub tres: Arc<Tres>,
    pub default_memory: Option<DefaultMemory>,
}

/// Keyed by address: jobs with equal requests and owners share them.
#[derive(Default)]
pub struct ViewCache {
    summaries: HashMap<*const Request, RequestSummary, RandomState>,
    listed: HashMap<ListedKey, Arc<JobSpec>, RandomState>,
}

#[derive(PartialEq, Eq, Hash)]
struct ListedKey {
    owner: usize,
    request: *const Request,
    kind: LaunchKind,
    requeue: bool,
    nice: i32,
    kill_on_invalid_dependency: bool,
    retry: Option<Box<Retry>>,
    dstack_priority: Option<u8>,
}

impl ViewCache {
    pub fn request_summary(&mut self, state: &State, job: &Job) -> RequestSummary {
        let request = Arc::as_ptr(&job.spec.components[0].request);
        self.summaries.entry(request).or_insert_with(|| summarise(state, job)).clone()
    }

    /// The specification as far as a listing shows it.
    pub fn listed(&mut self, spec: &JobSpec) -> Arc<JobSpec> {
        let plain = spec.comment.is_none()
            && spec.wckey.is_none()
            && spec.account.is_none()
            && spec.qos.is_none()
            && spec.schedule.is_none()
            && spec.utilization.is_none()
            && spec.inactivity_s.is_none();
        if !plain {
            return Arc::new(without_launch(spec));
        }
        let key = ListedKey {
            owner: Arc::as_ptr(&spec.owner).addr(),
            request: Arc::as_ptr(&spec.components[0].request),
            kind: spec.launch.kind,
            requeue: spec.requeue,
            nice: spec.nice,
            kill_on_invalid_dependency: spec.kill_on_invalid_dependency,
            retry: spec.retry.clone(),
            dstack_priority: spec.dstack_priority,
        };
        self.listed.entry(key).or_insert_with(|| Arc::new(without_launch(spec))).clone()
    }
}

fn summarise(state: &State, job: &Job) -> RequestSummary {
    let mut tres = requested::requested_tres(state, job);
    let partitions: Vec<&str> = requested::partitions(state, job).collect();
    let first = partitions.first().copied().unwrap_or_default();
    tres.set(TresKind::Billing, bill(state, first, &tres));
    RequestSummary {
        partition: partitions.join(",").into(),
        limit: requested::effective_limit(state, job),
        tres: Arc::new(tres),
        default_memory: default_memory(state, job),
    }
}

/// The default memory of a job that asked for none.
pub fn default_memory(state: &State, job: &Job) -> Option<DefaultMemory> {
    let not_given = job.spec.request().memory == Memory::Default;
    not_given.then(|| requested::default_memory(state, job)).flatten()
}

fn without_launch(spec: &JobSpec) -> JobSpec {
    JobSpec {
        name: Arc::from(""),
        owner: spec.owner.clone(),
        account: spec.account.clone(),
        qos: spec.qos.clone(),
        components: spec.components.clone(),
        launch: Arc::new(Launch::empty(spec.launch.kind)),
        dependency: None,
        kill_on_invalid_dependency: spec.kill_on_invalid_dependency,
        nice: spec.nice,
        dstack_priority: spec.dstack_priority,
        requeue: spec.requeue,
        retry: spec.retry.clone(),
        signal: None,
        comment: spec.comment.clone(),
        wckey: spec.wckey.clone(),
        submit_line: Arc::from(""),
        submit_host: Arc::from(""),
        submit_sid: 0,
        mail: None,
        schedule: spec.schedule.clone(),
        utilization: spec.utilization,
        inactivity_s: spec.inactivity_s,
        call: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;

    #[tokio::test]
    async fn jobs_with_equal_requests_share_one_summary_and_one_listed_spec() {
        let server = TestServer::start().await;
        let one = server.submit("name: one").await.expect("a job");
        let same = server.submit("name: same").await.expect("a job");
        let other = server.submit("name: other\nmax_duration: 1h").await.expect("a job");
        let retried = server.submit("name: retried\nretry: true").await.expect("a job");
        let daily = server.submit("name: daily\nschedule: {cron: '0 8 * * *'}").await;
        let daily = daily.expect("a job");
        let state = server.shared.read();
        let mut cache = ViewCache::default();
        let mut of = |id| {
            let job = &state.jobs[&id];
            (cache.request_summary(&state, job), cache.listed(&job.spec))
        };
        let (one, same, other) = (of(one), of(same), of(other));
        let (retried, daily) = (of(retried).1, of(daily).1);
        assert!(Arc::ptr_eq(&one.0.tres, &same.0.tres) && Arc::ptr_eq(&one.1, &same.1));
        assert!(!Arc::ptr_eq(&one.0.tres, &other.0.tres));
        assert_ne!(one.0.limit, other.0.limit);
        assert!(retried.retry.is_some() && one.1.retry.is_none());
        assert!(daily.schedule.is_some() && one.1.schedule.is_none());
        assert!(one.1.launch.script.is_none(), "a listing carries no launch");
    }
}
