//! A trace through the virtual cluster, one instant after another: jobs end, jobs are submitted, a plan is made.

use crate::admission::{self, BeyondLimits};
use crate::error::{SimError, reason_words};
use crate::estimate_error;
use crate::history::{BARS_MAX, Bar, History, Moment};
use crate::job_specs::{JobSpecs, Width};
use crate::job_times::JobTimes;
use crate::kinds;
use crate::machine;
use crate::quiet_moments;
use crate::summary::Summary;
use crate::trace::{Trace, TraceJob};
use crate::virtual_cluster::VirtualCluster;
use crate::waiting_sizes::WaitingSizes;
use cluster::{ClusterConfig, Event};
use model::id::JobId;
use model::preempt::PreemptBy;
use model::reason::Reason;
use model::time::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Range;
use std::time::Duration;

/// Records of ended jobs are purged when there are so many.
const ENDED_MAX: usize = 256;

/// Ticks that are waited for while nothing runs and nothing is submitted any more, before what still waits is given up.
const IDLE_TICKS_MAX: u32 = 1_000;

/// Jobs between two calls of the progress function.
const PROGRESS_STEP: usize = 128;

/// Moments after which it is called all the same: a job may run for a century of moments at which the clock decides something.
const PROGRESS_MOMENTS: usize = 4_096;

/// What is measured beside waits and utilisation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measures {
    /// The error of the start that is expected when a job is submitted: each costs a walk over the queue.
    pub estimates: bool,
    /// What the cluster was like over time.
    pub history: bool,
    /// The waits of short and long, narrow and wide jobs.
    pub kinds: bool,
}

#[derive(Debug, Clone)]
pub struct Outcome {
    pub figures: Summary,
    /// Empty unless it was measured.
    pub history: History,
    /// The jobs that took no part.
    pub beyond: BeyondLimits,
}

/// How far a replay is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Jobs that have ended.
    pub ended: usize,
    /// The virtual time since the first submission.
    pub passed: Duration,
}

/// Replays the trace on a cluster with this configuration, without the jobs that it could never start.
pub fn replay(
    trace: &Trace,
    config: ClusterConfig,
    measures: Measures,
    mut progress: impl FnMut(Progress),
) -> Result<Outcome, SimError> {
    let (trace, beyond) = admission::admitted(trace, &config)?;
    let mut replay = Replay::new(&trace, config)?;
    replay.measures = measures;
    let begin = replay.cluster.now();
    let (mut told, mut moments) = (0, 0);
    while let Some(now) = replay.next_instant() {
        replay.pass(now)?;
        moments += 1;
        if replay.ended >= told + PROGRESS_STEP || moments >= PROGRESS_MOMENTS {
            (told, moments) = (replay.ended, 0);
            progress(Progress { ended: told, passed: now.since(begin) });
        }
    }
    let mut outcome = replay.outcome()?;
    outcome.figures.records_left_out = trace.left_out;
    outcome.figures.jobs_left_out = beyond.jobs;
    Ok(Outcome { beyond, ..outcome })
}

struct Replay<'t> {
    trace: &'t Trace,
    cluster: VirtualCluster,
    specs: JobSpecs,
    /// The id of the trace's first job; the others follow in order.
    first_job: u32,
    /// How many jobs of the trace have been submitted.
    submitted: usize,
    ended: usize,
    /// The ends of attempts: when, the job, and the attempt's number.
    ends: BinaryHeap<Reverse<(Timestamp, JobId, u32)>>,
    /// The start of each job's last attempt.
    starts: Vec<Option<Timestamp>>,
    /// Moments at which the passing of time itself decides something.
    ticks: BTreeSet<Timestamp>,
    /// How often the clock decides something, where the configuration has priorities or preemption that depend on it.
    tick_period: Option<Duration>,
    /// The clock decides something also while no job waits: usage decays.
    ticks_without_queue: bool,
    idle_ticks: u32,
    /// No plan is made where nothing can start: see [`quiet_moments`].
    has_quiet_moments: bool,
    /// The queue is in the order of expansion factors, else in that of submission.
    is_by_expansion: bool,
    /// The last tick that was put off.
    tick_put_off: Option<Timestamp>,
    /// The first job of the queue in the last plan, if that plan started nothing and no job has ended since.
    first_of_quiet_plan: Option<JobId>,
    /// Jobs ask for nodes of one processor: any of them serves.
    are_nodes_alike: bool,
    waiting: WaitingSizes,
    processors: u64,
    /// CPUs times milliseconds that jobs held.
    cpu_ms: u128,
    measures: Measures,
    /// Jobs that waited when they were submitted, by their position, and when they were expected to start.
    expected: Vec<(usize, Timestamp)>,
    busy_processors: u64,
    history: History,
}

impl<'t> Replay<'t> {
    fn new(trace: &'t Trace, config: ClusterConfig) -> Result<Self, SimError> {
        let first_submit = trace.jobs.first().ok_or(SimError::Empty)?.submit_s;
        let parameters = &config.parameters;
        let by_time = parameters.priority.is_computed()
            || parameters.preempt.by != PreemptBy::Nothing
            || parameters.requeue_wait_s > 0;
        let ticks_without_queue = !parameters.priority.expansion;
        let period = Duration::from_secs(parameters.priority.calc_period_s.max(1));
        let width = Width::on(&config);
        let partitions = machine::partitions_of(trace, &config);
        let processors = machine::processors(&config, &partitions);
        // What is free is counted for all jobs alike.
        let has_quiet_moments =
            partitions.len() == 1 && quiet_moments::are_possible(trace, &config);
        let is_by_expansion = config.parameters.priority.expansion;
        let nodes = config.nodes.iter().map(|node| node.name.clone()).collect();
        let history = History { processors, nodes, ..History::default() };
        let begin = Timestamp::from_secs(trace.epoch_s + first_submit);
        let cluster = VirtualCluster::new(config, begin).map_err(SimError::configuration)?;
        Ok(Self {
            first_job: cluster.state().next_job,
            trace,
            cluster,
            specs: JobSpecs::new(width, &trace.partitions),
            submitted: 0,
            ended: 0,
            ends: BinaryHeap::new(),
            starts: vec![None; trace.jobs.len()],
            ticks: BTreeSet::new(),
            tick_period: by_time.then_some(period),
            ticks_without_queue,
            idle_ticks: 0,
            has_quiet_moments,
            is_by_expansion,
            tick_put_off: None,
            first_of_quiet_plan: None,
            are_nodes_alike: width == Width::Nodes,
            waiting: WaitingSizes::default(),
            processors,
            cpu_ms: 0,
            measures: Measures::default(),
            expected: Vec::new(),
            busy_processors: 0,
            history,
        })
    }

    fn submit_time(&self, job: &TraceJob) -> Timestamp {
        Timestamp::from_secs(self.trace.epoch_s + job.submit_s)
    }

    /// The position of a job in the trace.
    fn index(&self, job: JobId) -> usize {
        (job.0 - self.first_job) as usize
    }

    /// The next moment at which something happens; `None` when nothing does any more.
    fn next_instant(&self) -> Option<Timestamp> {
        let end = self.ends.peek().map(|Reverse((time, ..))| *time);
        let submit = self.trace.jobs.get(self.submitted).map(|job| self.submit_time(job));
        let is_idle = end.is_none() && submit.is_none();
        let may_tick = !is_idle
            || (!self.cluster.state().queue.is_empty() && self.idle_ticks < IDLE_TICKS_MAX);
        let tick = self.ticks.first().copied().filter(|_| may_tick);
        [end, submit, tick].into_iter().flatten().min()
    }

    /// Takes the replay through this moment.
    fn pass(&mut self, now: Timestamp) -> Result<(), SimError> {
        if !self.is_quiet_tick(now) {
            return self.step(now);
        }
        self.ticks.clear();
        self.tick_put_off = Some(now);
        self.note_moment(now);
        self.set_next_tick(now);
        Ok(())
    }

    /// Whether nothing but a tick happens now, and nothing would start.
    fn is_quiet_tick(&self, now: Timestamp) -> bool {
        let ends = self.ends.peek().is_some_and(|Reverse((time, ..))| *time <= now);
        let next = self.trace.jobs.get(self.submitted);
        let comes = next.is_some_and(|job| self.submit_time(job) <= now);
        let runs = !self.cluster.state().active.is_empty();
        runs && !ends && !comes && self.starts_nothing(self.cluster.period_end_after(now))
    }

    /// Whether a plan would start nothing of what has waited, with priorities as of the end of this period: all ask for more than is
    /// free, or the last plan started nothing and the same job is first in the queue.
    fn starts_nothing(&self, period_end: Option<Timestamp>) -> bool {
        if !self.has_quiet_moments {
            return false;
        }
        let free = self.free_processors();
        let fits = self.waiting.narrowest().is_some_and(|least| u64::from(least) <= free);
        let first = self.first_of_quiet_plan;
        !fits || (first.is_some() && first == self.first_in_queue(period_end))
    }

    fn free_processors(&self) -> u64 {
        self.processors.saturating_sub(self.busy_processors)
    }

    fn first_in_queue(&self, period_end: Option<Timestamp>) -> Option<JobId> {
        if self.is_by_expansion {
            return self.cluster.first_in_queue(period_end);
        }
        self.cluster.state().queue.first().copied()
    }

    fn step(&mut self, now: Timestamp) -> Result<(), SimError> {
        self.catch_up()?;
        self.cluster.advance_to(now);
        self.end_jobs(now)?;
        let first_new = self.submitted;
        let may_start = self.submit_jobs(now)?;
        self.tick(now)?;
        if may_start || !self.starts_nothing(self.cluster.state().charged_usage.as_of) {
            self.plan()?;
        }
        if self.measures.estimates {
            self.expect(first_new..self.submitted);
        }
        self.note_moment(now);
        self.set_next_tick(now);
        Ok(())
    }

    /// Whether the job, which comes now, cannot start where nothing else can.
    fn asks_too_much(&self, job: &TraceJob) -> bool {
        u64::from(job.processors) > self.free_processors()
            || (self.are_nodes_alike && self.waiting.has_one_within(job))
    }

    fn plan(&mut self) -> Result<(), SimError> {
        let happened = self.cluster.plan().map_err(SimError::plan)?;
        self.take_in(&happened);
        let is_quiet = happened.is_empty() && self.has_quiet_moments;
        let first = || self.first_in_queue(self.cluster.state().charged_usage.as_of);
        self.first_of_quiet_plan = is_quiet.then(first).flatten();
        Ok(())
    }

    /// Carries out the last tick that was put off. Those before it would have decided the same.
    fn catch_up(&mut self) -> Result<(), SimError> {
        if let Some(tick) = self.tick_put_off.take() {
            self.cluster.advance_to(tick);
            let happened = self.cluster.tick().map_err(SimError::plan)?;
            self.take_in(&happened);
        }
        Ok(())
    }

    fn note_moment(&mut self, now: Timestamp) {
        if self.measures.history {
            let busy_processors = self.busy_processors;
            let waiting_jobs = self.cluster.state().queue.len() as u64;
            self.history.moments.push(Moment { time: now, busy_processors, waiting_jobs });
        }
    }

    /// Notes when these jobs are expected to start, if they wait.
    fn expect(&mut self, jobs: Range<usize>) {
        for index in jobs.filter(|index| self.starts[*index].is_none()).collect::<Vec<_>>() {
            let job = JobId(self.first_job + index as u32);
            let start = self.cluster.expected_start(job);
            self.expected.extend(start.map(|start| (index, start)));
        }
    }

    fn end_jobs(&mut self, now: Timestamp) -> Result<(), SimError> {
        while let Some(&Reverse((time, job, attempt))) = self.ends.peek() {
            if time > now {
                break;
            }
            self.ends.pop();
            let held = self.cluster.state().job(job).and_then(|job| job.attempt());
            let draws = self.measures.history && self.trace.jobs.len() <= BARS_MAX;
            let nodes = held.filter(|_| draws).map(|held| held.held_nodes.clone());
            let held = held.map(|held| (held.start, held.allocation.cpu_count()));
            let TraceJob { line, is_cut, .. } = self.trace.jobs[self.index(job)];
            if !self.cluster.end(job, attempt, is_cut).map_err(SimError::plan)? {
                continue;
            }
            self.first_of_quiet_plan = None;
            if let Some((start, cpus)) = held {
                self.cpu_ms += now.since(start).as_millis() * u128::from(cpus);
                self.busy_processors -= u64::from(cpus);
                self.history.bars.extend(nodes.map(|nodes| Bar { line, start, end: now, nodes }));
            }
            let waits_again = self.cluster.state().job(job).is_some_and(|job| job.is_waiting());
            self.ended += usize::from(!waits_again);
        }
        Ok(())
    }

    /// Returns whether one of the jobs that come now may start, though nothing else can.
    fn submit_jobs(&mut self, now: Timestamp) -> Result<bool, SimError> {
        let trace = self.trace;
        let mut may_start = false;
        while let Some(job) = trace.jobs.get(self.submitted) {
            if self.submit_time(job) > now {
                break;
            }
            let submit = self.specs.submit(job);
            let refused = |refusal| SimError::refused(trace, job, refusal);
            let id = self.cluster.submit(submit).map_err(refused)?;
            debug_assert_eq!(self.index(id), self.submitted, "ids follow the trace");
            self.submitted += 1;
            may_start |= !self.asks_too_much(job);
            self.waiting.add(job);
        }
        Ok(may_start)
    }

    fn tick(&mut self, now: Timestamp) -> Result<(), SimError> {
        let is_due = self.ticks.first().is_some_and(|due| *due <= now);
        if is_due || self.cluster.state().ended.len() >= ENDED_MAX {
            self.ticks = self.ticks.split_off(&(now + Duration::from_millis(1)));
            let happened = self.cluster.tick().map_err(SimError::plan)?;
            self.take_in(&happened);
        }
        Ok(())
    }

    /// While jobs wait or run, the clock goes on deciding.
    fn set_next_tick(&mut self, now: Timestamp) {
        let state = self.cluster.state();
        if let Some(period) = self.tick_period
            && self.ticks.is_empty()
            && (!state.queue.is_empty() || (self.ticks_without_queue && !state.active.is_empty()))
        {
            self.ticks.insert(now + period);
        }
        self.idle_ticks = if state.active.is_empty() { self.idle_ticks + 1 } else { 0 };
    }

    /// Plays the nodes: what starts ends after its run time, and what is told to end does so at once.
    fn take_in(&mut self, happened: &[Event]) {
        let now = self.cluster.now();
        for event in happened {
            match event {
                Event::Started(started) => {
                    let index = self.index(started.attempt.job);
                    self.starts[index] = Some(now);
                    self.waiting.remove(&self.trace.jobs[index]);
                    self.busy_processors += u64::from(started.allocation.cpu_count());
                    let run = Duration::from_secs(self.trace.jobs[index].run_s.into());
                    let attempt = started.attempt;
                    self.ends.push(Reverse((now + run, attempt.job, attempt.number)));
                }
                Event::Ending { job, .. } => {
                    let attempt = self.cluster.state().job(*job).and_then(|job| job.attempt_id());
                    let end = attempt.map(|attempt| Reverse((now, *job, attempt.number)));
                    self.ends.extend(end);
                }
                Event::PreemptionGraceStarted { leaving, .. } => {
                    self.ticks.insert(leaving.until);
                }
                _ => {}
            }
        }
    }

    fn outcome(mut self) -> Result<Outcome, SimError> {
        let waiting = self.cluster.state().queue.first().copied();
        if let Some(job) = waiting {
            let place = self.trace.place(&self.trace.jobs[self.index(job)]);
            let reason = self.cluster.reason(job).unwrap_or(Reason::Resources);
            return Err(SimError::NeverStarts { place, why: reason_words(&reason) });
        }
        let times = self.trace.jobs.iter().zip(&self.starts).map(|(job, start)| {
            let submit = self.submit_time(job);
            let wait = start.map_or(Duration::ZERO, |start| start.since(submit));
            JobTimes { wait_s: wait.as_secs_f64(), run_s: f64::from(job.run_s) }
        });
        let times: Vec<JobTimes> = times.collect();
        let begin = self.trace.jobs.first().map_or(self.cluster.now(), |job| self.submit_time(job));
        let there = self.cluster.now().since(begin).as_millis() * u128::from(self.processors);
        let figures = Summary::of(&times, self.cpu_ms as f64 / there.max(1) as f64);
        let estimate_errors = estimate_error::by_size(&self.errors());
        if self.measures.history {
            let submits = self.trace.jobs.iter().map(|job| self.submit_time(job));
            self.history.waits = submits.zip(times.iter().map(|job| job.wait_s)).collect();
        }
        let processors = self.trace.jobs.iter().map(|job| job.processors);
        let sized = || processors.clone().zip(times.iter().copied()).collect::<Vec<_>>();
        let kinds = if self.measures.kinds { kinds::by_kind(&sized()) } else { Vec::new() };
        let figures = Summary { estimate_errors, kinds, ..figures };
        Ok(Outcome { figures, history: self.history, beyond: BeyondLimits::default() })
    }

    /// The processors of each job with an estimate, and the estimate's error in seconds.
    fn errors(&self) -> Vec<(u32, f64)> {
        let error = |(index, expected): &(usize, Timestamp)| {
            let start = self.starts[*index]?;
            let error = start.since(*expected).max(expected.since(start));
            Some((self.trace.jobs[*index].processors, error.as_secs_f64()))
        };
        self.expected.iter().filter_map(error).collect()
    }
}

#[cfg(test)]
mod site_tests;
#[cfg(test)]
mod tests;
