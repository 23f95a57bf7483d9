//! What the scaling and the updates of a service go by, beside the state of the cluster. Lost with the process: delays begin anew then.

use super::arrivals::Arrivals;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub struct ScaleState {
    pub arrivals: Arrivals,
    /// Requests that wait for the first replica.
    waiting: AtomicUsize,
    /// When the service was found, and when the number of replicas of each group was last changed.
    found: Instant,
    changed: Mutex<BTreeMap<u32, Instant>>,
    /// The deployments that a newer one was to replace.
    outdated: Mutex<BTreeSet<u32>>,
}

impl Default for ScaleState {
    fn default() -> Self {
        Self {
            arrivals: Arrivals::default(),
            waiting: AtomicUsize::default(),
            found: Instant::now(),
            changed: Mutex::default(),
            outdated: Mutex::default(),
        }
    }
}

impl ScaleState {
    pub fn note_change(&self, group: u32, now: Instant) {
        self.changed.lock().expect("no panic with the times held").insert(group, now);
    }

    pub fn unchanged(&self, group: u32, now: Instant) -> Duration {
        let changed = self.changed.lock().expect("no panic with the times held");
        now.saturating_duration_since(changed.get(&group).copied().unwrap_or(self.found))
    }

    /// How long the service has been known to this server.
    pub fn known_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.found)
    }

    /// Notes which deployments a newer one is to replace, beside those that were noted before.
    pub fn note_outdated(&self, deployments: impl Iterator<Item = u32>) {
        self.outdated.lock().expect("no panic with the deployments held").extend(deployments);
    }

    /// Forgets that a newer deployment was to replace this one; whether one was.
    pub fn forget_outdated(&self, deployment: u32) -> bool {
        self.outdated.lock().expect("no panic with the deployments held").remove(&deployment)
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Counts a request that waits, until the answer is dropped.
    pub fn wait(self: &Arc<Self>) -> WaitingRequest {
        self.waiting.fetch_add(1, Relaxed);
        WaitingRequest(self.clone())
    }
}

/// A request that waits for the first replica.
pub struct WaitingRequest(Arc<ScaleState>);

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}
