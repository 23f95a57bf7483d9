//! A shell in the browser, as a page opens it: a ticket, a WebSocket with it, and a step of the job behind it.

use crate::harness::{Cluster, TIMEOUT, TWO_NODES};
use crate::web_page::{Browser, admin_token};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

const BINARY: u8 = 2;
const TEXT: u8 = 1;

/// A WebSocket as a browser has it.
struct Socket(TcpStream);

impl Socket {
    /// The head of the answer, and the socket where it was opened.
    fn open(
        browser: &Browser,
        ticket: &str,
        origin: &str,
        cookie: Option<&str>,
    ) -> (String, Option<Self>) {
        let mut stream = TcpStream::connect(&browser.address).expect("the server");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let cookie = cookie.map(|cookie| format!("Cookie: {cookie}\r\n")).unwrap_or_default();
        let head = format!(
            "GET /api/web/shell?ticket={ticket}&rows=30&columns=100 HTTP/1.1\r\nHost: {}\r\n\
             Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: {origin}\r\n{cookie}\r\n",
            browser.address
        );
        stream.write_all(head.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a head");
            answer.push(byte[0]);
        }
        let answer = String::from_utf8(answer).expect("text");
        let is_open = answer.starts_with("HTTP/1.1 101 ");
        (answer, is_open.then_some(Self(stream)))
    }

    /// Sends a message, under a mask of zeros.
    fn send(&mut self, kind: u8, content: &[u8]) {
        assert!(content.len() < 126, "a short message");
        let mut frame = vec![0x80 | kind, 0x80 | content.len() as u8, 0, 0, 0, 0];
        frame.extend(content);
        self.0.write_all(&frame).expect("sent");
    }

    fn read(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).expect("a frame");
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.0.read_exact(&mut length).expect("a length");
                u64::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                self.0.read_exact(&mut length).expect("a length");
                u64::from_be_bytes(length)
            }
            short => u64::from(short),
        };
        let mut content = vec![0; usize::try_from(length).expect("a length")];
        self.0.read_exact(&mut content).expect("a whole frame");
        (head[0] & 0x0f, content)
    }

    /// What the terminal shows until the shell ends, and how it ended.
    fn read_to_end(&mut self) -> (String, String) {
        let mut shown = Vec::new();
        loop {
            match self.read() {
                (BINARY, bytes) => shown.extend(bytes),
                (TEXT, text) => {
                    let text: Value = serde_json::from_slice(&text).expect("JSON");
                    let end = text["ended"].as_str().expect("an end").to_owned();
                    return (String::from_utf8_lossy(&shown).into_owned(), end);
                }
                _ => {}
            }
        }
    }
}

fn ticket(browser: &Browser, job: u32) -> String {
    let answer = browser.post(&format!("/api/web/jobs/{job}/shell"), &json!({}));
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["ticket"].as_str().expect("a ticket").to_owned()
}

fn administered() -> (Cluster, Browser) {
    let cluster = Cluster::up(TWO_NODES);
    // Where pages of jobs are shown, administrators only look.
    cluster.write_conf("sluice.toml", "[web]\njob_pages = false\n");
    cluster.sluice(&["scontrol", "reconfigure"]).ok();
    let mut browser = Browser::of(&cluster);
    browser.sign_in(&admin_token(&cluster));
    (cluster, browser)
}

#[test]
fn up_shell_in_the_browser_runs_in_the_job_with_the_pages_window() {
    let (cluster, browser) = administered();
    let job = cluster.submit_sleeper("");
    cluster.await_state(job, "RUNNING");
    let own = format!("http://{}", browser.address);
    let cookie = browser.cookie.as_deref();
    let good = ticket(&browser, job);
    let (head, socket) = Socket::open(&browser, &good, &own, cookie);
    let mut socket = socket.unwrap_or_else(|| panic!("{head}"));
    socket.send(TEXT, br#"{"rows": 40, "columns": 120}"#);
    socket.send(BINARY, b"until stty size | grep -q '40 120'; do sleep 0.1; done\n");
    socket.send(BINARY, b"echo in-$SLURM_JOB_ID at $(stty size); exit 3\n");
    let (shown, end) = socket.read_to_end();
    assert!(shown.contains(&format!("in-{job} at 40 120")), "{shown}");
    assert_eq!(end, "exit code 3", "{shown}");
    let (own, another) = (own.as_str(), ticket(&browser, job));
    for (ticket, origin, cookie, status) in [
        (good.as_str(), own, cookie, " 403 "),
        ("", own, cookie, " 403 "),
        (another.as_str(), "http://evil.example", cookie, " 403 "),
        (another.as_str(), own, None, " 401 "),
    ] {
        let (head, socket) = Socket::open(&browser, ticket, origin, cookie);
        assert!(socket.is_none() && head.contains(status), "{head}");
    }
}

#[test]
fn up_shells_end_with_their_session_and_are_bounded() {
    let (cluster, browser) = administered();
    let job = cluster.submit_sleeper("");
    cluster.await_state(job, "RUNNING");
    let own = format!("http://{}", browser.address);
    let mut open = Vec::new();
    let refused = loop {
        assert!(open.len() < 100, "they are bounded");
        let (head, socket) =
            Socket::open(&browser, &ticket(&browser, job), &own, browser.cookie.as_deref());
        match socket {
            Some(socket) => open.push(socket),
            None => break head,
        }
    };
    assert!(refused.contains("503"), "{refused}");
    let out = browser.send("DELETE", "/api/web/session", Some(&own), "");
    assert_eq!(out.status, 200, "{}", out.body);
    let (_, end) = open.remove(0).read_to_end();
    assert!(end.contains("is over"), "{end}");
}

#[test]
fn root_shell_in_the_browser_is_for_the_jobs_owner_alone() {
    let (cluster, administrator) = administered();
    let of_root = cluster.submit_sleeper("");
    let of_games = cluster.submit_as("games", "-o /dev/null --wrap 'sleep 600'");
    cluster.await_state(of_root, "RUNNING");
    cluster.await_state(of_games, "RUNNING");
    let mut user = Browser::of(&cluster);
    user.sign_in(cluster.sluice(&["token", "user", "games", "--name", "page"]).ok().trim());
    for (browser, job) in [(&user, of_root), (&administrator, of_games)] {
        let refused = browser.post(&format!("/api/web/jobs/{job}/shell"), &json!({}));
        assert_eq!(refused.status, 403, "{}", refused.body);
        let page = browser.get(&format!("/api/web/jobs/{job}")).json();
        assert_eq!(page["may_enter"], json!(false), "{page}");
    }
    // A ticket of one is none for another.
    let own = format!("http://{}", user.address);
    let stolen = ticket(&user, of_games);
    let (head, socket) =
        Socket::open(&administrator, &stolen, &own, administrator.cookie.as_deref());
    assert!(socket.is_none() && head.contains("403"), "{head}");
    let waits = cluster.submit_as("games", "-H -o /dev/null --wrap true");
    let refused = user.post(&format!("/api/web/jobs/{waits}/shell"), &json!({}));
    assert_eq!(refused.status, 409, "{}", refused.body);
}
