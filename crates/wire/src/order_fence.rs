//! Whether an order is new: the part of an agent's gate that compares it with what was seen before. Free of I/O, so that the
//! fault simulator runs it too.

use crate::order::Order;
use model::id::AttemptId;
use model::time::Timestamp;

/// Why an order is refused that may have been good once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StaleOrder {
    #[error("the order is of term {order}, and term {seen} has begun")]
    OlderTerm { order: u64, seen: u64 },
    #[error("the order expired {late_ms} ms ago")]
    Expired { late_ms: i64 },
    #[error("order {0} was taken before")]
    Replayed(u64),
    #[error("attempt {0} was launched here before")]
    AlreadyLaunched(AttemptId),
    #[error("attempt {attempt} is older than attempt {newest} of the same job")]
    OlderAttempt { attempt: AttemptId, newest: u32 },
}

impl StaleOrder {
    /// Whether the same order, or another launch of the same attempt, was taken before.
    pub fn was_taken(&self) -> bool {
        matches!(self, Self::Replayed(_) | Self::AlreadyLaunched(_))
    }
}

/// The highest term that an order carried, and the highest serial that was taken in that term. Orders arrive in sequence, so a
/// lower serial is a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeenOrders {
    pub term: u64,
    pub serial: u64,
}

impl SeenOrders {
    /// Refuses what is older than what was seen, and what has expired. `now` is by the server's clock.
    pub fn check(&self, order: &Order, now: Timestamp) -> Result<(), StaleOrder> {
        if order.term < self.term {
            return Err(StaleOrder::OlderTerm { order: order.term, seen: self.term });
        }
        if order.expires < now {
            return Err(StaleOrder::Expired { late_ms: now.millis() - order.expires.millis() });
        }
        if order.term == self.term && order.serial <= self.serial {
            return Err(StaleOrder::Replayed(order.serial));
        }
        Ok(())
    }

    /// The order is taken.
    pub fn note(&mut self, order: &Order) {
        self.term = self.term.max(order.term);
        self.serial = order.serial;
    }
}

/// Refuses the launch of an attempt that is here or was launched here before (`is_known`), and of one that is older than the
/// newest attempt of its job that was launched here.
pub fn check_launch(
    attempt: AttemptId,
    is_known: bool,
    newest: Option<u32>,
) -> Result<(), StaleOrder> {
    if is_known {
        return Err(StaleOrder::AlreadyLaunched(attempt));
    }
    match newest.filter(|newest| *newest > attempt.number) {
        Some(newest) => Err(StaleOrder::OlderAttempt { attempt, newest }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Action;
    use model::id::JobId;

    fn order(term: u64, serial: u64) -> Order {
        let attempt = AttemptId { job: JobId(9), number: 2 };
        let (version, node, uid) = (crate::version::PROTOCOL, "n1".into(), 1000);
        let (expires, action) = (Timestamp(1_000), Action::Suspend);
        Order { version, term, serial, node, attempt, uid, expires, action }
    }

    #[test]
    fn order_is_taken_once_in_its_term_and_until_it_expires() {
        let mut seen = SeenOrders::default();
        let first = order(5, 7);
        assert_eq!(seen.check(&first, Timestamp(1_000)), Ok(()));
        seen.note(&first);
        assert_eq!(seen.check(&first, Timestamp(0)), Err(StaleOrder::Replayed(7)));
        assert!(StaleOrder::Replayed(7).was_taken());
        assert_eq!(seen.check(&order(5, 8), Timestamp(0)), Ok(()));
        let late = seen.check(&order(5, 8), Timestamp(1_001));
        assert_eq!(late, Err(StaleOrder::Expired { late_ms: 1 }));
        let older = StaleOrder::OlderTerm { order: 4, seen: 5 };
        assert_eq!(seen.check(&order(4, 9), Timestamp(0)), Err(older));
        assert_eq!(seen.check(&order(6, 1), Timestamp(0)), Ok(()), "serials begin anew");
    }

    #[test]
    fn attempt_is_launched_once_and_never_after_a_later_one() {
        let attempt = AttemptId { job: JobId(9), number: 2 };
        for newest in [None, Some(1), Some(2)] {
            assert_eq!(check_launch(attempt, false, newest), Ok(()));
        }
        assert_eq!(check_launch(attempt, true, None), Err(StaleOrder::AlreadyLaunched(attempt)));
        let older = StaleOrder::OlderAttempt { attempt, newest: 3 };
        assert_eq!(check_launch(attempt, false, Some(3)), Err(older));
        assert!(!older.was_taken());
    }
}
