//! One attacker: a user on one connection after another, with calls, broken requests and streams drawn from its own dice.

use super::broken_http;
use super::calls::{CALLS, Draw, is_fixed_for_root};
use super::connection::{Connection, Entry};
use super::dstack_routes::DstackRequest;
use super::mutation;
use crate::harness::dice::Dice;
use serde_json::json;
use std::collections::{BTreeSet, VecDeque};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::version::PROTOCOL;

/// How long a submit's answer is waited for: a job that was acknowledged is remembered.
const SUBMIT_TIMEOUT: Duration = Duration::from_secs(30);

/// And that of any other call. Whoever waits for a job may have to wait longer, and leaves.
const TIMEOUT: Duration = Duration::from_millis(300);

/// Connections that are left open in the middle of something, or whose answers are never read.
const LEFT_OPEN_MAX: usize = 40;

/// Once in so many mutated bodies for dstack's routes one value is as large as a bound, or larger.
const OVERGROWN_ONE_IN: u64 = 20;

/// Connections that one burst opens.
const BURST: usize = 1000;

pub struct Attacker {
    pub user: String,
    pub entry: Entry,
    pub dice: Dice,
    pub work_dir: String,
    pub conf: String,
    /// Whether it is root: it then mutates nothing that would start processes as root, or remove a node that runs jobs.
    pub root: bool,
}

/// What an attacker has seen.
#[derive(Default)]
pub struct Tally {
    pub sent: u64,
    pub answered: u64,
    pub refused: u64,
    /// Jobs that the server has acknowledged.
    pub acknowledged: BTreeSet<u64>,
    /// Answers to requests of dstack's API.
    pub dstack_answered: u64,
    /// Names of runs that were acknowledged there.
    pub runs: BTreeSet<String>,
    /// Answers that say that the server failed.
    pub failures: Vec<String>,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.refused += other.refused;
        for job in other.acknowledged {
            assert!(self.acknowledged.insert(job), "job {job} was acknowledged twice");
        }
        self.dstack_answered += other.dstack_answered;
        self.runs.extend(other.runs);
        self.failures.extend(other.failures);
    }
}

impl Attacker {
    /// Attacks until it is told to stop, or has sent so much.
    pub fn run(&mut self, stop: &AtomicBool, most: u64) -> Tally {
        let mut tally = Tally::default();
        let mut left_open: VecDeque<Connection> = VecDeque::new();
        while tally.sent < most && !stop.load(Ordering::Relaxed) {
            tally.sent += 1;
            match self.dice.below(100) {
                0..70 => self.call(&mut tally),
                70..80 => self.dstack_request(&mut tally),
                80..90 => left_open.extend(broken_http::send(&self.entry, &mut self.dice)),
                90..95 => {
                    let jobs = jobs_so_far(tally.sent);
                    left_open.extend(broken_http::open_stream(&self.entry, jobs, &mut self.dice));
                }
                95..99 => left_open.extend(self.unread()),
                _ if self.dice.one_in(4) => self.burst(),
                _ => {}
            }
            if left_open.len() > LEFT_OPEN_MAX {
                left_open.pop_front();
            }
        }
        tally
    }

    fn call(&mut self, tally: &mut Tally) {
        let (sample, _) = self.dice.pick(CALLS);
        let mut draw = Draw {
            dice: &mut self.dice,
            user: &self.user,
            work_dir: &self.work_dir,
            jobs: jobs_so_far(tally.sent),
            conf: &self.conf,
        };
        let call = if draw.dice.one_in(6) {
            json!({"submit": draw.submission()})
        } else {
            sample(&mut draw)
        };
        let is_submit = call.get("submit").is_some();
        let may_mutate = !(self.root && is_fixed_for_root(&call));
        let mut envelope = json!({"version": PROTOCOL, "call": call});
        let body = if may_mutate && self.dice.one_in(2) {
            for _ in 0..1 + self.dice.below(3) {
                mutation::mutate(&mut envelope, &mut self.dice);
            }
            mutation::to_text(&envelope, &mut self.dice)
        } else {
            envelope.to_string().into_bytes()
        };
        let timeout = if is_submit { SUBMIT_TIMEOUT } else { TIMEOUT };
        let Some(response) = self.entry.call(&body, timeout) else { return };
        tally.answered += 1;
        let text = String::from_utf8_lossy(&response.body);
        if response.status >= 500 {
            let shown: String = String::from_utf8_lossy(&body).chars().take(2000).collect();
            tally.failures.push(format!("{}: {text}: {shown}", response.status));
        }
        if response.status != 200 || text.starts_with(r#"{"refused""#) {
            tally.refused += 1;
        }
        if let Ok(answer) = serde_json::from_str::<serde_json::Value>(&text)
            && let Some(job) = answer["submitted"]["job"].as_u64()
        {
            assert!(tally.acknowledged.insert(job), "job {job} was acknowledged twice");
        }
    }

    /// As dstack's client would ask, or with a body or a path that it would not send.
    fn dstack_request(&mut self, tally: &mut Tally) {
        let request = DstackRequest::draw(&mut self.dice);
        let mutates = self.dice.one_in(2) && !(self.root && request.starts_processes);
        let proper = !mutates && request.proper_path;
        let body = request.body.map(|mut body| {
            if !mutates {
                return body.to_string().into_bytes();
            }
            if self.dice.one_in(OVERGROWN_ONE_IN) {
                mutation::overgrow(&mut body, &mut self.dice);
                return body.to_string().into_bytes();
            }
            for _ in 0..1 + self.dice.below(3) {
                mutation::mutate(&mut body, &mut self.dice);
            }
            mutation::to_text(&body, &mut self.dice)
        });
        let timeout = if request.starts_processes { SUBMIT_TIMEOUT } else { TIMEOUT };
        let Some(response) = self.entry.request(&request.path, body.as_deref(), timeout) else {
            return;
        };
        tally.answered += 1;
        tally.dstack_answered += 1;
        tally.refused += u64::from(response.status != 200);
        let said = String::from_utf8_lossy(&response.body);
        // No such path, no such method, a body that is not the route's: what its own client sends is none of these.
        let is_missing = response.status == 404 && request.may_lack_project;
        let not_taken = proper && !is_missing && [404, 405, 422].contains(&response.status);
        if response.status >= 500 || not_taken {
            let body = String::from_utf8_lossy(body.as_deref().unwrap_or_default());
            let shown: String = body.chars().take(2000).collect();
            tally.failures.push(format!("{}: {}: {said}: {shown}", request.path, response.status));
        }
        if request.starts_processes && response.status == 200 {
            let run: serde_json::Value = serde_json::from_str(&said).expect("a run");
            let name = run["run_spec"]["run_name"].as_str().expect("a run's name");
            tally.runs.insert(name.to_owned());
        }
    }

    /// Asks for everything, and does not read the answer.
    fn unread(&mut self) -> Option<Connection> {
        let mut connection = self.entry.connect().ok()?;
        connection.set_timeout(TIMEOUT);
        let body = json!({"version": PROTOCOL, "call": {"jobs": {}}}).to_string();
        for _ in 0..20 {
            let request = [&self.entry.call_head(body.len())[..], body.as_bytes()].concat();
            connection.write_all(&request).ok()?;
        }
        Some(connection)
    }

    /// Very many connections at once, of which some say something.
    fn burst(&mut self) {
        let mut open: Vec<Connection> =
            (0..BURST).map_while(|_| self.entry.connect().ok()).collect();
        for connection in open.iter_mut().step_by(7) {
            connection.set_timeout(TIMEOUT);
            let _ = connection.write_all(b"GET /healthz HTTP/1.1\r\n");
        }
    }
}

/// Job numbers are drawn from as many as there may be by now. It follows from the calls alone, so that a seed repeats them.
fn jobs_so_far(sent: u64) -> u64 {
    10 + sent / 20
}
