//! The accounts of those who connect to the local socket, as the machine's user database has them. The database may be slow, and
//! whoever has subordinate ids can ask for thousands of users: lookups have threads of their own, few of them at once, and an account
//! that was found is good for seconds, and for minutes while the database has no time.

use crate::auth::principal::{self, server_principal};
use model::principal::Principal;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Lookups at once, and how long one is waited for.
const LOOKUPS_MAX: usize = 16;
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The same for an account that is known: whoever asks again is not held up by a database or a machine that has no time.
const KNOWN_LOOKUP_TIMEOUT: Duration = Duration::from_millis(100);

/// How long an account is not looked up again, and how long it is known while nobody can look it up.
const FRESH: Duration = Duration::from_secs(2);
const KNOWN: Duration = Duration::from_secs(300);

/// Accounts that are remembered.
const ACCOUNTS_MAX: usize = 65_536;

const ROOT: u32 = 0;

type LookUp = dyn Fn(u32, u32) -> Principal + Send + Sync;

type FoundAccounts = HashMap<u32, FoundAccount>;

pub struct Accounts {
    /// By user id: who has an account has its groups, whatever group a process of his is in.
    found: Arc<Mutex<FoundAccounts>>,
    lookups: Arc<Semaphore>,
    look_up: Arc<LookUp>,
}

#[derive(Clone)]
struct FoundAccount {
    who: Principal,
    at: Instant,
}

impl Default for Accounts {
    fn default() -> Self {
        Self::found_by(principal::of_uid)
    }
}

impl Accounts {
    fn found_by(look_up: impl Fn(u32, u32) -> Principal + Send + Sync + 'static) -> Self {
        let lookups = Arc::new(Semaphore::new(LOOKUPS_MAX));
        Self { found: Arc::default(), lookups, look_up: Arc::new(look_up) }
    }

    /// The user of a process; `None` where the database does not answer. Root is known without it.
    pub async fn find(&self, uid: u32, gid: u32) -> Option<Principal> {
        let found = self.found().get(&uid).cloned();
        let found = found.filter(|found| found.at.elapsed() < KNOWN);
        if let Some(found) = &found
            && found.at.elapsed() < FRESH
        {
            return Some(found.who.clone());
        }
        let otherwise =
            found.map(|found| found.who).or_else(|| (uid == ROOT).then(server_principal));
        let place = match self.lookups.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(_) if otherwise.is_some() => return otherwise,
            Err(_) => {
                let waits = self.lookups.clone().acquire_owned();
                timeout(LOOKUP_TIMEOUT, waits).await.ok()?.ok()?
            }
        };
        let (look_up, found) = (self.look_up.clone(), self.found.clone());
        let lookup = tokio::task::spawn_blocking(move || {
            // Kept until the database has answered, also when nobody waits for it any more.
            let _place = place;
            let who = look_up(uid, gid);
            remember(&found, uid, &who);
            who
        });
        let most = if otherwise.is_some() { KNOWN_LOOKUP_TIMEOUT } else { LOOKUP_TIMEOUT };
        match timeout(most, lookup).await {
            Ok(Ok(who)) => Some(who),
            _ => otherwise,
        }
    }

    fn found(&self) -> MutexGuard<'_, FoundAccounts> {
        lock(&self.found)
    }
}

fn lock(found: &Mutex<FoundAccounts>) -> MutexGuard<'_, FoundAccounts> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An id without an account is not remembered: there are too many of them.
fn remember(found: &Mutex<FoundAccounts>, uid: u32, who: &Principal) {
    if who.name == uid.to_string() {
        return;
    }
    let mut found = lock(found);
    if found.len() >= ACCOUNTS_MAX {
        found.retain(|_, one| one.at.elapsed() < FRESH);
    }
    if found.len() < ACCOUNTS_MAX {
        found.insert(uid, FoundAccount { who: who.clone(), at: Instant::now() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    /// The first of the ids that have no account.
    const SUBORDINATE: u32 = 100_000;

    fn account(uid: u32, gid: u32) -> Principal {
        let name = if uid < SUBORDINATE { format!("user{uid}") } else { uid.to_string() };
        Principal { name, uid, gid, ..server_principal() }
    }

    #[tokio::test]
    async fn account_is_looked_up_once_in_a_while_and_an_id_without_one_each_time() {
        let lookups = Arc::new(AtomicUsize::new(0));
        let counted = lookups.clone();
        let accounts = Accounts::found_by(move |uid, gid| {
            counted.fetch_add(1, Ordering::SeqCst);
            account(uid, gid)
        });
        for (uid, gid) in [(1000, 1), (1000, 2), (SUBORDINATE, 1), (SUBORDINATE, 1)] {
            assert_eq!(accounts.find(uid, gid).await.map(|who| who.uid), Some(uid));
        }
        assert_eq!(lookups.load(Ordering::SeqCst), 3);
        assert_eq!(accounts.found().len(), 1);
    }

    #[tokio::test]
    async fn lookups_that_hang_keep_out_neither_root_nor_who_is_known() {
        let (release, held) = mpsc::channel::<()>();
        let (hung, held) = (Arc::new(AtomicUsize::new(0)), Mutex::new(held));
        let counted = hung.clone();
        let accounts = Arc::new(Accounts::found_by(move |uid, gid| {
            counted.fetch_add(1, Ordering::SeqCst);
            // Until the other end is gone.
            let _ = held.lock().unwrap_or_else(PoisonError::into_inner).recv();
            account(uid, gid)
        }));
        let old = Instant::now().checked_sub(2 * FRESH).expect("a machine that has run a while");
        accounts.found().insert(1000, FoundAccount { who: account(1000, 1), at: old });
        let ask = |uid: u32| {
            let accounts = accounts.clone();
            tokio::spawn(async move { accounts.find(uid, 1).await.map(|who| who.uid) })
        };
        // Its own lookup hangs, and is not waited for.
        assert_eq!(ask(1000).await.expect("no panic"), Some(1000));
        let flood: Vec<_> = (0..LOOKUPS_MAX as u32).map(|n| ask(SUBORDINATE + n)).collect();
        while hung.load(Ordering::SeqCst) < LOOKUPS_MAX {
            tokio::task::yield_now().await;
        }
        for uid in [ROOT, 1000] {
            let answer = timeout(Duration::from_secs(5), ask(uid)).await.expect("at once");
            assert_eq!(answer.expect("no panic"), Some(uid));
        }
        drop(release);
        for (n, one) in (0..).zip(flood) {
            assert_eq!(one.await.expect("no panic"), Some(SUBORDINATE + n));
        }
    }
}
