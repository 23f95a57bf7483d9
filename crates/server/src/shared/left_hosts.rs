//! Hosts that left their fleets lately, and machines that are being deleted. The agent of one may come again before it ends: it is
//! refused, and is no stranger of whom somebody has to be warned.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Hosts that are remembered, the last ones.
const HOSTS_MAX: usize = 1024;

/// An agent that still comes after so long was left behind, and whoever reads the log is warned of it.
const REMEMBERED: Duration = Duration::from_secs(600);

struct LeftHost {
    origin: String,
    node: String,
    /// The certificate of its agent.
    fingerprint: String,
    at: Instant,
    is_told: bool,
}

#[derive(Default)]
pub struct LeftHosts(Mutex<VecDeque<LeftHost>>);

impl LeftHosts {
    /// `origin`: what the node was a part of, as the log calls it: `fleet lab`, `source cloud`.
    pub fn note(&self, origin: &str, node: &str, fingerprint: &str, now: Instant) {
        let mut hosts = self.held();
        hosts.retain(|host| host.node != node);
        if hosts.len() >= HOSTS_MAX {
            hosts.pop_front();
        }
        hosts.push_back(LeftHost {
            origin: origin.to_owned(),
            node: node.to_owned(),
            fingerprint: fingerprint.to_owned(),
            at: now,
            is_told: false,
        });
    }

    /// What this agent's node was a part of lately, with whether it is asked for the first time; `None` for everybody else.
    pub fn origin_of(&self, node: &str, fingerprint: &str, now: Instant) -> Option<(String, bool)> {
        let mut hosts = self.held();
        hosts.retain(|host| now.saturating_duration_since(host.at) < REMEMBERED);
        let is_its = |host: &&mut LeftHost| host.node == node && host.fingerprint == fingerprint;
        let host = hosts.iter_mut().find(is_its)?;
        let is_first = !std::mem::replace(&mut host.is_told, true);
        Some((host.origin.clone(), is_first))
    }

    fn held(&self) -> MutexGuard<'_, VecDeque<LeftHost>> {
        self.0.lock().expect("no panic with the hosts held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_of_a_host_that_left_is_known_for_a_while_and_told_of_once() {
        let (left, start) = (LeftHosts::default(), Instant::now());
        left.note("fleet lab", "lab-0", "f1", start);
        let fleet = |is_first| Some(("fleet lab".to_owned(), is_first));
        assert_eq!(left.origin_of("lab-1", "f1", start), None);
        assert_eq!(left.origin_of("lab-0", "f2", start), None, "another certificate");
        assert_eq!(left.origin_of("lab-0", "f1", start), fleet(true));
        assert_eq!(left.origin_of("lab-0", "f1", start), fleet(false));
        assert_eq!(left.origin_of("lab-0", "f1", start + REMEMBERED), None, "it was left behind");
    }

    #[test]
    fn hosts_are_remembered_within_a_bound() {
        let (left, now) = (LeftHosts::default(), Instant::now());
        (0..=HOSTS_MAX)
            .for_each(|number| left.note("fleet lab", &format!("lab-{number}"), "f", now));
        assert_eq!(left.held().len(), HOSTS_MAX);
        assert_eq!(left.origin_of("lab-0", "f", now), None, "the first is forgotten");
        assert!(left.origin_of("lab-1", "f", now).is_some());
    }
}
