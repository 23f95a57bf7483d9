//! A service that is active: its replicas, which of them gets the next request, and its groups.

use super::balance::least_busy;
use super::path_rule::PathRule;
use super::replica::{OUTSTANDING_MAX, Replica};
use super::request_rate::RequestRates;
use super::scale_state::ScaleState;
use super::waiting_line::WaitingLine;
use crate::proxy::outstanding::Outstanding;
use crate::proxy::place_use::PlaceUse;
use crate::shared::service_counts::{ServiceCount, ServiceName};
use cluster::Job;
use model::array::IndexSet;
use model::change::JobRef;
use model::id::{AttemptId, JobId};
use model::principal::Principal;
use model::replica_group::GroupRole;
use model::run::{ArrayTask, Hold};
use model::service::{REPLICAS_MAX, Service};
use model::time::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The place of a service in the table, as it is in a path.
pub fn key(project: &str, run: &str) -> String {
    format!("{project}/{run}")
}

/// A service that has not ended.
pub struct LiveService {
    pub name: ServiceName,
    /// Its place in the table.
    pub key: String,
    pub service: Service,
    /// A request needs a token: a deployment that says so has a job that has not ended. A newer one opens nothing to others that runs
    /// for them alone.
    pub auth: bool,
    /// When it was submitted.
    pub created: Timestamp,
    /// The owner of the jobs; requests reach replicas through steps of this user.
    pub owner: Principal,
    /// By which the path of a request is written first: that of the newest deployment.
    pub path: PathRule,
    /// The replicas that run, of all deployments.
    pub replicas: Vec<Arc<Replica>>,
    pub counts: Arc<ServiceCount>,
    /// The clients, as its rate limits know them.
    pub rates: Arc<RequestRates>,
    /// The jobs of earlier deployments, which the newest replaces.
    pub outdated: BTreeSet<JobId>,
    /// The outdated jobs that are not of the earliest deployment: they are of updates that the newest overtook.
    pub overtaken: BTreeSet<JobId>,
    /// The replicas that have no place, of all deployments without groups, the earliest first.
    pub waiting: Vec<WaitingReplica>,
    /// The groups of the newest deployment; one where all replicas are alike.
    pub groups: Vec<LiveGroup>,
    pub scale: Arc<ScaleState>,
    /// Requests that no replica has room for.
    pub line: Arc<WaitingLine>,
    /// Grows with each request.
    pub(super) turn: Arc<AtomicUsize>,
}

/// Replicas of one kind, of the newest deployment.
pub struct LiveGroup {
    pub index: u32,
    pub service: Service,
    /// Replicas that hold resources and are not ending.
    pub active: u32,
    /// Replicas that are to start when there is a place for them.
    pub queued: Vec<ArrayTask>,
    /// Replicas that are held: it does not need them now.
    pub parked: Vec<ArrayTask>,
}

impl LiveGroup {
    /// The group of these jobs, which are all of one kind.
    pub(super) fn of(index: u32, service: &Service, jobs: &[&Job]) -> Self {
        let is_active = |job: &&&Job| job.attempt().is_some_and(|attempt| attempt.ending.is_none());
        let active = u32::try_from(jobs.iter().filter(is_active).count()).unwrap_or(u32::MAX);
        let queued = jobs.iter().filter(|job| job.hold.is_none()).flat_map(|job| waiting(job));
        let is_held = |job: &&&Job| {
            matches!(ReplicaWait::of(job), Some(ReplicaWait::Load | ReplicaWait::Update))
        };
        let held = jobs.iter().filter(is_held);
        let mut parked: Vec<ArrayTask> = held.flat_map(|job| waiting(job)).collect();
        parked.sort_by_key(|task| task.index);
        Self { index, service: service.clone(), active, queued: queued.collect(), parked }
    }

    /// How many replicas run or are to run.
    pub fn wanted(&self) -> u32 {
        self.active.saturating_add(u32::try_from(self.queued.len()).unwrap_or(u32::MAX))
    }
}

/// A replica that has no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingReplica {
    pub job: JobRef,
    pub deployment: u32,
    pub wait: ReplicaWait,
}

/// What a replica without a place waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaWait {
    /// A place.
    Place,
    /// Its load, or its owner's word: it is held.
    Load,
    /// The end of an update: it is held because it has given its place to a newer deployment.
    Update,
}

impl ReplicaWait {
    /// `None` for what is not the server's to start: what an administrator holds, and what somebody is to look at before it runs again.
    fn of(job: &Job) -> Option<Self> {
        match job.hold {
            None => Some(Self::Place),
            Some(Hold::Admin) => None,
            Some(_) if job.special_exit => None,
            Some(Hold::User) => Some(Self::Load),
            Some(Hold::Update) => Some(Self::Update),
        }
    }
}

impl WaitingReplica {
    /// The replicas that wait in the record of a job; none of those that are not the server's to start.
    pub(super) fn of(job: &Job, deployment: u32) -> Vec<Self> {
        let Some(wait) = ReplicaWait::of(job) else { return Vec::new() };
        let one = |job: JobRef| Self { job, deployment, wait };
        if job.task.is_none() && job.pending.is_none() {
            return job.is_waiting().then(|| one(JobRef::whole(job.id))).into_iter().collect();
        }
        waiting(job).into_iter().map(|task| one(task_ref(task))).collect()
    }
}

impl LiveService {
    /// The replica that gets a request, which counts as one of its own from now on.
    pub fn enter(
        &self,
        tried: &[AttemptId],
        place_use: PlaceUse,
    ) -> Option<(Arc<Replica>, Outstanding)> {
        loop {
            let replica = self.choose(tried, place_use)?;
            let outstanding = replica.enter().told_to(self.line.ended());
            // Another may have had the last place meanwhile.
            if replica.outstanding() <= OUTSTANDING_MAX {
                return Some((replica, outstanding));
            }
        }
    }

    /// Whether all replicas have the part of requests that this use may have, of which one has: it waits for no room among all.
    pub fn is_part_taken(&self, place_use: PlaceUse) -> bool {
        let mut serving = self.replicas.iter().filter(|replica| self.is_serving(replica));
        place_use != PlaceUse::Whole && serving.all(|replica| replica.is_full(place_use))
    }

    /// The replica that gets the next request; none of those that were tried, and none that has its part of those for this use.
    pub fn choose(&self, tried: &[AttemptId], place_use: PlaceUse) -> Option<Arc<Replica>> {
        // One whose server is not known to be up is for when there is no other.
        let is_one_up = self.replicas.iter().any(|one| self.is_serving(one) && one.is_reached());
        let outstanding = |at: usize| {
            let replica = &self.replicas[at];
            let is_unknown = is_one_up && !replica.is_reached();
            let is_full = place_use != PlaceUse::Whole && replica.is_full(place_use);
            let is_left_out = is_unknown || is_full || tried.contains(&replica.attempt);
            (!is_left_out && self.is_serving(replica)).then(|| replica.outstanding())
        };
        let turn = self.turn.fetch_add(1, Relaxed);
        let chosen = least_busy(self.replicas.len(), outstanding, turn, OUTSTANDING_MAX)?;
        Some(self.replicas[chosen].clone())
    }

    /// How many replicas take requests.
    pub fn ready(&self) -> usize {
        self.replicas.iter().filter(|replica| self.is_serving(replica)).count()
    }

    /// How long the first probes of its replicas may take.
    pub fn first_probes_timeout(&self) -> Duration {
        let timeouts = self.replicas.iter().flat_map(|one| &one.probes).map(|one| one.timeout_s);
        Duration::from_secs(timeouts.max().unwrap_or_default().into())
    }

    /// Whether a replica is to get requests. A router is once each group of its workers has one that it knows.
    pub fn is_serving(&self, replica: &Replica) -> bool {
        let is_for_clients = match replica.role {
            GroupRole::Serves => true,
            GroupRole::Worker => false,
            GroupRole::Router(_) => (0..replica.group_count)
                .filter(|index| *index != replica.group)
                .all(|index| self.workers_of(replica).any(|one| one.group == index && one.is_up())),
        };
        is_for_clients && replica.is_open()
    }

    /// The replicas that a router passes requests on to.
    pub fn workers_of(&self, router: &Replica) -> impl Iterator<Item = &Arc<Replica>> {
        let deployment = router.deployment;
        let is_worker = move |one: &&Arc<Replica>| {
            one.role == GroupRole::Worker && one.deployment == deployment
        };
        self.replicas.iter().filter(is_worker)
    }

    pub fn routers(&self) -> impl Iterator<Item = &Arc<Replica>> {
        self.replicas.iter().filter(|one| matches!(one.role, GroupRole::Router(_)))
    }

    /// Requests that a replica has not answered yet. Nobody but its router knows those of a worker: they are among the router's.
    pub fn outstanding(&self, replica: &Replica) -> usize {
        if replica.role != GroupRole::Worker {
            return replica.outstanding();
        }
        let own = self.routers().filter(|router| router.deployment == replica.deployment);
        // A worker that the router still knows may get another at any time.
        own.map(|router| router.outstanding()).sum::<usize>() + usize::from(replica.is_joined())
    }

    /// Whether the replicas of a group of the newest deployment may start: some are told the address of the router, which runs first.
    pub fn may_start(&self, group: &LiveGroup) -> bool {
        let waits = group.service.group.as_ref().is_some_and(|place| place.waits_for_router);
        let is_newest = |router: &&Arc<Replica>| router.deployment == self.service.deployment;
        let mut routers = self.routers().filter(is_newest);
        !waits || routers.any(|router| router.is_open() && router.is_reached())
    }

    /// Whether the number of replicas of one of its groups follows the load.
    pub fn is_scaled(&self) -> bool {
        self.groups.iter().any(|group| group.service.scaling.is_some())
    }

    /// The replicas of a group of the newest deployment.
    pub fn newest_of(&self, group: u32) -> impl DoubleEndedIterator<Item = &Arc<Replica>> {
        self.newest().filter(move |replica| replica.group == group)
    }

    /// The replicas of the newest deployment.
    pub fn newest(&self) -> impl DoubleEndedIterator<Item = &Arc<Replica>> {
        self.replicas.iter().filter(|replica| replica.deployment == self.service.deployment)
    }

    /// The replicas of earlier deployments.
    pub fn older(&self) -> impl Iterator<Item = &Arc<Replica>> {
        self.replicas.iter().filter(|replica| replica.deployment != self.service.deployment)
    }

    /// The earliest deployment that has a replica, one that waits too.
    pub fn earliest(&self) -> u32 {
        let running = self.replicas.iter().map(|replica| replica.deployment);
        let all = running.chain(self.waiting.iter().map(|replica| replica.deployment));
        all.min().unwrap_or(self.service.deployment)
    }

    /// How many replicas of the newest deployment are to start when there is a place for them.
    pub fn newest_queued(&self) -> usize {
        let newest = self.service.deployment;
        let is_one =
            |one: &&WaitingReplica| one.deployment == newest && one.wait == ReplicaWait::Place;
        self.waiting.iter().filter(is_one).count()
    }
}

/// One task of an array.
pub fn task_ref(ArrayTask { array, index }: ArrayTask) -> JobRef {
    JobRef::tasks(array, IndexSet::from_range(index, index))
}

/// The tasks of an array that wait: the job's own, or those that its record holds.
fn waiting(job: &Job) -> Vec<ArrayTask> {
    let array = job.id;
    let of_record = job.pending.iter().flat_map(|pending| pending.indices.iter());
    let of_record = of_record.map(|index| ArrayTask { array, index });
    let own = job.task.filter(|_| job.is_waiting());
    own.into_iter().chain(of_record).take(REPLICAS_MAX as usize).collect()
}

#[cfg(test)]
impl LiveService {
    /// A service in a test, of which so many replicas of the newest deployment have resources.
    pub fn of_test(service: Service, replicas: Vec<Arc<Replica>>, active: u32) -> Self {
        let jobs = replicas.iter().filter(|replica| replica.deployment != service.deployment);
        let earliest = jobs.clone().map(|replica| replica.deployment).min();
        let overtaken = jobs.clone().filter(|replica| Some(replica.deployment) != earliest);
        let overtaken = overtaken.map(|replica| replica.attempt.job).collect();
        Self {
            name: ServiceName { project: "main".into(), run: "web".into() },
            key: key("main", "web"),
            outdated: jobs.map(|replica| replica.attempt.job).collect(),
            overtaken,
            waiting: Vec::new(),
            groups: vec![LiveGroup { active, ..LiveGroup::of(0, &service, &[]) }],
            auth: service.auth,
            path: PathRule::of(&service),
            service,
            created: Timestamp::from_secs(1),
            owner: crate::testing::user(),
            replicas,
            counts: Arc::default(),
            rates: Arc::default(),
            scale: Arc::default(),
            line: Arc::default(),
            turn: Arc::default(),
        }
    }
}
