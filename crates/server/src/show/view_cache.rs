//! Parts of views that jobs in one answer have in common, worked out once and shared.

use cluster::Job;
use cluster::billing::bill;
use cluster::{State, requested};
use foldhash::fast::RandomState;
use model::partition::DefaultMemory;
use model::request::{Memory, Request};
use model::run::{Component, JobSpec, Launch, LaunchKind, Retry};
use model::time::TimeLimit;
use model::tres::{Tres, TresKind};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
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
    /// What stands for each request that says until when its job waits.
    undated: HashMap<*const Request, Arc<Request>, RandomState>,
    /// The same by their contents.
    undated_requests: HashSet<Arc<Request>, RandomState>,
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
        let request = Arc::as_ptr(&self.undated(&job.spec));
        self.summaries.entry(request).or_insert_with(|| summarise(state, job)).clone()
    }

    /// As [`Request::undated`]: a thousand runs that wait until times of their own would have a thousand requests.
    fn undated(&mut self, spec: &JobSpec) -> Arc<Request> {
        let request = &spec.components[0].request;
        if let Some(known) = self.undated.get(&Arc::as_ptr(request)) {
            return known.clone();
        }
        let Cow::Owned(own) = request.undated() else { return request.clone() };
        let own = Arc::new(own);
        let shared = self.undated_requests.get(&own).cloned().unwrap_or_else(|| {
            self.undated_requests.insert(own.clone());
            own
        });
        self.undated.insert(Arc::as_ptr(request), shared.clone());
        shared
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
        let request = self.undated(spec);
        if !plain {
            return Arc::new(without_launch(spec, &request));
        }
        let key = ListedKey {
            owner: Arc::as_ptr(&spec.owner).addr(),
            request: Arc::as_ptr(&request),
            kind: spec.launch.kind,
            requeue: spec.requeue,
            nice: spec.nice,
            kill_on_invalid_dependency: spec.kill_on_invalid_dependency,
            retry: spec.retry.clone(),
            dstack_priority: spec.dstack_priority,
        };
        self.listed.entry(key).or_insert_with(|| Arc::new(without_launch(spec, &request))).clone()
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

fn without_launch(spec: &JobSpec, request: &Arc<Request>) -> JobSpec {
    JobSpec {
        name: Arc::from(""),
        owner: spec.owner.clone(),
        account: spec.account.clone(),
        qos: spec.qos.clone(),
        components: Arc::new([Component { request: request.clone() }]),
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
    use model::request::WaitPolicy;
    use model::time::Timestamp;

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

    #[tokio::test]
    async fn jobs_that_wait_until_times_of_their_own_share_what_is_listed_of_them() {
        let server = TestServer::start().await;
        let job = server.submit("name: dated").await.expect("a job");
        let state = server.shared.read();
        let until = |secs: i64| {
            let mut dated = (*state.jobs[&job]).clone();
            let spec = Arc::make_mut(&mut dated.spec);
            let request = &mut Arc::make_mut(&mut spec.components)[0].request;
            Arc::make_mut(request).wait_policy = WaitPolicy::Until(Timestamp::from_secs(secs));
            dated
        };
        let (first, later) = (until(1_000), until(2_000));
        let mut cache = ViewCache::default();
        let mut of = |job: &Job| (cache.request_summary(&state, job), cache.listed(&job.spec));
        let (one, other, again) = (of(&first), of(&later), of(&later));
        assert!(Arc::ptr_eq(&one.0.tres, &other.0.tres) && Arc::ptr_eq(&one.1, &other.1));
        assert!(Arc::ptr_eq(&other.1, &again.1));
        assert_eq!(one.1.request().wait_policy, WaitPolicy::Forever, "it is not shown");
        assert_eq!(one.1.request().nodes, first.spec.request().nodes);
    }
}
