//! A connection with the database and the statements that it has prepared, driven by the thread that asks (`socket`).

use std::collections::HashMap;
use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::answer::{Deadline, Incoming, answer};
use super::connect::{Connected, connect};
use super::error::DatabaseError;
use super::socket::SharedSocket;
use super::url::DatabaseUrl;

/// What every session of ours sets. A server that is frozen in a transaction holds nobody up for long. A session that has nothing to ask for
/// long is not ended by the site's default for that, which PostgreSQL has from 14 on. A site whose commits wait for more than
/// the database's own disk keeps that; one whose commits wait for nothing does not. No statement here is long enough to be compiled: where
/// PostgreSQL takes one for that, as the sum over a long journal at a takeover, compiling takes longer.
const SESSION_SETUP: &str = "SET search_path = pg_catalog; SET jit = off; \
    SET idle_in_transaction_session_timeout = '2s'; \
    SELECT set_config('idle_session_timeout', '0', false) \
    WHERE current_setting('idle_session_timeout', true) IS NOT NULL; \
    SELECT set_config('synchronous_commit', 'on', false) \
    WHERE current_setting('synchronous_commit') IN ('off', 'local')";

/// How long the database works on a statement of a session before it ends it, and how long it waits for one lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct StatementBounds {
    pub statement: Duration,
    pub lock: Duration,
}

impl StatementBounds {
    /// Where a statement is looked for once more that was late.
    pub const LONG: Self =
        Self { statement: Duration::from_secs(15), lock: Duration::from_secs(10) };

    /// A statement is over before its answer is given up, with a quarter of that time for the way there and back.
    pub fn below(answer_timeout: Duration) -> Self {
        Self { statement: answer_timeout * 3 / 4, lock: answer_timeout / 2 }
    }

    fn sql(self) -> String {
        let (statement, lock) = (self.statement.as_millis(), self.lock.as_millis());
        format!("SET statement_timeout = {statement}; SET lock_timeout = {lock}")
    }
}

/// The channel on which commits and changes of the lease are told.
const LISTEN: &str = "LISTEN sluice";

/// How long a transaction that is late waits for its end: long enough for the end to be sent.
const ROLLBACK_TIMEOUT: Duration = Duration::from_millis(100);

pub(super) struct Session {
    socket: SharedSocket,
    client: Client,
    incoming: Incoming,
    prepared: HashMap<&'static str, Statement>,
    /// Whether it is told of changes.
    listens: bool,
    deadline: Deadline,
}

impl Session {
    pub fn connect(
        url: &DatabaseUrl,
        bounds: StatementBounds,
        deadline: Deadline,
    ) -> Result<Self, DatabaseError> {
        let Connected { client, incoming, socket } = connect(url, deadline)?;
        let prepared = HashMap::new();
        let mut session = Self { socket, client, incoming, prepared, listens: false, deadline };
        session.batch_execute(&format!("{SESSION_SETUP}; {}", bounds.sql()))?;
        Ok(session)
    }

    /// Until when its answers are waited for from now on.
    pub fn set_deadline(&mut self, deadline: Deadline) {
        self.deadline = deadline;
    }

    /// Whether the connection has ended.
    pub fn is_over(&self) -> bool {
        self.incoming.is_over() || self.client.is_closed()
    }

    /// Takes in what has come since the last question: the end of the connection too, as of a database that was restarted meanwhile.
    pub fn take_in(&mut self) {
        self.incoming.take_in_what_came();
    }

    fn statement(&mut self, sql: &'static str) -> Result<Statement, DatabaseError> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let Self { socket, client, incoming, deadline, .. } = self;
        let statement = answer(socket, incoming, *deadline, client.prepare(sql))?;
        self.prepared.insert(sql, statement.clone());
        Ok(statement)
    }

    pub fn query(
        &mut self,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, DatabaseError> {
        let statement = self.statement(sql)?;
        let Self { socket, client, incoming, deadline, .. } = self;
        answer(socket, incoming, *deadline, client.query(&statement, values))
    }

    /// The number of rows that were changed.
    pub fn execute(
        &mut self,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, DatabaseError> {
        let statement = self.statement(sql)?;
        let Self { socket, client, incoming, deadline, .. } = self;
        answer(socket, incoming, *deadline, client.execute(&statement, values))
    }

    fn batch_execute(&mut self, sql: &str) -> Result<(), DatabaseError> {
        let Self { socket, client, incoming, deadline, .. } = self;
        answer(socket, incoming, *deadline, client.batch_execute(sql))
    }

    /// Waits until a commit or the end of a lease is told, or the time is over; whether a lease was given up. A session that begins
    /// to listen does not wait: what came before is not told.
    pub fn await_notice(&mut self, timeout: Duration) -> Result<bool, DatabaseError> {
        if !self.listens {
            self.batch_execute(LISTEN)?;
            self.listens = true;
            return Ok(false);
        }
        let Self { socket, incoming, deadline, .. } = self;
        incoming.await_told(socket, timeout, *deadline)
    }

    pub fn transaction(&mut self) -> Result<Transaction<'_>, DatabaseError> {
        // There before its first statement: one that begins late is rolled back too.
        let mut transaction = Transaction { session: self, is_open: true };
        transaction.batch_execute("BEGIN")?;
        Ok(transaction)
    }

    /// A transaction that only the leader of this epoch has. The lease does not change hands while it lasts.
    pub fn leaders_transaction(&mut self, epoch: i64) -> Result<Transaction<'_>, DatabaseError> {
        let mut transaction = self.transaction()?;
        let sql = "SELECT 1 FROM sluice.lease WHERE epoch = $1 FOR SHARE";
        match transaction.query_opt(sql, &[&epoch])? {
            Some(_) => Ok(transaction),
            None => Err(DatabaseError::Deposed),
        }
    }
}

/// A transaction, which is rolled back unless it is committed.
pub(super) struct Transaction<'a> {
    session: &'a mut Session,
    is_open: bool,
}

impl Transaction<'_> {
    /// The number of rows that were changed.
    pub fn execute(
        &mut self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, DatabaseError> {
        let Session { socket, client, incoming, deadline, .. } = &mut *self.session;
        answer(socket, incoming, *deadline, client.execute(sql, values))
    }

    pub fn query(
        &mut self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, DatabaseError> {
        let Session { socket, client, incoming, deadline, .. } = &mut *self.session;
        answer(socket, incoming, *deadline, client.query(sql, values))
    }

    /// The one row, if there is one.
    pub fn query_opt(
        &mut self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, DatabaseError> {
        let Session { socket, client, incoming, deadline, .. } = &mut *self.session;
        answer(socket, incoming, *deadline, client.query_opt(sql, values))
    }

    pub fn query_one(
        &mut self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, DatabaseError> {
        let Session { socket, client, incoming, deadline, .. } = &mut *self.session;
        answer(socket, incoming, *deadline, client.query_one(sql, values))
    }

    pub fn batch_execute(&mut self, sql: &str) -> Result<(), DatabaseError> {
        self.session.batch_execute(sql)
    }

    pub fn commit(mut self) -> Result<(), DatabaseError> {
        self.is_open = false;
        self.session.batch_execute("COMMIT")
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.is_open || self.session.is_over() {
            return;
        }
        let least = Deadline::after(ROLLBACK_TIMEOUT);
        if self.session.deadline.at < least.at {
            self.session.set_deadline(least);
        }
        // A connection that fails here is found out by the next question.
        let _ = self.session.batch_execute("ROLLBACK");
    }
}
