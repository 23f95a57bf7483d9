//! Single sign-on, as far as it is remembered: browsers that were sent to the identity provider and have not come back. Who came back
//! has a session of the state.

use crate::auth::token;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long somebody may take at the provider.
const ATTEMPT_LIFE: Duration = Duration::from_secs(600);

/// Browsers at the provider; the first goes first.
const ATTEMPTS_MAX: usize = 4096;

/// Questions to the provider that are open at once.
const QUESTIONS_MAX: usize = 16;

/// A browser at the provider.
pub struct Attempt {
    /// What the provider's token must repeat.
    pub nonce: String,
    /// What only who began can tell the provider.
    pub verifier: String,
    browser_hash: String,
    begun: Instant,
}

/// What a new attempt is known by.
pub struct NewAttempt {
    /// In the address that the browser comes back with.
    pub state: String,
    /// In a cookie of the browser: another browser cannot end what this one began.
    pub browser: String,
    pub nonce: String,
    pub verifier: String,
}

pub struct SignOns {
    /// By the hash of the state.
    attempts: Mutex<HashMap<String, Attempt>>,
    questions: Arc<Semaphore>,
}

impl Default for SignOns {
    fn default() -> Self {
        let questions = Arc::new(Semaphore::new(QUESTIONS_MAX));
        Self { attempts: Mutex::default(), questions }
    }
}

impl SignOns {
    /// The place of a question to the provider; nothing where as many are open as there may be.
    pub fn question(&self) -> Option<OwnedSemaphorePermit> {
        self.questions.clone().try_acquire_owned().ok()
    }

    pub fn begin(&self, now: Instant) -> NewAttempt {
        let mut attempts = held(&self.attempts);
        attempts.retain(|_, known| now.duration_since(known.begun) < ATTEMPT_LIFE);
        if attempts.len() >= ATTEMPTS_MAX {
            let first = attempts.iter().min_by_key(|(_, known)| known.begun);
            if let Some(first) = first.map(|(key, _)| key.clone()) {
                attempts.remove(&first);
            }
        }
        let made = NewAttempt {
            state: token::generate(),
            browser: token::generate(),
            nonce: token::generate(),
            verifier: token::generate(),
        };
        let attempt = Attempt {
            nonce: made.nonce.clone(),
            verifier: made.verifier.clone(),
            browser_hash: token::hash(&made.browser),
            begun: now,
        };
        attempts.insert(token::hash(&made.state), attempt);
        made
    }

    /// The attempt of this state and browser. It is over by that, whatever comes of it.
    pub fn end(&self, state: &str, browser: &str, now: Instant) -> Option<Attempt> {
        let known = held(&self.attempts).remove(&token::hash(state))?;
        let is_own = known.browser_hash == token::hash(browser);
        (is_own && now.duration_since(known.begun) < ATTEMPT_LIFE).then_some(known)
    }
}

fn held(attempts: &Mutex<HashMap<String, Attempt>>) -> MutexGuard<'_, HashMap<String, Attempt>> {
    attempts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempt_ends_once_in_its_own_browser_and_in_time() {
        let (known, now) = (SignOns::default(), Instant::now());
        let made = known.begin(now);
        let end = known.end(&made.state, &made.browser, now).expect("it is known");
        assert_eq!((end.nonce, end.verifier), (made.nonce, made.verifier));
        assert!(known.end(&made.state, &made.browser, now).is_none(), "a second time");
        let made = known.begin(now);
        assert!(known.end(&made.state, "another", now).is_none(), "another browser");
        assert!(known.end(&made.state, &made.browser, now).is_none(), "it is over by that");
        let made = known.begin(now);
        assert!(known.end(&made.state, &made.browser, now + ATTEMPT_LIFE).is_none());
    }

    #[test]
    fn attempts_are_bounded() {
        let (known, now) = (SignOns::default(), Instant::now());
        let first = known.begin(now);
        for _ in 0..ATTEMPTS_MAX {
            known.begin(now + Duration::from_millis(1));
        }
        assert_eq!(held(&known.attempts).len(), ATTEMPTS_MAX);
        assert!(known.end(&first.state, &first.browser, now).is_none());
    }
}
