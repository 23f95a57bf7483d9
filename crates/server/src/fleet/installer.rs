//! Which hosts of fleets need something done: those that have no agent yet, those whose agent has been silent for a while,
//! and those on their way out. Many at once, and one that fails is tried again with growing pauses, for ever.

use super::install::{self, HostWork};
use super::program::Program;
use super::ssh_client::{Failure, LoginFailure};
use crate::clock;
use crate::shared::Shared;
use cluster::command::FleetHostReport;
use model::bounds;
use model::time::Timestamp;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{self, JoinSet};
use tokio::time::Instant;

/// Hosts at which something is done at the same time.
const AT_ONCE: usize = 16;

/// Places among [`AT_ONCE`] for removals alone: hosts that do not answer keep nobody from leaving.
const KEPT_FOR_REMOVALS: usize = 2;

/// How long an agent that has answered before may be silent until it is looked for: it dials again by itself.
const SILENCE: Duration = Duration::from_secs(10);

const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// How often the hosts are looked through at most, however much is committed.
const SCAN_INTERVAL: Duration = Duration::from_millis(250);

/// How long a host that is to leave is tried to be cleaned, before it is let go with what is there.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(600);

/// How it stands with one host. A node has one, and so one task at most: a removal waits for the installation before it,
/// which ends when its host is to leave.
struct Progress {
    /// What is done, and at which host: another one may have the node's name later.
    id: String,
    is_removal: bool,
    failures: u32,
    /// Whether the state has a failure of the host.
    has_failed: bool,
    next: Instant,
    is_running: bool,
}

struct Installer {
    shared: Arc<Shared>,
    program: Arc<Program>,
    /// By node.
    progress: HashMap<String, Progress>,
    /// What runs, and for which node. Each says whether it is done.
    tasks: JoinSet<bool>,
    nodes: HashMap<task::Id, String>,
}

/// Runs until the server stops.
pub async fn run(shared: Arc<Shared>, program: Arc<Program>) {
    let mut commits = shared.commits.subscribe_beyond_submits();
    let (progress, tasks, nodes) = (HashMap::new(), JoinSet::new(), HashMap::new());
    let mut installer = Installer { shared, program, progress, tasks, nodes };
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
            Some(ended) = installer.tasks.join_next_with_id() => match ended {
                Ok((id, is_done)) => installer.note_end(id, is_done),
                Err(error) => {
                    tracing::error!("a host's installation broke off: {error}");
                    installer.note_end(error.id(), false);
                }
            },
            () = pause => {}
        }
        tokio::time::sleep_until(scanned + SCAN_INTERVAL).await;
    }
}

impl Installer {
    /// Starts what is due, the longest due first; says when the next is.
    fn start_due(&mut self) -> Option<Instant> {
        let (now, mut work) = (Instant::now(), self.pending_work());
        let wanted: HashSet<&str> = work.iter().map(|(work, _)| work.node.as_str()).collect();
        self.progress.retain(|node, known| known.is_running || wanted.contains(node.as_str()));
        for (work, had_answered) in &work {
            let (id, is_removal) = (work.host.id.clone(), work.host.leaving.is_some());
            let next = if *had_answered { now + SILENCE } else { now };
            let has_failed = work.host.failure.is_some();
            let fresh =
                Progress { id, is_removal, failures: 0, has_failed, next, is_running: false };
            match self.progress.get_mut(&work.node) {
                Some(known) if known.is_running => {}
                // A fleet that was applied again has forgotten its failures.
                Some(known)
                    if known.id == fresh.id
                        && known.is_removal == is_removal
                        && (has_failed || !known.has_failed) =>
                {
                    known.has_failed = has_failed;
                }
                _ => drop(self.progress.insert(work.node.clone(), fresh)),
            }
        }
        work.sort_by_key(|(work, _)| self.progress.get(&work.node).map(|known| known.next));
        let running = || self.progress.values().filter(|known| known.is_running);
        let mut slots = Slots {
            installing: running().filter(|known| !known.is_removal).count(),
            removing: running().filter(|known| known.is_removal).count(),
        };
        let mut next = None;
        for (mut work, _) in work {
            let Some(progress) = self.progress.get_mut(&work.node) else { continue };
            if progress.is_running {
                continue;
            }
            if progress.next > now || !slots.take(progress.is_removal) {
                let at = progress.next.max(now + SCAN_INTERVAL);
                next = Some(next.map_or(at, |earliest: Instant| earliest.min(at)));
                continue;
            }
            progress.is_running = true;
            work.is_retry = progress.failures > 0;
            let (shared, program) = (self.shared.clone(), self.program.clone());
            let node = work.node.clone();
            let task = self.tasks.spawn(async move { perform(&shared, &program, &work).await });
            self.nodes.insert(task.id(), node);
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
                let is_staying = host.leaving.is_none();
                let lacks_address = host.lacks_address();
                if is_staying && !lacks_address && install::answers(&self.shared, &state, &node) {
                    continue;
                }
                let had_answered = is_staying && !lacks_address && host.machine.is_some();
                let (fleet, project) = (fleet.name.clone(), fleet.project.clone());
                let host = host.clone();
                work.push((HostWork { node, fleet, project, host, is_retry: false }, had_answered));
            }
        }
        work
    }

    fn note_end(&mut self, task: task::Id, is_done: bool) {
        let Some(node) = self.nodes.remove(&task) else { return };
        let Some(progress) = self.progress.get_mut(&node) else { return };
        progress.is_running = false;
        if is_done {
            self.progress.remove(&node);
            return;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << progress.failures.min(10)).min(LONGEST_PAUSE);
        progress.failures = progress.failures.saturating_add(1);
        progress.next = Instant::now() + pause;
    }
}

/// What runs at the same time.
struct Slots {
    installing: usize,
    removing: usize,
}

impl Slots {
    /// Takes a place, if there is one.
    fn take(&mut self, is_removal: bool) -> bool {
        if self.installing + self.removing >= AT_ONCE {
            return false;
        }
        if is_removal {
            self.removing += 1;
            return true;
        }
        let is_free = self.installing < AT_ONCE - KEPT_FOR_REMOVALS;
        self.installing += usize::from(is_free);
        is_free
    }
}

/// Does what the host needs, and tells the state. Says whether it is done.
async fn perform(shared: &Shared, program: &Program, work: &HostWork) -> bool {
    if work.host.leaving.is_some() {
        note_left(shared, work);
        shared.agents.cut(&work.node);
    }
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
        // It is to leave meanwhile: that is no fault of it.
        (Err(_), None) if !install::is_wanted(shared, work) => return true,
        (Err(why), _) => {
            let mut why = why.clone();
            bounds::cut(&mut why, bounds::NODE_TEXT_BYTES);
            tracing::warn!("fleet {}: {}: {why}", work.fleet, work.node);
            // Meanwhile it may have come back by itself.
            if work.host.leaving.is_none() && install::is_in_service(shared, work) {
                return true;
            }
            FleetHostReport::Failed(Some(why))
        }
    };
    install::report(shared, &work.node, &work.host.id, report).await;
    if done.is_ok() {
        shared.agents.cut(&work.node);
    }
    done.is_ok()
}

/// Its agent, whose link is about to be cut, is expected to come once more. The state forgets with the host which agent that is.
fn note_left(shared: &Shared, work: &HostWork) {
    let fingerprint = shared.read().agents.get(&work.node).cloned();
    if let Some(fingerprint) = fingerprint {
        let now = std::time::Instant::now();
        let origin = format!("fleet {}", work.fleet);
        shared.volatile.left_hosts.note(&origin, &work.node, &fingerprint, now);
    }
}

async fn remove(shared: &Shared, work: &HostWork, since: Timestamp) -> Result<(), Failure> {
    // A host that never let anybody in has nothing of ours.
    if work.host.login.host_key.is_none() {
        return Ok(());
    }
    let failure = match install::remove(shared, work).await {
        Ok(()) => return Ok(()),
        Err(failure) => failure,
    };
    let is_late = clock::now() >= since + REMOVAL_PATIENCE;
    if !is_given_up(&failure, work.is_retry, is_late) {
        return Err(failure.why);
    }
    let is_there = if work.host.machine.is_some() { "is" } else { "may be" };
    tracing::warn!(
        "fleet {}: {} leaves with what {is_there} installed there: {}",
        work.fleet,
        work.node,
        failure.why
    );
    Ok(())
}

/// Whether a host that cannot be cleaned leaves as it is. A refusal is told with the first attempt, and ends the second: more
/// of them would keep the host from other fleets for nothing.
fn is_given_up(failure: &LoginFailure, is_retry: bool, is_late: bool) -> bool {
    is_late || (is_retry && failure.is_refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_kept_for_removals() {
        let mut slots = Slots { installing: 0, removing: 0 };
        let installing = (0..AT_ONCE).filter(|_| slots.take(false)).count();
        assert_eq!(installing, AT_ONCE - KEPT_FOR_REMOVALS);
        let removing = (0..AT_ONCE).filter(|_| slots.take(true)).count();
        assert_eq!(removing, KEPT_FOR_REMOVALS);
        assert!(!slots.take(true) && !slots.take(false));
    }

    #[test]
    fn host_that_refuses_the_login_leaves_with_the_second_attempt() {
        let failure = |is_refusal| LoginFailure { why: "why".into(), is_refusal };
        let given_up =
            |is_refusal, is_retry, is_late| is_given_up(&failure(is_refusal), is_retry, is_late);
        assert!(!given_up(true, false, false), "it is told first");
        assert!(given_up(true, true, false));
        assert!(!given_up(false, true, false));
        assert!(given_up(false, true, true));
    }
}
