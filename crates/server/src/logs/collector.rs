//! Pulls the logs of runs from their nodes: at an attempt's end, when a client asks, and in between ever more seldom while
//! nothing new comes. A run that writes without end fills its own log up to a bound, and delays nobody.

use crate::clock;
use crate::shared::Shared;
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

/// How often the logs are brought back to their bound.
const SHRINK_PERIOD: Duration = Duration::from_secs(60);

/// Looks for logs that are due as often as this.
const TICK: Duration = Duration::from_millis(500);

const CUT_NOTICE: &[u8] = b"\n[sluice: the log has reached its bound; what follows is not kept]\n";

/// A log that is collected.
#[derive(Default)]
struct Collected {
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
struct Pulled {
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
    let mut logs: HashMap<LogKey, Collected> = HashMap::new();
    let mut tick = tokio::time::interval(TICK);
    let mut shrink = tokio::time::interval(SHRINK_PERIOD);
    let start = |key: LogKey, log: &mut Collected| {
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
                if let Some(log) = logs.get_mut(&key) && settle(&shared, log, &pulled) {
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
            _ = shrink.tick() => {
                let store = shared.logs.store.clone();
                let bound = bounds::ALL_LOGS_BYTES.most as u64;
                if let Ok(Err(error)) = tokio::task::spawn_blocking(move || store.shrink(bound)).await {
                    tracing::warn!("old logs cannot be removed: {error}");
                }
            }
        }
    }
}

/// Says when the log is pulled next; returns true if it is complete and need not be.
fn settle(shared: &Shared, log: &mut Collected, pulled: &Pulled) -> bool {
    log.pulling = false;
    let over = !is_running(shared, &pulled.key);
    let has_more = pulled.bytes >= PULL_BYTES_MAX && !pulled.full;
    let goes_on = log.again || has_more;
    if !has_more {
        // A waiter that is gone does not mind.
        log.waiters.drain(..).for_each(|waiter| waiter.send(()).unwrap_or(()));
    }
    let complete = over && !goes_on && (pulled.caught_up || pulled.full);
    log.failures = if over && !pulled.caught_up { log.failures + 1 } else { 0 };
    if complete || log.failures > REST_TRIES {
        if let Err(error) = block_in_place(|| shared.logs.store.close(&pulled.key)) {
            tracing::warn!("the log of {} cannot be kept: {error}", pulled.key.attempt);
        }
        return true;
    }
    if goes_on {
        log.again = true;
        return false;
    }
    log.pause = match pulled.bytes {
        0 => (log.pause * 2).clamp(PAUSE_FIRST, PAUSE_LONGEST),
        _ => PAUSE_FIRST,
    };
    log.due = Some(Instant::now() + if over { PAUSE_FIRST } else { log.pause });
    false
}

/// Whether the attempt may still write on this node.
pub fn is_running(shared: &Shared, key: &LogKey) -> bool {
    let state = shared.read();
    let attempt = state.jobs.get(&key.attempt.job).and_then(|job| job.attempt());
    attempt.is_some_and(|a| a.number == key.attempt.number && a.held_nodes.contains(&key.node))
}

/// Appends what the node has beyond what is kept.
async fn pull(shared: &Shared, key: LogKey) -> Pulled {
    let mut pulled = Pulled { key, bytes: 0, caught_up: false, full: false };
    let end = timeout(PULL_TIMEOUT, pull_into(shared, &mut pulled)).await;
    if let Err(why) = end.unwrap_or_else(|_| Err("it takes too long".to_owned())) {
        tracing::debug!("the log of {} on {}: {why}", pulled.key.attempt, pulled.key.node);
    }
    pulled
}

async fn pull_into(shared: &Shared, pulled: &mut Pulled) -> Result<(), String> {
    let key = &pulled.key;
    let failed = |error: std::io::Error| error.to_string();
    let store = &shared.logs.store;
    let mut kept = block_in_place(|| store.len(key)).map_err(failed)?;
    let bound = bounds::LOG_BYTES.most as u64;
    if kept >= bound {
        pulled.full = true;
        return Ok(());
    }
    let kind = StreamKind::Log { offset: kept, follow: false };
    let stream = shared.agents.open_stream(&key.node, key.attempt, kind);
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
        if store.total() > bounds::ALL_LOGS_BYTES.most as u64 {
            return Err("all logs together are at their bound".to_owned());
        }
        chunk.truncate((bound - kept) as usize);
        block_in_place(|| store.append(key, clock::now(), &chunk)).map_err(failed)?;
        pulled.bytes += chunk.len();
        kept += chunk.len() as u64;
        if kept >= bound {
            store.append(key, clock::now(), CUT_NOTICE).map_err(failed)?;
            pulled.full = true;
            return Ok(());
        }
    }
    Ok(())
}

/// The log of an attempt's part on a node, from its start.
pub fn watch(shared: &Shared, attempt: AttemptId, node: &str) {
    if has_log(shared, attempt) {
        shared.logs.watch(LogKey { attempt, node: node.to_owned() });
    }
}

/// The same, of an attempt that may have written, or has ended.
pub fn collect(shared: &Shared, attempt: AttemptId, node: &str) {
    if has_log(shared, attempt) {
        shared.logs.collect(LogKey { attempt, node: node.to_owned() });
    }
}

/// Runs of dstack's language write to logs, jobs of `sbatch` to files.
fn has_log(shared: &Shared, attempt: AttemptId) -> bool {
    let state = shared.read();
    state.jobs.get(&attempt.job).is_some_and(|job| job.spec.launch.kind == LaunchKind::Task)
}
