//! When this server has last heard from the database that it shares with others: as the leader by renewing its lease, as a standby by
//! asking whether it may lead. A server alone has nothing of that here.

use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A database that fails for so long is a problem of this server, to whoever asks for its health. One that is started again may be
/// back sooner.
const FAULT_AFTER: Duration = Duration::from_secs(3);

pub struct StoreContact {
    contact: Mutex<Contact>,
    /// Whether another server may lead without this one's knowing.
    in_doubt: watch::Sender<bool>,
}

#[derive(Default)]
struct Contact {
    /// `None` before the first word.
    heard: Option<Instant>,
    /// What it failed with since.
    failure: Option<String>,
}

impl Default for StoreContact {
    fn default() -> Self {
        Self { contact: Mutex::default(), in_doubt: watch::channel(false).0 }
    }
}

impl StoreContact {
    fn contact(&self) -> MutexGuard<'_, Contact> {
        self.contact.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database did what this server asked.
    pub fn heard(&self) {
        *self.contact() = Contact { heard: Some(Instant::now()), failure: None };
        self.set_in_doubt(false);
    }

    pub fn failed(&self, error: &dyn Error) {
        self.contact().failure = Some(error.to_string());
    }

    /// When it did so last; `None` for a server alone.
    pub fn last_heard(&self) -> Option<Instant> {
        self.contact().heard
    }

    /// What it failed with since then.
    pub fn failure(&self) -> Option<String> {
        self.contact().failure.clone()
    }

    /// The line for whoever asks how this server is.
    pub fn fault(&self) -> Option<String> {
        let Contact { heard, failure } = &*self.contact();
        let silent = (*heard)?.elapsed();
        let why = failure.as_deref().unwrap_or("it has not answered");
        (silent >= FAULT_AFTER)
            .then(|| format!("the database has failed it for {} seconds: {why}", silent.as_secs()))
    }

    /// Says that this server could not renew its lease for longer than that is good, or that it could.
    pub fn set_in_doubt(&self, is_in_doubt: bool) {
        self.in_doubt.send_if_modified(|now| std::mem::replace(now, is_in_doubt) != is_in_doubt);
    }

    pub fn is_in_doubt(&self) -> bool {
        *self.in_doubt.borrow()
    }

    /// Returns when another server may lead without this one's knowing.
    pub async fn doubted(&self) {
        // The sender is `self`.
        let _ = self.in_doubt.subscribe().wait_for(|is_in_doubt| *is_in_doubt).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_that_fails_is_a_fault_after_a_while_and_none_once_it_is_heard() {
        let contact = StoreContact::default();
        contact.failed(&std::io::Error::other("refused"));
        assert_eq!(contact.fault(), None, "a server alone");
        contact.heard();
        contact.failed(&std::io::Error::other("read-only"));
        assert_eq!(contact.fault(), None, "it may be back soon");
        contact.contact().heard = Instant::now().checked_sub(4 * FAULT_AFTER);
        let fault = contact.fault().expect("a fault");
        assert!(fault.contains("for 12 seconds: read-only"), "{fault}");
        contact.heard();
        assert_eq!(contact.fault(), None);
    }

    #[tokio::test]
    async fn doubt_is_told_and_ends_with_the_next_renewal() {
        let contact = StoreContact::default();
        assert!(tokio::time::timeout(Duration::ZERO, contact.doubted()).await.is_err());
        contact.set_in_doubt(true);
        contact.doubted().await;
        contact.heard();
        assert!(!contact.is_in_doubt());
    }
}
