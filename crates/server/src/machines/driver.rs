//! Has machines made and deleted as the state says, and finds out what sources offer and what they have.
//!
//! The task has no memory that matters: what is due follows from the state, and each call may be made again. A source that hangs
//! or fails holds up its own calls alone.

use super::answer_bounds;
use super::budget_warning::BudgetWarning;
use super::node_order;
use super::open_source::OpenSources;
use super::source::{
    CreateOrder, DeleteOrder, FailedMachine, MachineSource, SourceError, SourceMachine,
};
use crate::agents::dynamic_node;
use crate::auth::principal::server_principal;
use crate::clock;
use crate::secret::registry_auth;
use crate::shared::Shared;
use crate::source_notice;
use crate::vital_task;
use cluster::command::MachineReport;
use cluster::machine_reconcile::{self, CONSISTENCY_DELAY, Differences, MachineWork};
use cluster::{Command, State};
use model::backend::Backend;
use model::machine::{FailureKind, Machine, MachinePhase, SourceConfig};
use model::secret::RegistryAuth;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Calls of one source at the same time.
const CALLS_MAX: usize = 4;

/// How often the state is looked through where nothing is committed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How often a source is asked for its offers, and for its machines.
const OFFERS_INTERVAL: Duration = Duration::from_secs(300);
const DESCRIBE_INTERVAL: Duration = Duration::from_secs(30);

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// In how many answers one after the other a machine is missing until it counts as gone.
const MISSING_MAX: u32 = 2;

/// How much longer than a machine's time to boot its join token is good.
const TOKEN_RESERVE: Duration = Duration::from_secs(60);

/// What is done, one at a time for each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Offers(String),
    Describe(String),
    Failures(String),
    /// By token.
    Machine(String),
}

impl Key {
    /// The call of the source as a whole; `None` for work with one machine, whose failure is kept by its token.
    fn call(&self) -> Option<&'static str> {
        match self {
            Self::Offers(_) => Some("offers"),
            Self::Describe(_) => Some("describe"),
            Self::Failures(_) => Some("failures"),
            Self::Machine(_) => None,
        }
    }
}

enum Work {
    Offers,
    Describe,
    Failures,
    Create(Box<Machine>),
    Delete(Box<Machine>),
    Report(MachineReport),
}

impl Work {
    /// The work with one machine.
    fn of(work: MachineWork, machine: &Machine) -> Self {
        match work {
            MachineWork::Create => Self::Create(Box::new(machine.clone())),
            MachineWork::Delete => Self::Delete(Box::new(machine.clone())),
            MachineWork::Report(report) => Self::Report(report),
        }
    }

    /// Whether it counts among the calls of its source. A report is kept at once, whatever hangs, and a source that is listened
    /// to may be called meanwhile.
    fn is_call(&self) -> bool {
        !matches!(self, Self::Report(_) | Self::Failures)
    }
}

/// How a piece of work ended.
enum Outcome {
    Done,
    Compared(Differences),
    /// The source tells nothing by itself.
    Silent,
    Failed(SourceError),
}

/// A source that said that it gets too many calls. Its machines wait together: each by itself would go on asking.
struct Throttle {
    count: u32,
    until: Instant,
}

struct Progress {
    source: String,
    is_running: bool,
    /// Whether what runs is a call of the source.
    is_call: bool,
    failures: u32,
    next: Instant,
}

/// The backends as they were when they were last looked at.
#[derive(Default)]
struct SeenBackends(BTreeMap<String, Backend>);

impl SeenBackends {
    /// Forgets when backends that are others since are to be asked for offers and machines: they are asked at once.
    fn forget_changed(&mut self, state: &State, progress: &mut HashMap<Key, Progress>) {
        if self.0 == state.backends {
            return;
        }
        let is_same = |source: &str| self.0.get(source) == state.backends.get(source);
        progress.retain(|key, of| key.call().is_none() || is_same(&of.source));
        self.0.clone_from(&state.backends);
    }
}

struct Driver {
    shared: Arc<Shared>,
    sources: OpenSources,
    progress: HashMap<Key, Progress>,
    /// By source.
    throttled: HashMap<String, Throttle>,
    missing: HashMap<String, u32>,
    /// What an alarm was raised for, by source, token and id.
    strangers: HashSet<(String, String, String)>,
    /// What was said of each source.
    noticed: BTreeSet<(String, String)>,
    budgets: BudgetWarning,
    backends: SeenBackends,
    ended: mpsc::Sender<(Key, Outcome)>,
}

/// Runs until the server stops.
pub async fn run(shared: Arc<Shared>) {
    let mut commits = shared.commits.subscribe_beyond_submits();
    let (ended, mut ends) = mpsc::channel(64);
    let mut driver = Driver::new(shared, ended);
    loop {
        // A pause that ends while the state is looked through is over at the next look.
        let begun = Instant::now();
        driver.begin_due();
        let look = driver.next_look(begun);
        tokio::select! {
            changed = commits.changed() => if changed.is_err() { return },
            Some((key, outcome)) = ends.recv() => driver.end(key, outcome),
            () = sleep_until(look) => {}
        }
    }
}

impl Driver {
    fn new(shared: Arc<Shared>, ended: mpsc::Sender<(Key, Outcome)>) -> Self {
        Self {
            shared,
            sources: OpenSources::default(),
            progress: HashMap::new(),
            throttled: HashMap::new(),
            missing: HashMap::new(),
            strangers: HashSet::new(),
            noticed: BTreeSet::new(),
            budgets: BudgetWarning::default(),
            backends: SeenBackends::default(),
            ended,
        }
    }

    /// When the state is looked through again where nothing is committed: a call that failed is made anew as soon as its pause is over.
    fn next_look(&self, now: Instant) -> Instant {
        let calls = self.progress.values().filter(|of| !of.is_running).map(|of| of.next);
        let pauses = calls.chain(self.throttled.values().map(|throttle| throttle.until));
        let first = pauses.filter(|end| *end > now).min();
        first.map_or(now + LOOK_INTERVAL, |end| end.min(now + LOOK_INTERVAL))
    }

    fn begin_due(&mut self) {
        let due = {
            let state = self.shared.read();
            // Also of a cluster without sources: own nodes may have prices.
            for line in self.budgets.due(&state, clock::now()) {
                tracing::warn!("{line}");
            }
            self.backends.forget_changed(&state, &mut self.progress);
            if !state.has_sources() {
                return;
            }
            self.noticed = new_notices(&state, &self.shared.setup.agents_addresses, &self.noticed);
            self.due(&state)
        };
        for (source, key, work) in due {
            self.begin(source, key, work);
        }
    }

    /// What is to be done now, with the source that it is for.
    fn due(&self, state: &State) -> Vec<(SourceConfig, Key, Work)> {
        let (now, instant) = (clock::now(), Instant::now());
        let is_due = |key: &Key| {
            let known = self.progress.get(key);
            known.is_none_or(|progress| !progress.is_running && progress.next <= instant)
        };
        let mut due = Vec::new();
        for source in state.sources() {
            let running = self.progress.values();
            let is_calling = |of: &&Progress| of.is_running && of.is_call;
            let running = running.filter(is_calling).filter(|of| of.source == source.name).count();
            let throttle = self.throttled.get(&source.name);
            let is_throttled = throttle.is_some_and(|throttle| throttle.until > instant);
            let mut room = if is_throttled { 0 } else { CALLS_MAX.saturating_sub(running) };
            let mut add = |key: Key, work: Work| {
                let slots = usize::from(work.is_call());
                if slots <= room && is_due(&key) {
                    room -= slots;
                    due.push((source.clone(), key, work));
                }
            };
            // What a source offers and has is found out though its calls for machines hang.
            add(Key::Offers(source.name.clone()), Work::Offers);
            add(Key::Describe(source.name.clone()), Work::Describe);
            add(Key::Failures(source.name.clone()), Work::Failures);
            let work = state.live_machines_of(&source.name).filter_map(|machine| {
                let missing = self.missing.get(&machine.token);
                let is_missing = missing.is_some_and(|count| *count >= MISSING_MAX);
                let work = state.machine_work(machine, is_missing, now)?;
                Some((Key::Machine(machine.token.clone()), Work::of(work, machine)))
            });
            let mut work: Vec<(Key, Work)> = work.collect();
            let failures = |key: &Key| self.progress.get(key).map_or(0, |known| known.failures);
            work.sort_by_key(|(key, work)| turn(failures(key), work));
            for (key, work) in work {
                add(key, work);
            }
        }
        due
    }

    fn begin(&mut self, source: SourceConfig, key: Key, work: Work) {
        let progress = self.progress.entry(key.clone()).or_insert_with(|| Progress {
            source: source.name.clone(),
            is_running: false,
            is_call: false,
            failures: 0,
            next: Instant::now(),
        });
        (progress.is_running, progress.is_call) = (true, work.is_call());
        let (shared, ended) = (self.shared.clone(), self.ended.clone());
        let opened = self.sources.open(&shared, &source);
        vital_task::spawn("a call of a source of machines", async move {
            let token = match &key {
                Key::Machine(token) => token.clone(),
                Key::Offers(_) | Key::Describe(_) | Key::Failures(_) => String::new(),
            };
            let outcome = match opened {
                Ok(opened) => carry_out(&shared, source, opened, token, work).await,
                Err(why) => Err(why),
            };
            // The receiver lives as long as this task's loop.
            let _ = ended.send((key, outcome.unwrap_or_else(Outcome::Failed))).await;
        });
    }

    fn end(&mut self, key: Key, outcome: Outcome) {
        let Some(progress) = self.progress.get_mut(&key) else { return };
        progress.is_running = false;
        let now = Instant::now();
        let failure = match &outcome {
            Outcome::Failed(why) => Some(why.to_string()),
            Outcome::Done | Outcome::Compared(_) | Outcome::Silent => None,
        };
        let statuses = &self.shared.volatile.source_statuses;
        if let Key::Machine(token) = &key {
            statuses.set_machine_failure(&progress.source, token, failure);
        } else if let Some(call) = key.call() {
            statuses.set_failure(&progress.source, call, failure);
        }
        if let Outcome::Failed(why) = outcome {
            progress.next = now + pause_after(progress.failures);
            progress.failures += 1;
            tracing::warn!("source {}: {why}", progress.source);
            if why.kind == FailureKind::Throttled {
                let none = Throttle { count: 0, until: now };
                let throttle = self.throttled.entry(progress.source.clone()).or_insert(none);
                // The answers to calls that were made together are one refusal.
                if throttle.until <= now {
                    throttle.until = now + pause_after(throttle.count);
                    throttle.count += 1;
                }
            }
            return;
        }
        if progress.is_call {
            self.throttled.remove(&progress.source);
        }
        (progress.failures, progress.next) = (0, now);
        match &key {
            Key::Offers(_) => progress.next = now + OFFERS_INTERVAL,
            Key::Describe(_) => progress.next = now + DESCRIBE_INTERVAL,
            Key::Failures(_) if matches!(outcome, Outcome::Silent) => {
                progress.next = now + OFFERS_INTERVAL;
            }
            Key::Failures(_) => progress.next = now + FIRST_PAUSE,
            // The next thing to be done with a machine follows from its state.
            Key::Machine(_) => drop(self.progress.remove(&key)),
        }
        if let (Key::Describe(source), Outcome::Compared(found)) = (&key, outcome) {
            self.take_differences(source, found);
        }
    }

    fn take_differences(&mut self, source: &str, found: Differences) {
        let state = self.shared.read();
        let is_missing = |token: &str| found.missing.iter().any(|missing| missing == token);
        self.missing.retain(|token, _| {
            let machine = state.machines.get(token).filter(|machine| machine.is_live());
            machine.is_some_and(|machine| machine.source != source || is_missing(token))
        });
        drop(state);
        for token in &found.missing {
            *self.missing.entry(token.clone()).or_default() += 1;
        }
        let ids = found.strangers.iter().map(|stranger| stranger.id.clone()).collect();
        self.shared.volatile.source_statuses.set_strangers(source, ids);
        for stranger in found.strangers {
            let (token, id) = (stranger.token, stranger.id);
            if self.strangers.insert((source.to_owned(), token.clone(), id.clone())) {
                tracing::error!("{}", stranger_alarm(source, "machine", &id, &token));
            }
        }
    }
}

/// The line about a machine or a disk with the cluster's tag that nobody asked for. Somebody may have set the tag alone.
pub fn stranger_alarm(source: &str, what: &str, id: &str, token: &str) -> String {
    let token = if token.is_empty() { "no token".into() } else { format!("token {token}") };
    format!(
        "ALARM: source {source} has {what} {id} with this cluster's tag and {token}, which was not asked for: it is paid for, and left alone"
    )
}

/// What there is to be said of the sources; a line of the log for each that was not said.
fn new_notices(
    state: &State,
    bound: &[String],
    said: &BTreeSet<(String, String)>,
) -> BTreeSet<(String, String)> {
    let of_source = |source: &SourceConfig| {
        let name = source.name.clone();
        let lines = source_notice::notices(state, source, bound);
        lines.into_iter().map(move |line| (name.clone(), line))
    };
    let found: BTreeSet<(String, String)> = state.sources().flat_map(of_source).collect();
    for (source, line) in found.difference(said) {
        tracing::warn!("source {source}: {line}");
    }
    found
}

/// How long to wait after so many failures before this one.
fn pause_after(failures: u32) -> Duration {
    (FIRST_PAUSE * 2_u32.pow(failures.min(10))).min(LONGEST_PAUSE)
}

/// The place of a piece of work among those of one source, the least first: calls that failed or hung come after those that
/// did not, and of these a deletion first, because its machine is paid for.
fn turn(failures: u32, work: &Work) -> (u32, bool) {
    (failures, matches!(work, Work::Create(_)))
}

async fn carry_out(
    shared: &Arc<Shared>,
    config: SourceConfig,
    source: Arc<dyn MachineSource>,
    token: String,
    work: Work,
) -> Result<Outcome, SourceError> {
    let name = config.name.clone();
    match work {
        Work::Offers => {
            let offers = call(move || source.offers()).await;
            let offers = offers.and_then(|offers| answer_bounds::offers(&name, offers));
            let offers = offers.map_err(|e| e.of("offers"))?;
            execute(shared, Command::SetOffers { source: name, offers }).await?;
        }
        Work::Describe => {
            let begun = clock::now();
            let asked = source.clone();
            let told = call(move || asked.describe()).await.and_then(answer_bounds::machines);
            let told = told.map_err(|e| e.of("describe"))?;
            let mut found = {
                let state = shared.read();
                machine_reconcile::differences(&state.machines, &name, &told, begun)
            };
            for (token, report) in found.reports.iter().cloned() {
                execute(shared, Command::MachineReport { token, report }).await?;
            }
            if config.kind.cloud().is_some() {
                for surplus in &found.surplus {
                    delete_surplus(shared, &name, &source, surplus).await;
                }
            } else {
                // A program may go by the token alone, and would delete the machine that is in use.
                found.strangers.append(&mut found.surplus);
            }
            return Ok(Outcome::Compared(found));
        }
        Work::Failures => {
            let told = call(move || source.failures()).await.map_err(|e| e.of("failures"))?;
            let Some(failed) = told else { return Ok(Outcome::Silent) };
            for FailedMachine { token, kind, text } in failed {
                // What was deleted by ourselves is none.
                let is_meant = |machine: &Machine| {
                    let is_over =
                        matches!(machine.phase, MachinePhase::Deleting | MachinePhase::Gone);
                    machine.source == name && !is_over
                };
                if !shared.read().machines.get(&token).is_some_and(is_meant) {
                    continue;
                }
                tracing::warn!("source {name}: machine of token {token}: {kind}: {text}");
                let report = MachineReport::Failed { kind, text };
                execute(shared, Command::MachineReport { token, report }).await?;
            }
        }
        Work::Create(machine) => {
            let order = create_order(shared, &config, &machine).await?;
            // The join tokens of a machine that leaves are taken back, but not one that was issued after that: a machine that
            // was given it could join as a node that nobody deletes. It has not left the server.
            let phase = shared.read().machines.get(&token).map(|machine| machine.phase);
            if phase != Some(MachinePhase::Asked) {
                return Ok(Outcome::Done);
            }
            let made = call(move || source.create(&order)).await.and_then(answer_bounds::machine);
            let report = match made {
                Ok(made) => MachineReport::Made { id: made.id, since: made.since },
                Err(error) => match error.kind {
                    FailureKind::NoCapacity | FailureKind::Quota | FailureKind::Refused => {
                        MachineReport::NotMade { kind: error.kind, text: error.text }
                    }
                    // It may have been made: the same call finds it, and a late machine is deleted.
                    FailureKind::Throttled | FailureKind::NotFound | FailureKind::Unknown => {
                        return Err(error.of(&format!("create {}", machine.node)));
                    }
                },
            };
            execute(shared, Command::MachineReport { token, report }).await?;
        }
        Work::Delete(machine) => {
            let origin = format!("source {}", machine.source);
            dynamic_node::forget_machine(shared, &origin, &machine.node);
            let order = DeleteOrder {
                token: token.clone(),
                id: machine.id.clone(),
                offer: machine.offer.id.clone(),
                region: machine.offer.region.clone(),
            };
            let deleted = call(move || source.delete(&order)).await;
            // A machine that was asked for a moment ago may be there and not be seen yet; one whose agent has come was seen.
            let since = machine.made.unwrap_or(machine.asked);
            let is_settled = machine.joined.is_some() || since + CONSISTENCY_DELAY <= clock::now();
            match deleted {
                Err(error) if error.kind == FailureKind::NotFound && is_settled => {}
                deleted => deleted.map_err(|e| e.of(&format!("delete {}", machine.node)))?,
            }
            let report = MachineReport::Deleted;
            execute(shared, Command::MachineReport { token, report }).await?;
        }
        Work::Report(report) => execute(shared, Command::MachineReport { token, report }).await?,
    }
    Ok(Outcome::Done)
}

/// Deletes a further machine of a token. Where that fails it is tried again with the next answer that tells of it.
async fn delete_surplus(
    shared: &Shared,
    name: &str,
    source: &Arc<dyn MachineSource>,
    surplus: &SourceMachine,
) {
    let (token, id) = (surplus.token.clone(), surplus.id.clone());
    let order = {
        let state = shared.read();
        // It may have become the node since the source was asked.
        let machine = state.machines.get(&token).filter(|machine| !state.has_joined(machine));
        machine.map(|machine| DeleteOrder {
            token: token.clone(),
            id: Some(id.clone()),
            offer: machine.offer.id.clone(),
            region: machine.offer.region.clone(),
        })
    };
    let Some(order) = order else { return };
    tracing::warn!("source {name}: token {token} has a second machine, {id}: it is deleted");
    let source = source.clone();
    if let Err(error) = call(move || source.delete(&order)).await {
        tracing::warn!("source {name}: delete {id}: {error}");
    }
}

/// What the source needs to make the machine: among it a join token that is good once, for this node alone.
async fn create_order(
    shared: &Shared,
    source: &SourceConfig,
    machine: &Machine,
) -> Result<CreateOrder, SourceError> {
    let life = Duration::from_secs(source.boot_s.into()) + TOKEN_RESERVE;
    let join = node_order::join_file(shared, source, machine, life).await;
    let (offer, conf) = (machine.offer.clone(), node_order::conf(source, machine));
    let (token, node) = (machine.token.clone(), machine.node.clone());
    let join =
        join.map_err(|why| SourceError::unknown(format!("no join token for {node}: {why}")))?;
    let options = {
        let state = shared.read();
        let fleet = machine.terms.fleet.as_ref().and_then(|fleet| state.fleets.get(fleet));
        fleet.and_then(|fleet| Some(fleet.cloud.as_ref()?.options.clone())).unwrap_or_default()
    };
    let pod = machine.terms.own_pod().map(Box::new);
    let zone = machine.terms.zone.clone();
    let registry_auth = registry_auth_of(shared, machine);
    Ok(CreateOrder { token, offer, node, conf, join, zone, options, pod, registry_auth })
}

/// The credentials that the job of a pod brings for its image. Where they cannot be had, as when a secret of theirs is gone, the pod is
/// made without them and says itself that its image cannot be pulled: that is its job's failure, and not one of the source.
fn registry_auth_of(shared: &Shared, machine: &Machine) -> Option<RegistryAuth> {
    machine.terms.pod.as_ref().filter(|pod| pod.has_registry_auth)?;
    let spec = shared.read().job(machine.job?).map(|job| job.spec.clone())?;
    registry_auth::open(shared, &spec).unwrap_or_else(|why| {
        tracing::warn!("machine {}: its image is pulled without credentials: {why}", machine.node);
        None
    })
}

async fn call<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, SourceError> + Send + 'static,
) -> Result<T, SourceError> {
    let ended = tokio::task::spawn_blocking(call).await;
    ended.unwrap_or_else(|error| Err(SourceError::unknown(error.to_string())))
}

async fn execute(shared: &Shared, command: Command) -> Result<(), SourceError> {
    let kept = shared.writer.run(command, server_principal()).await;
    kept.map(drop).map_err(|why| SourceError::unknown(format!("it could not be kept: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;
    use model::amount::Bytes;
    use model::budget::Budget;
    use model::machine::Offer;
    use model::price::{Cost, Price};

    fn offer() -> Offer {
        Offer {
            id: "small".into(),
            cpus: 4,
            memory: Bytes::from_mib(1000),
            disk: Bytes(0),
            gpus: None,
            region: String::new(),
            price: Price::default(),
            spot: false,
        }
    }

    #[test]
    fn deletions_come_before_creations_and_what_failed_comes_last() {
        let machine = || {
            Box::new(Machine {
                token: "t".into(),
                number: 1,
                source: "cloud".into(),
                offer: offer(),
                node: "cloud-1".into(),
                job: None,
                asked: clock::now(),
                made: None,
                joined: None,
                gone: None,
                id: None,
                phase: MachinePhase::Asked,
                failure: None,
                terms: Default::default(),
            })
        };
        let create = || Work::Create(machine());
        let mut work = [
            (2, Work::Delete(machine())),
            (1, create()),
            (0, create()),
            (0, Work::Delete(machine())),
        ];
        work.sort_by_key(|(failures, work)| turn(*failures, work));
        let order = work.map(|(failures, work)| (failures, matches!(work, Work::Delete(_))));
        assert_eq!(order, [(0, true), (0, false), (1, false), (2, true)]);
        assert!(create().is_call() && !Work::Report(MachineReport::Joined).is_call());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn failure_with_a_machine_is_told_with_its_source_until_a_call_goes_well() {
        let server = TestServer::without_writer();
        let mut driver = Driver::new(server.shared.clone(), mpsc::channel(1).0);
        let key = Key::Machine("7-0af".into());
        let running = Progress {
            source: "cloud".into(),
            is_running: true,
            is_call: true,
            failures: 0,
            next: Instant::now(),
        };
        driver.progress.insert(key.clone(), running);
        let told = || {
            let status = server.shared.volatile.source_statuses.of("cloud");
            status.failure().map(str::to_owned)
        };
        driver.end(key.clone(), Outcome::Failed(SourceError::refused("delete cloud-7: no right")));
        assert_eq!(told().as_deref(), Some("refused: delete cloud-7: no right"));
        driver.end(key, Outcome::Done);
        assert_eq!(told(), None);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn budgets_are_looked_at_where_there_is_no_source() {
        let server = TestServer::start().await;
        let mut config = (*server.shared.read().config).clone();
        let (account, month) = ("physics".to_owned(), Cost::default());
        config.budgets = vec![Budget { account, month, warn_percent: 80 }];
        server.run(Command::Configure(Box::new(config))).await.expect("configured");
        let mut driver = Driver::new(server.shared.clone(), mpsc::channel(1).0);
        driver.begin_due();
        let left = driver.budgets.due(&server.shared.read(), clock::now());
        assert!(left.is_empty(), "it was said a moment ago: {left:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn call_that_failed_is_made_anew_when_its_pause_is_over_and_not_at_the_next_look() {
        let server = TestServer::without_writer();
        let mut driver = Driver::new(server.shared.clone(), mpsc::channel(1).0);
        let now = Instant::now();
        let mut add = |token: &str, is_running: bool, next: Instant| {
            let source = "cloud".to_owned();
            let of = Progress { source, is_running, is_call: true, failures: 1, next };
            driver.progress.insert(Key::Machine(token.into()), of);
            driver.next_look(now) - now
        };
        let moment = Duration::from_millis(1);
        assert_eq!(
            add("over", false, now),
            LOOK_INTERVAL,
            "what is due and has no turn is no reason"
        );
        assert_eq!(add("late", false, now + 2 * LOOK_INTERVAL), LOOK_INTERVAL);
        assert_eq!(add("running", true, now + moment), LOOK_INTERVAL);
        assert_eq!(add("soon", false, now + 2 * moment), 2 * moment);
        let throttle = Throttle { count: 1, until: now + moment };
        driver.throttled.insert("cloud".into(), throttle);
        assert_eq!(driver.next_look(now) - now, moment);
    }

    #[test]
    fn stranger_without_a_token_is_said_to_have_none() {
        let said = |token| stranger_alarm("ec2", "machine", "i-1", token);
        assert!(said("").contains("i-1 with this cluster's tag and no token, which was"));
        assert!(said("7-0af").contains("tag and token 7-0af, which was not asked for"));
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses = [0, 1, 3, 30].map(|failures| pause_after(failures).as_secs());
        assert_eq!(pauses, [1, 2, 8, 60]);
    }
}
