//! A connection with the database and the statements that it has prepared, driven by the thread that asks.
//!
//! An answer is waited for until a deadline. What is late is done all the same: the next question is sent behind it, and its answer is
//! passed over.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls, Row, Socket, Statement};

use super::error::DatabaseError;
use super::url::DatabaseUrl;

/// What every session of ours sets. A server that is frozen in a transaction holds nobody up for long. A site whose commits wait for more than
/// the database's own disk keeps that; one whose commits wait for nothing does not. No statement here is long enough to be compiled: where
/// PostgreSQL takes one for that, as the sum over a long journal at a takeover, compiling takes longer.
const SESSION_SETUP: &str = "SET search_path = pg_catalog; SET jit = off; \
    SET statement_timeout = '15s'; SET lock_timeout = '10s'; \
    SET idle_in_transaction_session_timeout = '2s'; \
    SELECT set_config('synchronous_commit', 'on', false) \
    WHERE current_setting('synchronous_commit') IN ('off', 'local')";

/// The channel on which commits and changes of the lease are told.
const LISTEN: &str = "LISTEN sluice";
/// What is told there when a lease is given up. A commit is told without a word.
const LEASE_FREE: &str = "lease";

/// How long a transaction that is late waits for its end: long enough for the end to be sent.
const ROLLBACK_TIMEOUT: Duration = Duration::from_millis(100);
/// How many answers in a row may be late. What was asked is in memory until the database takes it.
const LATE_MAX: u32 = 256;

/// Until when an answer is waited for.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    pub at: Instant,
    /// The time that there was.
    pub timeout: Duration,
}

impl Deadline {
    pub fn after(timeout: Duration) -> Self {
        Self { at: Instant::now() + timeout, timeout }
    }

    pub fn late(&self) -> DatabaseError {
        DatabaseError::Late(self.timeout)
    }
}

/// What reads, writes and keeps the time for sessions, on the thread that asks.
pub(super) struct Driver(Option<Runtime>);

impl Driver {
    pub fn new() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self(Some(runtime)))
    }

    /// What the work comes to, if it is done by then.
    fn run<F: Future>(&self, until: Instant, work: F) -> Option<F::Output> {
        let runtime = self.0.as_ref().expect("it is there until the drop");
        runtime.block_on(async move { tokio::time::timeout_at(until.into(), work).await.ok() })
    }

    fn connect<T>(
        &self,
        config: &Config,
        tls: T,
        deadline: Deadline,
    ) -> Result<(Client, Incoming), DatabaseError>
    where
        T: MakeTlsConnect<Socket>,
        T::Stream: Send + 'static,
    {
        let connected = self.run(deadline.at, config.connect(tls));
        let (client, mut connection) = connected.ok_or_else(|| deadline.late())??;
        let poll = Box::new(move |context: &mut Context<'_>| connection.poll_message(context));
        Ok((client, Incoming::new(poll)))
    }
}

impl Drop for Driver {
    /// The last who has the database may be a task of another runtime, which must not wait for the end of this one.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

type PollMessage = dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<AsyncMessage, Error>>> + Send;

/// The connection, and what the database has told beside its answers.
struct Incoming {
    poll: Box<PollMessage>,
    /// A connection that has ended is not polled again.
    is_over: bool,
    /// The answers that were late since the last one that was not.
    late: u32,
    /// Whether a commit or the end of a lease was told since that was asked last, and whether it was the end of a lease.
    is_told: bool,
    is_lease_free: bool,
}

impl Incoming {
    fn new(poll: Box<PollMessage>) -> Self {
        Self { poll, is_over: false, late: 0, is_told: false, is_lease_free: false }
    }

    /// Reads and writes as far as can be without waiting.
    fn take_in(&mut self, context: &mut Context<'_>) -> Result<(), DatabaseError> {
        while !self.is_over {
            match (self.poll)(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Some(Ok(AsyncMessage::Notification(notice)))) => {
                    self.is_told = true;
                    self.is_lease_free |= notice.payload() == LEASE_FREE;
                }
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => {
                    self.is_over = true;
                    return Err(error.into());
                }
                Poll::Ready(None) => self.is_over = true,
            }
        }
        Err(DatabaseError::Unreachable("the connection was closed".into()))
    }
}

/// Waits for the answer to what is asked. One that came with the end of the connection counts: what is committed was kept.
fn answer<T>(
    driver: &Driver,
    incoming: &mut Incoming,
    deadline: Deadline,
    asked: impl Future<Output = Result<T, Error>>,
) -> Result<T, DatabaseError> {
    let mut asked = pin!(asked);
    let answered = poll_fn(|context| match incoming.take_in(context) {
        Ok(()) => asked.as_mut().poll(context).map_err(DatabaseError::from),
        Err(error) => match asked.as_mut().poll(context) {
            Poll::Ready(Ok(answered)) => Poll::Ready(Ok(answered)),
            _ => Poll::Ready(Err(error)),
        },
    });
    let Some(answered) = driver.run(deadline.at, answered) else {
        incoming.late += 1;
        incoming.is_over |= incoming.late >= LATE_MAX;
        return Err(deadline.late());
    };
    incoming.late = 0;
    answered
}

pub(super) struct Session {
    driver: Arc<Driver>,
    client: Client,
    incoming: Incoming,
    prepared: HashMap<&'static str, Statement>,
    /// Whether it is told of changes.
    listens: bool,
    deadline: Deadline,
}

impl Session {
    pub fn connect(
        driver: &Arc<Driver>,
        url: &DatabaseUrl,
        deadline: Deadline,
    ) -> Result<Self, DatabaseError> {
        let (client, incoming) = match &url.tls {
            Some(tls) => driver.connect(&url.config, tls.clone(), deadline)?,
            None => driver.connect(&url.config, NoTls, deadline)?,
        };
        let driver = driver.clone();
        let prepared = HashMap::new();
        let mut session = Self { driver, client, incoming, prepared, listens: false, deadline };
        session.batch_execute(SESSION_SETUP)?;
        Ok(session)
    }

    /// Until when its answers are waited for from now on.
    pub fn set_deadline(&mut self, deadline: Deadline) {
        self.deadline = deadline;
    }

    /// Whether the connection has ended.
    pub fn is_over(&self) -> bool {
        self.incoming.is_over || self.client.is_closed()
    }

    fn statement(&mut self, sql: &'static str) -> Result<Statement, DatabaseError> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let Self { driver, client, incoming, deadline, .. } = self;
        let statement = answer(driver, incoming, *deadline, client.prepare(sql))?;
        self.prepared.insert(sql, statement.clone());
        Ok(statement)
    }

    pub fn query(
        &mut self,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, DatabaseError> {
        let statement = self.statement(sql)?;
        let Self { driver, client, incoming, deadline, .. } = self;
        answer(driver, incoming, *deadline, client.query(&statement, values))
    }

    /// The number of rows that were changed.
    pub fn execute(
        &mut self,
        sql: &'static str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, DatabaseError> {
        let statement = self.statement(sql)?;
        let Self { driver, client, incoming, deadline, .. } = self;
        answer(driver, incoming, *deadline, client.execute(&statement, values))
    }

    fn batch_execute(&mut self, sql: &str) -> Result<(), DatabaseError> {
        let Self { driver, client, incoming, deadline, .. } = self;
        answer(driver, incoming, *deadline, client.batch_execute(sql))
    }

    /// Waits until a commit or the end of a lease is told, or the time is over; whether a lease was given up. A session that begins
    /// to listen does not wait: what came before is not told.
    pub fn await_notice(&mut self, timeout: Duration) -> Result<bool, DatabaseError> {
        if !self.listens {
            self.batch_execute(LISTEN)?;
            self.listens = true;
            return Ok(false);
        }
        let Self { driver, incoming, deadline, .. } = self;
        let end = Instant::now() + timeout;
        let told = poll_fn(|context| match incoming.take_in(context) {
            Ok(()) if incoming.is_told => Poll::Ready(Ok(())),
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        });
        match driver.run(end.min(deadline.at), told) {
            Some(told) => told?,
            None if end > deadline.at => return Err(deadline.late()),
            None => {}
        }
        // One look takes in all that was told until then.
        incoming.is_told = false;
        Ok(std::mem::take(&mut incoming.is_lease_free))
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
        let Session { driver, client, incoming, deadline, .. } = &mut *self.session;
        answer(driver, incoming, *deadline, client.execute(sql, values))
    }

    pub fn query(
        &mut self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, DatabaseError> {
        let Session { driver, client, incoming, deadline, .. } = &mut *self.session;
        answer(driver, incoming, *deadline, client.query(sql, values))
    }

    /// The one row, if there is one.
    pub fn query_opt(
        &mut self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, DatabaseError> {
        let Session { driver, client, incoming, deadline, .. } = &mut *self.session;
        answer(driver, incoming, *deadline, client.query_opt(sql, values))
    }

    pub fn query_one(
        &mut self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, DatabaseError> {
        let Session { driver, client, incoming, deadline, .. } = &mut *self.session;
        answer(driver, incoming, *deadline, client.query_one(sql, values))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    fn soon() -> Deadline {
        Deadline::after(Duration::ZERO)
    }

    #[test]
    fn session_that_answers_nothing_is_given_up_and_one_that_is_slow_is_not() {
        let driver = Driver::new().expect("a driver");
        let mut incoming = Incoming::new(Box::new(|_: &mut Context<'_>| Poll::Pending));
        for times in [LATE_MAX - 1, LATE_MAX] {
            assert!(!incoming.is_over);
            for _ in 0..times {
                let asked = pending::<Result<(), Error>>();
                let late = answer(&driver, &mut incoming, soon(), asked).expect_err("no answer");
                assert!(matches!(late, DatabaseError::Late(_)), "{late}");
            }
            if !incoming.is_over {
                answer(&driver, &mut incoming, soon(), ready(Ok(()))).expect("an answer");
            }
        }
        assert!(incoming.is_over, "the next question has a new connection");
    }

    #[test]
    fn answer_that_comes_with_the_end_of_the_connection_counts() {
        let driver = Driver::new().expect("a driver");
        let ended = || Incoming::new(Box::new(|_: &mut Context<'_>| Poll::Ready(None)));
        let mut incoming = ended();
        assert_eq!(answer(&driver, &mut incoming, soon(), ready(Ok(7))).expect("an answer"), 7);
        assert!(incoming.is_over, "the next question has a new connection");
        let lost = answer(&driver, &mut ended(), soon(), pending::<Result<(), Error>>());
        assert!(matches!(lost, Err(DatabaseError::Unreachable(_))), "{lost:?}");
    }
}
