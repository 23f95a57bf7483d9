//! Which attempts the nodes have, as far as the server can tell: no order about an attempt goes out before its launch. Free of I/O, so
//! that the fault simulator runs it too.

use crate::order::Action;
use model::id::AttemptId;
use std::collections::{HashMap, HashSet};

#[derive(Debug, Default)]
pub struct LaunchedAttempts {
    /// Per node, the link and the attempts whose launch was sent on it: a hello that was sent before them does not mean
    /// that they are missing.
    launched: HashMap<String, (u64, HashSet<AttemptId>)>,
    /// Per node, the attempts that it held when it last said hello.
    held: HashMap<String, HashSet<AttemptId>>,
    /// Per node, the attempts that it does not have and that are launched there once they are resumed. No more than the node's jobs.
    withheld: HashMap<String, HashSet<AttemptId>>,
}

/// What an order that went out changes of what is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentOrder {
    Launch,
    Forget,
    Other,
}

impl SentOrder {
    pub fn of(action: &Action) -> Self {
        match action {
            Action::Launch(_) => Self::Launch,
            Action::Forget => Self::Forget,
            _ => Self::Other,
        }
    }
}

impl LaunchedAttempts {
    /// The node says that it holds these, and no others.
    pub fn said_hello(&mut self, node: &str, held: impl IntoIterator<Item = AttemptId>) {
        self.held.insert(node.to_owned(), held.into_iter().collect());
        // Of each attempt that the node lacks it is found anew whether it is launched.
        self.withheld.remove(node);
    }

    /// The attempt is suspended, and the node does not have it: it would run on CPUs that are another's by now, or will be. It is
    /// launched once it is resumed.
    pub fn withhold(&mut self, node: &str, attempt: AttemptId) {
        self.withheld.entry(node.to_owned()).or_default().insert(attempt);
    }

    /// Whether the attempt, which is resumed, is still to be launched on the node.
    pub fn is_withheld(&self, node: &str, attempt: AttemptId) -> bool {
        self.withheld.get(node).is_some_and(|withheld| withheld.contains(&attempt))
    }

    /// Whether the attempt's launch was sent on the link that the node has now.
    pub fn is_sent(&self, node: &str, link: Option<u64>, attempt: AttemptId) -> bool {
        let sent = self.launched.get(node);
        sent.is_some_and(|(on, attempts)| Some(*on) == link && attempts.contains(&attempt))
    }

    /// Whether the node has the attempt: its launch was sent on the link that the node has now, or the node said that it
    /// holds it. A launch on an earlier link may be lost, and is sent again once the node's hello is read: an order before
    /// that one would make the node report the attempt as lost, after it was started.
    pub fn is_known_to(&self, node: &str, link: Option<u64>, attempt: AttemptId) -> bool {
        let held = self.held.get(node).is_some_and(|held| held.contains(&attempt));
        held || self.is_sent(node, link, attempt)
    }

    /// Whether the order may go to the node: a node that does not know an attempt reports it as lost.
    pub fn may_send(
        &self,
        node: &str,
        link: Option<u64>,
        attempt: AttemptId,
        action: &Action,
    ) -> bool {
        let may_be_first = matches!(
            action,
            Action::Launch(_) | Action::End(_) | Action::Forget | Action::Reboot { .. }
        );
        may_be_first || self.is_known_to(node, link, attempt)
    }

    /// The order went out on this link.
    pub fn note_sent(&mut self, node: &str, link: u64, attempt: AttemptId, order: SentOrder) {
        let ends_waiting = matches!(order, SentOrder::Launch | SentOrder::Forget);
        if let Some(withheld) = self.withheld.get_mut(node).filter(|_| ends_waiting) {
            withheld.remove(&attempt);
        }
        match order {
            SentOrder::Launch => {
                let sent = self.launched.entry(node.to_owned()).or_default();
                if sent.0 != link {
                    // Whether the node has what was launched on the link before, its hello tells.
                    *sent = (link, HashSet::new());
                }
                sent.1.insert(attempt);
            }
            SentOrder::Forget => {
                if let Some((_, sent)) = self.launched.get_mut(node) {
                    sent.remove(&attempt);
                }
                if let Some(held) = self.held.get_mut(node) {
                    held.remove(&attempt);
                }
            }
            SentOrder::Other => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::JobId;

    const ATTEMPT: AttemptId = AttemptId { job: JobId(7), number: 1 };

    #[test]
    fn order_about_an_attempt_follows_its_launch_on_the_same_link_or_the_nodes_own_word() {
        let mut attempts = LaunchedAttempts::default();
        let may = |attempts: &LaunchedAttempts, link| {
            attempts.may_send("n1", Some(link), ATTEMPT, &Action::Suspend)
        };
        assert!(!may(&attempts, 1), "nothing was launched");
        assert!(attempts.may_send("n1", Some(1), ATTEMPT, &Action::Forget));
        attempts.note_sent("n1", 1, ATTEMPT, SentOrder::Launch);
        assert!(may(&attempts, 1));
        assert!(!may(&attempts, 2), "the launch may be lost with its link");
        attempts.said_hello("n1", [ATTEMPT]);
        assert!(may(&attempts, 2));
        attempts.note_sent("n1", 2, ATTEMPT, SentOrder::Forget);
        assert!(!may(&attempts, 2) && !may(&attempts, 1));
    }

    #[test]
    fn launch_of_a_suspended_attempt_waits_until_it_is_sent_or_the_node_speaks_again() {
        let mut attempts = LaunchedAttempts::default();
        let withheld = |attempts: &LaunchedAttempts| attempts.is_withheld("n1", ATTEMPT);
        assert!(!withheld(&attempts));
        attempts.withhold("n1", ATTEMPT);
        attempts.note_sent("n1", 1, ATTEMPT, SentOrder::Other);
        assert!(withheld(&attempts) && !attempts.is_known_to("n1", Some(1), ATTEMPT));
        attempts.note_sent("n1", 1, ATTEMPT, SentOrder::Launch);
        assert!(!withheld(&attempts) && attempts.is_known_to("n1", Some(1), ATTEMPT));
        for end in [SentOrder::Launch, SentOrder::Forget] {
            attempts.withhold("n1", ATTEMPT);
            attempts.note_sent("n1", 1, ATTEMPT, end);
            assert!(!withheld(&attempts), "{end:?}");
        }
        attempts.withhold("n1", ATTEMPT);
        attempts.said_hello("n1", [ATTEMPT]);
        assert!(!withheld(&attempts));
    }
}
