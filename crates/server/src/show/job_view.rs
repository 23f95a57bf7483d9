//! A job as clients see it.

use crate::shared::forecast_queue::Estimates;
use crate::shared::gateways::ListedGateway;
use crate::shared::probe_streaks::Streaks;
use crate::shared::{LastPlan, Shared};
use crate::show::service_address;
use crate::show::view_cache::{self, RequestSummary, ViewCache};
use crate::task_groups;
use cluster::Job;
use cluster::State;
use cluster::authorise::{Act, authorise};
use cluster::billing::bill;
use cluster::requested;
use cluster::view::priority::Ranking;
use model::allocation::Allocation;
use model::array::IndexSet;
use model::attempt::suspended_whole_s;
use model::machine::MachineAnswer;
use model::principal::Principal;
use model::reason::Reason;
use model::run::{Hold, JobSpec, Launch, LaunchKind, Outcome, Step};
use model::service::{ProbeProgress, Service};
use model::time::{TimeLimit, Timestamp};
use model::tres::TresKind;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;
use wire::client::Detail;
use wire::view::{ArrayView, JobExtras, JobView};

/// Which steps of a job its view has. There may be forty thousand, and most answers show none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownSteps {
    All,
    Running,
    /// The one that started with the job, for the client that waits for it.
    First,
    /// The newest, for a page that lists them.
    Newest,
    None,
}

/// The steps of a job that a page lists.
const NEWEST_MAX: usize = 1_000;

/// Makes the views of jobs for one answer; what they need beside the state is taken once.
pub struct JobViews<'a> {
    state: &'a State,
    last_plan: Arc<LastPlan>,
    /// The gateways that run, by which services are found.
    gateways: Vec<ListedGateway>,
    /// How the probes of replicas went.
    streaks: Arc<Streaks>,
    ranking: Ranking<'a>,
    now: Timestamp,
    detail: Detail,
    cache: &'a RefCell<ViewCache>,
    /// When jobs are expected to start; only for a client that asks for it.
    estimates: Option<&'a Estimates>,
    /// Who sees what is private of his own jobs; without one nobody does.
    reader: Option<&'a Principal>,
    steps: ShownSteps,
}

impl<'a> JobViews<'a> {
    pub fn new(
        shared: &Shared,
        state: &'a State,
        now: Timestamp,
        detail: Detail,
        cache: &'a RefCell<ViewCache>,
    ) -> Self {
        let (last_plan, ranking) = (shared.volatile.last_plan(), Ranking::new(state, now));
        let gateways = shared.volatile.gateways.list(Instant::now());
        let streaks = shared.volatile.probe_streaks.all();
        let (estimates, reader) = (None, None);
        let steps = match detail {
            Detail::Full => ShownSteps::All,
            Detail::Listing => ShownSteps::None,
        };
        Self {
            state,
            last_plan,
            gateways,
            streaks,
            ranking,
            now,
            detail,
            cache,
            estimates,
            reader,
            steps,
        }
    }

    pub fn with_steps(self, steps: ShownSteps) -> Self {
        Self { steps, ..self }
    }

    pub fn with_estimates(self, estimates: Option<&'a Estimates>) -> Self {
        Self { estimates, ..self }
    }

    pub fn read_by(self, reader: &'a Principal) -> Self {
        Self { reader: Some(reader), ..self }
    }

    /// The specification without what only the server can read. What a probe sends may be the value of a variable, and is for those
    /// alone who may read these.
    fn shown_spec(&self, job: &Job) -> Arc<JobSpec> {
        let spec = without_credentials(&job.spec);
        let service = spec.launch.service.as_ref();
        let has_probes = service.is_some_and(|service| !service.probes.is_empty());
        let owner = spec.owner.uid;
        let may_read = |by: &Principal| authorise(self.state, by, Act::ReadTextsOf(owner)).is_ok();
        if !has_probes || self.reader.is_some_and(may_read) {
            return spec;
        }
        let mut hidden = (*spec).clone();
        if let Some(service) = &mut Arc::make_mut(&mut hidden.launch).service {
            service.probes.clear();
        }
        Arc::new(hidden)
    }

    /// As [`ViewCache::request_summary`], of a job that has or had an allocation.
    fn granted(&self, job: &Job, allocation: &Allocation) -> RequestSummary {
        let mut tres = allocation.tres();
        tres.set(TresKind::Billing, bill(self.state, &allocation.partition, &tres));
        RequestSummary {
            partition: allocation.partition.as_str().into(),
            limit: requested::effective_limit(self.state, job),
            tres: Arc::new(tres),
            default_memory: view_cache::default_memory(self.state, job),
        }
    }

    /// Where clients find the service that the job is a replica of, where that is not its path at the server. A listing does not say
    /// it.
    fn service_url(&self, job: &Job) -> Option<String> {
        let service = job.spec.launch.service.as_deref();
        let service = service.filter(|_| self.detail == Detail::Full)?;
        let path = Service::path(job.spec.project(), &job.spec.name);
        let found = service_address::address(self.state, &self.gateways, service, &path);
        Some(found).filter(|found| *found != path)
    }

    /// How each probe of a replica that runs goes.
    fn probes(&self, job: &Job) -> Vec<ProbeProgress> {
        let streaks = job.attempt().and_then(|_| self.streaks.get(&job.id));
        let (Some(service), Some(streaks)) = (&job.spec.launch.service, streaks) else {
            return Vec::new();
        };
        let probes = service.probes.iter().zip(streaks);
        probes.map(|(probe, streak)| probe.progress(*streak)).collect()
    }

    /// One job; `tasks` narrows which pending tasks of an array are shown.
    pub fn job(&self, job: &Job, tasks: Option<&IndexSet>) -> JobView {
        let state = self.state;
        let request = job.spec.request();
        let dependency = self.ranking.dependencies.shown(job);
        let (attempt, ended) = (job.attempt(), job.ended());
        let allocation =
            attempt.map(|a| &*a.allocation).or(ended.and_then(|e| e.allocation.as_deref()));
        // A hold makes no new plan: the last one may still have a slot for the job.
        let may_start = job.is_waiting() && job.hold.is_none();
        let expected = self.estimates.filter(|_| may_start).and_then(|e| e.of(job.id));
        // The plan's slot is the start of a job that no estimates have looked at; else it would be a second opinion.
        let is_estimated = self.estimates.is_some_and(|e| e.made >= job.shown_submit());
        let is_planned = may_start && !is_estimated;
        let planned = || self.last_plan.estimates.get(&job.id).copied().filter(|_| is_planned);
        let estimate = expected.map(|e| e.start).or_else(planned);
        let start = attempt.map(|a| a.start).or(ended.and_then(|e| e.start)).or(estimate);
        let RequestSummary { partition, limit, tres, default_memory } = match allocation {
            Some(allocation) => self.granted(job, allocation),
            None => self.cache.borrow_mut().request_summary(state, job),
        };
        JobView {
            id: job.id,
            run: (self.detail == Detail::Full).then_some(job.run),
            name: job.spec.name.clone(),
            array: array_view(state, job, tasks),
            het: job.het,
            spec: match self.detail {
                Detail::Full => self.shown_spec(job),
                Detail::Listing => self.cache.borrow_mut().listed(&job.spec),
            },
            state: job.state(),
            reason: reason(state, job, &self.last_plan),
            hold: job.hold.map(shown_hold),
            partition,
            account: job.account.clone(),
            qos: job.qos.clone(),
            priority: if job.hold.is_some() { 0 } else { self.ranking.shown(job, self.now) },
            submit: job.shown_submit(),
            eligible: eligible(job, dependency.is_some()),
            start,
            end: end_of(job, start, limit),
            time_limit: limit,
            restarts: job.restarts(),
            exit: ended.map(|e| e.exit).unwrap_or_default(),
            derived_exit: ended.map(|e| e.derived_exit).unwrap_or_default(),
            allocation: allocation.cloned().map(Box::new),
            nodes: request.nodes,
            cpus: tres.amount(&TresKind::Cpu) as u32,
            tasks: request.task_count(),
            tres,
            steps: self.steps_of(job),
            usage: ended.map(|e| e.usage.clone()).unwrap_or_default(),
            suspended_s: suspended_s(job, self.now),
            dependency,
            last_planned: self.last_plan.planned,
            default_memory,
            extras: self.extras(job),
            sched_nodes: expected.map(|e| e.nodes.clone()),
            cancelled_by: match ended.map(|e| e.outcome) {
                Some(Outcome::Cancelled { by }) => Some(by),
                _ => None,
            },
        }
    }

    fn steps_of(&self, job: &Job) -> Vec<Step> {
        let of_job = job.attempt().map(|a| &a.steps).or(job.ended().map(|e| &e.steps));
        let of_job = of_job.map_or(&[][..], Vec::as_slice);
        match self.steps {
            ShownSteps::All => of_job.to_vec(),
            ShownSteps::Running => of_job.iter().filter(|s| s.end.is_none()).cloned().collect(),
            ShownSteps::First => of_job.iter().take(1).cloned().collect(),
            ShownSteps::Newest => of_job[of_job.len().saturating_sub(NEWEST_MAX)..].to_vec(),
            ShownSteps::None => Vec::new(),
        }
    }

    /// What few jobs have; `None` for the others.
    fn extras(&self, job: &Job) -> Option<Box<JobExtras>> {
        let machine = self.last_plan.machines.get(&job.id).filter(|_| job.is_waiting());
        let attempt = job.attempt();
        let suspend_time = attempt.and_then(|a| a.suspend_changed);
        let pre_suspend_s = attempt.zip(suspend_time).map_or(0, |(attempt, at)| {
            let ran = at.since(attempt.start).as_millis() as u64;
            ran.saturating_sub(attempt.suspended_ms) / 1000
        });
        let preempt_time = attempt.and_then(|a| a.preemption_grace).map(|leaving| leaving.since);
        let admin_comment = job.admin_comment.clone();
        let magnetic_reservation = attempt.and_then(|a| a.reservation.clone());
        let magnetic_reservation =
            magnetic_reservation.filter(|_| job.spec.request().reservation.is_none());
        let extras = JobExtras {
            suspend_time,
            pre_suspend_s,
            preempt_time,
            admin_comment,
            magnetic_reservation,
            network: attempt.and_then(|a| a.network.clone()),
            provisioning: machine.is_some_and(MachineAnswer::is_coming),
            service_url: self.service_url(job),
            probes: self.probes(job),
        };
        (extras != JobExtras::default()).then(|| Box::new(extras))
    }
}

/// Why the job waits, ended as it did, or has not begun.
pub(crate) fn reason(state: &State, job: &Job, last_plan: &LastPlan) -> Reason {
    if let Some(ended) = job.ended() {
        return ended.reason.clone();
    }
    if !job.is_waiting() {
        let starts = job.attempt().filter(|attempt| !attempt.is_ending_or_preempted());
        let prepares = starts.is_some_and(|attempt| !attempt.preparing_nodes.is_empty());
        return match job.spec.launch.kind {
            // The groups of a task start as one: those that are ready wait for the others.
            LaunchKind::Task if starts.is_some() && task_groups::is_preparing(state, job) => {
                Reason::ImagePull
            }
            LaunchKind::Batch | LaunchKind::Interactive if prepares => Reason::Prolog,
            _ => Reason::None,
        };
    }
    let fixed = job.fixed_reason.as_deref();
    match job.hold {
        // Held since it came to wait again: that says more.
        Some(_) if fixed == Some(&Reason::RequeuedHeld) => return Reason::RequeuedHeld,
        Some(_) if job.lost_reservation() => return fixed.cloned().unwrap_or_default(),
        Some(Hold::User | Hold::Update) => return Reason::HeldByUser,
        Some(Hold::Admin) => {
            return job.fixed_reason.as_deref().cloned().unwrap_or(Reason::HeldByAdmin);
        }
        None => {}
    }
    fixed.or_else(|| last_plan.reasons.get(&job.id)).cloned().unwrap_or_default()
}

/// Clients know an owner's hold and an administrator's.
fn shown_hold(hold: Hold) -> Hold {
    match hold {
        Hold::User | Hold::Update => Hold::User,
        Hold::Admin => Hold::Admin,
    }
}

fn suspended_s(job: &Job, now: Timestamp) -> u64 {
    match (job.attempt(), job.ended()) {
        (Some(attempt), _) => {
            suspended_whole_s(attempt.start, now, attempt.suspended_total_ms(now))
        }
        (None, Some(ended)) => {
            ended.start.map_or(0, |start| suspended_whole_s(start, ended.end, ended.suspended_ms))
        }
        (None, None) => 0,
    }
}

pub(crate) fn array_view(
    state: &State,
    job: &Job,
    tasks: Option<&IndexSet>,
) -> Option<Box<ArrayView>> {
    if let Some(task) = job.task {
        let index = Some(task.index);
        return Some(Box::new(ArrayView {
            array: task.array,
            index,
            pending: None,
            // One that was requeued may wait for it.
            throttle: state.throttle(job).filter(|_| job.is_waiting()).map(|(_, most)| most),
        }));
    }
    let pending = job.pending.as_ref()?;
    let shown = tasks.unwrap_or(&pending.indices);
    let single = tasks.filter(|t| t.len() == 1).and_then(IndexSet::first);
    Some(Box::new(ArrayView {
        array: job.id,
        index: single,
        pending: single.is_none().then(|| shown.clone()),
        throttle: pending.throttle,
    }))
}

fn eligible(job: &Job, depends: bool) -> Option<Timestamp> {
    if job.is_waiting() && (job.hold.is_some() || depends) {
        return None;
    }
    Some(job.begin.map_or(job.submit, |begin| begin.max(job.submit)))
}

fn end_of(job: &Job, start: Option<Timestamp>, limit: TimeLimit) -> Option<Timestamp> {
    match (job.ended(), job.attempt()) {
        (Some(ended), _) => Some(ended.end),
        (None, Some(attempt)) => match attempt.preemption_grace {
            Some(leaving) => Some(leaving.until),
            None => attempt.end_limit,
        },
        (None, None) => Some(start? + limit.duration()?),
    }
}

/// The specification without what only the server can read.
fn without_credentials(spec: &Arc<JobSpec>) -> Arc<JobSpec> {
    let launch = &spec.launch;
    if launch.registry_auth.is_none() && launch.git_credentials.is_none() {
        return spec.clone();
    }
    let launch = Launch { registry_auth: None, git_credentials: None, ..(**launch).clone() };
    Arc::new(JobSpec { launch: Arc::new(launch), ..(**spec).clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;

    #[tokio::test]
    async fn held_job_has_no_start_though_the_last_plan_had_one_for_it() {
        let server = TestServer::start().await;
        let id = server.submit("name: waits").await.expect("a job");
        let expected = Timestamp(4_000_000_000_000);
        let mut plan = LastPlan::default();
        plan.estimates.insert(id, expected);
        server.shared.volatile.set_last_plan(plan);
        let state = server.shared.read();
        let cache = RefCell::default();
        let views = JobViews::new(&server.shared, &state, expected, Detail::Listing, &cache);
        let waits = (*state.jobs[&id]).clone();
        let held = Job { hold: Some(Hold::User), ..waits.clone() };
        assert_eq!(views.job(&waits, None).start, Some(expected));
        let shown = views.job(&held, None);
        assert_eq!((shown.start, shown.end), (None, None));
    }
}
