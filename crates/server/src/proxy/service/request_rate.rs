//! `rate_limits` of services: how many requests a second one client may make.

use model::service::{RateKey, RateLimit};
use percent_encoding::percent_decode_str;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Clients of one service that are told apart. Where there are more, those beyond are refused until others have been quiet.
const CLIENTS_MAX: usize = 10_000;

/// Who asks, as the limits tell clients apart.
pub struct Client<'c> {
    /// The address, or the user where the kernel or a node says who it is.
    pub address: &'c str,
    /// The value of a header of the request, which need not be text.
    pub header: &'c dyn Fn(&str) -> Option<Vec<u8>>,
}

/// The limit that a client came under, and the hash of its name: a header's value may be long, and is the client's choice.
type ClientKey = (usize, [u8; SHA256_OUTPUT_LEN]);

/// When the next request of each client of a service is due.
#[derive(Default)]
pub struct RequestRates(Mutex<HashMap<ClientKey, Instant>>);

impl RequestRates {
    fn held(&self) -> MutexGuard<'_, HashMap<ClientKey, Instant>> {
        self.0.lock().expect("no panic with the clients held")
    }

    /// Whether a request to this path is within its limit. The limit with the longest prefix of the path counts; of a path that can be
    /// read in several ways, that of each of them.
    pub fn admit(
        &self,
        limits: &[RateLimit],
        path: &str,
        client: &Client<'_>,
        now: Instant,
    ) -> bool {
        let longest = |path: &String| {
            let matching = limits.iter().enumerate();
            let matching = matching.filter(|(_, limit)| path.starts_with(&limit.prefix));
            matching.max_by_key(|(_, limit)| limit.prefix.len())
        };
        let found: BTreeMap<usize, &RateLimit> =
            readings(path).iter().filter_map(longest).collect();
        found.into_iter().all(|(at, limit)| self.is_within(at, limit, client, now))
    }

    /// Whether a request is within one limit, whose place among those of its service this is.
    fn is_within(&self, at: usize, limit: &RateLimit, client: &Client<'_>, now: Instant) -> bool {
        let name = match &limit.key {
            RateKey::IpAddress => client.address.as_bytes().to_owned(),
            // A request without the header is nobody's.
            RateKey::Header(name) => match (client.header)(name) {
                Some(value) => value,
                None => return true,
            },
        };
        let hash = digest(&SHA256, &name);
        let key: ClientKey = (at, hash.as_ref().try_into().expect("a digest has 32 bytes"));
        let mut clients = self.held();
        if clients.len() >= CLIENTS_MAX && !clients.contains_key(&key) {
            clients.retain(|_, due| *due > now);
            if clients.len() >= CLIENTS_MAX {
                return false;
            }
        }
        let due = clients.get(&key).copied();
        let next = next_due(limit, due, now);
        if let Some(next) = next {
            clients.insert(key, next);
        }
        next.is_some()
    }
}

/// The ways in which servers read a path: as it is spelled; with escaped characters as what they mean; and with slashes that follow
/// one another as one, `.` and `..` resolved besides. By one alone, another spelling of a path would evade its limit.
fn readings(path: &str) -> [String; 3] {
    let decoded = percent_decode_str(path).decode_utf8_lossy().into_owned();
    let resolved = resolved(&decoded);
    [path.to_owned(), decoded, resolved]
}

fn resolved(decoded: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in decoded.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let is_folder = decoded.rsplit('/').next().is_some_and(|last| ["", ".", ".."].contains(&last));
    let end = if is_folder && !parts.is_empty() { "/" } else { "" };
    format!("/{}{end}", parts.join("/"))
}

/// When the next request of a client is due after one that comes now; `None` where this one comes too early. `due`: when the rate alone
/// would have allowed it. So many as `burst` may come before that.
fn next_due(limit: &RateLimit, due: Option<Instant>, now: Instant) -> Option<Instant> {
    let interval = Duration::from_secs_f64(1000.0 / limit.rps_milli.max(1) as f64);
    let due = due.map_or(now, |due| due.max(now));
    let ahead = interval.checked_mul(limit.burst).unwrap_or(Duration::MAX);
    (due.saturating_duration_since(now) <= ahead).then(|| due + interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(prefix: &str, rps_milli: u64, burst: u32) -> RateLimit {
        RateLimit { prefix: prefix.into(), key: RateKey::IpAddress, rps_milli, burst }
    }

    #[test]
    fn burst_comes_at_once_and_the_rest_at_the_rate() {
        let (rates, start) = (RequestRates::default(), Instant::now());
        let limits = [limit("/", 2000, 2)];
        let header = |_: &str| None;
        let admitted = |address: &str, ms: u64| {
            let client = Client { address, header: &header };
            rates.admit(&limits, "/x", &client, start + Duration::from_millis(ms))
        };
        let at: Vec<bool> =
            [0, 0, 0, 0, 500, 500, 1000].into_iter().map(|ms| admitted("a", ms)).collect();
        assert_eq!(at, [true, true, true, false, true, false, true]);
        assert!(admitted("b", 0), "another client has its own");
        // After a pause the burst is there again.
        let later: Vec<bool> = (0..4).map(|_| admitted("a", 10_000)).collect();
        assert_eq!(later, [true, true, true, false]);
    }

    #[test]
    fn longest_prefix_of_the_path_says_the_limit_and_a_header_may_name_the_client() {
        let (rates, now) = (RequestRates::default(), Instant::now());
        let of_header =
            RateLimit { key: RateKey::Header("x-key".into()), ..limit("/api", 1000, 0) };
        let limits = [limit("/", 1_000_000, 100), of_header];
        let admitted = |path: &str, key: Option<&'static str>| {
            let header =
                |name: &str| key.filter(|_| name == "x-key").map(|key| key.as_bytes().to_owned());
            let client = Client { address: "a", header: &header };
            rates.admit(&limits, path, &client, now)
        };
        assert!(admitted("/api/x", Some("k")) && !admitted("/api/y", Some("k")));
        assert!(admitted("/api/x", Some("l")), "another key");
        assert!(admitted("/api/x", None) && admitted("/api/x", None), "no key, no limit");
        assert!(admitted("/other", Some("k")));
        for spelling in ["/%61pi/x", "//api/x", "/./api", "/other/../api/x", "/%2Fapi"] {
            assert!(!admitted(spelling, Some("k")), "{spelling}");
        }
    }

    #[test]
    fn path_that_can_be_read_in_several_ways_is_below_the_limits_of_all() {
        let (rates, now) = (RequestRates::default(), Instant::now());
        let limits = [limit("/api", 1000, 0), limit("/lenient", 1_000_000, 100)];
        let header = |_: &str| None;
        let admitted =
            |path: &str| rates.admit(&limits, path, &Client { address: "a", header: &header }, now);
        assert!(admitted("/api") && admitted("/lenient") && admitted("/lenient"));
        for path in ["/lenient/../api", "/lenient/%2e%2e/api", "/lenient%2F..//api/."] {
            assert!(!admitted(path), "{path}: by a server that resolves it");
        }
        assert!(!admitted("/%61pi/../lenient"), "by a server that does not");
    }

    #[test]
    fn path_is_resolved_as_servers_read_it() {
        for (path, expected) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a/b/", "/a/b/"),
            ("//a///b", "/a/b"),
            ("/a/./b/../c", "/a/c"),
            ("/a/.", "/a/"),
            ("/a/b/..", "/a/"),
            ("/../../a", "/a"),
            ("/%61%2fb", "/a/b"),
            ("/%zz", "/%zz"),
        ] {
            let [.., resolved] = readings(path);
            assert_eq!(resolved, expected, "{path}");
        }
    }

    #[test]
    fn clients_beyond_the_bound_are_refused_until_others_were_quiet() {
        let (rates, now) = (RequestRates::default(), Instant::now());
        let limits = [limit("/", 1000, 0)];
        let header = |_: &str| None;
        let admitted = |address: String, now: Instant| {
            rates.admit(&limits, "/", &Client { address: &address, header: &header }, now)
        };
        assert!((0..CLIENTS_MAX).all(|n| admitted(n.to_string(), now)));
        assert!(!admitted("one more".into(), now));
        assert!(admitted("one more".into(), now + Duration::from_secs(2)));
    }
}
