//! dstack's `utilization_policy`: a run whose GPUs of one node all stayed below a percentage for a whole window is ended.
//!
//! Each node keeps readings of its jobs' GPUs ([`model::load`]). They are asked for here in turn; what is remembered is
//! since when each GPU has been idle, by the clock of its own node. A window begins with the newest reading at the time when
//! the part is first looked at: once the run's commands may run, after each resume, and after a restart of the server.

use crate::shared::Shared;
use crate::task_groups;
use cluster::Command;
use cluster::{Job, State};
use futures_util::StreamExt;
use model::attempt::EndCause;
use model::gres::GPU;
use model::id::AttemptId;
use model::load::{GpuSample, GpuSeries};
use model::run::UtilizationPolicy;
use model::time::Timestamp;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Nodes keep a reading for each half minute.
const PERIOD: Duration = Duration::from_secs(30);

/// Readings that are further apart say nothing of the time between them.
const GAP_MAX: Duration = Duration::from_secs(120);

/// Nodes that are asked at once.
const ASKED_MAX: usize = 64;

pub async fn run(shared: Arc<Shared>) {
    let mut idle = IdleParts::default();
    let mut timer = tokio::time::interval(PERIOD);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        let parts: Vec<Part> = {
            let state = shared.read();
            let active = state.active.iter().filter_map(|id| state.jobs.get(id));
            active.flat_map(|job| Part::all_of(&state, job)).collect()
        };
        idle.forget_others(&parts);
        let ask = async |part: Part| {
            let load = shared.agents.usage(&part.node, part.attempt).await.load;
            (part, load.gpus)
        };
        let mut answers =
            std::pin::pin!(futures_util::stream::iter(parts).map(ask).buffer_unordered(ASKED_MAX));
        while let Some((part, gpus)) = answers.next().await {
            if idle.add(&part, &gpus) {
                let attempt = part.attempt;
                let cause = EndCause::GpusUnderused;
                shared.writer.enqueue_or_drop(Command::EndByPolicy { attempt, cause });
            }
        }
    }
}

/// A running attempt with a policy, on one of its nodes.
struct Part {
    attempt: AttemptId,
    node: String,
    policy: UtilizationPolicy,
    /// How many GPUs it has there.
    gpus: usize,
    resumed: Option<Timestamp>,
}

impl Part {
    /// The parts whose commands may run now.
    fn all_of(state: &State, job: &Job) -> Vec<Self> {
        let runs = job.attempt().filter(|active| active.ending.is_none() && !active.suspended);
        let (Some(policy), Some(attempt), Some(active)) =
            (job.spec.utilization, job.attempt_id(), runs)
        else {
            return Vec::new();
        };
        if task_groups::is_preparing(state, job) {
            return Vec::new();
        }
        let shares = active.allocation.nodes.iter();
        let held = shares.filter(|share| active.held_nodes.contains(&share.node));
        let part = held.map(|share| Self {
            attempt,
            node: share.node.clone(),
            policy,
            gpus: share.gres_count(GPU) as usize,
            resumed: active.suspend_changed,
        });
        part.collect()
    }
}

/// Since when the GPUs of each part have been idle.
#[derive(Default)]
struct IdleParts(HashMap<AttemptId, HashMap<String, IdlePart>>);

struct IdlePart {
    resumed: Option<Timestamp>,
    /// `None` for a GPU of which there was no reading yet.
    gpus: Vec<Option<IdleGpu>>,
}

#[derive(Clone, Copy)]
struct IdleGpu {
    since: Timestamp,
    /// The last reading that was looked at.
    seen: Timestamp,
}

impl IdleGpu {
    fn from(reading: &GpuSample) -> Self {
        Self { since: reading.at, seen: reading.at }
    }

    fn add(&mut self, policy: UtilizationPolicy, series: &GpuSeries) {
        let seen = self.seen;
        for reading in series.readings.iter().filter(|reading| reading.at >= seen) {
            let is_busy = reading.busy_percent >= policy.min_gpu_percent;
            if is_busy || self.seen + GAP_MAX < reading.at {
                self.since = reading.at;
            }
            self.seen = reading.at;
        }
    }
}

impl IdleParts {
    fn forget_others(&mut self, parts: &[Part]) {
        let attempts: HashSet<AttemptId> = parts.iter().map(|part| part.attempt).collect();
        self.0.retain(|attempt, _| attempts.contains(attempt));
    }

    /// Takes in what the GPUs of a part did; whether all of them were below the least for one whole window. Of GPUs that
    /// nobody reads that cannot be said.
    fn add(&mut self, part: &Part, gpus: &[GpuSeries]) -> bool {
        if gpus.len() != part.gpus {
            return false;
        }
        let parts = self.0.entry(part.attempt).or_default();
        let known = parts.get_mut(&part.node).filter(|idle| idle.resumed == part.resumed);
        let Some(known) = known else {
            let newest = |gpu: &GpuSeries| gpu.readings.last().map(IdleGpu::from);
            let idle = IdlePart { resumed: part.resumed, gpus: gpus.iter().map(newest).collect() };
            parts.insert(part.node.clone(), idle);
            return false;
        };
        for (idle, series) in known.gpus.iter_mut().zip(gpus) {
            *idle = idle.or_else(|| series.readings.first().map(IdleGpu::from));
            if let Some(idle) = idle {
                idle.add(part.policy, series);
            }
        }
        let Some(idle) = known.gpus.iter().copied().collect::<Option<Vec<IdleGpu>>>() else {
            return false;
        };
        let since = idle.iter().map(|gpu| gpu.since).max();
        let seen = idle.iter().map(|gpu| gpu.seen).min();
        let window = Duration::from_secs(part.policy.window_s);
        since.zip(seen).is_some_and(|(since, seen)| seen.since(since) >= window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestServer, submission, user};
    use cluster::{Phase, Reply};
    use model::attempt::Attempt;
    use model::id::JobId;

    const POLICY: UtilizationPolicy = UtilizationPolicy { min_gpu_percent: 10, window_s: 300 };

    fn part(gpus: usize) -> Part {
        let attempt = AttemptId { job: JobId(1), number: 1 };
        Part { attempt, node: "n1".into(), policy: POLICY, gpus, resumed: None }
    }

    /// A GPU with a reading each half minute from this second on.
    fn gpu(from_s: i64, busy: &[u32]) -> GpuSeries {
        let read = |(n, busy): (i64, &u32)| GpuSample {
            at: Timestamp::from_secs(from_s + 30 * n),
            busy_percent: *busy,
            memory_used: 0,
        };
        GpuSeries { memory_total: 1, readings: (0..).zip(busy).map(read).collect() }
    }

    #[test]
    fn part_is_idle_when_all_its_gpus_were_for_the_whole_window() {
        let is_idle = |part: &Part, gpus: &[GpuSeries]| {
            let mut parts = IdleParts::default();
            let unread = vec![GpuSeries::default(); gpus.len()];
            assert!(!parts.add(part, &unread), "its window begins");
            parts.add(part, gpus)
        };
        let idle = [9; 11];
        let mut busy_once = idle;
        busy_once[4] = 10;
        let table: [(usize, &[GpuSeries], bool); 8] = [
            (1, &[gpu(0, &idle)], true),
            (1, &[gpu(0, &idle[..10])], false),
            (2, &[gpu(0, &idle), gpu(0, &idle)], true),
            (2, &[gpu(0, &idle), gpu(0, &busy_once)], false),
            // Nothing is known of a GPU that is not read, or of a slice, or of one that was read until the other was idle.
            (2, &[gpu(0, &idle), GpuSeries::default()], false),
            (2, &[gpu(0, &idle)], false),
            (2, &[gpu(0, &idle), gpu(300, &idle)], false),
            (0, &[], false),
        ];
        for (granted, gpus, expected) in table {
            assert_eq!(is_idle(&part(granted), gpus), expected, "{granted}: {gpus:?}");
        }
    }

    #[test]
    fn window_goes_on_over_what_the_node_has_forgotten_and_begins_anew_after_a_gap() {
        let mut parts = IdleParts::default();
        let mut add = |series: GpuSeries| parts.add(&part(1), &[series]);
        assert!(!add(gpu(0, &[0; 20])), "what was read before the part was looked at");
        assert!(!add(gpu(570, &[0, 50, 0, 0])));
        assert!(!add(gpu(660, &[0, 0, 0, 0])));
        assert!(!parts.add(&part(1), &[]), "the node did not answer");
        let mut add = |series: GpuSeries| parts.add(&part(1), &[series]);
        assert!(add(gpu(780, &[0, 0, 0, 0, 0])), "300 s since the first idle reading");
        assert!(!add(gpu(1200, &[0, 0])), "nothing is known of the time between");
        let attempt = AttemptId { job: JobId(1), number: 2 };
        parts.forget_others(&[Part { attempt, ..part(1) }]);
        assert!(parts.0.is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn parts_are_looked_at_while_their_commands_may_run() {
        let server = TestServer::start().await;
        server.node_up().await;
        let policy = "utilization_policy: {min_gpu_utilization: 10, time_window: 5m}";
        let mut run = submission(policy);
        run.het_components.push(run.spec.clone());
        let reply = server.shared.writer.submit(Box::new(run), user()).await;
        let Ok(Reply::Submitted { job: id, .. }) = reply else { panic!("{reply:?}") };
        server.plan();
        let state = server.shared.read().clone();
        let job = state.jobs[&id].clone();
        let changed = |id: JobId, change: fn(&mut Attempt)| {
            let mut state = state.clone();
            let job = Arc::make_mut(state.jobs.get_mut(&id).expect("a group"));
            let Phase::Active(active) = &mut job.phase else { panic!("it runs") };
            change(active);
            state
        };
        let parts = |change: fn(&mut Attempt)| {
            let state = changed(id, change);
            Part::all_of(&state, &state.jobs[&id]).len()
        };
        let other = JobId(id.0 + 1);
        let while_the_other =
            |change: fn(&mut Attempt)| Part::all_of(&changed(other, change), &job).len();
        assert_eq!(while_the_other(|_| ()), 1);
        assert_eq!(while_the_other(|active| active.preparing_nodes = active.held_nodes.clone()), 0);
        assert_eq!(parts(|_| ()), 1);
        assert_eq!(parts(|active| active.preparing_nodes = active.held_nodes.clone()), 0);
        assert_eq!(parts(|active| active.suspended = true), 0);
        assert_eq!(parts(|active| active.held_nodes.clear()), 0);
    }

    #[test]
    fn window_of_a_resumed_part_begins_anew() {
        let mut parts = IdleParts::default();
        let resumed = Part { resumed: Some(Timestamp::from_secs(120)), ..part(1) };
        assert!(!parts.add(&part(1), &[gpu(0, &[0])]));
        assert!(!parts.add(&part(1), &[gpu(0, &[0; 10])]));
        assert!(!parts.add(&resumed, &[gpu(0, &[0; 11])]), "its GPUs could do nothing");
        assert!(!parts.add(&resumed, &[gpu(300, &[0; 10])]));
        assert!(parts.add(&resumed, &[gpu(300, &[0; 11])]));
    }
}
