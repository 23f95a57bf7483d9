//! Which hosts of fleets need something done: those that have no agent yet, those whose agent has been silent for a while,
//! and those on their way out. Many at once, and one that fails is tried again with growing pauses, for ever.

use super::install::{self, HostWork};
use super::program::Program;
use crate::clock;
use crate::shared::Shared;
use cluster::command::FleetHostReport;
use model::bounds;
use model::time::Timestamp;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Hosts at which something is done at the same time.
const AT_ONCE: usize = 16;

/// How long an agent that has answered before may be silent until it is looked for: it dials again by itself.
const SILENCE: Duration = Duration::from_secs(10);

const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How often the hosts are looked through at most, however much is committed.
const SCAN_INTERVAL: Duration = Duration::from_millis(250);

/// How long a host that is to leave is tried to be cleaned, before it is let go with what is there.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(600);

/// How it stands with one host.
struct Progress {
    failures: u32,
    next: Instant,
    is_running: bool,
}

/// The hosts, by node and by whether they leave: a new host may have the name of one that left.
type Key = (String, bool);

struct Installer {
    shared: Arc<Shared>,
    program: Arc<Program>,
    progress: HashMap<Key, Progress>,
    ended: mpsc::Sender<(Key, bool)>,
}

/// Runs until the server stops.
pub async fn run(shared: Arc<Shared>, program: Arc<Program>) {
    let mut commits = shared.commits.subscribe();
    let (ended, mut endings) = mpsc::channel(AT_ONCE);
    let mut installer = Installer { shared, program, progress: HashMap::new(), ended };
    loop {
        commits.borrow_and_update();
        let next = installer.start_due();
        let scanned = Instant::now();
        let pause = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = commits.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            Some((key, is_done)) = endings.recv() => installer.note_end(&key, is_done),
            () = pause => {}
        }
        tokio::time::sleep_until(scanned + SCAN_INTERVAL).await;
    }
}

impl Installer {
    /// Starts what is due; says when the next is.
    fn start_due(&mut self) -> Option<Instant> {
        let (now, work) = (Instant::now(), self.pending_work());
        let wanted: HashSet<Key> = work.iter().map(|(work, _)| key(work)).collect();
        self.progress.retain(|key, known| known.is_running || wanted.contains(key));
        let mut running = self.progress.values().filter(|known| known.is_running).count();
        let mut next = None;
        for (mut work, had_answered) in work {
            let progress = self.progress.entry(key(&work)).or_insert_with(|| Progress {
                failures: 0,
                next: if had_answered { now + SILENCE } else { now },
                is_running: false,
            });
            if progress.is_running {
                continue;
            }
            if progress.next > now || running >= AT_ONCE {
                let at = progress.next.max(now + SCAN_INTERVAL);
                next = Some(next.map_or(at, |earliest: Instant| earliest.min(at)));
                continue;
            }
            progress.is_running = true;
            running += 1;
            work.join_again = progress.failures > 0;
            let (shared, program) = (self.shared.clone(), self.program.clone());
            let ended = self.ended.clone();
            tokio::spawn(async move {
                let is_done = perform(&shared, &program, &work).await;
                let _ = ended.send((key(&work), is_done)).await;
            });
        }
        next
    }

    /// The hosts that need something done, and whether their agent has answered before.
    fn pending_work(&self) -> Vec<(HostWork, bool)> {
        let state = self.shared.read();
        let mut work = Vec::new();
        for fleet in state.fleets.values() {
            for (number, host) in &fleet.hosts {
                let node = fleet.node_name(*number);
                if host.leaving.is_none() && self.shared.agents.is_connected(&node) {
                    continue;
                }
                let had_answered = host.leaving.is_none() && host.machine.is_some();
                let (fleet, project) = (fleet.name.clone(), fleet.project.clone());
                let host = host.clone();
                work.push((
                    HostWork { node, fleet, project, host, join_again: false },
                    had_answered,
                ));
            }
        }
        work
    }

    fn note_end(&mut self, key: &Key, is_done: bool) {
        let Some(progress) = self.progress.get_mut(key) else { return };
        progress.is_running = false;
        if is_done {
            self.progress.remove(key);
            return;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << progress.failures.min(10)).min(LONGEST_PAUSE);
        progress.failures = progress.failures.saturating_add(1);
        progress.next = Instant::now() + pause;
    }
}

fn key(work: &HostWork) -> Key {
    (work.node.clone(), work.host.leaving.is_some())
}

/// Does what the host needs, and tells the state. Says whether it is done.
async fn perform(shared: &Shared, program: &Program, work: &HostWork) -> bool {
    let done = match work.host.leaving {
        Some(since) => remove(shared, work, since).await,
        None => install::install(shared, program, work).await,
    };
    let report = match (&done, work.host.leaving) {
        (Ok(()), Some(_)) => FleetHostReport::Removed,
        (Ok(()), None) => {
            tracing::info!("fleet {}: {} answers", work.fleet, work.node);
            return true;
        }
        (Err(why), _) => {
            let mut why = why.clone();
            bounds::cut(&mut why, bounds::NODE_TEXT_BYTES);
            tracing::warn!("fleet {}: {}: {why}", work.fleet, work.node);
            // Meanwhile it may have come back by itself.
            if shared.agents.is_connected(&work.node) && work.host.leaving.is_none() {
                return true;
            }
            FleetHostReport::Failed(Some(why))
        }
    };
    install::report(shared, &work.node, report).await;
    done.is_ok()
}

async fn remove(shared: &Shared, work: &HostWork, since: Timestamp) -> Result<(), String> {
    // A host that never let anybody in has nothing of ours.
    if work.host.login.host_key.is_none() {
        return Ok(());
    }
    match install::remove(shared, work).await {
        Err(why) if clock::now() >= since + REMOVAL_PATIENCE => {
            tracing::warn!(
                "fleet {}: {} leaves with what is installed there: {why}",
                work.fleet,
                work.node
            );
            Ok(())
        }
        done => done,
    }
}
