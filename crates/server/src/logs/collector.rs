//! Pulls the logs of runs from their nodes: at an attempt's end, when a client asks, and in between ever more seldom while
//! nothing new comes. A run that writes without end fills its own log up to a bound, and delays nobody.

use crate::clock;
use crate::shared::Shared;
use crate::shared::agent_streams::SERVER;
use crate::shared::log_queue::PullLog;
use model::bounds;
use model::id::AttemptId;
use model::run::LaunchKind;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::LogKey;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::block_in_place;
use tokio::time::{Instant, timeout};
use wire::stream::StreamKind;

/// Logs that are pulled at once.
const PULLS_MAX: usize = 32;

/// The most that one pull takes before others have their turn.
const PULL_BYTES_MAX: usize = 4 << 20;

/// How long a pull may wait for the next bytes of a node.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long one pull may take before others have their turn, however slowly a node sends.
const PULL_TIMEOUT: Duration = Duration::from_secs(30);

/// The pauses between two pulls of a running attempt's log: doubled each time nothing new came.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);

/// How often an ended attempt's node is asked for the rest while it does not answer.
const REST_TRIES: u32 = 20;

/// Looks for logs that are due as often as this.
const TICK: Duration = Duration::from_millis(500);

const CUT_NOTICE: &[u8] = b"\n[sluice: the log has reached its bound; what follows is not kept]\n";

/// A log that is collected.
#[derive(Default)]
struct LogProgress {
    due: Option<Instant>,
    pause: Duration,
    /// A pull is under way.
    pulling: bool,
    /// Pulled again at once when the pull under way is over.
    again: bool,
    /// Answered when the pull under way is over.
    waiters: Vec<oneshot::Sender<()>>,
    /// Came after it had begun: answered after the next.
    later_waiters: Vec<oneshot::Sender<()>>,
    /// Pulls that failed since the attempt ended.
    failures: u32,
}

/// How one pull went.
struct PullResult {
    key: LogKey,
    bytes: usize,
    /// The node has no more at the moment.
    caught_up: bool,
    /// The log is at its bound.
    full: bool,
}

pub async fn run(shared: Arc<Shared>, mut pulls: mpsc::Receiver<PullLog>) {
    let (finished, mut results) = mpsc::channel(PULLS_MAX);
    let places = Arc::new(Semaphore::new(PULLS_MAX));
    let mut logs: HashMap<LogKey, LogProgress> = HashMap::new();
    let mut tick = tokio::time::interval(TICK);
    let start = |key: LogKey, log: &mut LogProgress| {
        if log.pulling {
            log.again = true;
            return;
        }
        (log.pulling, log.again, log.due) = (true, false, None);
        log.waiters.append(&mut log.later_waiters);
        let (shared, places, finished) = (shared.clone(), places.clone(), finished.clone());
        tokio::spawn(async move {
            let _place = places.acquire().await;
            let _ = finished.send(pull(&shared, key).await).await;
        });
    };
    loop {
        tokio::select! {
            asked = pulls.recv() => {
                let Some(PullLog { key, at_once, done }) = asked else { return };
                let log = logs.entry(key.clone()).or_default();
                log.later_waiters.extend(done);
                if at_once {
                    start(key, log);
                } else {
                    log.due = Some(Instant::now() + PAUSE_FIRST);
                }
            }
            Some(pulled) = results.recv() => {
                let key = pulled.key.clone();
                let is_running = is_running(&shared, &key);
                if let Some(log) = logs.get_mut(&key) && log.settle(&pulled, is_running, Instant::now()) {
                    if let Err(error) = block_in_place(|| shared.logs.store.close(&key)) {
                        tracing::warn!("the log of {} cannot be kept: {error}", key.attempt);
                    }
                    logs.remove(&key);
                } else if let Some(log) = logs.get_mut(&key).filter(|log| log.again) {
                    start(key, log);
                }
            }
            now = tick.tick() => {
                for (key, log) in logs.iter_mut().filter(|(_, log)| log.due.is_some_and(|at| at <= now)) {
                    start(key.clone(), log);
                }
            }
        }
    }
}

impl LogProgress {
    /// Says when the log is pulled next; returns true if it is complete and need not be.
    fn settle(&mut self, pulled: &PullResult, is_running: bool, now: Instant) -> bool {
        self.pulling = false;
        let has_more = pulled.bytes >= PULL_BYTES_MAX && !pulled.full;
        let goes_on = self.again || has_more;
        if !has_more {
            // A waiter that is gone does not mind.
            self.waiters.drain(..).for_each(|waiter| waiter.send(()).unwrap_or(()));
        }
        let complete = !is_running && !goes_on && (pulled.caught_up || pulled.full);
        self.failures = if is_running || pulled.caught_up { 0 } else { self.failures + 1 };
        if complete || self.failures > REST_TRIES {
            return true;
        }
        if goes_on {
            self.again = true;
            return false;
        }
        self.pause = match pulled.bytes {
            0 => (self.pause * 2).clamp(PAUSE_FIRST, PAUSE_LONGEST),
            _ => PAUSE_FIRST,
        };
        self.due = Some(now + if is_running { self.pause } else { PAUSE_FIRST });
        false
    }
}

/// Whether the attempt may still write on this node.
pub fn is_running(shared: &Shared, key: &LogKey) -> bool {
    let state = shared.read();
    let attempt = state.jobs.get(&key.attempt.job).and_then(|job| job.attempt());
    attempt.is_some_and(|a| a.number == key.attempt.number && a.held_nodes.contains(&key.node))
}

/// Appends what the node has beyond what is kept.
async fn pull(shared: &Shared, key: LogKey) -> PullResult {
    let mut pulled = PullResult { key, bytes: 0, caught_up: false, full: false };
    let end = timeout(PULL_TIMEOUT, pull_into(shared, &mut pulled)).await;
    if let Err(why) = end.unwrap_or_else(|_| Err("it takes too long".to_owned())) {
        tracing::debug!("the log of {} on {}: {why}", pulled.key.attempt, pulled.key.node);
    }
    pulled
}

async fn pull_into(shared: &Shared, pulled: &mut PullResult) -> Result<(), String> {
    let key = &pulled.key;
    let failed = |error: std::io::Error| error.to_string();
    let store = &shared.logs.store;
    let mut kept = block_in_place(|| store.len(key)).map_err(failed)?;
    let bound = bounds::LOG_BYTES.most as u64;
    if kept >= bound {
        pulled.full = true;
        return Ok(());
    }
    let kind = StreamKind::Log { offset: kept, follow: false, last: None };
    let stream = shared.agents.open_stream(&key.node, key.attempt, kind, SERVER);
    let (mut stream, _) = stream.ok_or("the node does not answer")?;
    while pulled.bytes < PULL_BYTES_MAX {
        let next = timeout(SILENCE_TIMEOUT, stream.next()).await;
        let Some(chunk) = next.map_err(|_| "the node does not answer")? else {
            // The end of the log, or of the link to its node.
            pulled.caught_up = shared.agents.is_connected(&key.node);
            return Ok(());
        };
        // A node that answers that it has none will not have one once the attempt is over.
        let mut chunk = chunk.inspect_err(|_| pulled.caught_up = !is_running(shared, key))?;
        block_in_place(|| store.shrink(bounds::ALL_LOGS_BYTES.most as u64)).map_err(failed)?;
        chunk.truncate((bound - kept) as usize);
        block_in_place(|| store.append(key, clock::now(), &chunk)).map_err(failed)?;
        pulled.bytes += chunk.len();
        kept += chunk.len() as u64;
        if kept >= bound {
            block_in_place(|| store.append(key, clock::now(), CUT_NOTICE)).map_err(failed)?;
            pulled.full = true;
            return Ok(());
        }
    }
    Ok(())
}

/// The log of an attempt's part on a node, from its start.
pub fn watch(shared: &Shared, attempt: AttemptId, node: &str) {
    if let Some(key) = key_on(shared, attempt, node) {
        shared.logs.watch(key);
    }
}

/// The same, of an attempt that may have written, or has ended.
pub fn collect(shared: &Shared, attempt: AttemptId, node: &str) {
    if let Some(key) = key_on(shared, attempt, node) {
        shared.logs.collect(key);
    }
}

/// Runs of dstack's language write to logs, jobs of `sbatch` to files.
fn key_on(shared: &Shared, attempt: AttemptId, node: &str) -> Option<LogKey> {
    let state = shared.read();
    let job = state.jobs.get(&attempt.job)?;
    let has_log = job.spec.launch.kind == LaunchKind::Task;
    has_log.then(|| LogKey { attempt, owner: job.spec.owner.uid, node: node.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::JobId;

    const RUNNING: bool = true;
    const OVER: bool = false;

    fn result(bytes: usize, caught_up: bool) -> PullResult {
        let attempt = AttemptId { job: JobId(1), number: 1 };
        let key = LogKey { attempt, owner: 1, node: "n1".into() };
        PullResult { key, bytes, caught_up, full: false }
    }

    #[test]
    fn log_of_a_running_attempt_is_pulled_ever_more_seldom_until_something_comes() {
        let now = Instant::now();
        let mut log = LogProgress::default();
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            assert!(!log.settle(&result(0, true), RUNNING, now));
            assert_eq!(log.due, Some(now + Duration::from_secs(pause)));
        }
        assert!(!log.settle(&result(1, true), RUNNING, now));
        assert_eq!(log.due, Some(now + PAUSE_FIRST));
    }

    #[test]
    fn log_is_complete_when_its_attempt_is_over_and_its_node_has_no_more() {
        let now = Instant::now();
        let mut log = LogProgress::default();
        assert!(!log.settle(&result(PULL_BYTES_MAX, false), OVER, now) && log.again, "has more");
        log.again = false;
        assert!(log.settle(&result(5, true), OVER, now));
        assert!(
            log.settle(&PullResult { full: true, ..result(5, false) }, OVER, now),
            "at its bound"
        );
    }

    #[test]
    fn node_that_does_not_answer_is_asked_again_until_it_is_given_up() {
        let now = Instant::now();
        let mut log = LogProgress::default();
        for _ in 0..REST_TRIES {
            assert!(!log.settle(&result(0, false), OVER, now));
            assert_eq!(log.due, Some(now + PAUSE_FIRST));
        }
        assert!(log.settle(&result(0, false), OVER, now));
    }

    #[test]
    fn waiters_are_answered_when_the_node_has_no_more() {
        let (done, mut waits) = oneshot::channel();
        let mut log = LogProgress { waiters: vec![done], ..LogProgress::default() };
        log.settle(&result(PULL_BYTES_MAX, false), RUNNING, Instant::now());
        assert!(waits.try_recv().is_err(), "there is more");
        log.settle(&result(3, true), RUNNING, Instant::now());
        assert!(waits.try_recv().is_ok());
    }
}
