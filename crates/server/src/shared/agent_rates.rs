//! Rates of what agents, and strangers who pass for one, make the server do: begin links, change dynamic nodes, and write lines
//! into its log, which would else roll over what others wrote there.

use crate::rate_limit::{LineRates, OwnerRates, RateLimit};
use std::time::{Duration, Instant};

/// Links of one certificate. An agent whose connection breaks dials again after two seconds at most.
const LINKS: RateLimit = RateLimit { burst: 60, interval: Duration::from_secs(1) };

/// Changes of what the agent of a dynamic node says that it has. Each is an event with the whole of it, and a new plan.
const REGISTRATIONS: RateLimit = RateLimit { burst: 6, interval: Duration::from_secs(10) };

/// Lines about one node, and about all strangers together.
const LINES: RateLimit = RateLimit { burst: 20, interval: Duration::from_secs(3) };

/// What lasts, and is seen with every message of a node.
const STANDING: RateLimit = RateLimit { burst: 1, interval: Duration::from_secs(600) };

/// When each certificate began links.
#[derive(Default)]
pub struct LinkRates(OwnerRates<String>);

impl LinkRates {
    /// Whether this certificate, which speaks for a node, may begin a link now.
    pub fn take(&self, fingerprint: &str, now: Instant) -> bool {
        self.0.take(LINKS, fingerprint.to_owned(), now).is_ok()
    }
}

/// When each dynamic node became what its agent said.
#[derive(Default)]
pub struct RegistrationRates(OwnerRates<String>);

impl RegistrationRates {
    /// Whether this node may become another now.
    pub fn take(&self, node: &str, now: Instant) -> bool {
        self.0.take(REGISTRATIONS, node.to_owned(), now).is_ok()
    }
}

/// Lines of the log by whom they are about: a node of the cluster, or nobody known; and those about what lasts.
#[derive(Default)]
pub struct AgentWarnings(LineRates<Option<String>>, LineRates<String>);

impl AgentWarnings {
    /// Logs a line about a node.
    pub fn warn(&self, node: &str, line: &str) {
        self.log(Some(node.to_owned()), line);
    }

    /// Logs a line about what lasts at a node, once in ten minutes.
    pub fn warn_of_standing(&self, node: &str, line: &str) {
        if self.1.take(STANDING, node.to_owned(), Instant::now()).is_some() {
            tracing::warn!("{line}");
        }
    }

    /// Logs a line about somebody who has not shown that he speaks for a node.
    pub fn warn_of_stranger(&self, line: &str) {
        self.log(None, line);
    }

    fn log(&self, about: Option<String>, line: &str) {
        if let Some(unlogged) = self.0.take(LINES, about, Instant::now()) {
            match unlogged {
                0 => tracing::warn!("{line}"),
                unlogged => tracing::warn!(unlogged, "{line}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_one_node_or_strangers_are_held_to_a_rate_and_counted() {
        let (warnings, start) = (AgentWarnings::default(), Instant::now());
        let stranger = |seconds| warnings.0.take(LINES, None, start + Duration::from_secs(seconds));
        let logged = (0..1000).filter(|_| stranger(0).is_some()).count();
        assert_eq!(logged, LINES.burst as usize);
        assert_eq!(stranger(3), Some(980), "the next line says how many were left out");
        assert_eq!(stranger(3), None);
        let of_node = warnings.0.take(LINES, Some("n1".into()), start);
        assert_eq!(of_node, Some(0), "others are still heard");
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
