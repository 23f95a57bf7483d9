//! The services that are active, with their replicas, as the state of the cluster has them.

use super::balance::least_busy;
use super::replica::{OUTSTANDING_MAX, Replica, WEBSOCKETS_MAX};
use super::request_rate::RequestRates;
use super::scale_state::ScaleState;
use crate::proxy::access_log::AccessLog;
use crate::proxy::forwarders::Forwarders;
use crate::shared::Shared;
use crate::shared::service_counts::{ServiceCount, ServiceCounts, ServiceName};
use cluster::{Job, State};
use model::id::{AttemptId, JobId};
use model::principal::Principal;
use model::replica_group::GroupRole;
use model::run::{ArrayTask, Hold};
use model::service::{REPLICAS_MAX, Service};
use model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// How long the table may be older than the state.
const AGE_MAX: Duration = Duration::from_millis(50);

/// By `PROJECT/RUN`, as it is in a path.
pub type Table = HashMap<String, Arc<LiveService>>;

/// A service that has not ended.
pub struct LiveService {
    pub name: ServiceName,
    pub service: Service,
    /// When it was submitted.
    pub created: Timestamp,
    /// The owner of the jobs; requests reach replicas through steps of this user.
    pub owner: Principal,
    /// The replicas that run, of all deployments.
    pub replicas: Vec<Arc<Replica>>,
    pub counts: Arc<ServiceCount>,
    /// The clients, as its rate limits know them.
    pub rates: Arc<RequestRates>,
    /// The jobs of earlier deployments, which the newest replaces.
    pub outdated: BTreeSet<JobId>,
    /// The groups of the newest deployment; one where all replicas are alike.
    pub groups: Vec<LiveGroup>,
    pub scale: Arc<ScaleState>,
    /// Grows with each request.
    turn: Arc<AtomicUsize>,
}

/// Replicas of one kind, of the newest deployment.
pub struct LiveGroup {
    pub index: u32,
    pub service: Service,
    /// Replicas that hold resources and are not ending.
    active: u32,
    /// Replicas that are to start when there is a place for them.
    pub queued: Vec<ArrayTask>,
    /// Replicas that are held: it does not need them now.
    pub parked: Vec<ArrayTask>,
}

impl LiveGroup {
    /// The group of these jobs, which are all of one kind.
    fn of(index: u32, service: &Service, jobs: &[&Job]) -> Self {
        let is_active = |job: &&&Job| job.attempt().is_some_and(|attempt| attempt.ending.is_none());
        let active = u32::try_from(jobs.iter().filter(is_active).count()).unwrap_or(u32::MAX);
        let queued = jobs.iter().filter(|job| job.hold.is_none()).flat_map(|job| waiting(job));
        // What an administrator holds stays held, and what somebody is to look at before it runs again.
        let is_parked = |job: &&&Job| job.hold == Some(Hold::User) && !job.special_exit;
        let held = jobs.iter().filter(is_parked);
        let mut parked: Vec<ArrayTask> = held.flat_map(|job| waiting(job)).collect();
        parked.sort_by_key(|task| task.index);
        Self { index, service: service.clone(), active, queued: queued.collect(), parked }
    }

    /// How many replicas run or are to run.
    pub fn wanted(&self) -> u32 {
        self.active.saturating_add(u32::try_from(self.queued.len()).unwrap_or(u32::MAX))
    }
}

impl LiveService {
    /// The replica that gets the next request; none of those that were tried, and for a WebSocket none that has its part of them.
    pub fn choose(&self, tried: &[AttemptId], upgrades: bool) -> Option<Arc<Replica>> {
        let outstanding: Vec<usize> = self.replicas.iter().map(|one| one.outstanding()).collect();
        // One whose server is not known to be up is for when there is no other.
        let is_one_up = self.replicas.iter().any(|one| self.is_serving(one) && one.is_reached());
        let is_left_out = |at: &usize| {
            let replica = &self.replicas[*at];
            let is_unknown = is_one_up && !replica.is_reached();
            let is_full = upgrades && replica.websockets() >= WEBSOCKETS_MAX;
            tried.contains(&replica.attempt) || !self.is_serving(replica) || is_unknown || is_full
        };
        let left_out: Vec<usize> = (0..self.replicas.len()).filter(is_left_out).collect();
        let turn = self.turn.fetch_add(1, Relaxed);
        let chosen = least_busy(&outstanding, &left_out, turn, OUTSTANDING_MAX)?;
        Some(self.replicas[chosen].clone())
    }

    /// How many replicas take requests.
    pub fn ready(&self) -> usize {
        self.replicas.iter().filter(|replica| self.is_serving(replica)).count()
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
}

#[cfg(test)]
impl LiveService {
    /// A service in a test, of which so many replicas of the newest deployment have resources.
    pub fn of_test(service: Service, replicas: Vec<Arc<Replica>>, active: u32) -> Self {
        let jobs = replicas.iter().filter(|replica| replica.deployment != service.deployment);
        Self {
            name: ServiceName { project: "main".into(), run: "web".into() },
            outdated: jobs.map(|replica| replica.attempt.job).collect(),
            groups: vec![LiveGroup { active, ..LiveGroup::of(0, &service, &[]) }],
            service,
            created: Timestamp::from_secs(1),
            owner: crate::testing::user(),
            replicas,
            counts: Arc::default(),
            rates: Arc::default(),
            scale: Arc::default(),
            turn: Arc::default(),
        }
    }
}

/// Finds services. The table is made anew when something was committed since.
pub struct Services {
    pub forwarders: Arc<Forwarders>,
    pub access_log: Arc<AccessLog>,
    pub started: Instant,
    /// Told of a request that waits for the first replica of its service.
    pub awaited: Arc<Notify>,
    commits: watch::Receiver<u64>,
    known: Mutex<Known>,
    /// Replicas that are in no table any more and may have requests to answer while they end.
    leaving: Mutex<Vec<Weak<Replica>>>,
}

struct Known {
    table: Arc<Table>,
    /// The number of the commit that the table is of; none before the first.
    commit: Option<u64>,
    made: Instant,
}

impl Services {
    pub fn new(shared: &Shared) -> Arc<Self> {
        let known = Known { table: Arc::default(), commit: None, made: Instant::now() };
        Arc::new(Self {
            forwarders: Arc::new(Forwarders::of_services()),
            access_log: Arc::new(AccessLog::new(&shared.setup.server_dir)),
            started: Instant::now(),
            awaited: Arc::default(),
            commits: shared.commits.subscribe(),
            known: Mutex::new(known),
            leaving: Mutex::default(),
        })
    }

    /// A service as it is now, or as it was where it is gone.
    pub fn again(&self, shared: &Shared, live: &Arc<LiveService>) -> Arc<LiveService> {
        let key = key(&live.name.project, &live.name.run);
        self.table(shared).get(&key).unwrap_or(live).clone()
    }

    /// The services of now, or of a moment ago.
    pub fn table(&self, shared: &Shared) -> Arc<Table> {
        let commit = *self.commits.borrow();
        let mut known = self.known.lock().expect("no panic with the table held");
        let is_of_now = known.commit == Some(commit);
        if !is_of_now && (known.commit.is_none() || known.made.elapsed() >= AGE_MAX) {
            let counts = &shared.volatile.service_counts;
            let table = table_of(&shared.read(), &known.table, counts);
            counts.keep(|name| table.contains_key(&key(&name.project, &name.run)));
            self.note_leaving(&known.table, &table);
            *known = Known { table: Arc::new(table), commit: Some(commit), made: Instant::now() };
        }
        known.table.clone()
    }
}

impl Services {
    fn leaving(&self) -> MutexGuard<'_, Vec<Weak<Replica>>> {
        self.leaving.lock().expect("no panic with the replicas held")
    }

    fn note_leaving(&self, before: &Table, now: &Table) {
        let replicas = |live: &Arc<LiveService>| live.replicas.clone();
        let there: HashSet<*const Replica> =
            now.values().flat_map(replicas).map(|replica| Arc::as_ptr(&replica)).collect();
        let gone = before.values().flat_map(replicas);
        let gone = gone.filter(|replica| !there.contains(&Arc::as_ptr(replica)));
        self.leaving().extend(gone.map(|replica| Arc::downgrade(&replica)));
    }

    /// Ends the requests of replicas whose attempt is over, as that of a node that is gone.
    pub fn end_leaving(&self, state: &State) {
        self.leaving().retain(|replica| {
            let Some(replica) = replica.upgrade() else { return false };
            let job = state.jobs.get(&replica.attempt.job);
            let is_active = job.is_some_and(|job| job.attempt_id() == Some(replica.attempt));
            if !is_active {
                replica.end();
            }
            is_active
        });
    }
}

pub fn key(project: &str, run: &str) -> String {
    format!("{project}/{run}")
}

/// The attempt of a replica that takes requests.
fn serving(job: &Job) -> Option<AttemptId> {
    let attempt = job.attempt()?;
    let is_up = attempt.ending.is_none() && !attempt.suspended && attempt.booting_nodes.is_empty();
    job.attempt_id().filter(|_| is_up)
}

/// Which deployment of its service a job belongs to.
fn deployment(job: &Job) -> Option<u32> {
    job.spec.launch.service.as_ref().map(|service| service.deployment)
}

/// The tasks of an array that wait: the job's own, or those that its record holds.
fn waiting(job: &Job) -> Vec<ArrayTask> {
    let array = job.id;
    let of_record = job.pending.iter().flat_map(|pending| pending.indices.iter());
    let of_record = of_record.map(|index| ArrayTask { array, index });
    let own = job.task.filter(|_| job.is_waiting());
    own.into_iter().chain(of_record).take(REPLICAS_MAX as usize).collect()
}

/// The groups of one deployment, by the jobs of all of them.
fn groups_of(jobs: &[&Job]) -> Vec<LiveGroup> {
    let mut of_group: BTreeMap<u32, (&Service, Vec<&Job>)> = BTreeMap::new();
    for job in jobs.iter().copied() {
        if let Some(service) = job.spec.launch.service.as_deref() {
            let index = service.group.as_ref().map_or(0, |group| group.index);
            of_group.entry(index).or_insert((service, Vec::new())).1.push(job);
        }
    }
    let group = |(index, (service, jobs)): (u32, (&Service, Vec<&Job>))| {
        LiveGroup::of(index, service, &jobs)
    };
    of_group.into_iter().map(group).collect()
}

/// The services of a state. Replicas that were known keep their connections and what they have not answered yet.
fn table_of(state: &State, before: &Table, counts: &ServiceCounts) -> Table {
    let mut jobs: HashMap<String, Vec<&Job>> = HashMap::new();
    for job in state.replicas.iter().filter_map(|id| state.jobs.get(id)) {
        if !job.has_ended() {
            jobs.entry(key(job.spec.project(), &job.spec.name)).or_default().push(job);
        }
    }
    let of_jobs = |(key, mut jobs): (String, Vec<&Job>)| {
        // The server ends what a later deployment replaces: nobody's jobs are ended for another's, whatever has led to one address.
        let owner = jobs.iter().min_by_key(|job| job.id)?.spec.owner.uid;
        jobs.retain(|job| job.spec.owner.uid == owner);
        let newest = jobs.iter().max_by_key(|job| deployment(job))?;
        let spec = &newest.spec;
        let service = spec.launch.service.as_deref()?.clone();
        let known = before.get(&key);
        let replica = |job: &&Job| {
            let attempt = serving(job)?;
            let known = known.and_then(|known| {
                known.replicas.iter().find(|replica| replica.attempt == attempt).cloned()
            });
            let own = job.spec.launch.service.as_deref()?;
            Some(known.unwrap_or_else(|| Arc::new(Replica::new(attempt, job.task, own))))
        };
        let replicas: Vec<Arc<Replica>> = jobs.iter().filter_map(replica).collect();
        let created = newest.submit;
        let is_new = |job: &&Job| deployment(job) == Some(service.deployment);
        let (jobs, outdated): (Vec<&Job>, Vec<&Job>) = jobs.iter().copied().partition(is_new);
        let run = |job: &Job| job.task.map_or(job.id, |task| task.array);
        let outdated = outdated.into_iter().map(run).collect();
        let groups = groups_of(&jobs);
        let scale = known.map(|known| known.scale.clone()).unwrap_or_default();
        let name = ServiceName { project: spec.project().to_owned(), run: spec.name.to_string() };
        let counts = counts.of(&name);
        // A token of few rights may have submitted it: the step is the server's own program.
        let owner = Principal { token_limit: None, ..(*spec.owner).clone() };
        let turn = known.map(|known| known.turn.clone()).unwrap_or_default();
        let rates = known.map(|known| known.rates.clone()).unwrap_or_default();
        let live = LiveService {
            name,
            service,
            created,
            owner,
            replicas,
            counts,
            rates,
            outdated,
            groups,
            scale,
            turn,
        };
        live.counts.set_replicas(live.ready());
        Some((key, Arc::new(live)))
    };
    jobs.into_iter().filter_map(of_jobs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestServer, user};

    /// A state with jobs that are services at one address, of these users and deployments.
    async fn state_of<const N: usize>(of: [(u32, u32); N]) -> (State, [JobId; N]) {
        let server = TestServer::start().await;
        let mut ids = [JobId(0); N];
        for (n, id) in ids.iter_mut().enumerate() {
            *id = server.submit(&format!("name: job-{n}")).await.expect("a job");
        }
        let mut state = State::clone(&server.shared.read());
        for (id, (uid, deployment)) in ids.iter().zip(of) {
            let job = Arc::make_mut(state.jobs.get_mut(id).expect("a job"));
            let spec = Arc::make_mut(&mut job.spec);
            (spec.name, spec.account) = ("web".into(), None);
            spec.owner = Arc::new(Principal { uid, ..user() });
            let service = Service { deployment, ..Service::at(80) };
            Arc::make_mut(&mut spec.launch).service = Some(Box::new(service));
            state.replicas.insert(*id);
        }
        (state, ids)
    }

    fn one_of(state: &State) -> Arc<LiveService> {
        let table = table_of(state, &Table::default(), &ServiceCounts::default());
        table.get("main/web").expect("a service").clone()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_job_is_replaced_by_that_of_another_user() {
        let (state, [first, ..]) = state_of([(1000, 0), (1001, 7), (1000, 1)]).await;
        let live = one_of(&state);
        assert_eq!((live.owner.uid, live.service.deployment), (1000, 1));
        assert_eq!(live.outdated, BTreeSet::from([first]));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn replica_that_somebody_is_to_look_at_is_not_for_the_scaling_to_release() {
        let (mut state, ids) = state_of([(1000, 0), (1000, 0)]).await;
        let array = ids[0];
        for (id, index) in ids.iter().zip(0..) {
            let job = Arc::make_mut(state.jobs.get_mut(id).expect("a job"));
            job.task = Some(ArrayTask { array, index });
            job.hold = Some(Hold::User);
            job.special_exit = index == 1;
        }
        assert_eq!(one_of(&state).groups[0].parked, [ArrayTask { array, index: 0 }]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_of_a_replica_end_with_its_attempt() {
        let server = TestServer::start().await;
        let services = Services::new(&server.shared);
        let attempt = AttemptId { job: JobId(1), number: 1 };
        let replica = Arc::new(Replica::new(attempt, None, &Service::at(80)));
        let live = LiveService::of_test(Service::at(80), vec![replica.clone()], 1);
        let before = Table::from([("main/web".to_owned(), Arc::new(live))]);
        services.note_leaving(&before, &before);
        assert!(services.leaving().is_empty(), "it is still there");
        services.note_leaving(&before, &Table::default());
        services.end_leaving(&State::default());
        replica.over().await;
        assert!(services.leaving().is_empty());
    }
}
