//! Whether a job's dependency is met, by the records of the jobs that it names.

use crate::state::State;
use crate::state::job::{Job, Phase};
use crate::visibility::Viewer;
use foldhash::fast::RandomState;
use model::array::IndexSet;
use model::dependency::{
    DependencyJob, DependencyKind, DependencyState, DependencyTask, DependencyTerm, Join,
};
use model::id::JobId;
use model::private_data::PrivateKind;
use model::run::{LaunchKind, Outcome};
use model::time::Timestamp;
use sched::view::AwaitedEvent;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The state of the job's whole dependency, where one job alone is asked for.
pub fn state_of(state: &State, job: &Job, now: Timestamp) -> DependencyState {
    Dependencies::new(state, now).state_of(job)
}

/// The dependencies of jobs in one look at the state. What is known of a job that others wait for is worked out once, however
/// many wait for it and whatever for: thousands of jobs behind one large array cost no more than its records.
pub struct Dependencies<'a> {
    state: &'a State,
    now: Timestamp,
    /// Whether jobs are private: a target that its owner is not shown counts as if there were none.
    hides_jobs: bool,
    targets: RefCell<HashMap<DependencyJob, TargetRecords, RandomState>>,
    /// The jobs of a target that have not ended, or have not started; no more than are told of.
    alive: RefCell<HashMap<DependencyJob, Rc<[JobId]>, RandomState>>,
    /// Whether a user is shown a job.
    shown_targets: RefCell<HashMap<(u32, JobId), bool, RandomState>>,
    /// How many more events are told of that jobs wait for.
    awaited_left: Cell<usize>,
    /// The jobs of each user and name that have not ended, the earliest first.
    namesakes: OnceCell<HashMap<u32, JobsByName<'a>, RandomState>>,
}

type JobsByName<'a> = HashMap<&'a str, Vec<&'a Job>, RandomState>;

/// What dependencies ask of the records of a job, an array or one of its tasks.
#[derive(Clone, Copy, Default)]
struct TargetRecords {
    some_wait: bool,
    some_run: bool,
    some_succeeded: bool,
    some_failed: bool,
    /// The latest start of those that have one.
    last_start: Option<Timestamp>,
    /// A task was cancelled before it had a record of its own.
    was_cancelled: bool,
    /// It is a task of dstack's with several groups.
    has_groups: bool,
}

impl TargetRecords {
    fn of(state: &State, target: DependencyJob) -> Self {
        let mut all = Self {
            was_cancelled: was_cancelled(state, target.id, target.task),
            has_groups: groups_of_task(state, JobId(target.id)).next().is_some(),
            ..Self::default()
        };
        records(state, target.id, target.task).into_iter().for_each(|job| all.add(job));
        all
    }

    fn of_one(job: &Job) -> Self {
        let mut one = Self::default();
        one.add(job);
        one
    }

    fn add(&mut self, job: &Job) {
        let start = match &job.phase {
            Phase::Waiting => {
                self.some_wait = true;
                None
            }
            Phase::Active(attempt) => {
                self.some_run = true;
                Some(attempt.start)
            }
            Phase::Ended(ended) => {
                let succeeded = ended.outcome == Outcome::Completed;
                self.some_succeeded |= succeeded;
                self.some_failed |= !succeeded;
                Some(ended.start.unwrap_or(ended.end))
            }
        };
        self.last_start = self.last_start.max(start);
    }

    /// The worst over every record, where `fails` says that one of them can never be as it is wanted.
    fn ended(self, fails: bool) -> DependencyState {
        if fails {
            DependencyState::Failed
        } else if self.some_wait || self.some_run {
            DependencyState::Unfulfilled
        } else {
            DependencyState::Fulfilled
        }
    }

    /// A job without a record counts as it is wanted, as in Slurm.
    fn is_as(self, kind: DependencyKind, now: Timestamp) -> DependencyState {
        match kind {
            DependencyKind::After { minutes } => {
                let wait = Duration::from_secs(60 * u64::from(minutes));
                let is_late = self.last_start.is_none_or(|start| start + wait <= now);
                if is_late && !self.some_wait {
                    DependencyState::Fulfilled
                } else {
                    DependencyState::Unfulfilled
                }
            }
            DependencyKind::AfterAny | DependencyKind::AfterBurstBuffer => self.ended(false),
            DependencyKind::AfterOk => self.ended(self.some_failed || self.was_cancelled),
            DependencyKind::AfterCorr => self.ended(self.some_failed),
            // One group has failed: so has the run, once all have ended.
            DependencyKind::AfterNotOk if self.has_groups && self.some_failed => self.ended(false),
            DependencyKind::AfterNotOk if self.has_groups => {
                let all_succeeded = !self.some_wait && !self.some_run;
                if all_succeeded { DependencyState::Failed } else { DependencyState::Unfulfilled }
            }
            DependencyKind::AfterNotOk => self.ended(self.some_succeeded),
            DependencyKind::Singleton => DependencyState::Fulfilled,
        }
    }
}

impl<'a> Dependencies<'a> {
    pub fn new(state: &'a State, now: Timestamp) -> Self {
        let (targets, shown_targets, alive) = Default::default();
        let (awaited_left, namesakes) = (Cell::new(AWAITED_IN_ALL_MAX), OnceCell::new());
        let hides_jobs = state.config.parameters.private_data.hides(PrivateKind::Jobs);
        Self { state, now, hides_jobs, targets, alive, shown_targets, awaited_left, namesakes }
    }

    /// The state of the job's whole dependency. An array with `aftercorr` is ready as soon as one of its tasks is.
    pub fn state_of(&self, job: &Job) -> DependencyState {
        match &job.spec.dependency {
            None => DependencyState::Fulfilled,
            Some(dependency) => dependency.state(|term| self.term_state(job, term)),
        }
    }

    /// The first of these tasks of the array that may start.
    pub fn first_ready(&self, job: &Job, pending: &IndexSet) -> Option<u32> {
        self.ready(job, pending).next()
    }

    /// How many of the array's pending tasks the dependency lets start.
    pub fn tasks_ready(&self, job: &Job, pending: &IndexSet) -> u64 {
        if has_corresponding(job) { self.ready(job, pending).count() as u64 } else { pending.len() }
    }

    /// `aftercorr` waits for the task of the same index; the other terms are the same for all tasks.
    fn ready(&self, job: &Job, pending: &IndexSet) -> impl Iterator<Item = u32> {
        let dependency = job.spec.dependency.as_deref();
        let terms = dependency.map(|d| d.terms.as_slice()).unwrap_or_default();
        let of_all: Vec<Option<DependencyState>> = terms
            .iter()
            .map(|term| match term.job {
                Some(target)
                    if term.kind == DependencyKind::AfterCorr
                        && self.shows_target(job, JobId(target.id)) =>
                {
                    None
                }
                Some(_) if term.kind == DependencyKind::AfterCorr => {
                    Some(DependencyState::Fulfilled)
                }
                _ => Some(self.term_state(job, term)),
            })
            .collect();
        pending.iter().filter(move |index| {
            let mut known = of_all.iter();
            dependency.is_none_or(|dependency| {
                let current = dependency.state(|term| {
                    let of_all = known.next().copied().flatten();
                    of_all.unwrap_or_else(|| self.corresponding(term, *index))
                });
                current == DependencyState::Fulfilled
            })
        })
    }

    /// squeue's `%E`: the terms that are not met.
    pub fn shown(&self, job: &Job) -> Option<String> {
        let dependency = job.spec.dependency.as_ref().filter(|_| job.is_waiting())?;
        let text = dependency.display_with(SHOWN_TERMS_MAX, |term| {
            let state = self.term_state(job, term);
            let mut written = *term;
            if let Some(target) = written.job.as_mut()
                && target.task == DependencyTask::Whole
                && state != DependencyState::Fulfilled
                // An array is shown as all of its tasks.
                && of_array(self.state, JobId(target.id)).is_some()
                && self.shows_target(job, JobId(target.id))
            {
                target.task = DependencyTask::All;
            }
            (state, written)
        });
        (!text.is_empty()).then_some(text)
    }

    fn shows_target(&self, job: &Job, id: JobId) -> bool {
        if !self.hides_jobs {
            return true;
        }
        let mut known = self.shown_targets.borrow_mut();
        *known.entry((job.spec.owner.uid, id)).or_insert_with(|| shows_target(self.state, job, id))
    }

    fn term_state(&self, job: &Job, term: &DependencyTerm) -> DependencyState {
        let Some(target) = term.job else { return self.singleton(job) };
        if !self.shows_target(job, JobId(target.id)) {
            return DependencyState::Fulfilled;
        }
        match (term.kind, &job.pending, job.task) {
            (DependencyKind::AfterCorr, Some(pending), _) => {
                self.corresponding_any(term, pending.indices.iter())
            }
            (DependencyKind::AfterCorr, None, Some(task)) => self.corresponding(term, task.index),
            _ => self.target(target).is_as(term.kind, self.now),
        }
    }

    fn target(&self, target: DependencyJob) -> TargetRecords {
        let mut known = self.targets.borrow_mut();
        *known.entry(target).or_insert_with(|| TargetRecords::of(self.state, target))
    }

    /// Whether the task of the same index has ended well. One that has no record counts as if it had.
    fn corresponding(&self, term: &DependencyTerm, index: u32) -> DependencyState {
        let Some(target) = term.job else { return DependencyState::Fulfilled };
        let task = DependencyJob { task: DependencyTask::Task(index), ..target };
        self.target(task).is_as(DependencyKind::AfterOk, self.now)
    }

    fn corresponding_any(
        &self,
        term: &DependencyTerm,
        indices: impl Iterator<Item = u32>,
    ) -> DependencyState {
        let mut all_failed = true;
        for index in indices {
            match self.corresponding(term, index) {
                DependencyState::Fulfilled => return DependencyState::Fulfilled,
                DependencyState::Unfulfilled => all_failed = false,
                DependencyState::Failed => {}
            }
        }
        if all_failed { DependencyState::Failed } else { DependencyState::Unfulfilled }
    }

    /// The records of a target that something can still happen to: that those behind it wait for.
    fn alive(&self, target: DependencyJob) -> Rc<[JobId]> {
        let mut known = self.alive.borrow_mut();
        let found = known.entry(target).or_insert_with(|| {
            let all = records(self.state, target.id, target.task).into_iter();
            all.filter(|job| !job.has_ended()).take(AWAITED_MAX + 1).map(|job| job.id).collect()
        });
        found.clone()
    }

    fn singleton(&self, job: &Job) -> DependencyState {
        let busy = self.namesakes(job).next().is_some();
        if busy { DependencyState::Unfulfilled } else { DependencyState::Fulfilled }
    }

    /// The owner's earlier jobs of the same name that have not ended.
    fn namesakes<'s>(&'s self, job: &Job) -> impl Iterator<Item = &'a Job> + use<'s, 'a> {
        let all = self.namesakes.get_or_init(|| {
            let mut all: HashMap<u32, JobsByName<'_>, RandomState> = HashMap::default();
            for job in self.state.jobs.values().filter(|job| !job.has_ended()) {
                let of_user = all.entry(job.spec.owner.uid).or_default();
                of_user.entry(&job.spec.name).or_default().push(job);
            }
            let lists = all.values_mut().flat_map(HashMap::values_mut);
            lists.for_each(|jobs| jobs.sort_by_key(|job| age(job)));
            all
        });
        let of_user = all.get(&job.spec.owner.uid);
        let jobs = of_user.and_then(|names| names.get(&*job.spec.name)).map(Vec::as_slice);
        let jobs = jobs.unwrap_or_default();
        let earlier = &jobs[..jobs.partition_point(|other| age(other) < age(job))];
        let first = job.het.map(|of| of.first);
        let apart =
            move |other: &&Job| other.het.is_none() || other.het.map(|of| of.first) != first;
        earlier.iter().copied().filter(apart)
    }

    /// The terms of the job's dependency that are not met.
    pub fn unmet_terms(&self, job: &Job) -> Vec<UnmetTerm<'a>> {
        let terms = job.spec.dependency.iter().flat_map(|dependency| &dependency.terms);
        let open = terms.filter_map(|term| {
            let current = self.term_state(job, term);
            let jobs = || {
                let mut jobs: Vec<&'a Job> = match term.job {
                    Some(target) => self.term_records(job, term.kind, target),
                    None => self.namesakes(job).collect(),
                };
                jobs.sort_by_key(|one| {
                    match TargetRecords::of_one(one).is_as(term.kind, self.now) {
                        of_one if of_one == current => 0,
                        DependencyState::Failed | DependencyState::Unfulfilled => 1,
                        DependencyState::Fulfilled => 2,
                    }
                });
                jobs
            };
            (current != DependencyState::Fulfilled).then(|| UnmetTerm {
                term: *term,
                state: current,
                jobs: jobs(),
            })
        });
        open.collect()
    }

    /// The records that a term is about: of `aftercorr`, the tasks of the job's own indices.
    fn term_records(&self, job: &Job, kind: DependencyKind, target: DependencyJob) -> Vec<&'a Job> {
        let of = |task| records(self.state, target.id, task);
        match (kind, &job.pending, job.task) {
            (DependencyKind::AfterCorr, Some(pending), _) => {
                let mut all = of(DependencyTask::All);
                all.retain(|record| match (record.task, &record.pending) {
                    (Some(task), _) => pending.indices.contains(task.index),
                    (None, Some(own)) => own.indices.intersects(&pending.indices),
                    (None, None) => false,
                });
                all
            }
            (DependencyKind::AfterCorr, None, Some(task)) => of(DependencyTask::Task(task.index)),
            _ => of(target.task),
        }
    }

    /// The events that must happen before the dependency is met, if no job fails; and whether one of them is enough. Empty if
    /// the dependency waits for a failure, or for too many.
    pub fn awaited_events(&self, job: &Job) -> (Vec<AwaitedEvent>, bool) {
        let any = job.spec.dependency.as_ref().is_some_and(|d| d.join == Join::Any);
        let mut awaits = Vec::new();
        let terms = job.spec.dependency.iter().flat_map(|dependency| &dependency.terms);
        for term in terms {
            match (self.term_state(job, term), term.kind) {
                (DependencyState::Fulfilled | DependencyState::Failed, _) => continue,
                // A failure cannot be predicted.
                (_, DependencyKind::AfterNotOk) if any => continue,
                (_, DependencyKind::AfterNotOk) => return (Vec::new(), false),
                _ => {}
            }
            let most = AWAITED_MAX.min(self.awaited_left.get());
            let room = (most + 1).saturating_sub(awaits.len());
            let jobs: Rc<[JobId]> = match term.job {
                _ if room == 0 => Rc::new([]),
                Some(target) => self.alive(target),
                None => self.namesakes(job).take(room).map(|job| job.id).collect(),
            };
            let event = |job: &JobId| match term.kind {
                DependencyKind::After { minutes } => AwaitedEvent::StartOf { job: *job, minutes },
                _ => AwaitedEvent::EndOf(*job),
            };
            awaits.extend(jobs.iter().take(room).map(event));
            if awaits.len() > most {
                return (Vec::new(), false);
            }
        }
        self.awaited_left.set(self.awaited_left.get() - awaits.len());
        (awaits, any)
    }
}

/// Whether some tasks of the array may be let start before others.
fn has_corresponding(job: &Job) -> bool {
    let mut terms = job.spec.dependency.iter().flat_map(|d| &d.terms);
    terms.any(|term| term.kind == DependencyKind::AfterCorr)
}

/// A task is as old as its array, whatever its own id.
fn age(job: &Job) -> JobId {
    job.task.map_or(job.id, |task| task.array)
}

/// Whether the owner of a job is shown the job or array that it depends on. One that is hidden counts as if there were none,
/// so that what becomes of the dependency tells nothing of it.
pub fn shows_target(state: &State, job: &Job, id: JobId) -> bool {
    let viewer = Viewer::new(state, &job.spec.owner);
    if !viewer.is_denied(PrivateKind::Jobs) {
        return true;
    }
    let tasks = state.arrays.get(&id).into_iter().flat_map(|tasks| tasks.values());
    let records = tasks.chain([&id]).filter_map(|id| state.job(*id));
    records.into_iter().all(|record| viewer.job(record))
}

/// The jobs that the dependency names and that are not known: it counts as met by them. They may have been forgotten since they
/// ended, or never have been there. One that is hidden from the job's owner is among them.
pub fn unknown_targets(state: &State, job: &Job) -> impl Iterator<Item = DependencyJob> {
    let terms = job.spec.dependency.iter().flat_map(|dependency| &dependency.terms);
    let targets = terms.take(SHOWN_TERMS_MAX).filter_map(|term| term.job);
    targets.filter(move |target| {
        !is_known(state, *target) || !shows_target(state, job, JobId(target.id))
    })
}

fn is_known(state: &State, target: DependencyJob) -> bool {
    let id = JobId(target.id);
    match target.task {
        DependencyTask::Whole | DependencyTask::All => {
            state.jobs.contains_key(&id) || state.arrays.contains_key(&id)
        }
        task @ DependencyTask::Task(_) => {
            !records(state, target.id, task).is_empty() || was_cancelled(state, target.id, task)
        }
    }
}

fn records(state: &State, id: u32, task: DependencyTask) -> Vec<&Job> {
    let id = JobId(id);
    match task {
        DependencyTask::Task(index) => match state.task_job(id, index) {
            Some(job) => vec![job],
            // The task has no record of its own: it is in the array's, pending or cancelled.
            None => state.job(id).filter(|j| has_pending_task(j, index)).into_iter().collect(),
        },
        DependencyTask::Whole | DependencyTask::All => {
            let of_array = state.array_jobs(id);
            let alone = state.jobs.get(&id).filter(|_| of_array.is_empty());
            let named = of_array.into_iter().chain(alone).map(Arc::as_ref);
            named.chain(groups_of_task(state, id)).collect()
        }
    }
}

/// The other groups of the task whose first is this job: all of them are the run that it names.
fn groups_of_task(state: &State, first: JobId) -> impl Iterator<Item = &Job> {
    let task = state.job(first).filter(|job| job.spec.launch.kind == LaunchKind::Task);
    let het = task.and_then(|job| job.het).filter(|het| het.is_leader());
    let others = het.into_iter().flat_map(|het| het.jobs().skip(1));
    others.filter_map(|id| state.job(id))
}

/// A record of the array with this id; `None` if the id is no array's.
fn of_array(state: &State, id: JobId) -> Option<&Job> {
    let task = || state.arrays.get(&id)?.values().next().and_then(|task| state.job(*task));
    state.job(id).filter(|job| job.pending.is_some()).or_else(task)
}

/// Whether the task, or one of the array's, was cancelled before it had a record of its own.
fn was_cancelled(state: &State, id: u32, task: DependencyTask) -> bool {
    let known = of_array(state, JobId(id));
    let Some(run) = known.and_then(|job| state.runs.get(&job.run)) else { return false };
    match task {
        DependencyTask::Task(index) => run.cancelled.contains(index),
        DependencyTask::Whole | DependencyTask::All => !run.cancelled.is_empty(),
    }
}

fn has_pending_task(job: &Job, index: u32) -> bool {
    job.pending.as_ref().is_some_and(|p| p.indices.contains(index))
}

/// A term that is not met, with the records of the jobs that it names.
pub struct UnmetTerm<'a> {
    pub term: DependencyTerm,
    pub state: DependencyState,
    /// First those that keep it from being met. Empty if no such job is known, or where the task was cancelled before it had
    /// a record.
    pub jobs: Vec<&'a Job>,
}

/// The terms of a dependency that lists show; `sluice explain` and `scontrol` are read by people too.
const SHOWN_TERMS_MAX: usize = 100;

/// The most jobs that are considered for the estimate of one that depends on them, and for the estimates of all.
const AWAITED_MAX: usize = 1_000;
const AWAITED_IN_ALL_MAX: usize = 200_000;

/// The ends of the running tasks of the job's array: one must end before a throttled task starts.
pub fn own_tasks(state: &State, job: &Job) -> Vec<AwaitedEvent> {
    let array = job.task.map_or(job.id, |task| task.array);
    let tasks = state.arrays.get(&array).into_iter().flat_map(|tasks| tasks.values());
    let active = tasks.filter(|id| state.active.contains(id));
    active.take(AWAITED_MAX).map(|id| AwaitedEvent::EndOf(*id)).collect()
}

/// Jobs that a waiting job depends on: their records must not be purged yet.
pub fn awaited(state: &State) -> HashSet<JobId, RandomState> {
    let waiting = state.jobs.values().filter(|j| j.is_waiting());
    let terms = waiting.filter_map(|j| j.spec.dependency.as_ref()).flat_map(|d| &d.terms);
    terms.filter_map(|t| t.job.map(|j| JobId(j.id))).collect()
}
