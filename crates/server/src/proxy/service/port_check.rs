//! Whether a replica's own server listens at its port, by the word of its node's agent, which is asked anew again and again as long as the
//! replica is there (`port_watch`). Gateways are told of a replica by this alone: what the step in a replica says is said with the rights of its owner.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wire::forward::OwnServer;
use wire::link::ServerAtPort;

/// The least time between two questions about one replica.
const INTERVAL: Duration = Duration::from_millis(950);
/// How long an answer holds while no other comes: an agent that is replaced by a newer one is away for a while, and its jobs go on.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct PortCheck(Mutex<Checked>);

#[derive(Default)]
struct Checked {
    /// When the last question began, and whether it is under way.
    begun: Option<Instant>,
    is_asked: bool,
    /// The replica's own server, as the agent said last, and when that was.
    server: Option<OwnServer>,
    said: Option<Instant>,
}

impl PortCheck {
    fn held(&self) -> MutexGuard<'_, Checked> {
        self.0.lock().expect("no panic with the check held")
    }

    /// Whether it is time to ask: the caller is to, and says what came of it.
    pub fn begin(&self, now: Instant) -> bool {
        let mut checked = self.held();
        let is_recent = |begun| now.saturating_duration_since(begun) < INTERVAL;
        if checked.is_asked || checked.begun.is_some_and(is_recent) {
            return false;
        }
        (checked.begun, checked.is_asked) = (Some(now), true);
        true
    }

    /// Notes an answer; `None` where there was none.
    pub fn end(&self, found: Option<&ServerAtPort>, now: Instant) {
        let mut checked = self.held();
        checked.is_asked = false;
        if let Some(found) = found {
            (checked.server, checked.said) = (found.server.clone(), Some(now));
        }
    }

    /// The replica's own server; `None` where none is known to listen.
    pub fn server(&self, now: Instant) -> Option<OwnServer> {
        let checked = self.held();
        let said = checked.said.filter(|at| now.saturating_duration_since(*at) < ANSWER_AGE_MAX);
        said.and(checked.server.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(address: &str) -> ServerAtPort {
        let address = address.parse().expect("an address");
        ServerAtPort { listens: true, server: Some(OwnServer { address, sockets: vec![7] }) }
    }

    #[test]
    fn server_is_known_until_the_agent_says_that_it_is_gone_or_says_nothing_for_long() {
        let (check, start) = (PortCheck::default(), Instant::now());
        let later = |s| start + Duration::from_secs(s);
        let address = |now| check.server(now).map(|server| server.address);
        assert_eq!(address(start), None, "nobody has said anything");
        check.end(Some(&found("0.0.0.0")), start);
        check.end(None, later(59));
        assert_eq!(address(later(59)), "0.0.0.0".parse().ok(), "the agent is away");
        assert_eq!(address(later(60)), None);
        check.end(Some(&found("10.0.0.7")), later(61));
        assert_eq!(address(later(61)), "10.0.0.7".parse().ok());
        // Another job of the same user has the port.
        check.end(Some(&ServerAtPort { listens: true, server: None }), later(62));
        assert_eq!(address(later(62)), None);
    }

    #[test]
    fn replica_is_asked_about_once_at_a_time_and_not_more_often_than_each_second() {
        let (check, start) = (PortCheck::default(), Instant::now());
        assert!(check.begin(start) && !check.begin(start + INTERVAL), "it is under way");
        check.end(None, start);
        assert!(!check.begin(start + INTERVAL / 2) && check.begin(start + INTERVAL));
    }
}
