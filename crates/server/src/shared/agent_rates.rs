//! Rates of what agents, and strangers who pass for one, make the server do: begin links, and write lines into its log, which
//! would else roll over what others wrote there.

use crate::rate_limit::{RateLimit, RateUse};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Links of one certificate. An agent whose connection breaks dials again after two seconds at most.
const LINKS: RateLimit = RateLimit { burst: 60, interval: Duration::from_secs(1) };

/// Lines about one node, and about all strangers together.
const LINES: RateLimit = RateLimit { burst: 20, interval: Duration::from_secs(3) };

/// Owners that are remembered before those are looked for that need not be.
const OWNERS_MAX: usize = 4096;

/// When each certificate began links.
#[derive(Default)]
pub struct LinkRates(Mutex<HashMap<String, RateUse>>);

impl LinkRates {
    /// Whether this certificate, which speaks for a node, may begin a link now.
    pub fn take(&self, fingerprint: &str, now: Instant) -> bool {
        let mut all = self.0.lock().expect("no panic with the rates held");
        if all.len() >= OWNERS_MAX {
            all.retain(|_, used| !LINKS.is_unused(used, now));
        }
        LINKS.take(all.entry(fingerprint.to_owned()).or_default(), now)
    }
}

/// Lines of the log by whom they are about: a node of the cluster, or nobody known.
#[derive(Default)]
pub struct AgentWarnings(Mutex<HashMap<Option<String>, Lines>>);

#[derive(Default)]
struct Lines {
    used: RateUse,
    unlogged: u64,
}

impl AgentWarnings {
    /// Logs a line about a node.
    pub fn warn(&self, node: &str, line: &str) {
        self.log(Some(node.to_owned()), line);
    }

    /// Logs a line about somebody who has not shown that he speaks for a node.
    pub fn warn_of_stranger(&self, line: &str) {
        self.log(None, line);
    }

    fn log(&self, about: Option<String>, line: &str) {
        if let Some(unlogged) = self.take(about, Instant::now()) {
            match unlogged {
                0 => tracing::warn!("{line}"),
                unlogged => tracing::warn!(unlogged, "{line}"),
            }
        }
    }

    /// How many lines were left out before this one; `None` where it is left out too.
    fn take(&self, about: Option<String>, now: Instant) -> Option<u64> {
        let mut all = self.0.lock().expect("no panic with the lines held");
        if all.len() >= OWNERS_MAX {
            all.retain(|_, lines| lines.unlogged > 0 || !LINES.is_unused(&lines.used, now));
        }
        let lines = all.entry(about).or_default();
        if LINES.take(&mut lines.used, now) {
            return Some(std::mem::take(&mut lines.unlogged));
        }
        lines.unlogged += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_one_node_or_strangers_are_held_to_a_rate_and_counted() {
        let (warnings, start) = (AgentWarnings::default(), Instant::now());
        let stranger = |seconds| warnings.take(None, start + Duration::from_secs(seconds));
        let logged = (0..1000).filter(|_| stranger(0).is_some()).count();
        assert_eq!(logged, LINES.burst as usize);
        assert_eq!(stranger(3), Some(980), "the next line says how many were left out");
        assert_eq!(stranger(3), None);
        assert_eq!(warnings.take(Some("n1".into()), start), Some(0), "others are still heard");
    }

    #[test]
    fn certificate_begins_a_bounded_number_of_links() {
        let (rates, start) = (LinkRates::default(), Instant::now());
        let begun = |seconds| {
            let at = start + Duration::from_secs(seconds);
            (0..1000).filter(|_| rates.take("f", at)).count()
        };
        assert_eq!((begun(0), begun(10), begun(100)), (60, 10, 60));
        assert!(rates.take("other", start));
    }
}
