//! Links and cookies of the proxy to jobs' web pages. A link is good once and for minutes; it is exchanged for a cookie that opens
//! one port of one job. Both are known here by their hashes alone, and are forgotten when the server stops. Which pages a browser
//! shows is said by a marker that the server has signed, and that says it after the server has started anew.

use crate::clock;
use model::id::JobId;
use model::principal::Principal;
use model::time::Timestamp;
use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock};
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
    /// Signs the markers of browsers that were let in, each with its viewer and the owner whose pages it shows. Without it nobody
    /// is let in.
    marker_key: OnceLock<hmac::Key>,
}

/// What a browser gets for a link.
#[derive(Debug)]
pub struct OpenedPass {
    pub cookie: String,
    /// The marker of the browser.
    pub browser: String,
}

/// Why a browser gets nothing for a link.
#[derive(Debug, PartialEq, Eq)]
pub enum RedeemRefusal {
    /// The link was used, is too old, or is for another page.
    NotGood,
    /// The browser shows pages to another viewer, or of another owner's jobs.
    OtherPagesOpen,
}

/// Who looks at pages in a browser, and whose jobs' pages they are. Pages share one origin, and an administrator may open
/// everybody's: scripts of one user's page are not to reach the pages of another, nor the administrator's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Viewed {
    viewer: u32,
    owner: u32,
}

type Hash = [u8; 32];

#[derive(Default)]
struct Passes(HashMap<Hash, Pass>);

#[derive(Clone)]
struct Pass {
    who: Principal,
    /// The owner of the job.
    owner: u32,
    target: ProxyTarget,
    made: Timestamp,
    until: Instant,
}

impl Pass {
    fn viewed(&self) -> Viewed {
        Viewed { viewer: self.who.uid, owner: self.owner }
    }
}

impl ProxySessions {
    /// Signs markers with a key of this secret. The secret is the same after a restart, and so are the markers.
    pub fn keep_markers(&self, secret: &[u8]) {
        // One that is there already stays.
        let _ = self.marker_key.set(hmac::Key::new(hmac::HMAC_SHA256, secret));
    }

    /// A secret for a link of this user to a page of this owner's job; nothing where there are too many.
    pub fn make_link(
        &self,
        who: Principal,
        owner: u32,
        target: ProxyTarget,
        now: Instant,
    ) -> Option<String> {
        let (made, until) = (clock::now(), now + LINK_LIFE);
        held(&self.links).add(Pass { who, owner, target, made, until }, now)
    }

    /// Exchanges the secret of a link for those of cookies. `browser` has the markers of the browser that were set before:
    /// it shows the pages of one owner to one viewer. A page that is open keeps its scripts whatever becomes of its cookie,
    /// so another owner's page needs another browser. A marker that this server has not signed says nothing of whose pages the
    /// browser shows, so they count as another's.
    pub fn redeem<'b>(
        &self,
        secret: &str,
        target: ProxyTarget,
        mut browser: impl Iterator<Item = &'b str>,
        now: Instant,
    ) -> Result<OpenedPass, RedeemRefusal> {
        let pass = held(&self.links).0.remove(&hash(secret));
        let is_good = |pass: &Pass| pass.target == target && pass.until > now;
        let pass = pass.filter(is_good).ok_or(RedeemRefusal::NotGood)?;
        if browser.any(|known| self.viewed(known).is_none_or(|seen| seen != pass.viewed())) {
            return Err(RedeemRefusal::OtherPagesOpen);
        }
        let pass = Pass { until: now + COOKIE_LIFE, ..pass };
        let browser = self.marker(pass.viewed());
        let cookie = held(&self.cookies).add(pass, now);
        let made = cookie.zip(browser).ok_or(RedeemRefusal::NotGood)?;
        Ok(OpenedPass { cookie: made.0, browser: made.1 })
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

    /// The owner of the jobs whose pages a browser with this marker shows.
    pub fn owner_shown(&self, marker: &str) -> Option<u32> {
        self.viewed(marker).map(|viewed| viewed.owner)
    }

    /// `VIEWER-OWNER-SIGNATURE`, the signature as hex.
    fn marker(&self, viewed: Viewed) -> Option<String> {
        let body = viewed.body();
        let signature = hmac::sign(self.marker_key.get()?, body.as_bytes());
        Some(format!("{body}-{}", hex(signature.as_ref())))
    }

    /// What a browser with this marker shows; nothing where the server has not signed it. It is not bounded in time: a page that
    /// was opened long ago is open still.
    fn viewed(&self, marker: &str) -> Option<Viewed> {
        let (body, _) = marker.rsplit_once('-')?;
        let (viewer, owner) = body.split_once('-')?;
        let viewed = Viewed { viewer: viewer.parse().ok()?, owner: owner.parse().ok()? };
        let expected = self.marker(viewed)?;
        // As long as each other, and compared without telling by the time taken where they differ.
        let differs = expected.bytes().zip(marker.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
        (expected.len() == marker.len() && differs == 0).then_some(viewed)
    }
}

impl Viewed {
    fn body(self) -> String {
        format!("{}-{}", self.viewer, self.owner)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
        let secret = hex(&random);
        self.0.insert(hash(&secret), pass);
        Some(secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::principal::Role;
    use std::iter::empty;

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

    fn sessions() -> ProxySessions {
        let sessions = ProxySessions::default();
        sessions.keep_markers(b"of a server");
        sessions
    }

    const TARGET: ProxyTarget = ProxyTarget { job: JobId(1), rank: 0, port: 80 };

    #[test]
    fn link_is_good_once_in_time_and_for_its_port_alone() {
        let (sessions, now) = (sessions(), Instant::now());
        let link =
            |sessions: &ProxySessions| sessions.make_link(user(7), 7, TARGET, now).expect("made");
        let redeem = |secret: &str, target, now| sessions.redeem(secret, target, empty(), now);
        let (other, late) = (ProxyTarget { port: 81, ..TARGET }, now + LINK_LIFE);
        let one = link(&sessions);
        let OpenedPass { cookie, browser } = redeem(&one, TARGET, now).expect("a cookie");
        assert_eq!(sessions.viewed(&browser), Some(Viewed { viewer: 7, owner: 7 }));
        assert_eq!(sessions.owner_shown(&browser), Some(7));
        assert_eq!(sessions.viewed(&cookie), None);
        assert_ne!(cookie, one);
        assert!(redeem(&one, TARGET, now).is_err(), "once");
        assert!(redeem(&link(&sessions), other, now).is_err());
        assert!(redeem(&link(&sessions), TARGET, late).is_err());
        assert_eq!(sessions.who(&cookie, TARGET, now).map(|(who, _)| who.uid), Some(7));
        assert_eq!(sessions.who(&cookie, other, now), None);
        assert_eq!(sessions.who(&cookie, TARGET, now + COOKIE_LIFE), None);
        assert_eq!(sessions.who("", TARGET, now), None);
    }

    /// Root may open everybody's pages, and not in the browser that shows its own.
    #[test]
    fn browser_shows_pages_of_one_owner_to_one_viewer() {
        let (sessions, now) = (sessions(), Instant::now());
        let open = |viewer: u32, owner: u32, browser: Option<&str>| {
            let link = sessions.make_link(user(viewer), owner, TARGET, now).expect("made");
            let opened = sessions.redeem(&link, TARGET, browser.into_iter(), now);
            opened.map(|pass| pass.browser)
        };
        let refused = Err(RedeemRefusal::OtherPagesOpen);
        let with_users = open(0, 7, None).expect("a page of a user's job");
        assert_eq!(open(0, 0, Some(&with_users)), refused, "root's own beside it");
        assert_eq!(open(0, 8, Some(&with_users)), refused, "nor another user's");
        assert_eq!(open(7, 7, Some(&with_users)), refused, "nor for another viewer");
        assert!(open(0, 7, Some(&with_users)).is_ok(), "another page of the same user");
        let with_own = open(0, 0, None).expect("in another browser");
        assert_eq!(open(0, 7, Some(&with_own)), refused, "in whatever order");
        assert!(open(0, 0, Some(&with_own)).is_ok());
        assert_eq!(open(0, 0, Some("unknown")), refused, "nor beside pages that nobody knows of");
    }

    /// A browser that restores its session keeps the marker for months.
    #[test]
    fn marker_is_known_after_a_restart_and_a_forged_one_never() {
        let before = sessions();
        let marker = before.marker(Viewed { viewer: 7, owner: 8 }).expect("signed");
        assert_eq!(sessions().owner_shown(&marker), Some(8));
        let other = ProxySessions::default();
        assert_eq!(other.owner_shown(&marker), None, "without a key");
        other.keep_markers(b"of another server");
        assert_eq!(other.owner_shown(&marker), None);
        let signature = marker.rsplit('-').next().expect("a signature").to_owned();
        for forged in [
            format!("7-7-{signature}"),
            format!("07-8-{signature}"),
            format!("7-8-{signature}0"),
            format!("7-8-{}", &signature[1..]),
            "7-8-".into(),
            "7-8".into(),
            String::new(),
        ] {
            assert_eq!(before.owner_shown(&forged), None, "{forged}");
        }
    }

    #[test]
    fn oldest_link_of_a_user_goes_first() {
        let (sessions, now) = (sessions(), Instant::now());
        let first = sessions.make_link(user(7), 7, TARGET, now).expect("made");
        let of_another = sessions.make_link(user(8), 8, TARGET, now).expect("made");
        for n in 0..OF_USER_MAX {
            let at = now + Duration::from_millis(n as u64 + 1);
            assert!(sessions.make_link(user(7), 7, TARGET, at).is_some());
        }
        assert!(sessions.redeem(&first, TARGET, empty(), now).is_err());
        assert!(sessions.redeem(&of_another, TARGET, empty(), now).is_ok());
    }
}
