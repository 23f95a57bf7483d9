//! Links and cookies of the proxy to jobs' web pages. A link is good once and for minutes; it is exchanged for a cookie that opens
//! one port of one job. Both are known here by their hashes alone, and are forgotten when the server stops.

use crate::clock;
use model::id::JobId;
use model::principal::Principal;
use model::time::Timestamp;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a link waits to be opened, and how long a browser stays let in.
const LINK_LIFE: Duration = Duration::from_secs(600);
const COOKIE_LIFE: Duration = Duration::from_secs(12 * 3600);
/// Links and cookies of one user; the oldest goes first. And of all: beyond it, none is made.
const OF_USER_MAX: usize = 64;
const ALL_MAX: usize = 16_384;
const SECRET_BYTES: usize = 32;

/// A port of a job, on the node of this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProxyTarget {
    pub job: JobId,
    pub rank: u32,
    pub port: u16,
}

#[derive(Default)]
pub struct ProxySessions {
    links: Mutex<Passes>,
    cookies: Mutex<Passes>,
    /// The browsers that were let in, each with the user whose pages it shows.
    browsers: Mutex<Passes>,
}

/// What a browser gets for a link.
#[derive(Debug)]
pub struct OpenedPass {
    pub uid: u32,
    pub cookie: String,
    pub browser: String,
}

type Hash = [u8; 32];

#[derive(Default)]
struct Passes(HashMap<Hash, Pass>);

#[derive(Clone)]
struct Pass {
    who: Principal,
    target: ProxyTarget,
    made: Timestamp,
    until: Instant,
}

impl ProxySessions {
    /// A secret for a link of this user; nothing where there are too many.
    pub fn make_link(&self, who: Principal, target: ProxyTarget, now: Instant) -> Option<String> {
        held(&self.links).add(Pass { who, target, made: clock::now(), until: now + LINK_LIFE }, now)
    }

    /// Exchanges the secret of a link for those of cookies.
    pub fn redeem(&self, secret: &str, target: ProxyTarget, now: Instant) -> Option<OpenedPass> {
        let pass = held(&self.links).0.remove(&hash(secret))?;
        let is_good = pass.target == target && pass.until > now;
        let pass = Pass { until: now + COOKIE_LIFE, ..is_good.then_some(pass)? };
        let uid = pass.who.uid;
        let browser = held(&self.browsers).add(pass.clone(), now)?;
        Some(OpenedPass { uid, cookie: held(&self.cookies).add(pass, now)?, browser })
    }

    /// Whom a cookie lets in, and since when he has had the link to it.
    pub fn who(
        &self,
        secret: &str,
        target: ProxyTarget,
        now: Instant,
    ) -> Option<(Principal, Timestamp)> {
        let cookies = held(&self.cookies);
        let pass = cookies.0.get(&hash(secret))?;
        (pass.target == target && pass.until > now).then(|| (pass.who.clone(), pass.made))
    }

    /// The user whose pages a browser with this cookie shows.
    pub fn user_of_browser(&self, secret: &str, now: Instant) -> Option<u32> {
        let browsers = held(&self.browsers);
        let pass = browsers.0.get(&hash(secret)).filter(|pass| pass.until > now)?;
        Some(pass.who.uid)
    }
}

fn held(passes: &Mutex<Passes>) -> MutexGuard<'_, Passes> {
    passes.lock().expect("no panic with the passes held")
}

fn hash(secret: &str) -> Hash {
    let digest = digest(&SHA256, secret.as_bytes());
    digest.as_ref().try_into().expect("a digest has 32 bytes")
}

impl Passes {
    fn add(&mut self, pass: Pass, now: Instant) -> Option<String> {
        self.0.retain(|_, known| known.until > now);
        let own = self.0.iter().filter(|(_, known)| known.who.uid == pass.who.uid);
        let oldest = own.clone().min_by_key(|(_, known)| known.until).map(|(hash, _)| *hash);
        if own.count() >= OF_USER_MAX
            && let Some(oldest) = oldest
        {
            self.0.remove(&oldest);
        }
        if self.0.len() >= ALL_MAX {
            return None;
        }
        let mut random = [0; SECRET_BYTES];
        SystemRandom::new().fill(&mut random).ok()?;
        let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        self.0.insert(hash(&secret), pass);
        Some(secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::principal::Role;

    fn user(uid: u32) -> Principal {
        Principal {
            name: format!("u{uid}"),
            uid,
            gid: uid,
            group: String::new(),
            groups: Vec::new(),
            role: Role::User,
            token_limit: None,
        }
    }

    const TARGET: ProxyTarget = ProxyTarget { job: JobId(1), rank: 0, port: 80 };

    #[test]
    fn link_is_good_once_in_time_and_for_its_port_alone() {
        let (sessions, now) = (ProxySessions::default(), Instant::now());
        let link =
            |sessions: &ProxySessions| sessions.make_link(user(7), TARGET, now).expect("made");
        let (other, late) = (ProxyTarget { port: 81, ..TARGET }, now + LINK_LIFE);
        let one = link(&sessions);
        let OpenedPass { cookie, browser, uid } =
            sessions.redeem(&one, TARGET, now).expect("a cookie");
        assert_eq!((uid, sessions.user_of_browser(&browser, now)), (7, Some(7)));
        assert_eq!(sessions.user_of_browser(&cookie, now), None);
        assert_ne!(cookie, one);
        assert!(sessions.redeem(&one, TARGET, now).is_none(), "once");
        assert!(sessions.redeem(&link(&sessions), other, now).is_none());
        assert!(sessions.redeem(&link(&sessions), TARGET, late).is_none());
        assert_eq!(sessions.who(&cookie, TARGET, now).map(|(who, _)| who.uid), Some(7));
        assert_eq!(sessions.who(&cookie, other, now), None);
        assert_eq!(sessions.who(&cookie, TARGET, now + COOKIE_LIFE), None);
        assert_eq!(sessions.who("", TARGET, now), None);
    }

    #[test]
    fn oldest_link_of_a_user_goes_first() {
        let (sessions, now) = (ProxySessions::default(), Instant::now());
        let first = sessions.make_link(user(7), TARGET, now).expect("made");
        let of_another = sessions.make_link(user(8), TARGET, now).expect("made");
        for n in 0..OF_USER_MAX {
            let at = now + Duration::from_millis(n as u64 + 1);
            assert!(sessions.make_link(user(7), TARGET, at).is_some());
        }
        assert!(sessions.redeem(&first, TARGET, now).is_none());
        assert!(sessions.redeem(&of_another, TARGET, now).is_some());
    }
}
