//! A trace through the virtual cluster, one instant after another: jobs end, jobs are submitted, a plan is made.

use crate::error::SimError;
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
}

/// Replays the trace on a cluster with this configuration. `progress` is told how many jobs have ended.
pub fn replay(
    trace: &Trace,
    config: ClusterConfig,
    measures: Measures,
    mut progress: impl FnMut(usize),
) -> Result<Outcome, SimError> {
    let mut replay = Replay::new(trace, config)?;
    replay.measures = measures;
    let mut told = 0;
    while let Some(now) = replay.next_instant() {
        replay.pass(now)?;
        if replay.ended >= told + PROGRESS_STEP {
            told = replay.ended;
            progress(told);
        }
    }
    replay.outcome()
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
        let width = if config.nodes.iter().all(|node| node.cpus == 1) {
            Width::Nodes
        } else {
            Width::Tasks
        };
        let processors = machine::processors(&config);
        let has_quiet_moments = quiet_moments::are_possible(trace, &config);
        let is_by_expansion = config.parameters.priority.expansion;
        let nodes = config.nodes.iter().map(|node| node.name.clone()).collect();
        let history = History { processors, nodes, ..History::default() };
        let begin = Timestamp::from_secs(trace.epoch_s + first_submit);
        let cluster = VirtualCluster::new(config, begin).map_err(SimError::configuration)?;
        Ok(Self {
            first_job: cluster.state().next_job,
            trace,
            cluster,
            specs: JobSpecs::new(width),
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
            let refused =
                |refusal| SimError::Refused { line: job.line, refusal: Box::new(refusal) };
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
            let line = self.trace.jobs[self.index(job)].line;
            let reason = self.cluster.reason(job).map(Box::new);
            return Err(SimError::NeverStarts { line, reason });
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
        Ok(Outcome { figures, history: self.history })
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
mod tests {
    use super::*;
    use crate::estimate_error::EstimateError;
    use crate::machine::single_processor_nodes;
    use crate::policy::Policy;

    /// Submit, run, processors, estimate; times in seconds.
    type Job = (i64, u32, u32, u32);

    fn trace(jobs: &[Job]) -> Trace {
        let job = |(line, &(submit_s, run_s, processors, estimate_s)): (usize, &Job)| TraceJob {
            line: line as u64 + 1,
            submit_s,
            run_s,
            is_cut: false,
            processors,
            estimate_s,
            user: 1,
        };
        let jobs = jobs.iter().enumerate().map(job).collect();
        Trace { jobs, processors: Some(4), epoch_s: 0, left_out: 0 }
    }

    fn starts(trace: &Trace, config: ClusterConfig) -> Vec<i64> {
        starts_of(Replay::new(trace, config).expect("a replay"))
    }

    fn starts_of(mut replay: Replay<'_>) -> Vec<i64> {
        while let Some(now) = replay.next_instant() {
            replay.pass(now).expect("a moment");
        }
        assert_eq!(replay.ended, replay.trace.jobs.len());
        replay.starts.iter().map(|start| start.expect("all start").secs()).collect()
    }

    /// Four processors and five jobs; what follows is worked out by hand.
    ///
    /// 1. Two processors from 0; expected to end at 100, and does at 80.
    /// 2. Three processors for 100 s, from 1: the first that waits, expected to start at 100.
    /// 3. All four for 50 s, from 2: waits behind job 2, expected to start at 200.
    /// 4. One for 250 s, from 3: beside job 2 there is room for it, but it would delay job 3.
    /// 5. One for 50 s, from 4: done before job 2 needs anything.
    fn five_jobs() -> Trace {
        trace(&[
            (0, 80, 2, 100),
            (1, 100, 3, 100),
            (2, 50, 4, 50),
            (3, 250, 1, 250),
            (4, 50, 1, 50),
        ])
    }

    /// In order: job 2 when job 1 has ended, job 3 when job 2 has, jobs 4 and 5 when job 3 has.
    #[test]
    fn five_jobs_in_order_start_when_worked_out_by_hand() {
        let config = single_processor_nodes(4, Policy::Fcfs);
        assert_eq!(starts(&five_jobs(), config), [0, 80, 180, 230, 230]);
    }

    /// All five take all four processors, one after another. Priorities are worked out at 70, 130 and so on, each minute from
    /// when the first job waits.
    ///
    /// 1. From 0 to 1000.
    /// 2. Has waited for 960 s at 970, with a limit of 6000: an expansion factor of 1.16.
    /// 3. Has waited for 950 s at 970, with a limit of 60: 16.8. It starts at 1000, and job 2 at 1050, to 1550.
    /// 4. Is expected to run for its limit of 700, since job 1 ran longer: at 1510 it has waited for 500, a factor of 1.71.
    /// 5. Is expected to run for 525, the mean of jobs 1 and 3, whatever its limit: at 1510 it has waited for 450, a factor
    ///    of 1.86. It starts at 1550, and job 4 at 1560.
    #[test]
    fn five_jobs_by_expansion_factor_start_when_worked_out_by_hand() {
        let five = trace(&[
            (0, 1000, 4, 1000),
            (10, 500, 4, 6000),
            (20, 50, 4, 60),
            (1010, 100, 4, 700),
            (1060, 10, 4, 100_000),
        ]);
        let config = single_processor_nodes(4, Policy::Sluice);
        assert_eq!(starts(&five, config), [0, 1050, 1000, 1560, 1550]);
    }

    /// Jobs run for up to eight hours. Under the policy whose clock decides every minute most ticks start nothing; the order of the
    /// queue changes all the same, and now and then a job starts because of it.
    #[test]
    fn moments_without_a_plan_start_nothing() {
        for (seed, policy) in (1..=2_u64).flat_map(|seed| Policy::ALL.map(|policy| (seed, policy)))
        {
            let mut drawn = seed;
            let mut below = |bound: u64| {
                drawn = drawn.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (drawn >> 33) % bound
            };
            let mut submit_s = 0;
            let jobs: Vec<Job> = (0..80)
                .map(|_| {
                    submit_s += below(1_500) as i64;
                    let longest_s = if below(3) == 0 { 30_000 } else { 2_400 };
                    let widest = if below(4) == 0 { 12 } else { 3 };
                    let run_s = 60 + below(longest_s) as u32;
                    let processors = 1 + below(widest) as u32;
                    (submit_s, run_s, processors, run_s + below(9_000) as u32)
                })
                .collect();
            let trace = trace(&jobs);
            let replay =
                || Replay::new(&trace, single_processor_nodes(12, policy)).expect("a replay");
            assert!(replay().has_quiet_moments, "{policy}");
            let with_all_plans = Replay { has_quiet_moments: false, ..replay() };
            let (few, all) = (starts_of(replay()), starts_of(with_all_plans));
            assert_eq!(few, all, "seed {seed}, {policy}");
        }
    }

    fn pass_to(replay: &mut Replay<'_>, end_s: i64) {
        while let Some(now) = replay.next_instant().filter(|now| now.secs() <= end_s) {
            replay.pass(now).expect("a moment");
        }
    }

    /// Job 1 has three of four processors until 100, and job 2 waits for all of them. Job 3 may start: it is done at 30. Job 4 asks for
    /// more than is free. Job 5 would delay job 2, and so would job 6, which asks for no less.
    #[test]
    fn no_plan_is_made_for_a_job_that_asks_too_much() {
        let six = trace(&[
            (0, 100, 3, 100),
            (10, 10, 4, 10),
            (20, 10, 1, 10),
            (40, 10, 2, 10),
            (50, 10, 1, 200),
            (60, 10, 1, 300),
        ]);
        let [_, _, third, fourth, fifth, sixth] = six.jobs[..] else { panic!("six jobs") };
        let mut replay =
            Replay::new(&six, single_processor_nodes(4, Policy::Easy)).expect("a replay");
        pass_to(&mut replay, 10);
        assert!(replay.starts_nothing(None) && !replay.asks_too_much(&third));
        pass_to(&mut replay, 30);
        assert!(replay.starts_nothing(None) && replay.asks_too_much(&fourth));
        assert!(!replay.asks_too_much(&fifth), "one processor is free");
        pass_to(&mut replay, 50);
        assert!(replay.starts_nothing(None) && replay.asks_too_much(&sixth));
        assert_eq!(replay.starts[1], None);
        pass_to(&mut replay, 100);
        assert_eq!(replay.starts[1], Some(Timestamp::from_secs(100)), "job 1 has ended");
    }

    /// A tick that is put off costs no command: the cluster is told of few of them.
    #[test]
    fn most_ticks_of_a_long_wait_are_put_off() {
        let two = trace(&[(0, 86_400, 4, 86_400), (10, 60, 4, 60)]);
        let mut replay =
            Replay::new(&two, single_processor_nodes(4, Policy::Sluice)).expect("a replay");
        let (mut passed, mut put_off) = (0, 0);
        while let Some(now) = replay.next_instant() {
            replay.pass(now).expect("a moment");
            passed += 1;
            put_off += usize::from(replay.tick_put_off.is_some());
        }
        assert!(passed > 1_000 && passed - put_off < 10, "{put_off} of {passed}");
    }

    /// Jobs 4 and 5 overtake at once. Job 3 starts when job 4 has ended, at 253.
    #[test]
    fn five_jobs_under_easy_backfill_start_when_worked_out_by_hand() {
        let config = single_processor_nodes(4, Policy::Easy);
        assert_eq!(starts(&five_jobs(), config), [0, 80, 253, 3, 4]);
    }

    /// Job 5 delays nobody and overtakes at once. Job 4 starts behind job 3.
    #[test]
    fn five_jobs_under_conservative_backfill_start_when_worked_out_by_hand() {
        let config = single_processor_nodes(4, Policy::Conservative);
        assert_eq!(starts(&five_jobs(), config), [0, 80, 180, 230, 4]);
    }

    /// Under EASY the waits are 0, 79, 251, 0 and 0 s, the slowdowns 1, 1.79, 6.02, 1 and 1; 960 of 4 times 303 processor
    /// seconds are used.
    #[test]
    fn figures_of_five_jobs_are_those_worked_out_by_hand() {
        let config = single_processor_nodes(4, Policy::Easy);
        let measures = Measures { estimates: true, history: true, kinds: false };
        let Outcome { figures, history } =
            replay(&five_jobs(), config, measures, |_| {}).expect("a replay");
        let expected = Summary {
            jobs: 5,
            utilisation: 0.792079,
            mean_wait_s: 66.0,
            max_wait_s: 251.0,
            mean_bounded_slowdown: 2.162,
            // Job 2 was expected at 100 and started at 80, job 3 at 200 and at 253.
            estimate_errors: vec![EstimateError {
                processors_min: 2,
                processors_max: Some(8),
                jobs: 2,
                median_s: 20.0,
                ninetieth_percentile_s: 53.0,
            }],
            kinds: Vec::new(),
        };
        assert_eq!(figures, expected);
        // When job 5 comes all wait or run: two processors of job 1, one each of jobs 4 and 5.
        let then = history.moments.iter().find(|moment| moment.time.secs() == 4).expect("a moment");
        assert_eq!((then.busy_processors, then.waiting_jobs), (4, 2));
        assert_eq!(history.moments.last().map(|moment| moment.busy_processors), Some(0));
        let bars: Vec<_> = history.bars.iter().map(|bar| (bar.line, bar.nodes.len())).collect();
        assert_eq!(bars, [(5, 1), (1, 2), (2, 3), (4, 1), (3, 4)]);
    }

    /// Job 3 would end at 62, a second after job 2 can start: in whole minutes there would be room for it.
    #[test]
    fn estimates_count_to_the_second() {
        let jobs = trace(&[(0, 61, 1, 61), (1, 10, 2, 10), (2, 60, 1, 60)]);
        assert_eq!(starts(&jobs, single_processor_nodes(2, Policy::Easy)), [0, 61, 71]);
    }

    #[test]
    fn same_replay_twice_gives_the_same_figures() {
        let once = || {
            let jobs: Vec<_> = (0..400_u32)
                .map(|n| {
                    let run = 10 + n * 7919 % 500;
                    (i64::from(n) * 40, run, 1 + n * 31 % 4, run + n * 13 % 300)
                })
                .collect();
            let config = single_processor_nodes(4, Policy::Easy);
            let replay = replay(&trace(&jobs), config, Measures::default(), |_| {});
            replay.expect("a replay").figures
        };
        let first = once();
        assert_eq!(first, once());
        assert!(first.mean_wait_s > 0.0 && first.utilisation > 0.5, "{first:?}");
    }

    #[test]
    fn job_that_never_starts_is_named_by_its_line() {
        let mut config = single_processor_nodes(4, Policy::Easy);
        config.partitions[0].max_nodes = Some(2);
        let jobs = trace(&[(0, 5, 1, 5), (1, 5, 3, 5)]);
        let said = replay(&jobs, config, Measures::default(), |_| {});
        let said = said.expect_err("three nodes of two").to_string();
        assert!(said.starts_with("line 2: "), "{said}");
    }
}
