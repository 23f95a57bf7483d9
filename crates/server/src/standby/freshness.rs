//! How old a standby's state is: the last moment at which it was known to be the cluster's.

use axum::http::HeaderValue;
use axum::response::Response;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout;
use wire::client::STANDBY_LAG_HEADER;

/// How long an answer waits for what was passed on just before it.
const OWN_CHANGE_TIMEOUT: Duration = Duration::from_secs(1);

/// How old the state may be from which a standby answers. A token that was revoked since, or rights that were taken away, still hold
/// in it: one that cannot read the database asks the leader.
const AGE_MAX: Duration = Duration::from_secs(10);

pub struct Freshness {
    /// When the database was last asked and had nothing more.
    current: watch::Sender<Instant>,
    /// When the leader last answered what was passed on to it.
    passed: watch::Sender<Option<Instant>>,
    /// Whether the state is none that the cluster had after that moment: a commit could not be applied as a whole.
    is_broken: AtomicBool,
}

impl Default for Freshness {
    fn default() -> Self {
        Self {
            current: watch::channel(Instant::now()).0,
            passed: watch::channel(None).0,
            is_broken: AtomicBool::new(false),
        }
    }
}

impl Freshness {
    /// All that was committed before this moment has been taken in.
    pub fn set_current(&self, at: Instant) {
        self.current.send_replace(at);
        self.is_broken.store(false, Ordering::Release);
    }

    /// Nothing is answered from the state until it is current again.
    pub fn set_broken(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    /// Whether the state is too old to answer anything from it, or to know by it who asks; one that is broken is too.
    pub fn is_too_old(&self) -> bool {
        self.is_broken.load(Ordering::Acquire) || self.current.borrow().elapsed() > AGE_MAX
    }

    /// The answer, with how old the state is that it was made from.
    pub fn stamp(&self, mut answer: Response) -> Response {
        let age = self.current.borrow().elapsed().as_millis();
        let age = HeaderValue::from(u64::try_from(age).unwrap_or(u64::MAX));
        answer.headers_mut().insert(STANDBY_LAG_HEADER, age);
        answer
    }

    /// The leader has answered, and may have changed something: whoever looks next by this server sees it.
    pub fn note_passed(&self) {
        self.passed.send_replace(Some(Instant::now()));
    }

    /// Waits, for a bounded time, until the state has what was passed on from here.
    pub async fn await_passed(&self) {
        let Some(passed) = *self.passed.borrow() else { return };
        let mut current = self.current.subscribe();
        // A state that does not come along is shown with its age.
        let _ = timeout(OWN_CHANGE_TIMEOUT, current.wait_for(|at| *at >= passed)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn state_that_was_not_known_to_be_current_for_long_is_too_old() {
        let fresh = Freshness::default();
        assert!(!fresh.is_too_old());
        let now = Instant::now();
        for (age, is_too_old) in [(9, false), (11, true), (0, false)] {
            // A machine that was just started has no earlier moment.
            let Some(at) = now.checked_sub(Duration::from_secs(age)) else { return };
            fresh.set_current(at);
            assert_eq!(fresh.is_too_old(), is_too_old, "{age}");
        }
    }

    #[test]
    fn state_that_a_commit_was_half_applied_to_answers_nothing_until_it_is_current() {
        let fresh = Freshness::default();
        fresh.set_broken();
        assert!(fresh.is_too_old(), "however short ago it was current");
        fresh.set_current(Instant::now());
        assert!(!fresh.is_too_old());
    }

    #[tokio::test]
    async fn answer_waits_for_what_was_passed_on_before_it() {
        let fresh = Arc::new(Freshness::default());
        fresh.await_passed().await;
        fresh.note_passed();
        let waiting = fresh.clone();
        let waits = tokio::spawn(async move { waiting.await_passed().await });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        fresh.set_current(Instant::now());
        waits.await.expect("it goes on");
    }
}
