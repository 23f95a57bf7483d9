//! The accounts of tokens' users, as the machine's user database has them. Every request with a token asks for one, and the database
//! may be slow: an account is looked up before the request is handled, on a thread that blocks nobody else, few at once. What was
//! found is good for seconds, and for minutes while the database does not answer.

use crate::auth::principal;
use model::principal::Principal;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Lookups at once, and how long one is waited for.
const LOOKUPS_MAX: usize = 16;
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an account is not looked up again, and how long it is known while nobody can look it up.
const FRESH: Duration = Duration::from_secs(2);
const KNOWN: Duration = Duration::from_secs(300);

/// Names that are remembered.
const ACCOUNTS_MAX: usize = 65_536;

/// What the database says of a name: the error where it does not answer.
type LookedUp = nix::Result<Option<Principal>>;
type LookUp = dyn Fn(&str) -> LookedUp + Send + Sync;

pub struct TokenAccounts {
    known: Mutex<HashMap<String, KnownAccount>>,
    lookups: Arc<Semaphore>,
    look_up: Arc<LookUp>,
}

struct KnownAccount {
    /// `None`: there is no such user, or nobody could say so.
    who: Option<Principal>,
    at: Instant,
}

impl Default for TokenAccounts {
    fn default() -> Self {
        Self::found_by(principal::find_with_own_role)
    }
}

impl TokenAccounts {
    fn found_by(look_up: impl Fn(&str) -> LookedUp + Send + Sync + 'static) -> Self {
        let lookups = Arc::new(Semaphore::new(LOOKUPS_MAX));
        Self { known: Mutex::default(), lookups, look_up: Arc::new(look_up) }
    }

    /// Whether this user was looked up a moment ago: there is nothing to prepare.
    pub fn is_fresh(&self, name: &str) -> bool {
        self.known().get(name).is_some_and(|known| known.at.elapsed() < FRESH)
    }

    /// Has this user looked up, unless that was done a moment ago.
    pub async fn prepare(&self, name: &str) {
        let is_known = match self.known().get(name) {
            Some(known) if known.at.elapsed() < FRESH => return,
            Some(known) => known.who.is_some() && known.at.elapsed() < KNOWN,
            None => false,
        };
        let place = match self.lookups.clone().try_acquire_owned() {
            Ok(place) => Some(place),
            Err(_) if is_known => return,
            Err(_) => {
                let waits = self.lookups.clone().acquire_owned();
                timeout(LOOKUP_TIMEOUT, waits).await.ok().and_then(Result::ok)
            }
        };
        let Some(place) = place else { return self.note_silence(name) };
        let (look_up, wanted) = (self.look_up.clone(), name.to_owned());
        let lookup = tokio::task::spawn_blocking(move || {
            // Kept until the database has answered, also when nobody waits for it any more.
            let _place = place;
            look_up(&wanted)
        });
        match timeout(LOOKUP_TIMEOUT, lookup).await {
            Ok(Ok(Ok(who))) => self.note(name, who),
            _ => self.note_silence(name),
        }
    }

    /// The user, if [`prepare`](Self::prepare) has found one. Nothing outside the server is asked, but for a name that nobody has
    /// prepared.
    pub fn find(&self, name: &str) -> Option<Principal> {
        if let Some(known) = self.known().get(name).filter(|known| known.at.elapsed() < KNOWN) {
            return known.who.clone();
        }
        (self.look_up)(name).ok().flatten()
    }

    fn note(&self, name: &str, who: Option<Principal>) {
        let mut known = self.known();
        if known.len() >= ACCOUNTS_MAX {
            known.retain(|_, one| one.at.elapsed() < FRESH);
        }
        if known.len() < ACCOUNTS_MAX {
            known.insert(name.to_owned(), KnownAccount { who, at: Instant::now() });
        }
    }

    /// The database did not answer: who was found before stays known for a while.
    fn note_silence(&self, name: &str) {
        let is_known = |known: &KnownAccount| known.who.is_some() && known.at.elapsed() < KNOWN;
        if !self.known().get(name).is_some_and(is_known) {
            self.note(name, None);
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, KnownAccount>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::principal::server_principal;
    use nix::errno::Errno;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn account(name: &str) -> Principal {
        Principal { name: name.to_owned(), uid: 1000, ..server_principal() }
    }

    #[tokio::test]
    async fn account_is_looked_up_once_in_a_while_and_one_that_is_missing_too() {
        let lookups = Arc::new(AtomicUsize::new(0));
        let counted = lookups.clone();
        let accounts = TokenAccounts::found_by(move |name| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok((name == "ann").then(|| account(name)))
        });
        for _ in 0..3 {
            accounts.prepare("ann").await;
            accounts.prepare("nobody-here").await;
        }
        assert_eq!(accounts.find("ann").map(|who| who.uid), Some(1000));
        assert_eq!(accounts.find("nobody-here"), None);
        assert_eq!(lookups.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn user_who_was_found_stays_known_while_the_database_does_not_answer() {
        let accounts = TokenAccounts::found_by(|_| Err(Errno::EIO));
        let old = Instant::now().checked_sub(2 * FRESH).expect("a machine that has run a while");
        let known = KnownAccount { who: Some(account("ann")), at: old };
        accounts.known().insert("ann".to_owned(), known);
        for name in ["ann", "bob"] {
            accounts.prepare(name).await;
        }
        assert_eq!(accounts.find("ann").map(|who| who.name), Some("ann".to_owned()));
        assert_eq!(accounts.find("bob"), None);
    }

    #[tokio::test]
    async fn user_who_is_gone_is_known_no_longer() {
        let accounts = TokenAccounts::found_by(|_| Ok(None));
        let old = Instant::now().checked_sub(2 * FRESH).expect("a machine that has run a while");
        let known = KnownAccount { who: Some(account("ann")), at: old };
        accounts.known().insert("ann".to_owned(), known);
        accounts.prepare("ann").await;
        assert_eq!(accounts.find("ann"), None);
    }
}
