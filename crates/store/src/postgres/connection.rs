//! A session with the database, on a thread of its own. Whoever asks waits a bounded time.
//!
//! What is asked is done in order, also what nobody waits for any more: so a state that is read back after a late commit has
//! that commit, if the database has it. A lost connection is made anew for the next question.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use postgres::fallible_iterator::FallibleIterator;
use postgres::types::ToSql;
use postgres::{Client, NoTls, Row, Statement, Transaction};

use super::error::DatabaseError;
use super::url::DatabaseUrl;

/// Questions that may wait for the session.
const BACKLOG: usize = 64;
/// How long a question waits for its answer. The database ends a statement before that.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Of every session. A server that is frozen in a transaction holds nobody up for long. A site whose commits wait for more than
/// the database's own disk keeps that; one whose commits wait for nothing does not.
const SESSION_SETUP: &str = "SET search_path = pg_catalog; \
    SET statement_timeout = '15s'; SET lock_timeout = '10s'; \
    SET idle_in_transaction_session_timeout = '2s'; \
    SELECT set_config('synchronous_commit', 'on', false) \
    WHERE current_setting('synchronous_commit') IN ('off', 'local')";

type Question = Box<dyn FnOnce(&mut Link) + Send>;

/// The database, from any thread.
pub struct Database {
    questions: SyncSender<Question>,
    shown: String,
    /// What the journal's next append writes with its commit.
    with_journal: Mutex<Option<Extent>>,
}

/// Bytes of a file in the database, and where they begin.
pub(super) struct Extent {
    pub file: i64,
    pub begins: i64,
    pub bytes: Vec<u8>,
}

impl Database {
    /// Starts the session's thread. It connects with the first question.
    pub fn new(url: DatabaseUrl) -> io::Result<Arc<Self>> {
        let (questions, asked) = sync_channel(BACKLOG);
        let shown = url.shown().to_owned();
        let link = Link { url, session: None };
        std::thread::Builder::new().name("database".into()).spawn(move || answer(link, &asked))?;
        Ok(Arc::new(Self { questions, shown, with_journal: Mutex::default() }))
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
    pub(super) fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Session) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let (reply, answered) = sync_channel(1);
        let question: Question = Box::new(move |link: &mut Link| {
            let result = link.session().and_then(work);
            link.drop_lost_session(matches!(result, Err(DatabaseError::Unreachable(_))));
            // Whoever asked may have given up.
            let _ = reply.send(result);
        });
        if self.questions.try_send(question).is_err() {
            return Err(DatabaseError::Backlog { max: BACKLOG });
        }
        match answered.recv_timeout(ANSWER_TIMEOUT) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(DatabaseError::Late(ANSWER_TIMEOUT)),
            Err(RecvTimeoutError::Disconnected) => {
                Err(DatabaseError::Unreachable("its thread has ended".into()))
            }
        }
    }
}

fn answer(mut link: Link, asked: &Receiver<Question>) {
    while let Ok(question) = asked.recv() {
        question(&mut link);
    }
}

/// The thread's side: the session, while there is one.
struct Link {
    url: DatabaseUrl,
    session: Option<Session>,
}

impl Link {
    fn session(&mut self) -> Result<&mut Session, DatabaseError> {
        if self.session.is_none() {
            self.session = Some(Session::connect(&self.url)?);
        }
        self.session.as_mut().ok_or_else(|| DatabaseError::Unreachable("no session".into()))
    }

    /// A session that failed otherwise than by an answer of the database is of no more use.
    fn drop_lost_session(&mut self, has_failed: bool) {
        if has_failed || self.session.as_ref().is_some_and(|session| session.client.is_closed()) {
            self.session = None;
        }
    }
}

/// A connection, and the statements that it has prepared.
pub(super) struct Session {
    client: Client,
    prepared: HashMap<&'static str, Statement>,
    /// Whether it is told of changes.
    listens: bool,
}

/// The channel on which commits and changes of the lease are told.
const LISTEN: &str = "LISTEN sluice";
/// What is told there when a lease is given up. A commit is told without a word.
const LEASE_FREE: &str = "lease";

impl Session {
    fn connect(url: &DatabaseUrl) -> Result<Self, DatabaseError> {
        let mut client = match &url.tls {
            Some(tls) => url.config.connect(tls.clone())?,
            None => url.config.connect(NoTls)?,
        };
        client.batch_execute(SESSION_SETUP)?;
        Ok(Self { client, prepared: HashMap::new(), listens: false })
    }

    fn statement(&mut self, sql: &'static str) -> Result<Statement, DatabaseError> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql)?;
        self.prepared.insert(sql, statement.clone());
        Ok(statement)
    }

    pub fn query(
        &mut self,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, DatabaseError> {
        let statement = self.statement(sql)?;
        Ok(self.client.query(&statement, values)?)
    }

    /// The number of rows that were changed.
    pub fn execute(
        &mut self,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, DatabaseError> {
        let statement = self.statement(sql)?;
        Ok(self.client.execute(&statement, values)?)
    }

    /// Waits until a commit or the end of a lease is told, or the time is over; whether a lease was given up. A session that begins
    /// to listen does not wait: what came before is not told.
    pub fn await_notice(&mut self, timeout: Duration) -> Result<bool, DatabaseError> {
        if !self.listens {
            self.client.batch_execute(LISTEN)?;
            self.listens = true;
            return Ok(false);
        }
        let mut notices = self.client.notifications();
        let mut next = notices.timeout_iter(timeout).next()?;
        let mut is_lease_free = false;
        // One look takes in all that was told until then.
        while let Some(notice) = next {
            is_lease_free |= notice.payload() == LEASE_FREE;
            next = notices.iter().next()?;
        }
        Ok(is_lease_free)
    }

    pub fn transaction(&mut self) -> Result<Transaction<'_>, DatabaseError> {
        Ok(self.client.transaction()?)
    }

    /// A transaction that only the leader of this epoch has. The lease does not change hands while it lasts.
    pub fn leaders_transaction(&mut self, epoch: i64) -> Result<Transaction<'_>, DatabaseError> {
        let mut transaction = self.client.transaction()?;
        let sql = "SELECT 1 FROM sluice.lease WHERE epoch = $1 FOR SHARE";
        match transaction.query_opt(sql, &[&epoch])? {
            Some(_) => Ok(transaction),
            None => Err(DatabaseError::Deposed),
        }
    }
}
