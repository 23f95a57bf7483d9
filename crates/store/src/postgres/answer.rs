//! An answer of the database, which is waited for until a deadline, and what the database tells beside its answers.
//!
//! What is late is done all the same: the next question is sent behind it, and its answer is passed over.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio_postgres::{AsyncMessage, Error};

use super::error::DatabaseError;
use super::socket::SharedSocket;

/// What is told when a lease is given up. A commit is told without a word.
const LEASE_FREE: &str = "lease";
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

type PollMessage = dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<AsyncMessage, Error>>> + Send;

/// The connection, and what the database has told beside its answers.
pub(super) struct Incoming {
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
    pub fn new(poll: Box<PollMessage>) -> Self {
        Self { poll, is_over: false, late: 0, is_told: false, is_lease_free: false }
    }

    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Waits until a commit or the end of a lease is told, or the time is over; whether a lease was given up.
    pub fn await_told(
        &mut self,
        socket: &SharedSocket,
        timeout: Duration,
        deadline: Deadline,
    ) -> Result<bool, DatabaseError> {
        let end = Instant::now() + timeout;
        let told = poll_fn(|context| match self.take_in(context) {
            Ok(()) if self.is_told => Poll::Ready(Ok(())),
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        });
        match socket.run(end.min(deadline.at), told) {
            Some(told) => told?,
            None if end > deadline.at => return Err(deadline.late()),
            None => {}
        }
        // One look takes in all that was told until then.
        self.is_told = false;
        Ok(std::mem::take(&mut self.is_lease_free))
    }

    /// Takes in what has come while nothing was asked. A connection that has failed is over from then on.
    pub fn take_in_what_came(&mut self) {
        let _ = self.take_in(&mut Context::from_waker(Waker::noop()));
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
pub(super) fn answer<T>(
    socket: &SharedSocket,
    incoming: &mut Incoming,
    deadline: Deadline,
    asked: impl Future<Output = Result<T, Error>>,
) -> Result<T, DatabaseError> {
    let mut asked = pin!(asked);
    let answered = poll_fn(|context| {
        // What is asked comes first: the first look at the connection sends it, and does not read the socket once more for that.
        let mut answered = asked.as_mut().poll(context);
        let taken_in = incoming.take_in(context);
        if answered.is_pending() {
            answered = asked.as_mut().poll(context);
        }
        match (answered, taken_in) {
            (Poll::Ready(Ok(answered)), _) => Poll::Ready(Ok(answered)),
            (_, Err(error)) => Poll::Ready(Err(error)),
            (answered, Ok(())) => answered.map_err(DatabaseError::from),
        }
    });
    let Some(answered) = socket.run(deadline.at, answered) else {
        incoming.late += 1;
        incoming.is_over |= incoming.late >= LATE_MAX;
        return Err(deadline.late());
    };
    incoming.late = 0;
    answered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::socket::pair;
    use std::future::{pending, ready};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn soon() -> Deadline {
        Deadline::after(Duration::ZERO)
    }

    #[test]
    fn session_that_answers_nothing_is_given_up_and_one_that_is_slow_is_not() {
        let (socket, _other) = pair();
        let mut incoming = Incoming::new(Box::new(|_: &mut Context<'_>| Poll::Pending));
        for times in [LATE_MAX - 1, LATE_MAX] {
            assert!(!incoming.is_over);
            for _ in 0..times {
                let asked = pending::<Result<(), Error>>();
                let late = answer(&socket, &mut incoming, soon(), asked).expect_err("no answer");
                assert!(matches!(late, DatabaseError::Late(_)), "{late}");
            }
            if !incoming.is_over {
                answer(&socket, &mut incoming, soon(), ready(Ok(()))).expect("an answer");
            }
        }
        assert!(incoming.is_over, "the next question has a new connection");
    }

    #[test]
    fn first_look_at_the_connection_has_a_question_to_send() {
        let (socket, _other) = pair();
        let is_asked = Arc::new(AtomicBool::new(false));
        let seen = is_asked.clone();
        let mut incoming = Incoming::new(Box::new(move |_: &mut Context<'_>| {
            assert!(seen.load(Ordering::Relaxed), "it would be looked at twice");
            Poll::Pending
        }));
        let asked = poll_fn(|_| {
            if is_asked.swap(true, Ordering::Relaxed) { Poll::Ready(Ok(7)) } else { Poll::Pending }
        });
        assert_eq!(answer(&socket, &mut incoming, soon(), asked).expect("an answer"), 7);
    }

    #[test]
    fn answer_that_comes_with_the_end_of_the_connection_counts() {
        let (socket, _other) = pair();
        let ended = || Incoming::new(Box::new(|_: &mut Context<'_>| Poll::Ready(None)));
        let mut incoming = ended();
        assert_eq!(answer(&socket, &mut incoming, soon(), ready(Ok(7))).expect("an answer"), 7);
        assert!(incoming.is_over, "the next question has a new connection");
        let lost = answer(&socket, &mut ended(), soon(), pending::<Result<(), Error>>());
        assert!(matches!(lost, Err(DatabaseError::Unreachable(_))), "{lost:?}");
    }
}
