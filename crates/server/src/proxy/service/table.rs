//! The services that are active, with their replicas, as the state of the cluster has them.

use super::balance::least_busy;
use super::replica::{OUTSTANDING_MAX, Replica};
use super::request_rate::RequestRates;
use crate::proxy::forwarders::Forwarders;
use crate::shared::Shared;
use crate::shared::service_counts::{ServiceCount, ServiceCounts, ServiceName};
use cluster::{Job, State};
use model::id::AttemptId;
use model::principal::Principal;
use model::service::Service;
use model::time::Timestamp;
use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;

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
    /// Whose steps reach the replicas.
    pub owner: Principal,
    /// Those that run.
    pub replicas: Vec<Arc<Replica>>,
    pub counts: Arc<ServiceCount>,
    /// The clients, as its rate limits know them.
    pub rates: Arc<RequestRates>,
    /// Grows with each request.
    turn: Arc<AtomicUsize>,
}

impl LiveService {
    /// The replica that gets the next request; none of those that were tried.
    pub fn choose(&self, tried: &[AttemptId]) -> Option<Arc<Replica>> {
        let outstanding: Vec<usize> = self.replicas.iter().map(|one| one.outstanding()).collect();
        let is_left_out = |at: &usize| {
            let replica = &self.replicas[*at];
            tried.contains(&replica.attempt) || !replica.readiness.is_ready()
        };
        let left_out: Vec<usize> = (0..self.replicas.len()).filter(is_left_out).collect();
        let turn = self.turn.fetch_add(1, Relaxed);
        let chosen = least_busy(&outstanding, &left_out, turn, OUTSTANDING_MAX)?;
        Some(self.replicas[chosen].clone())
    }

    /// How many replicas take requests.
    pub fn ready(&self) -> usize {
        self.replicas.iter().filter(|replica| replica.readiness.is_ready()).count()
    }
}

/// Finds services. The table is made anew when something was committed since.
pub struct Services {
    pub forwarders: Arc<Forwarders>,
    commits: watch::Receiver<u64>,
    known: Mutex<Known>,
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
            commits: shared.commits.subscribe(),
            known: Mutex::new(known),
        })
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
            *known = Known { table: Arc::new(table), commit: Some(commit), made: Instant::now() };
        }
        known.table.clone()
    }
}

fn key(project: &str, run: &str) -> String {
    format!("{project}/{run}")
}

/// The attempt of a replica that takes requests.
fn serving(job: &Job) -> Option<AttemptId> {
    let attempt = job.attempt()?;
    let is_up = attempt.ending.is_none() && !attempt.suspended && attempt.booting_nodes.is_empty();
    job.attempt_id().filter(|_| is_up)
}

/// The services of a state. Replicas that were known keep their connections and what they have not answered yet.
fn table_of(state: &State, before: &Table, counts: &ServiceCounts) -> Table {
    let mut jobs: HashMap<String, Vec<&Job>> = HashMap::new();
    for job in state.replicas.iter().filter_map(|id| state.jobs.get(id)) {
        if !job.has_ended() {
            jobs.entry(key(job.spec.project(), &job.spec.name)).or_default().push(job);
        }
    }
    let of_jobs = |(key, jobs): (String, Vec<&Job>)| {
        let spec = &jobs.first()?.spec;
        let service = spec.launch.service.as_deref()?.clone();
        let known = before.get(&key);
        let replica = |attempt: AttemptId| {
            let known = known.and_then(|known| {
                known.replicas.iter().find(|replica| replica.attempt == attempt).cloned()
            });
            known.unwrap_or_else(|| Arc::new(Replica::new(attempt, &service)))
        };
        let replicas: Vec<Arc<Replica>> =
            jobs.iter().filter_map(|job| serving(job)).map(replica).collect();
        let name = ServiceName { project: spec.project().to_owned(), run: spec.name.to_string() };
        let counts = counts.of(&name);
        // A token of few rights may have submitted it: the step is the server's own program.
        let owner = Principal { token_limit: None, ..(*spec.owner).clone() };
        let turn = known.map(|known| known.turn.clone()).unwrap_or_default();
        let rates = known.map(|known| known.rates.clone()).unwrap_or_default();
        let created = jobs.first()?.submit;
        let live = LiveService { name, service, created, owner, replicas, counts, rates, turn };
        live.counts.set_replicas(live.ready());
        Some((key, Arc::new(live)))
    };
    jobs.into_iter().filter_map(of_jobs).collect()
}
