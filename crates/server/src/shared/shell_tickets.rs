//! Tickets for shells in the browser. A page asks for one by a request that proves its origin, and opens the shell's socket with
//! it: good once, for seconds, for one user and one node of one job. They are known here by their hashes alone.

use crate::auth::token;
use model::id::JobId;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a ticket waits for its socket.
const LIFE: Duration = Duration::from_secs(30);
/// Tickets of one user, and of all, that wait at the same time; beyond it, none is made.
const OF_USER_MAX: usize = 16;
const ALL_MAX: usize = 4_096;

/// Where a shell runs: on the node of this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShellTarget {
    pub job: JobId,
    pub rank: u32,
}

#[derive(Default)]
pub struct ShellTickets {
    /// By the hash of the secret.
    tickets: Mutex<HashMap<String, Ticket>>,
}

struct Ticket {
    uid: u32,
    target: ShellTarget,
    until: Instant,
}

impl ShellTickets {
    /// The secret of a new ticket; nothing where too many wait.
    pub fn make(&self, uid: u32, target: ShellTarget, now: Instant) -> Option<String> {
        let mut tickets = self.tickets.lock().expect("no panic with the tickets held");
        tickets.retain(|_, known| known.until > now);
        let own = tickets.values().filter(|known| known.uid == uid).count();
        if own >= OF_USER_MAX || tickets.len() >= ALL_MAX {
            return None;
        }
        let secret = token::generate();
        tickets.insert(token::hash(&secret), Ticket { uid, target, until: now + LIFE });
        Some(secret)
    }

    /// What a ticket of this user is for. It is gone by that, whoever showed it.
    pub fn take(&self, secret: &str, uid: u32, now: Instant) -> Option<ShellTarget> {
        let mut tickets = self.tickets.lock().expect("no panic with the tickets held");
        let ticket = tickets.remove(&token::hash(secret))?;
        (ticket.uid == uid && ticket.until > now).then_some(ticket.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: ShellTarget = ShellTarget { job: JobId(7), rank: 1 };

    #[test]
    fn ticket_is_good_once_in_time_and_for_its_user() {
        let (tickets, now) = (ShellTickets::default(), Instant::now());
        let make = || tickets.make(1000, TARGET, now).expect("a ticket");
        let one = make();
        assert_eq!(tickets.take(&one, 1000, now), Some(TARGET));
        assert_eq!(tickets.take(&one, 1000, now), None, "once");
        assert_eq!(tickets.take(&make(), 1000, now + LIFE), None, "in time");
        let stolen = make();
        assert_eq!(tickets.take(&stolen, 1001, now), None, "for its user");
        assert_eq!(tickets.take(&stolen, 1000, now), None, "and then for nobody");
        assert_eq!(tickets.take("", 1000, now), None);
    }

    #[test]
    fn tickets_of_a_user_are_bounded_until_they_are_too_old() {
        let (tickets, now) = (ShellTickets::default(), Instant::now());
        for _ in 0..OF_USER_MAX {
            assert!(tickets.make(1000, TARGET, now).is_some());
        }
        assert!(tickets.make(1000, TARGET, now).is_none());
        assert!(tickets.make(1001, TARGET, now).is_some());
        assert!(tickets.make(1000, TARGET, now + LIFE).is_some());
    }
}
