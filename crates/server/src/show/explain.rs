//! `sluice explain`: the scheduler's explanation, with names for its indices, and what else the state knows of the job.

use crate::clock;
use crate::shared::Shared;
use crate::shared::forecast_queue::ExplainedView;
use crate::show::job_view::{JobViews, ShownSteps};
use cluster::Job;
use cluster::authorise::{Act, authorise};
use cluster::visibility::Viewer;
use cluster::{State, dependency, requested};
use model::allocation::{Allocation, NodeShare};
use model::change::{JobFilter, JobRef};
use model::dependency::DependencyState;
use model::id::JobId;
use model::machine::{MachineAnswer, is_for_nodes};
use model::principal::Principal;
use model::reason::{Reason, Refusal};
use model::reservation::Reservation;
use model::shortage::{MissingResource, NodeClassReport, Shortage};
use model::time::Timestamp;
use sched::Explanation;
use sched::view::Estimate;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use wire::client::{Answer, Detail};
use wire::explain::{
    EXPLAINED_MAX, ExpectedStart, ExplainQuery, ExplainedJob, HeldResource, LicenseShortage,
    LimitHolders, NamedJob, NodeReservation, Occupant, PartitionLimits, ReservationWindow,
    ResourceHolder, TermJob, UnavailableNode, UnmetTerm, WaitView,
};

/// Holders of a limit, and jobs of a dependency, that are named.
const NAMED_MAX: usize = 5;

pub async fn explain(
    shared: &Arc<Shared>,
    by: &Principal,
    wanted: &ExplainQuery,
) -> Result<Answer, Refusal> {
    let mut explained = Vec::new();
    for id in chosen(shared, by, wanted)? {
        let waits = shared.read().job(id).is_some_and(Job::is_waiting);
        let plan = if waits { shared.forecasts.explain(id).await } else { None };
        explained.extend(one(shared, by, id, plan.as_deref()));
    }
    Ok(Answer::Explained(explained))
}

/// The ids of the jobs to explain, each once. A name stands for its runs that have not ended, else for the last one.
fn chosen(shared: &Shared, by: &Principal, wanted: &ExplainQuery) -> Result<Vec<JobId>, Refusal> {
    let state = shared.read();
    let viewer = Viewer::new(&state, by);
    let mut ids = Vec::new();
    let unknown = |what: String| Refusal::UnknownJob(what);
    for job in &JobRef::distinct(&wanted.jobs) {
        let found = viewer.resolve(job);
        if found.is_empty() {
            return Err(unknown(shown_ref(job)));
        }
        ids.extend(found.iter().map(|chosen| chosen.job.id));
    }
    let filter =
        JobFilter { names: wanted.names.clone(), all_states: true, ..JobFilter::default() };
    let mut by_name: HashMap<&str, Vec<&Job>> = HashMap::new();
    if !wanted.names.is_empty() {
        for found in viewer.matching(&filter) {
            by_name.entry(&found.job.spec.name).or_default().push(found.job);
        }
    }
    let mut named = HashSet::new();
    for name in wanted.names.iter().filter(|name| named.insert(*name)) {
        let found = by_name.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        let alive = || found.iter().filter(|job| !job.has_ended());
        match (alive().next(), found.last()) {
            (Some(_), _) => ids.extend(alive().map(|job| job.id)),
            (None, Some(last)) => ids.push(last.id),
            (None, None) => return Err(unknown(name.clone())),
        }
    }
    let mut seen = HashSet::new();
    ids.retain(|id| seen.insert(*id));
    // Waiting jobs come first: the answer is cut at `EXPLAINED_MAX`.
    ids.sort_by_key(|id| !state.job(*id).is_some_and(Job::is_waiting));
    ids.truncate(EXPLAINED_MAX);
    Ok(ids)
}

fn shown_ref(job: &JobRef) -> String {
    match &job.tasks {
        None => job.shown_id(),
        Some(tasks) => format!("{}_{tasks}", job.id),
    }
}

fn one(
    shared: &Shared,
    by: &Principal,
    id: JobId,
    plan: Option<&ExplainedView>,
) -> Option<ExplainedJob> {
    let now = clock::now();
    let state = shared.read();
    let viewer = Viewer::new(&state, by);
    let job = state.job(id)?;
    let cache = RefCell::default();
    let views = JobViews::new(shared, &state, now, Detail::Full, &cache);
    let mut view = views.with_steps(ShownSteps::Newest).job(job, None);
    let wait = job.is_waiting().then(|| {
        let mut wait =
            WaitExplainer { state: &state, viewer, job, now }.explain(&view.reason, plan);
        // The last plan may be of before the job was held.
        if wait.reason.as_ref().is_some_and(is_for_nodes) {
            let answer = shared.volatile.last_plan().machines.get(&id).cloned();
            wait.machine = answer.map(|answer| machine_answer(&state, by, answer));
        }
        if let (Some(answer), Some(planned)) = (&wait.machine, &wait.reason) {
            let reason = answer.reason(planned);
            if reason == Reason::Resources {
                wait.partition_limits.clear();
            }
            wait.reason = Some(reason);
        }
        view.reason = wait.reason.clone().unwrap_or_default();
        view.start = wait.expected.as_ref().map(|e| e.start);
        Box::new(wait)
    });
    Some(ExplainedJob { shown: job.shown_id(), job: view, wait })
}

/// Whether a machine is made for a job, as far as the caller may read it.
fn machine_answer(state: &State, by: &Principal, answer: MachineAnswer) -> MachineAnswer {
    let operates = authorise(state, by, Act::Operate).is_ok();
    if operates { answer } else { answer.without_failure_texts() }
}

/// Explains why one job waits.
struct WaitExplainer<'a> {
    state: &'a State,
    /// Jobs of others are counted for whoever is not shown them, and not named.
    viewer: Viewer<'a>,
    job: &'a Job,
    now: Timestamp,
}

impl WaitExplainer<'_> {
    fn explain(&self, reason: &Reason, plan: Option<&ExplainedView>) -> WaitView {
        let request = self.job.spec.request();
        let mut wait = WaitView {
            reason: Some(reason.clone()),
            dependency: self.dependency(),
            begin: self.job.begin.filter(|begin| *begin > self.now),
            reservation: request.reservation.as_ref().map(|name| self.reservation(name)),
            gone_nodes: self.gone_nodes(),
            ..WaitView::default()
        };
        let Some(ExplainedView { explanation, view }) = plan else { return wait };
        let Explanation { reason, before, first, limit, kept, expected, classes, .. } = explanation;
        wait.limit_never_met = explanation.limit_never_met.clone();
        let place = |estimate: &Estimate| ExpectedStart {
            start: estimate.start,
            partition: partition(view, estimate.partition),
            nodes: estimate.nodes.to_names(),
        };
        wait.reason = reason.clone();
        wait.ahead = *before;
        wait.ahead_first = first.iter().filter_map(|id| self.named(*id)).collect();
        wait.limit = limit.as_ref().map(|held| {
            let (holders, others, others_amount) = self.holders(&held.holders);
            LimitHolders { limit: held.limit.clone(), holders, others, others_amount }
        });
        wait.backfill_slot = kept.as_ref().map(place);
        wait.expected = expected.as_ref().map(place);
        wait.classes = if self.viewer.nodes() { classes.clone() } else { Vec::new() };
        wait.node_reservations = self.node_reservations(classes);
        self.add_occupants(&mut wait, classes);
        let at_limit = [Some(Reason::PartitionTimeLimit), Some(Reason::PartitionNodeLimit)];
        if at_limit.contains(&wait.reason) && self.viewer.partitions() {
            wait.partition_limits = self.partition_limits();
        }
        wait.unavailable = self.unavailable(&wait.classes);
        wait.licenses = self.licenses(view);
        wait
    }

    /// Adds the jobs that hold what nodes lack that could hold the job otherwise, with how much of it.
    fn add_occupants(&self, wait: &mut WaitView, classes: &[NodeClassReport]) {
        let possible = classes.iter().filter(|class| class.never.is_none());
        let missing = possible.flat_map(|class| &class.missing);
        let missing = missing.filter(|lack| is_held_by_jobs(&lack.what));
        let mut held: BTreeMap<JobId, BTreeMap<&MissingResource, u64>> = BTreeMap::new();
        let mut shares: HashMap<JobId, NodeShares<'_>> = HashMap::new();
        for (lack, name) in missing.flat_map(|lack| lack.nodes.iter().map(move |node| (lack, node)))
        {
            let node = self.state.nodes.get(name);
            for attempt in node.iter().flat_map(|node| &node.holders) {
                let Some(job) = self.state.job(attempt.job) else { continue };
                let of_job = shares
                    .entry(job.id)
                    .or_insert_with(|| node_shares(job.attempt().map(|held| &*held.allocation)));
                let share = of_job.get(name.as_str()).copied();
                let Some(amount) = held_of(share, &lack.what) else { continue };
                *held.entry(job.id).or_default().entry(&lack.what).or_default() += amount;
            }
        }
        let jobs = held.keys().filter_map(|id| self.state.job(*id));
        let mut jobs: Vec<(Option<Timestamp>, &Job)> =
            jobs.map(|job| (job.attempt().and_then(|attempt| attempt.end_limit), job)).collect();
        jobs.sort_by_key(|(until, job)| (until.is_none(), *until, job.id));
        wait.endless_occupants = jobs.iter().any(|(until, _)| until.is_none());
        let named = jobs.iter().filter(|(_, job)| self.viewer.job(job)).take(NAMED_MAX);
        let amounts = |job: JobId| {
            let of_job = held.get(&job).into_iter().flatten().filter(|(_, amount)| **amount > 0);
            of_job.map(|(what, amount)| HeldResource { what: (*what).clone(), amount: *amount })
        };
        wait.occupants = named
            .map(|(until, job)| Occupant {
                job: job.shown_id(),
                user: job.spec.owner.name.clone(),
                until: *until,
                held: amounts(job.id).collect(),
            })
            .collect();
        wait.more_occupants = (jobs.len() - wait.occupants.len()) as u32;
    }

    fn partition_limits(&self) -> Vec<PartitionLimits> {
        let names: Vec<&str> = requested::partitions(self.state, self.job).collect();
        let known = self.state.partitions.iter();
        let limits = known.filter(|one| names.contains(&one.name.as_str())).map(|one| {
            let nodes = u32::try_from(one.nodes.len()).unwrap_or(u32::MAX);
            let nodes = one.max_nodes.map_or(nodes, |most| most.min(nodes));
            PartitionLimits { partition: one.name.clone(), time: one.max_time, nodes }
        });
        limits.take(NAMED_MAX).collect()
    }

    /// The nodes of these classes that are out of service, with who says why.
    fn unavailable(&self, classes: &[NodeClassReport]) -> Vec<UnavailableNode> {
        let out = |missing: &&Shortage| {
            use MissingResource::{Down, Drained, NotResponding};
            matches!(missing.what, Drained | Down | NotResponding)
        };
        let missing = classes.iter().flat_map(|class| &class.missing).filter(out);
        let names = missing.flat_map(|missing| &missing.nodes);
        let known = names.filter_map(|name| {
            let reason = self.state.nodes.get(name)?.reason.clone()?;
            Some(UnavailableNode { node: name.clone(), reason })
        });
        known.take(NAMED_MAX).collect()
    }

    /// `None` for a job that the viewer is not shown.
    fn named(&self, id: JobId) -> Option<NamedJob> {
        let job = self.state.job(id)?;
        let user = job.spec.owner.name.clone();
        self.viewer.job(job).then(|| NamedJob { job: job.shown_id(), user })
    }

    /// The first few holders by name; the rest as a count and a sum.
    fn holders(&self, all: &[(JobId, u64)]) -> (Vec<ResourceHolder>, u32, u64) {
        let (mut holders, mut others, mut others_amount) = (Vec::new(), 0, 0);
        for (id, amount) in all {
            match self.named(*id).filter(|_| holders.len() < NAMED_MAX) {
                Some(NamedJob { job, user }) => {
                    holders.push(ResourceHolder { job, user, amount: *amount });
                }
                None => (others, others_amount) = (others + 1, others_amount + amount),
            }
        }
        (holders, others, others_amount)
    }

    fn dependency(&self) -> Vec<UnmetTerm> {
        let terms =
            dependency::Dependencies::new(self.state, self.now).unmet_terms(self.job).into_iter();
        let shown = |job: &&&Job| self.viewer.job(job);
        let term = |open: dependency::UnmetTerm<'_>| UnmetTerm {
            term: open.term.to_string(),
            failed: open.state == DependencyState::Failed,
            count: open.jobs.len() as u32,
            jobs: open.jobs.iter().filter(shown).take(NAMED_MAX).map(|job| term_job(job)).collect(),
        };
        terms.map(term).collect()
    }

    fn reservation(&self, name: &str) -> ReservationWindow {
        let known = self.state.reservations.get(name).filter(|r| self.viewer.reservation(r));
        ReservationWindow { name: name.to_string(), window: known.map(|r| (r.start, r.end)) }
    }

    /// The reservations that the job did not ask for, on nodes that it lacks for a reservation's sake, before it would end.
    fn node_reservations(&self, classes: &[NodeClassReport]) -> Vec<NodeReservation> {
        let missing = classes.iter().flat_map(|class| &class.missing);
        let kept = missing.filter(|missing| missing.what == MissingResource::Reservation);
        let kept: HashSet<&String> = kept.flat_map(|missing| &missing.nodes).collect();
        let asked = self.job.spec.request().reservation.as_deref().unwrap_or_default();
        let end = requested::effective_limit(self.state, self.job).duration();
        let end = end.map(|length| self.now + length);
        let of = |reservation: &Reservation| NodeReservation {
            name: reservation.name.clone(),
            nodes: reservation.nodes.iter().filter(|node| kept.contains(node)).cloned().collect(),
            start: reservation.start,
            end: reservation.end,
        };
        let shown = self.state.reservations.values().filter(|one| self.viewer.reservation(one));
        let others = shown.filter(|one| !asked.split(',').any(|name| name == one.name));
        let meet = others.filter(|one| one.end > self.now && end.is_none_or(|end| one.start < end));
        let mut found: Vec<NodeReservation> =
            meet.map(|one| of(one)).filter(|one| !one.nodes.is_empty()).collect();
        found.sort_by(|a, b| (a.start, &a.name).cmp(&(b.start, &b.name)));
        found.truncate(NAMED_MAX);
        found
    }

    /// The nodes that the job names and that have left the configuration.
    fn gone_nodes(&self) -> Vec<String> {
        let named = self.job.spec.request().node_list.iter().filter(|_| self.viewer.nodes());
        let is_gone = |name: &&String| self.state.nodes.get(*name).is_none_or(|node| node.removed);
        named.filter(is_gone).cloned().collect()
    }

    fn licenses(&self, view: &sched::View) -> Vec<LicenseShortage> {
        let asked = &self.job.spec.request().licenses;
        let used = |name: &String, count: u32| {
            let of = |running: &sched::RunningJob| {
                let held = running.licenses.iter().filter(|(held, _)| held == name);
                (running.job, held.map(|(_, count)| u64::from(*count)).sum::<u64>())
            };
            let mut holders: Vec<(JobId, u64)> =
                view.running.iter().map(|running| of(running)).filter(|h| h.1 > 0).collect();
            holders.sort_by_key(|(job, count)| (std::cmp::Reverse(*count), *job));
            let (named, others, others_amount) = self.holders(&holders);
            let free = view.licenses.iter().find(|(free, _)| free == name);
            LicenseShortage {
                name: name.clone(),
                asked: u64::from(count),
                free: free.map_or(0, |(_, free)| *free),
                holders: named,
                others,
                others_amount,
            }
        };
        asked.iter().map(|(name, count)| used(name, *count)).collect()
    }
}

/// What a job holds on each of its nodes. A search through an allocation goes over its nodes one by one, and a job of many nodes is
/// looked for on each of them.
type NodeShares<'a> = HashMap<&'a str, &'a NodeShare>;

fn node_shares(allocation: Option<&Allocation>) -> NodeShares<'_> {
    let shares = allocation.into_iter().flat_map(|held| &held.nodes);
    shares.map(|share| (share.node.as_str(), share)).collect()
}

/// Whether jobs hold the resource, so that a node may lack it for their sake.
fn is_held_by_jobs(what: &MissingResource) -> bool {
    use MissingResource::{Cpus, Exclusive, Gres, MemoryMib};
    matches!(what, Cpus | MemoryMib | Gres(_) | Exclusive)
}

/// How much of a resource that jobs hold is in a job's share of a node: `None` if nothing of it, zero of what is no amount.
fn held_of(share: Option<&NodeShare>, what: &MissingResource) -> Option<u64> {
    // A job whose last processes are still going has no share to look at, and keeps the node nevertheless.
    let Some(share) = share else { return Some(0) };
    let amount = match what {
        MissingResource::Cpus => u64::from(share.cpus.len()),
        MissingResource::MemoryMib => share.memory.mib(),
        MissingResource::Gres(name) => {
            let of_name = share.gres.iter().filter(|gres| gres.name == *name);
            of_name.map(|gres| gres.count).sum()
        }
        _ => return Some(0),
    };
    (amount > 0).then_some(amount)
}

fn term_job(job: &Job) -> TermJob {
    let limit = job.attempt().and_then(|attempt| attempt.end_limit);
    TermJob {
        job: job.shown_id(),
        id: job.id,
        state: job.state(),
        end: job.ended().map(|ended| ended.end).or(limit),
    }
}

fn partition(view: &sched::View, at: u32) -> String {
    view.partitions.get(at as usize).map(|p| p.partition.name.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::principal::server_principal;
    use crate::testing::user;
    use model::allocation::GresShare;
    use model::amount::Bytes;
    use model::cpuset::CpuSet;
    use model::machine::{FailureKind, HoldCause, SourceHold};

    fn share(node: &str, gpus: u64) -> NodeShare {
        let gpu = GresShare { name: "gpu".into(), kind: None, count: gpus, indices: Vec::new() };
        NodeShare {
            node: node.into(),
            cpus: CpuSet::default(),
            memory: Bytes::from_mib(100),
            gres: vec![gpu],
            tasks: 1,
            sharers: 1,
            disk: Bytes(0),
            price: None,
        }
    }

    #[test]
    fn what_a_source_said_of_its_failure_is_explained_to_operators_alone() {
        let answer = |text: &str| {
            let (kind, until) = (FailureKind::Refused, Some(Timestamp(7)));
            let cause = HoldCause::Failed { kind, text: text.into(), until };
            MachineAnswer::HeldBack(vec![SourceHold { source: "cloud".into(), cause }])
        };
        let (state, said) = (State::default(), "arn:aws:iam::1234 may not");
        assert_eq!(machine_answer(&state, &server_principal(), answer(said)), answer(said));
        assert_eq!(machine_answer(&state, &user(), answer(said)), answer(""));
    }

    #[test]
    fn job_holds_on_each_node_what_its_share_there_has() {
        let nodes = vec![share("n1", 3), share("n2", 0)];
        let allocation = Allocation { partition: "main".into(), nodes };
        let shares = node_shares(Some(&allocation));
        let held = |node: &str, what: &MissingResource| held_of(shares.get(node).copied(), what);
        let gpus = MissingResource::Gres("gpu".into());
        assert_eq!((held("n1", &gpus), held("n2", &gpus)), (Some(3), None));
        assert_eq!(held("n2", &MissingResource::MemoryMib), Some(100));
        assert_eq!(held("n1", &MissingResource::Cpus), None, "it has none of them");
        assert_eq!(held("n1", &MissingResource::Exclusive), Some(0), "that is no amount");
        assert_eq!(held("n3", &gpus), Some(0), "it ends there, and keeps the node until then");
        assert!(node_shares(None).is_empty(), "a job that has ended");
        assert!(is_held_by_jobs(&gpus) && !is_held_by_jobs(&MissingResource::Drained));
    }
}
