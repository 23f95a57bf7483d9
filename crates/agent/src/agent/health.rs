//! When the health checks of this agent's nodes run, and what becomes of their results.

use super::Agent;
use crate::cgroup::{GroupLimits, JobGroup, Layout};
use crate::node::Node;
use crate::node::health_check::{self, CheckGroup};
use crate::wall_clock;
use model::health::{HealthCheck, HealthSource, NodeLoad};
use model::time::Timestamp;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use wire::link::{NodePolicy, ToServer};

/// Checks that run at the same time: an agent may be many nodes.
const CHECKS_AT_ONCE: usize = 16;

/// The health checks of an agent's nodes.
pub(super) struct HealthChecks {
    nodes: BTreeMap<String, NodeCheck>,
    places: Arc<Semaphore>,
    results_in: mpsc::Sender<CheckResult>,
    results: mpsc::Receiver<CheckResult>,
}

struct NodeCheck {
    check: HealthCheck,
    due: Timestamp,
    running: bool,
    /// A node on which the check failed is checked whatever its load is, so that it can pass.
    failed: bool,
    /// The group of the last check, while something of it may still run.
    group: Option<CheckGroup>,
    /// Checks so far: a group's name is never used twice.
    count: u64,
}

pub(super) struct CheckResult {
    node: String,
    failure: Option<String>,
    group: Option<CheckGroup>,
}

/// What the session has to do next about health.
pub(super) enum HealthEvent {
    Due(String),
    Result(CheckResult),
}

impl HealthChecks {
    pub fn new() -> HealthChecks {
        let (results_in, results) = mpsc::channel(CHECKS_AT_ONCE);
        let places = Arc::new(Semaphore::new(CHECKS_AT_ONCE));
        HealthChecks { nodes: BTreeMap::new(), places, results_in, results }
    }

    /// Takes the checks of the nodes' policies over. A new or changed check is due at once. Returns the nodes that are not
    /// checked any more.
    pub fn set_policies(&mut self, policies: &BTreeMap<String, NodePolicy>) -> Vec<String> {
        let mut unchecked = Vec::new();
        for (name, policy) in policies {
            match (&policy.site.health_check, self.nodes.get_mut(name)) {
                (None, None) => {}
                (None, Some(known)) => {
                    if let Some(group) = known.group.take() {
                        clear(name, &group);
                    }
                    self.nodes.remove(name);
                    unchecked.push(name.clone());
                }
                (Some(check), Some(known)) => {
                    if known.check != *check {
                        known.check = check.clone();
                        known.due = wall_clock::now();
                    }
                }
                (Some(check), None) => {
                    let known = NodeCheck {
                        check: check.clone(),
                        due: wall_clock::now(),
                        running: false,
                        // The first check is made whatever the node's load is.
                        failed: true,
                        group: None,
                        count: 0,
                    };
                    self.nodes.insert(name.clone(), known);
                }
            }
        }
        unchecked
    }

    /// Waits until a check is due or has ended.
    pub async fn next(&mut self) -> HealthEvent {
        let waiting = self.nodes.iter().filter(|(_, node)| !node.running);
        let first = waiting.min_by_key(|(_, node)| node.due).map(|(name, node)| (name, node.due));
        let due = async {
            let Some((name, due)) = first else { return std::future::pending().await };
            tokio::time::sleep(due.since(wall_clock::now())).await;
            name.clone()
        };
        tokio::select! {
            name = due => HealthEvent::Due(name),
            Some(result) = self.results.recv() => HealthEvent::Result(result),
        }
    }

    pub fn shut_down(&self) {
        for (name, node) in &self.nodes {
            if let Some(group) = &node.group {
                clear(name, group);
            }
        }
    }
}

impl Agent {
    pub(super) fn on_health(&mut self, event: HealthEvent) {
        match event {
            HealthEvent::Due(name) => self.begin_health_check(name),
            HealthEvent::Result(CheckResult { node, failure, group }) => {
                if let Some(known) = self.health.nodes.get_mut(&node) {
                    known.running = false;
                    known.failed = failure.is_some();
                    known.group = group;
                    self.send_check(node, failure);
                } else if let Some(group) = group {
                    clear(&node, &group);
                }
            }
        }
    }

    /// Tells the server what a check found. The number of checks that run at once bounds the messages.
    fn send_check(&mut self, node: String, failure: Option<String>) {
        self.outgoing.push(ToServer::Health { node, source: HealthSource::Check, failure });
    }

    /// A node that is not checked any more is not kept out of service by its last check.
    pub(super) fn set_health_checks(&mut self, policies: &BTreeMap<String, NodePolicy>) {
        for node in self.health.set_policies(policies) {
            self.send_check(node, None);
        }
    }

    fn begin_health_check(&mut self, name: String) {
        let (Some(node), load) = (self.nodes.get(&name), self.load_of(&name)) else { return };
        let Some(known) = self.health.nodes.get_mut(&name) else { return };
        known.due = next_due(&known.check, &name, wall_clock::now());
        if !known.failed && !known.check.loads.contains(&load) {
            return;
        }
        known.running = true;
        known.count += 1;
        let (left, group) = (known.group.take(), make_group(node, known.count));
        let (program, places) = (known.check.program.clone(), self.health.places.clone());
        let results = self.health.results_in.clone();
        tokio::spawn(async move {
            // The semaphore is never closed.
            let _place = places.acquire_owned().await;
            let run = move || {
                if let Some(left) = left {
                    clear(&name, &left);
                }
                let failure =
                    health_check::run(&program, &name, group.as_ref(), health_check::TIMEOUT);
                let group = group.filter(|group| !group.remove_if_empty());
                CheckResult { node: name, failure, group }
            };
            if let Ok(result) = tokio::task::spawn_blocking(run).await {
                // The agent ends: nobody waits for the result.
                let _ = results.send(result).await;
            }
        });
    }

    /// How much of a node its jobs have.
    fn load_of(&self, name: &str) -> NodeLoad {
        let held = self.attempts.iter().filter(|(key, held)| key.node == name && !held.has_ended());
        let granted = held.map(|(_, held)| held.cpus.count()).sum();
        let cpus = self.nodes.get(name).map_or(0, |node| node.policy.cpus);
        NodeLoad::of(granted, if cpus > 0 { cpus } else { self.machine.cpus })
    }
}

/// `None` where control groups are not available.
fn make_group(node: &Node, count: u64) -> Option<CheckGroup> {
    if node.capabilities().layout == Layout::Tracked {
        return None;
    }
    let name = format!("health_{}_{count}", wall_clock::now().0);
    let made = node
        .hierarchy()
        .and_then(|trees| Ok(JobGroup::create(&trees, &name, &GroupLimits::default())?));
    match made {
        Ok(group) => Some(CheckGroup::new(group)),
        Err(error) => {
            tracing::warn!(node = node.name, %error, "a health check runs without a group");
            None
        }
    }
}

fn clear(node: &str, group: &CheckGroup) {
    if let Err(error) = group.clear() {
        tracing::warn!(node, %error, "what a health check left cannot be killed");
    }
}

/// The next multiple of the interval: checks run on all nodes at the same time, so that parallel jobs are disturbed once.
/// Spread checks have an offset of each node's own.
fn next_due(check: &HealthCheck, node: &str, now: Timestamp) -> Timestamp {
    let interval = i64::from(check.interval_s.max(1));
    let offset = if check.spread {
        let mut hasher = DefaultHasher::new();
        node.hash(&mut hasher);
        (hasher.finish() % u64::from(check.interval_s.max(1))) as i64
    } else {
        0
    };
    let since = (now.secs() - offset).rem_euclid(interval);
    Timestamp::from_secs(now.secs()) + Duration::from_secs((interval - since) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(interval_s: u32, spread: bool) -> HealthCheck {
        HealthCheck { program: "/c".into(), interval_s, loads: NodeLoad::ALL.to_vec(), spread }
    }

    #[test]
    fn nodes_are_checked_at_the_same_time_unless_spread() {
        let now = Timestamp::from_secs(1_000_003);
        let due = |spread, node: &str| next_due(&check(60, spread), node, now).secs();
        assert_eq!(due(false, "n1"), 1_000_020);
        let spread: std::collections::BTreeSet<i64> =
            (0..50).map(|at| due(true, &format!("n{at}"))).collect();
        assert!(spread.len() > 10, "{spread:?}");
        assert!(spread.iter().all(|at| (1_000_004..=1_000_063).contains(at)), "{spread:?}");
    }

    #[test]
    fn check_is_never_due_twice_at_one_time() {
        let now = Timestamp::from_secs(1_000_020);
        assert_eq!(next_due(&check(60, false), "n1", now).secs(), 1_000_080);
        assert_eq!(next_due(&check(1, false), "n1", now).secs(), 1_000_021);
    }
}
