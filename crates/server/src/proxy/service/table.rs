//! The services that are active, with their replicas, as the state of the cluster has them.

use super::SETTLED_AFTER;
use super::live::{LiveGroup, LiveService, WaitingReplica, key};
use super::path_rule::PathRule;
use super::replica::Replica;
use crate::connection_limits::{ServiceLimits, near_connections, raise_descriptors};
use crate::proxy::access_log::AccessLog;
use crate::proxy::forwarders::Forwarders;
use crate::shared::Shared;
use crate::shared::service_counts::{ServiceCounts, ServiceName};
use cluster::{Job, State};
use model::id::AttemptId;
use model::principal::Principal;
use model::service::{Probe, Service};
use model::time::Timestamp;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// How long the table may be older than the state.
const AGE_MAX: Duration = Duration::from_millis(50);

/// By `PROJECT/RUN`, as it is in a path.
pub type Table = HashMap<String, Arc<LiveService>>;

/// Finds services. The table is made anew when something was committed since.
pub struct Services {
    pub forwarders: Arc<Forwarders>,
    pub access_log: Arc<AccessLog>,
    pub started: Instant,
    pub limits: ServiceLimits,
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
    pub fn new(shared: &Shared, limits: ServiceLimits) -> Arc<Self> {
        let known = Known { table: Arc::default(), commit: None, made: Instant::now() };
        let near = near_connections(raise_descriptors(), &limits);
        Arc::new(Self {
            forwarders: Arc::new(Forwarders::of_services(near)),
            access_log: Arc::new(AccessLog::new(&shared.setup.server_dir)),
            started: Instant::now(),
            limits,
            awaited: Arc::default(),
            commits: shared.commits.subscribe(),
            known: Mutex::new(known),
            leaving: Mutex::default(),
        })
    }

    /// The service at a key, `PROJECT/RUN`. One that the table does not have may have come since the table was made: whoever saw it in
    /// the state finds it.
    pub async fn find(&self, shared: &Shared, key: &str) -> Option<Arc<LiveService>> {
        if let Some(live) = self.table(shared).get(key) {
            return Some(live.clone());
        }
        self.current(shared).await.get(key).cloned()
    }

    /// A service as it is now, or as it was where it is gone.
    pub fn again(&self, shared: &Shared, live: &Arc<LiveService>) -> Arc<LiveService> {
        self.table(shared).get(&live.key).unwrap_or(live).clone()
    }

    /// The services of now, or of a moment ago.
    pub fn table(&self, shared: &Shared) -> Arc<Table> {
        let commit = *self.commits.borrow();
        let mut known = self.known();
        let is_of_now = known.commit == Some(commit);
        if !is_of_now && (known.commit.is_none() || known.made.elapsed() >= AGE_MAX) {
            self.make_anew(shared, &mut known);
        }
        known.table.clone()
    }

    /// The services of the state as it is when this is called, or later. A table is made once in `AGE_MAX`, whoever asks: this waits
    /// until the next may be.
    ///
    /// The count of commits does not tell whether a table is of now: the state can be read before the commit is counted.
    pub async fn current(&self, shared: &Shared) -> Arc<Table> {
        let asked = Instant::now();
        loop {
            match self.made_since(shared, asked) {
                Ok(table) => return table,
                Err(rest) => tokio::time::sleep(rest).await,
            }
        }
    }

    /// A table that is not older than a time, or how long it is until one may be made.
    fn made_since(&self, shared: &Shared, asked: Instant) -> Result<Arc<Table>, Duration> {
        let mut known = self.known();
        if known.made < asked {
            let rest = AGE_MAX.saturating_sub(known.made.elapsed());
            if !rest.is_zero() {
                return Err(rest);
            }
            self.make_anew(shared, &mut known);
        }
        Ok(known.table.clone())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic with the table held")
    }

    fn make_anew(&self, shared: &Shared, known: &mut Known) {
        // Both before the state is read: what is committed from here on makes the table an older one.
        let (commit, made) = (*self.commits.borrow(), Instant::now());
        let counts = &shared.volatile.service_counts;
        // One that comes later, after a pause of its attempt for example, has nothing of before to go on with.
        let has_just_started = self.started.elapsed() < SETTLED_AFTER;
        let started = has_just_started.then_some(shared.setup.started);
        let table = table_of(&shared.read(), &known.table, counts, started);
        counts.keep(|name| table.contains_key(&key(&name.project, &name.run)));
        self.note_leaving(&known.table, &table);
        *known = Known { table: Arc::new(table), commit: Some(commit), made };
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

/// The attempt of a replica that takes requests.
fn serving(job: &Job) -> Option<AttemptId> {
    let attempt = job.attempt()?;
    let is_up = attempt.ending.is_none() && !attempt.suspended && attempt.booting_nodes.is_empty();
    job.attempt_id().filter(|_| is_up)
}

/// Whether an attempt ran so long under an earlier server that its probes may have made it ready there.
fn may_have_been_ready(began: Timestamp, service: &Service, started: Timestamp) -> bool {
    let needed_s = |probe: &Probe| {
        i64::from(probe.interval_s) * i64::from(probe.ready_after.saturating_sub(1))
    };
    let needed_s = service.probes.iter().map(needed_s).max().unwrap_or_default();
    began.secs().saturating_add(needed_s) < started.secs()
}

/// The replica of an attempt that was not known. `started`: when the server was, where that has just been.
fn new_replica(
    job: &Job,
    attempt: AttemptId,
    service: &Service,
    started: Option<Timestamp>,
) -> Replica {
    let replica = Replica::new(attempt, job.task, service);
    let began = job.attempt().map(|one| one.start);
    if began.zip(started).is_some_and(|(at, started)| may_have_been_ready(at, service, started)) {
        replica.readiness.resume();
    }
    replica
}

/// Which deployment of its service a job belongs to.
fn deployment(job: &Job) -> Option<u32> {
    job.spec.launch.service.as_ref().map(|service| service.deployment)
}

/// The replicas that wait in the record of a job. Those of groups start and end together: none of them waits by itself.
fn waiting_of(job: &Job) -> Vec<WaitingReplica> {
    let service = job.spec.launch.service.as_deref().filter(|service| service.group.is_none());
    service.map(|service| WaitingReplica::of(job, service.deployment)).unwrap_or_default()
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

/// The services of a state; `started`: when the server was, where that has just been. Replicas that were known keep their connections and what they have
/// not answered yet.
fn table_of(
    state: &State,
    before: &Table,
    counts: &ServiceCounts,
    started: Option<Timestamp>,
) -> Table {
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
        let own = |job: &&Job| job.spec.launch.service.as_ref().map(|service| service.auth);
        let auth = jobs.iter().filter_map(own).any(|auth| auth);
        let known = before.get(&key);
        let replica = |job: &&Job| {
            let attempt = serving(job)?;
            let known = known.and_then(|known| {
                known.replicas.iter().find(|replica| replica.attempt == attempt).cloned()
            });
            let own = job.spec.launch.service.as_deref()?;
            Some(known.unwrap_or_else(|| Arc::new(new_replica(job, attempt, own, started))))
        };
        let replicas: Vec<Arc<Replica>> = jobs.iter().filter_map(replica).collect();
        let mut waiting: Vec<WaitingReplica> = jobs.iter().copied().flat_map(waiting_of).collect();
        waiting.sort_by_key(|replica| replica.deployment);
        let created = newest.submit;
        let is_new = |job: &&Job| deployment(job) == Some(service.deployment);
        let (jobs, outdated): (Vec<&Job>, Vec<&Job>) = jobs.iter().copied().partition(is_new);
        let run = |job: &Job| job.task.map_or(job.id, |task| task.array);
        let earliest = outdated.iter().filter_map(|job| deployment(job)).min();
        let overtaken = outdated.iter().filter(|job| deployment(job) != earliest);
        let overtaken = overtaken.map(|job| run(job)).collect();
        let outdated = outdated.into_iter().map(run).collect();
        let groups = groups_of(&jobs);
        let scale = known.map(|known| known.scale.clone()).unwrap_or_default();
        let name = ServiceName { project: spec.project().to_owned(), run: spec.name.to_string() };
        let counts = counts.of(&name);
        // A token of few rights may have submitted it: the step is the server's own program.
        let owner = Principal { token_limit: None, ..(*spec.owner).clone() };
        let line = known.map(|known| known.line.clone()).unwrap_or_default();
        let turn = known.map(|known| known.turn.clone()).unwrap_or_default();
        let rates = known.map(|known| known.rates.clone()).unwrap_or_default();
        let live = LiveService {
            name,
            key: key.clone(),
            path: PathRule::of(&service),
            service,
            auth,
            created,
            owner,
            replicas,
            counts,
            rates,
            outdated,
            overtaken,
            waiting,
            groups,
            scale,
            line,
            turn,
        };
        live.counts.set_replicas(live.ready());
        Some((key, Arc::new(live)))
    };
    jobs.into_iter().filter_map(of_jobs).collect()
}

#[cfg(test)]
mod tests {
    use super::super::live::ReplicaWait;
    use super::*;
    use crate::connection_limits::SERVICE_LIMITS;
    use crate::testing::{TestServer, user};
    use model::change::JobRef;
    use model::id::JobId;
    use model::run::{ArrayTask, Hold};
    use std::collections::BTreeSet;

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
        let table = table_of(state, &Table::default(), &ServiceCounts::default(), None);
        table.get("main/web").expect("a service").clone()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_job_is_replaced_by_that_of_another_user() {
        let (state, [first, ..]) = state_of([(1000, 0), (1001, 7), (1000, 1)]).await;
        let live = one_of(&state);
        assert_eq!((live.owner.uid, live.service.deployment), (1000, 1));
        assert_eq!(live.outdated, BTreeSet::from([first]));
        assert_eq!(live.overtaken, BTreeSet::new());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn deployments_between_the_earliest_and_the_newest_are_overtaken() {
        let of = [(1000, 2), (1000, 0), (1000, 1), (1000, 0)];
        let (state, [_, first, second, third]) = state_of(of).await;
        let live = one_of(&state);
        assert_eq!(live.outdated, BTreeSet::from([first, second, third]));
        assert_eq!(live.overtaken, BTreeSet::from([second]));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn service_is_opened_to_everybody_once_no_deployment_is_left_that_asks_for_a_token() {
        let (mut state, [first, second]) = state_of([(1000, 0), (1000, 1)]).await;
        let set_auth = |state: &mut State, id: JobId, auth: bool| {
            let job = Arc::make_mut(state.jobs.get_mut(&id).expect("a job"));
            let launch = Arc::make_mut(&mut Arc::make_mut(&mut job.spec).launch);
            launch.service.as_mut().expect("a service").auth = auth;
        };
        for (of_first, of_second, expected) in
            [(true, false, true), (false, true, true), (false, false, false)]
        {
            set_auth(&mut state, first, of_first);
            set_auth(&mut state, second, of_second);
            assert_eq!(one_of(&state).auth, expected, "{of_first}, then {of_second}");
        }
        set_auth(&mut state, first, true);
        state.replicas.remove(&first);
        assert!(!one_of(&state).auth, "the one before has ended");
    }

    #[test]
    fn replica_may_have_been_ready_that_ran_as_long_as_its_probes_take() {
        let probe = Probe { interval_s: 15, ready_after: 3, ..Probe::default() };
        let service = Service { probes: vec![Probe::default(), probe], ..Service::at(80) };
        let began = Timestamp::from_secs;
        let started = Timestamp::from_secs(100);
        assert!(may_have_been_ready(began(69), &service, started));
        assert!(!may_have_been_ready(began(70), &service, started));
        assert!(!may_have_been_ready(began(101), &Service::at(80), started), "it began later");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn replica_that_comes_long_after_the_servers_start_has_all_its_probes_before_it() {
        let server = TestServer::start().await;
        server.node_up().await;
        let job = server.submit("name: web").await.expect("a job");
        server.plan();
        let state = server.shared.read();
        let job = &state.jobs[&job];
        let attempt = job.attempt_id().expect("it runs");
        let probe = Probe { ready_after: 3, ..Probe::default() };
        let service = Service { probes: vec![probe], ..Service::at(80) };
        let is_ready_at_once = |started: Option<Timestamp>| {
            let replica = new_replica(job, attempt, &service, started);
            replica.readiness.note(0, true)
        };
        let later = Timestamp::from_secs(crate::clock::now().secs() + 3600);
        assert!(is_ready_at_once(Some(later)), "it ran under an earlier server");
        assert!(!is_ready_at_once(None));
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
    async fn waiting_replicas_of_all_deployments_are_those_that_the_server_may_start() {
        let (mut state, ids) = state_of([(1000, 1), (1000, 0), (1000, 0), (1000, 0)]).await;
        for (id, hold) in
            ids.iter().zip([None, Some(Hold::User), Some(Hold::Update), Some(Hold::Admin)])
        {
            Arc::make_mut(state.jobs.get_mut(id).expect("a job")).hold = hold;
        }
        let live = one_of(&state);
        let shown = |one: &WaitingReplica| (one.job.clone(), one.deployment, one.wait);
        let found: Vec<_> = live.waiting.iter().map(shown).collect();
        let [newest, held, replaced, _] = ids.map(JobRef::whole);
        let expected = [
            (held, 0, ReplicaWait::Load),
            (replaced, 0, ReplicaWait::Update),
            (newest, 1, ReplicaWait::Place),
        ];
        assert_eq!(found, expected);
        assert_eq!((live.earliest(), live.newest_queued()), (0, 1));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn service_that_the_state_has_is_found_before_its_commit_is_counted() {
        // No commit of a writer is counted meanwhile.
        let server = TestServer::without_writer();
        let services = Services::new(&server.shared, SERVICE_LIMITS);
        assert!(services.find(&server.shared, "main/web").await.is_none());
        let (state, [job]) = state_of([(1000, 0)]).await;
        let job = state.jobs.get(&job).expect("a job").clone();
        {
            let mut state = server.shared.state.write();
            state.replicas.insert(job.id);
            state.jobs.insert(job.id, job);
        }
        assert!(services.table(&server.shared).is_empty(), "nothing tells that it is there");
        let live = services.find(&server.shared, "main/web").await.expect("the service");
        assert_eq!((&*live.name.run, live.replicas.len()), ("web", 0));
        assert_eq!(services.current(&server.shared).await.len(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_of_a_replica_end_with_its_attempt() {
        let server = TestServer::start().await;
        let services = Services::new(&server.shared, SERVICE_LIMITS);
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
