//! The database, from any thread. Whoever asks has the session in turn, and waits a bounded time.
//!
//! What is asked is done in order, also what nobody waits for any more: so a state that is read back after a late commit has
//! that commit, if the database has it. A lost connection is made anew for the next question. No other thread stands between who asks
//! and the database, also where a task of a runtime asks: a commit costs no more changes of threads than its answer.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::answer::Deadline;
use super::commit_signal::CommitSignal;
use super::error::DatabaseError;
use super::session::{Session, StatementBounds};
use super::socket::{aside, wait_patiently};
use super::url::DatabaseUrl;

/// Questions that may wait for the session.
const BACKLOG: usize = 64;
/// How long a question waits for its answer. The database ends a statement before that.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The database, from any thread.
pub struct Database {
    turns: Mutex<Turns>,
    /// Told when the session is free.
    freed: Condvar,
    answer_timeout: Duration,
    shown: String,
    /// What the journal's next append writes with its commit.
    with_journal: Mutex<Option<Extent>>,
    /// Told of each commit of the journal.
    pub(super) committed: Arc<CommitSignal>,
}

/// Bytes of a file in the database, and where they begin.
pub(super) struct Extent {
    pub file: i64,
    pub begins: i64,
    pub bytes: Vec<u8>,
}

impl Database {
    /// Connects with the first question.
    pub fn new(url: DatabaseUrl) -> io::Result<Arc<Self>> {
        Self::with_answer_timeout(url, ANSWER_TIMEOUT)
    }

    /// As [`Database::new`], with another time that a question waits for its answer.
    pub fn with_answer_timeout(
        url: DatabaseUrl,
        answer_timeout: Duration,
    ) -> io::Result<Arc<Self>> {
        Self::with_bounds(url, answer_timeout, StatementBounds::LONG)
    }

    /// The same where nothing is done any more that was late: what is asked later does not look for it.
    pub fn with_nothing_late(url: DatabaseUrl, answer_timeout: Duration) -> io::Result<Arc<Self>> {
        Self::with_bounds(url, answer_timeout, StatementBounds::below(answer_timeout))
    }

    fn with_bounds(
        url: DatabaseUrl,
        answer_timeout: Duration,
        bounds: StatementBounds,
    ) -> io::Result<Arc<Self>> {
        let shown = url.shown().to_owned();
        let link = Link { url, bounds, session: None };
        let turns = Turns { link: Some(link), waiting: VecDeque::new(), next: 0 };
        Ok(Arc::new(Self {
            turns: Mutex::new(turns),
            freed: Condvar::new(),
            answer_timeout,
            shown,
            with_journal: Mutex::default(),
            committed: Arc::default(),
        }))
    }

    fn with_journal(&self) -> MutexGuard<'_, Option<Extent>> {
        self.with_journal.lock().expect("no panic with the extent held")
    }

    /// Leaves an extent to the journal's next append; false where one is there already.
    pub(super) fn leave_to_journal(&self, extent: Extent) -> bool {
        let mut place = self.with_journal();
        let is_free = place.is_none();
        if is_free {
            *place = Some(extent);
        }
        is_free
    }

    /// What was left to this append. One that fails has taken it too: whoever left it is told by the failure.
    pub(super) fn take_for_journal(&self) -> Option<Extent> {
        self.with_journal().take()
    }

    /// The address, without a password.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Does `work` in the session and waits for its result.
    pub(super) fn ask<T: Send>(
        &self,
        work: impl FnOnce(&mut Session) -> Result<T, DatabaseError> + Send,
    ) -> Result<T, DatabaseError> {
        let deadline = Deadline::after(self.answer_timeout);
        let mut held = HeldLink { database: self, link: Some(self.take_link(deadline)?) };
        let link = held.link.as_mut().expect("it is there until the drop");
        let result = link.session(deadline).and_then(work);
        link.drop_lost_session(matches!(result, Err(DatabaseError::Unreachable(_))));
        result
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().expect("no panic with the turns held")
    }

    /// The link, when those who came before have had it.
    fn take_link(&self, deadline: Deadline) -> Result<Link, DatabaseError> {
        let mut turns = self.turns();
        if turns.waiting.len() >= BACKLOG {
            return Err(DatabaseError::Backlog { max: BACKLOG });
        }
        let ticket = turns.next;
        turns.next = ticket.wrapping_add(1);
        turns.waiting.push_back(ticket);
        drop(turns);
        let is_turn = wait_patiently(Instant::now(), deadline.at, |end| {
            let left = end.saturating_duration_since(Instant::now());
            let waits = |turns: &mut Turns| !turns.is_turn_of(ticket);
            let waited = self.freed.wait_timeout_while(self.turns(), left, waits);
            waited.expect("no panic with the turns held").0.is_turn_of(ticket)
        });
        let mut turns = self.turns();
        turns.waiting.retain(|waiting| *waiting != ticket);
        let link = if is_turn { turns.link.take() } else { None };
        drop(turns);
        if link.is_none() {
            // The next in line may have been told while this one still stood before it.
            self.freed.notify_all();
        }
        link.ok_or_else(|| deadline.late())
    }
}

/// Who has the link, and who waits for it: a thread that asks again and again passes nobody.
struct Turns {
    /// Nothing while somebody has it.
    link: Option<Link>,
    waiting: VecDeque<u64>,
    next: u64,
}

impl Turns {
    fn is_turn_of(&self, ticket: u64) -> bool {
        self.link.is_some() && self.waiting.front() == Some(&ticket)
    }
}

/// The link while somebody has it. It is put back at the end.
struct HeldLink<'a> {
    database: &'a Database,
    link: Option<Link>,
}

impl Drop for HeldLink<'_> {
    fn drop(&mut self) {
        let mut turns = self.database.turns();
        turns.link = self.link.take();
        // Whoever waits was put there before. To tell nobody is a call of the kernel all the same, with each commit.
        let is_awaited = !turns.waiting.is_empty();
        drop(turns);
        if is_awaited {
            self.database.freed.notify_all();
        }
    }
}

/// The session, while there is one, and what a new one is made from.
struct Link {
    url: DatabaseUrl,
    bounds: StatementBounds,
    session: Option<Session>,
}

impl Link {
    /// The session that there is, or a new one where it was lost while nothing was asked: what is asked now was not under way then.
    fn session(&mut self, deadline: Deadline) -> Result<&mut Session, DatabaseError> {
        if let Some(session) = &mut self.session {
            session.take_in();
        }
        self.drop_lost_session(false);
        let session = match self.session.take() {
            Some(session) => session,
            None => aside(|| Session::connect(&self.url, self.bounds, deadline))?,
        };
        let session = self.session.insert(session);
        session.set_deadline(deadline);
        Ok(session)
    }

    /// A session that failed otherwise than by an answer of the database is of no more use.
    fn drop_lost_session(&mut self, has_failed: bool) {
        if has_failed || self.session.as_ref().is_some_and(Session::is_over) {
            self.session = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nowhere() -> Arc<Database> {
        let url = "postgres:///sluice?host=/nowhere&user=sluice";
        Database::new(DatabaseUrl::parse(url, None).expect("an address")).expect("a driver")
    }

    #[test]
    fn everybody_who_asks_a_database_that_is_nowhere_is_told() {
        let database = nowhere();
        let ask = || database.ask(|session| session.query("SELECT 1", &[]).map(drop));
        std::thread::scope(|scope| {
            let asked: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            for thread in asked {
                let told = thread.join().expect("no panic").expect_err("nobody is there");
                assert!(matches!(told, DatabaseError::Unreachable(_)), "{told}");
            }
        });
        let turns = database.turns();
        assert!(turns.waiting.is_empty() && turns.link.is_some(), "the next may ask");
    }

    #[test]
    fn who_waits_too_long_for_a_turn_is_late_and_keeps_nobody_waiting() {
        let database = nowhere();
        let soon = || Deadline::after(Duration::ZERO);
        let held = database.take_link(soon()).expect("it is free");
        let late = database.take_link(soon()).err().expect("somebody has it");
        assert!(matches!(late, DatabaseError::Late(_)), "{late}");
        assert!(database.turns().waiting.is_empty());
        database.turns().link = Some(held);
        database.take_link(soon()).map(drop).expect("it is free again");
    }
}
