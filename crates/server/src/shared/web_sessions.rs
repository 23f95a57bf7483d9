//! Sessions of browsers that are signed in to the page at `/`. A session stands for one token and ends with it: who asks is
//! found out from the token anew with each request. Secrets and tokens are known here by their hashes alone, and all is
//! forgotten when the server stops.

use crate::auth::token;
use model::principal::Principal;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a session lasts that is not used, and how long any does.
const IDLE_LIFE: Duration = Duration::from_secs(24 * 3600);
const LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Sessions of one user; the one that was not used for the longest time goes first. And of all: beyond it, nobody signs in.
const OF_USER_MAX: usize = 32;
const ALL_MAX: usize = 16_384;

#[derive(Default)]
pub struct WebSessions {
    /// By the hash of the secret.
    sessions: Mutex<HashMap<String, WebSession>>,
}

struct WebSession {
    token_hash: String,
    /// The user at the time of signing in.
    who: Principal,
    made: Instant,
    used: Instant,
}

impl WebSession {
    fn lasts(&self, now: Instant) -> bool {
        now.duration_since(self.made) < LIFE && now.duration_since(self.used) < IDLE_LIFE
    }
}

impl WebSessions {
    /// The secret of a new session for the token with this hash; nothing where there are too many.
    pub fn open(&self, token_hash: &str, who: Principal, now: Instant) -> Option<String> {
        let mut sessions = self.held();
        sessions.retain(|_, known| known.lasts(now));
        let own = sessions.iter().filter(|(_, known)| known.who.uid == who.uid);
        let oldest = own.clone().min_by_key(|(_, known)| known.used).map(|(key, _)| key.clone());
        if own.count() >= OF_USER_MAX
            && let Some(oldest) = oldest
        {
            sessions.remove(&oldest);
        }
        if sessions.len() >= ALL_MAX {
            return None;
        }
        let secret = token::generate();
        let token_hash = token_hash.to_owned();
        sessions.insert(token::hash(&secret), WebSession { token_hash, who, made: now, used: now });
        Some(secret)
    }

    /// The hash of the token that a session stands for; the session is used by that.
    pub fn use_session(&self, secret: &str, now: Instant) -> Option<String> {
        let mut sessions = self.held();
        let known = sessions.get_mut(&token::hash(secret)).filter(|known| known.lasts(now))?;
        known.used = now;
        Some(known.token_hash.clone())
    }

    /// The same, without a use: a stream that is open is none.
    pub fn token_of(&self, secret: &str, now: Instant) -> Option<String> {
        let sessions = self.held();
        let known = sessions.get(&token::hash(secret)).filter(|known| known.lasts(now))?;
        Some(known.token_hash.clone())
    }

    /// Who signed in.
    pub fn who(&self, secret: &str, now: Instant) -> Option<Principal> {
        let sessions = self.held();
        let known = sessions.get(&token::hash(secret)).filter(|known| known.lasts(now))?;
        Some(known.who.clone())
    }

    pub fn close(&self, secret: &str) {
        self.held().remove(&token::hash(secret));
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, WebSession>> {
        self.sessions.lock().expect("no panic with the sessions held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::user;

    #[test]
    fn session_stands_for_its_token_until_it_is_closed_idle_or_old() {
        let (sessions, now) = (WebSessions::default(), Instant::now());
        let open = || sessions.open("of a token", user(), now).expect("a session");
        let (one, other) = (open(), open());
        assert_ne!(one, other);
        assert_eq!(sessions.token_of(&one, now).as_deref(), Some("of a token"));
        assert_eq!(sessions.who(&one, now).map(|who| who.uid), Some(user().uid));
        assert_eq!(sessions.token_of("of a token", now), None);
        assert_eq!(sessions.token_of("", now), None);
        sessions.close(&one);
        assert_eq!(sessions.token_of(&one, now), None);
        // One that is used every hour ends all the same.
        let mut at = now;
        while at < now + LIFE {
            assert!(sessions.use_session(&other, at).is_some());
            at += Duration::from_secs(3600);
        }
        assert_eq!(sessions.use_session(&other, at), None);
        let idle = open();
        assert_eq!(sessions.use_session(&idle, now + IDLE_LIFE), None);
    }

    #[test]
    fn users_have_a_bounded_number_of_sessions_and_lose_the_idlest() {
        let (sessions, now) = (WebSessions::default(), Instant::now());
        let first = sessions.open("t", user(), now).expect("a session");
        let another = Principal { uid: 7, ..user() };
        let of_another = sessions.open("t", another, now).expect("a session");
        for n in 0..OF_USER_MAX {
            let at = now + Duration::from_millis(n as u64 + 1);
            assert!(sessions.open("t", user(), at).is_some());
        }
        assert_eq!(sessions.token_of(&first, now), None);
        assert!(sessions.token_of(&of_another, now).is_some());
        assert_eq!(sessions.held().len(), OF_USER_MAX + 1);
    }
}
