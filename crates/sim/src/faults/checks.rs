//! What must hold in every history: checks of each event as it is applied, of each commit as it is published, of what agents do,
//! and of the state as a whole.

use super::site;
use cluster::command::AttemptReport;
use cluster::{Event, Job, Node, Reply, State};
use model::allocation::{Allocation, NodeShare};
use model::amount::Bytes;
use model::cpuset::CpuSet;
use model::id::{AttemptId, JobId};
use model::reason::{Reason, Refusal};
use model::record::JobRecord;
use model::request::{Memory, Request, Sharing};
use model::time::Timestamp;
use model::tres::TresKind;
use sched::view::View;
use sched::{Memo, PendingJob, Plan};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken(pub String);

pub type Checked = Result<(), Broken>;

fn hold(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Broken(what())) }
}

/// What is durable or has really happened, kept apart from the state.
#[derive(Default)]
pub struct Ledger {
    /// Ids of jobs in commits on disk.
    ids: BTreeSet<JobId>,
    /// Jobs whose submit was answered.
    acknowledged: BTreeSet<JobId>,
    /// Where the history ended when a client was last told that something was done: a submit, a cancel, a hold, a change.
    answered_upto: u64,
    /// Jobs whose record has left memory.
    gone: BTreeSet<JobId>,
    /// What each attempt on disk was granted.
    granted: BTreeMap<AttemptId, Arc<Allocation>>,
    /// Attempts that were started, on which node.
    launched: BTreeSet<(AttemptId, String)>,
}

/// What an event has to charge an attempt with.
pub struct ChargeProbe {
    qos: String,
    before: f64,
    cpu_seconds: f64,
}

impl Ledger {
    pub fn launches(&self) -> usize {
        self.launched.len()
    }

    /// Whether the event may follow in this state: states move only along the drawn edges.
    pub fn before(&self, state: &State, event: &Event) -> Result<Option<ChargeProbe>, Broken> {
        let off_edge = || format!("this event cannot follow here: {event:?}");
        let job = |id: &JobId| state.job(*id).ok_or_else(|| Broken(off_edge()));
        let active = |id: &JobId| -> Checked { hold(job(id)?.attempt().is_some(), off_edge) };
        match event {
            Event::Submitted(submitted) => {
                let is_new = !self.ids.contains(&submitted.job);
                hold(is_new && state.job(submitted.job).is_none(), || {
                    format!("job id {} is given twice", submitted.job)
                })?;
            }
            Event::Started(started) => {
                let waits = match started.task {
                    None => job(&started.attempt.job)?.is_waiting(),
                    Some((array, index)) => {
                        let pending = job(&array)?.pending.as_ref();
                        pending.is_some_and(|pending| pending.indices.contains(index))
                    }
                };
                hold(waits, off_edge)?;
                let is_new = !self.granted.contains_key(&started.attempt);
                hold(is_new, || format!("attempt {} starts a second time", started.attempt))?;
            }
            Event::Ended { job: id, ended } => {
                hold(!job(id)?.has_ended(), off_edge)?;
                return Ok(charge_probe(state, job(id)?, ended.end));
            }
            Event::Requeued { job: id, ended, .. } => {
                active(id)?;
                return Ok(charge_probe(state, job(id)?, ended.end));
            }
            Event::EndedJobRequeued { job: id, .. } => hold(job(id)?.has_ended(), off_edge)?,
            Event::Suspended { job: id, at, .. } | Event::Resumed { job: id, at } => {
                active(id)?;
                return Ok(charge_probe(state, job(id)?, *at));
            }
            Event::Ending { job, .. } | Event::StepStarted { job, .. } => active(job)?,
            Event::AttemptEndedOnNode { attempt, node, .. }
            | Event::AttemptAbandonedOnNode { attempt, node } => {
                let of_attempt = job(&attempt.job)?.attempt();
                let of_attempt = of_attempt.filter(|active| active.number == attempt.number);
                let is_held = of_attempt.is_some_and(|active| active.held_nodes.contains(node));
                hold(is_held, off_edge)?;
            }
            _ => {}
        }
        Ok(None)
    }

    /// What must hold once the event was applied.
    pub fn after(
        &self,
        state: &State,
        event: &Event,
        record: Option<&JobRecord>,
        probe: Option<ChargeProbe>,
    ) -> Checked {
        let closes = matches!(
            event,
            Event::Ended { .. } | Event::Requeued { .. } | Event::TasksCancelled { .. }
        );
        hold(closes == record.is_some(), || format!("the books' record is wrong for {event:?}"))?;
        if let Event::Started(started) = event {
            nothing_oversubscribed(state, &started.allocation)?;
            limits_hold(state, started.attempt.job)?;
            group_limit_holds(state, started.attempt.job)?;
        }
        let Some(ChargeProbe { qos, before, cpu_seconds }) = probe else { return Ok(()) };
        let charged = charged_cpu_seconds(state, &qos) - before;
        let is_equal = (charged - cpu_seconds).abs() <= 1e-6 * (1.0 + before.abs() + cpu_seconds);
        hold(is_equal, || {
            format!("{charged} CPU seconds are charged instead of {cpu_seconds}: {event:?}")
        })
    }

    /// A commit is on disk.
    pub fn published(&mut self, state: &State, events: &[Event]) {
        for event in events {
            match event {
                Event::Submitted(submitted) => {
                    self.ids.insert(submitted.job);
                }
                Event::TaskSplit { array, job, .. } => {
                    self.ids.insert(*job);
                    self.note_gone(state, *array);
                }
                Event::Started(started) => {
                    self.ids.insert(started.attempt.job);
                    self.granted.insert(started.attempt, started.allocation.clone());
                    if let Some((array, _)) = started.task {
                        self.note_gone(state, array);
                    }
                }
                Event::TasksCancelled { array, .. } => self.note_gone(state, *array),
                Event::Purged { jobs } => self.gone.extend(jobs.iter().copied()),
                _ => {}
            }
        }
    }

    fn note_gone(&mut self, state: &State, job: JobId) {
        if state.job(job).is_none() {
            self.gone.insert(job);
        }
    }

    /// A client was answered, whose events are in the history up to here.
    pub fn acknowledged(&mut self, answer: &Result<Reply, Refusal>, upto: u64) {
        let Ok(reply) = answer else { return };
        self.answered_upto = self.answered_upto.max(upto);
        if let Reply::Submitted { job, .. } = reply {
            self.acknowledged.insert(*job);
        }
    }

    /// Nothing that was acknowledged is missing at the end of the history, which has this number.
    pub fn history_is_kept(&self, end: u64) -> Checked {
        let upto = self.answered_upto;
        hold(end >= upto, || format!("the history ends at {end}, and {upto} was acknowledged"))
    }

    /// No acknowledged job is lost, after a restart.
    pub fn jobs_are_kept(&self, state: &State) -> Checked {
        let is_kept = |job: &JobId| state.jobs.contains_key(job) || self.gone.contains(job);
        match self.acknowledged.iter().find(|job| !is_kept(job)) {
            Some(lost) => Err(Broken(format!("job {lost} was acknowledged and is lost"))),
            None => Ok(()),
        }
    }

    /// An agent starts its part of an attempt: once, and with what was granted.
    pub fn launch(&mut self, attempt: AttemptId, share: &NodeShare) -> Checked {
        let node = &share.node;
        let granted = self.granted.get(&attempt);
        hold(granted.is_some(), || {
            format!("{node} starts attempt {attempt}, whose start is not on disk")
        })?;
        hold(granted.and_then(|granted| granted.share(node)) == Some(share), || {
            format!("{node} starts attempt {attempt} with what it was not granted: {share:?}")
        })?;
        let is_first = self.launched.insert((attempt, node.clone()));
        hold(is_first, || format!("{node} starts attempt {attempt} a second time"))
    }
}

/// What is charged of an attempt when it ends, is suspended or goes on: its CPUs times the time that it ran since it was charged
/// last, and nothing of the time in which it was suspended.
fn charge_probe(state: &State, job: &Job, until: Timestamp) -> Option<ChargeProbe> {
    let attempt = job.attempt()?;
    let charged = attempt.charged_until.unwrap_or(attempt.start);
    // Of one that runs this is when it went on.
    let from = attempt.suspend_changed.map_or(charged, |changed| charged.max(changed));
    let ran = until.since(from).as_secs_f64();
    let seconds = if attempt.suspended { 0.0 } else { ran };
    let qos = job.qos.to_string();
    let before = charged_cpu_seconds(state, &qos);
    Some(ChargeProbe {
        qos,
        before,
        cpu_seconds: f64::from(attempt.allocation.cpu_count()) * seconds,
    })
}

fn charged_cpu_seconds(state: &State, qos: &str) -> f64 {
    state.charged_usage.qos.get(qos).map_or(0.0, |usage| usage.seconds(&TresKind::Cpu))
}

/// Looked at when something is granted: files that take resources away leave running jobs alone.
fn nothing_oversubscribed(state: &State, granted: &Allocation) -> Checked {
    for share in &granted.nodes {
        let name = &share.node;
        let Some(node) = state.nodes.get(name) else {
            return Err(Broken(format!("{name} is granted, and is no node")));
        };
        let (used, config) = (&node.used, &node.config);
        let mut units = BTreeSet::new();
        let named = used.gres.iter();
        let mut named =
            named.flat_map(|gres| gres.indices.iter().map(move |index| (&gres.name, index)));
        let are_single = named.all(|unit| units.insert(unit));
        let fits = |name: &str| {
            let of_name = used.gres.iter().filter(|gres| gres.name == name);
            of_name.map(|gres| gres.count).sum::<u64>() <= config.gres_total(name)
        };
        let holds = used.cpus.is_subset(&config.usable_cpus())
            && used.memory <= config.usable_memory()
            && (!used.exclusive || used.jobs == 1)
            && (used.user_exclusive.is_empty() || used.users.len() == 1)
            && are_single
            && share.gres.iter().all(|gres| fits(&gres.name));
        hold(holds, || format!("{name} is granted beyond what it has: {used:?}"))?;
    }
    Ok(())
}

fn limits_hold(state: &State, started: JobId) -> Checked {
    let Some(job) = state.job(started).filter(|job| *job.qos == *site::LIMITED_QOS) else {
        return Ok(());
    };
    let counts = |id: &&JobId| {
        let other = state.job(**id).filter(|other| other.qos == job.qos);
        let own = other.filter(|other| other.spec.owner.uid == job.spec.owner.uid);
        own.and_then(Job::attempt).is_some_and(|a| a.ending.is_none() && !a.suspended)
    };
    let running = state.active.iter().filter(counts).count();
    hold(running <= site::RUNNING_MAX as usize, || {
        format!("{running} jobs of {} run at once in QOS few", job.spec.owner.name)
    })
}

/// The CPUs that running jobs of the account hold together. Those of jobs that are suspended or end are left out, though the limit
/// counts them: what is left must be within it all the more.
fn group_limit_holds(state: &State, started: JobId) -> Checked {
    let is_of_account = |job: &&Job| *job.account == *site::LIMITED_ACCOUNT;
    if state.job(started).filter(is_of_account).is_none() {
        return Ok(());
    }
    let jobs = state.active.iter().filter_map(|id| state.job(*id)).filter(is_of_account);
    let attempts = jobs.filter_map(Job::attempt).filter(|a| a.ending.is_none() && !a.suspended);
    let shares = attempts.flat_map(|attempt| {
        let is_held = move |share: &&NodeShare| attempt.held_nodes.contains(&share.node);
        attempt.allocation.nodes.iter().filter(is_held).map(|share| share.cpus.len())
    });
    let held: u32 = shares.sum();
    hold(held <= site::GROUP_CPUS_MAX, || {
        format!("jobs of account {} hold {held} CPUs at once", site::LIMITED_ACCOUNT)
    })
}

/// The state that was read back is that before the commit which failed or was cut off, or that after it. Returns whether the
/// commit was kept.
pub fn read_back(before: Option<&State>, memory: &State, found: &State) -> Result<bool, Broken> {
    // Where the lists are in the same order already, no copies are needed.
    if found == memory {
        return Ok(true);
    }
    let found = in_order(found);
    if found == in_order(memory) {
        return Ok(true);
    }
    let is_before = before.is_some_and(|before| found == in_order(before));
    let what = "the state that was read back is not the one that was acknowledged";
    hold(is_before, || what.to_owned()).map(|()| false)
}

/// Lists whose order carries no meaning, put into one order.
fn in_order(state: &State) -> State {
    let mut state = state.clone();
    for node in state.nodes.values_mut() {
        node.holders.sort_unstable();
        node.used.user_exclusive.sort_unstable();
        node.used.gres.sort_by_key(|gres| (gres.name.clone(), gres.indices.clone(), gres.count));
    }
    state
}

/// Whether a report says that nothing of the attempt is left.
pub fn is_last(what: &AttemptReport) -> bool {
    matches!(what, AttemptReport::Ended { .. } | AttemptReport::LaunchFailed { .. })
}

/// What the state derives and counts, counted anew.
pub fn recounts(state: &State) -> Checked {
    type NodeUse = (CpuSet, Bytes, Vec<AttemptId>);
    let mut uses: BTreeMap<&str, NodeUse> = BTreeMap::new();
    let (mut active, mut queue) = (BTreeSet::new(), BTreeSet::new());
    for job in state.jobs.values() {
        if job.is_waiting() && job.hold.is_none() {
            queue.insert(job.id);
        }
        let (Some(attempt), Some(id)) = (job.attempt(), job.attempt_id()) else { continue };
        active.insert(job.id);
        hold(!attempt.held_nodes.is_empty(), || format!("job {} runs nowhere", job.id))?;
        for node in &attempt.held_nodes {
            let Some(share) = attempt.allocation.share(node) else {
                return Err(Broken(format!("attempt {id} holds {node}, which it was not granted")));
            };
            let (cpus, memory, holders) = uses.entry(node).or_default();
            memory.0 += share.memory.0;
            holders.push(id);
            if !attempt.has_released_cores() {
                let are_free = !cpus.intersects(&share.cpus);
                hold(are_free, || format!("CPUs of {node} are granted twice"))?;
                cpus.union(&share.cpus);
            }
        }
    }
    hold(state.active == active, || "the running jobs are counted wrong".to_owned())?;
    hold(state.queue == queue, || "the queue is counted wrong".to_owned())?;
    for (name, node) in &state.nodes {
        let (cpus, memory, mut holders) = uses.remove(name.as_str()).unwrap_or_default();
        let mut held = node.holders.clone();
        held.sort_unstable();
        holders.sort_unstable();
        let is_equal = node.used.cpus == cpus && node.used.memory == memory && held == holders;
        hold(is_equal, || format!("what jobs hold of {name} did not come back, or is missing"))?;
    }
    hold(uses.is_empty(), || "jobs hold nodes that do not exist".to_owned())
}

/// A view that was made from nothing, and what its plan remembers.
pub struct FromNothing {
    view: View,
    memo: Memo,
}

/// A plan that was made step by step equals one that is made from nothing.
pub fn plan_from_nothing(
    state: &State,
    now: Timestamp,
    view: &View,
    plan: &Plan,
) -> Result<FromNothing, Broken> {
    let anew = cluster::view::view(state, now);
    let is_followed = view.queue == anew.queue && view.running == anew.running;
    hold(is_followed, || "the view was not followed".to_owned())?;
    let mut memo = Memo::default();
    let from_nothing = sched::plan(&anew, now, &mut memo);
    hold(*plan == from_nothing, || {
        format!("the plan {plan:?} differs from the one made from nothing: {from_nothing:?}")
    })?;
    Ok(FromNothing { view: anew, memo })
}

/// What is explained of a waiting job is true. The explanation goes on from the plan that was made from nothing.
pub fn explanation(
    state: &State,
    now: Timestamp,
    from_nothing: FromNothing,
    job: JobId,
) -> Checked {
    let Some(known) = state.job(job) else { return Ok(()) };
    let FromNothing { view, mut memo } = from_nothing;
    let explained = sched::explain(&view, now, &mut memo, job);
    let Some(explained) = explained else {
        return Err(Broken(format!("job {job} waits, and nothing explains it")));
    };
    let is_alone = known.het.is_none();
    let is_true = match &explained.reason {
        Some(Reason::BeginTime) => !is_alone || known.begin.is_some_and(|begin| begin > now),
        Some(Reason::Dependency) => !is_alone || known.spec.dependency.is_some(),
        Some(Reason::Limit(_)) => explained.limit.as_ref().is_some_and(|limit| {
            limit.holders.iter().all(|(holder, _)| state.active.contains(holder))
        }),
        Some(reason) => !is_alone || is_true_alone(state, &view, known, reason),
        None => true,
    };
    hold(is_true, || format!("job {job} does not wait for {:?}", explained.reason))
}

/// Whether what holds back a job that starts by itself is there, for the reasons of which the state says so without a plan.
fn is_true_alone(state: &State, view: &View, job: &Job, reason: &Reason) -> bool {
    let waiting = view.queue.iter().find(|waiting| waiting.job == job.id);
    match reason {
        Reason::HeldByUser | Reason::HeldByAdmin => job.hold.is_some(),
        Reason::Reservation => job.spec.request().reservation.is_some(),
        Reason::NodesReserved => !view.reservations.is_empty(),
        Reason::Priority => waiting.is_some_and(|waiting| has_company(view, waiting)),
        Reason::Resources => waiting.is_some_and(|waiting| !has_room(state, view, waiting)),
        _ => true,
    }
}

/// Whether another job waits in one of its partitions.
fn has_company(view: &View, waiting: &PendingJob) -> bool {
    let mut others = view.queue.iter().filter(|other| other.job != waiting.job);
    others.any(|other| other.partitions.iter().any(|at| waiting.partitions.contains(at)))
}

/// Whether enough nodes have what the job needs free, and nothing but its own needs could keep it from them: it waits alone, nothing
/// is reserved, and no job is suspended. Of an array the plan may start a part, and the rest waits for what that takes.
fn has_room(state: &State, view: &View, waiting: &PendingJob) -> bool {
    let is_alone = view.queue.len() == 1
        && waiting.tasks == 1
        && view.reservations.is_empty()
        && view.running.iter().all(|running| !running.suspended);
    let request = waiting.spec.request();
    let has_room_in = |at: &u32| {
        let info = view.partitions.get(*at as usize);
        let nodes = info.iter().flat_map(|info| &info.partition.nodes);
        let free = nodes.filter_map(|name| state.nodes.get(name)).filter(|node| {
            node.availability().takes_jobs() && fits(request, waiting.spec.owner.uid, node)
        });
        free.count() >= request.nodes.min as usize
    };
    is_alone && waiting.partitions.iter().any(has_room_in)
}

/// Whether one task of the job fits beside what is on the node, for jobs as `requests` makes them.
fn fits(request: &Request, uid: u32, node: &Node) -> bool {
    let (used, config) = (&node.used, &node.config);
    let is_open = match request.sharing {
        Sharing::Node => used.jobs == 0,
        Sharing::User => used.users.iter().all(|other| *other == uid),
        Sharing::Share | Sharing::Oversubscribe => true,
    };
    let is_closed_by_others = used.exclusive || !used.user_exclusive.is_empty();
    let cpus = config.usable_cpus().len().saturating_sub(used.cpus.len());
    let memory = match &request.memory {
        Memory::PerNode(memory) => memory.min.0,
        // The node's memory, as far as is judged here.
        _ => config.usable_memory().0,
    };
    let has_gres = request.gres.iter().all(|wanted| {
        let of_name = used.gres.iter().filter(|held| held.name == wanted.name);
        let held: u64 = of_name.map(|held| held.count).sum();
        held + wanted.count.min <= config.gres_total(&wanted.name)
    });
    is_open
        && !is_closed_by_others
        && request.cpus_per_task.min <= cpus
        && used.memory.0.saturating_add(memory) <= config.usable_memory().0
        && has_gres
}
