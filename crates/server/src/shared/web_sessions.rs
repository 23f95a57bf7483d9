//! Sessions of browsers that are signed in to the page at `/`. The state keeps them, by the hashes of their secrets, so that they
//! outlive this server; who asks is found out from a session's token anew with each request. When a session was used last is known
//! here alone.

use crate::auth::principal::server_principal;
use crate::auth::token;
use crate::clock;
use crate::shared::Shared;
use cluster::Command;
use cluster::web_session::{ALL_MAX, SignInProof, WebSession};
use model::principal::Principal;
use model::reason::Refusal;
use model::time::Timestamp;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// How long a session lasts that is not used. A start of the server counts as a use.
const IDLE_LIFE: Duration = Duration::from_secs(24 * 3600);

pub struct WebSessionUses {
    started: Timestamp,
    /// By the hash of the secret.
    last: Mutex<HashMap<String, Timestamp>>,
}

impl Default for WebSessionUses {
    fn default() -> Self {
        Self { started: clock::now(), last: Mutex::default() }
    }
}

impl WebSessionUses {
    fn lasts(&self, session: &WebSession, now: Timestamp) -> bool {
        let used = self.held().get(&session.hash).copied();
        let used = used.unwrap_or(self.started.max(session.made));
        !session.has_ended(now) && now < used + IDLE_LIFE
    }

    /// Notes a use. Uses of sessions that are over are forgotten when there are many.
    fn note(&self, hash: &str, now: Timestamp, is_known: impl Fn(&str) -> bool) {
        let mut last = self.held();
        if last.len() >= 2 * ALL_MAX {
            last.retain(|hash, _| is_known(hash));
        }
        match last.get_mut(hash) {
            Some(used) => *used = now,
            None => drop(last.insert(hash.to_owned(), now)),
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, Timestamp>> {
        self.last.lock().expect("no panic with the uses held")
    }
}

impl Shared {
    /// The session of this secret, if it is one still. A stream that is open does not use it.
    pub fn web_session(&self, secret: &str) -> Option<WebSession> {
        let known = self.read().web_sessions.get(&token::hash(secret)).cloned()?;
        self.volatile.web_session_uses.lasts(&known, clock::now()).then_some(known)
    }

    /// The same; the session is used by that.
    pub fn use_web_session(&self, secret: &str) -> Option<WebSession> {
        let known = self.web_session(secret)?;
        let state = self.read();
        let is_known = |hash: &str| state.web_sessions.contains_key(hash);
        self.volatile.web_session_uses.note(&known.hash, clock::now(), is_known);
        Some(known)
    }

    /// The secret of a new session. The sessions of the secrets that the browser had are not left behind.
    pub async fn open_web_session(
        &self,
        who: Principal,
        proof: SignInProof,
        former: Vec<String>,
    ) -> Result<String, Refusal> {
        let secret = token::generate();
        let session = WebSession { hash: token::hash(&secret), who, made: clock::now(), proof };
        let former = former.iter().map(|secret| token::hash(secret)).collect();
        self.set_web_sessions(Some(Box::new(session)), former).await?;
        Ok(secret)
    }

    pub async fn close_web_session(&self, secret: &str) -> Result<(), Refusal> {
        self.set_web_sessions(None, vec![token::hash(secret)]).await
    }

    /// Ends all sessions of a user.
    pub async fn close_web_sessions_of(&self, uid: u32) -> Result<(), Refusal> {
        let of_user = |known: &&WebSession| known.who.uid == uid;
        let hashes: Vec<String> = {
            let state = self.read();
            state.web_sessions.values().filter(of_user).map(|known| known.hash.clone()).collect()
        };
        self.set_web_sessions(None, hashes).await
    }

    /// Begins a session, and ends those of these hashes.
    async fn set_web_sessions(
        &self,
        open: Option<Box<WebSession>>,
        close: Vec<String>,
    ) -> Result<(), Refusal> {
        let command = Command::SetWebSessions { open, close };
        self.writer.run(command, server_principal()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::user;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn session_ends_when_it_is_idle_or_old() {
        let uses = WebSessionUses::default();
        let proof = SignInProof::Token { hash: "of a token".into() };
        let (hash, made) = ("of a secret".to_owned(), clock::now());
        let session = WebSession { hash, who: user(), made, proof };
        assert!(uses.lasts(&session, made));
        assert!(!uses.lasts(&session, uses.started + IDLE_LIFE + HOUR), "it was not used");
        // One that is used every hour ends all the same.
        let mut at = made;
        while at < made + cluster::web_session::LIFE {
            assert!(uses.lasts(&session, at));
            uses.note(&session.hash, at, |_| true);
            at = at + HOUR;
        }
        assert!(!uses.lasts(&session, at));
    }

    #[test]
    fn session_that_a_server_before_this_one_made_is_idle_from_the_start_on() {
        let uses = WebSessionUses::default();
        let proof = SignInProof::Token { hash: "of a token".into() };
        let made = Timestamp(uses.started.0 - 2 * 24 * 3_600_000);
        let session = WebSession { hash: "of a secret".into(), who: user(), made, proof };
        assert!(uses.lasts(&session, uses.started + HOUR));
        assert!(!uses.lasts(&session, uses.started + IDLE_LIFE));
    }

    #[test]
    fn uses_of_sessions_that_are_over_are_forgotten_when_there_are_many() {
        let uses = WebSessionUses::default();
        for n in 0..=2 * ALL_MAX {
            uses.note(&n.to_string(), clock::now(), |hash| hash == "7");
        }
        assert_eq!(uses.held().len(), 2);
    }
}
