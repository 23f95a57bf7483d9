//! Requests that no client of ours makes, at every API of the port: bodies that are too long, paths that climb, parameters that are
//! SQL, and more streams than one user may have.

use crate::harness::{Cluster, TWO_NODES};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const MEGABYTE: usize = 1 << 20;

fn address(cluster: &Cluster) -> String {
    let ports = std::fs::read_to_string(cluster.state().join("ports.json")).expect("the ports");
    let ports: Value = serde_json::from_str(&ports).expect("JSON");
    ports["listen"].as_str().expect("a port").to_owned()
}

fn admin_token(cluster: &Cluster) -> String {
    let token = std::fs::read_to_string(cluster.state().join("admin.token")).expect("a token");
    token.trim().to_owned()
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream
}

fn head(method: &str, path: &str, token: &str, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    )
}

fn status(line: &str) -> u16 {
    line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{line:?}"))
}

fn get(address: &str, path: &str, token: &str) -> (u16, String) {
    let mut stream = connect(address);
    stream.write_all(head("GET", path, token, 0).as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (status(&answer), answer)
}

/// Sends a body of so many megabytes; `None` where the server closed the connection without a word that could be read.
fn post_megabytes(address: &str, path: &str, token: &str, megabytes: usize) -> Option<u16> {
    let mut stream = connect(address);
    let head = head("POST", path, token, megabytes * MEGABYTE);
    stream.write_all(head.as_bytes()).expect("sent");
    let part = vec![b'"'; MEGABYTE];
    // The server may answer, and close, before all of it is sent.
    let _ = (0..megabytes).try_for_each(|_| stream.write_all(&part));
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    (!line.is_empty()).then(|| status(&line))
}

#[test]
fn up_strange_requests_are_refused_and_the_server_goes_on() {
    let cluster = Cluster::up(TWO_NODES);
    let (address, token) = (address(&cluster), admin_token(&cluster));
    let job = cluster.submit(&["-H", "--wrap", "true"]);
    for path in ["/api/v1/call", "/api/web/call", "/api/web/submit", "/slurm/v0.0.42/job/submit"] {
        for (token, expected) in [(token.as_str(), 413), ("wrong", 401)] {
            let answer = post_megabytes(&address, path, token, 100);
            assert!(answer.is_none_or(|status| status == expected), "{path}: {answer:?}");
        }
    }
    for path in [
        "/web/../admin.token",
        "/web/%2e%2e%2fadmin.token",
        "/web/version/%2e%2e%2fadmin.token",
        "/web/version/..%5cadmin.token",
        "/web/version/%00",
        "/../../../etc/passwd",
        "/api/web/jobs/../../../etc/passwd",
        "/api/web/lists/..%2f..%2fetc%2fpasswd",
        "/slurm/v0.0.38/job/..%2f..%2fadmin.token",
        "/slurmdb/v0.0.38/..%2fslurm/jobs",
        "/openapi.json/../admin.token",
    ] {
        let (status, answer) = get(&address, path, &token);
        assert!((400..500).contains(&status), "{path}: {answer}");
        assert!(!answer.contains(&token) && !answer.contains("root:x:"), "{path}");
    }
    for (path, expected) in [
        ("/api/web/jobs?sort=id%3BDROP%20TABLE%20jobs", 200),
        ("/api/web/usage?from=0%27%20OR%20%271&until=1", 400),
        ("/api/web/lists/accounts%3BDROP%20TABLE%20accounts", 404),
        ("/slurm/v0.0.38/jobs?sort=id%3BDROP%20TABLE%20jobs", 400),
        ("/slurmdb/v0.0.42/jobs?users=%27%3BDELETE%20FROM%20jobs%3B--", 200),
    ] {
        let (status, answer) = get(&address, path, &token);
        assert_eq!(status, expected, "{path}: {answer}");
    }
    let (status, answer) = get(&address, &format!("/api/web/jobs/{job}"), &token);
    assert_eq!(status, 200, "the job is there: {answer}");
    cluster.sluice(&["scancel", &job.to_string()]).ok();
}

/// A stream that is open, or the status of the refusal.
fn open_stream(address: &str, token: &str) -> Result<TcpStream, u16> {
    let mut stream = connect(address);
    stream.write_all(head("GET", "/api/web/events", token, 0).as_bytes()).expect("sent");
    let mut line = String::new();
    let mut reader = BufReader::new(stream);
    reader.read_line(&mut line).expect("a status");
    match status(&line) {
        200 => Ok(reader.into_inner()),
        refused => Err(refused),
    }
}

#[test]
fn up_a_thousand_event_streams_of_one_user_are_bounded() {
    let cluster = Cluster::up(TWO_NODES);
    let (address, token) = (address(&cluster), admin_token(&cluster));
    let mut open = Vec::new();
    for _ in 0..1000 {
        match open_stream(&address, &token) {
            Ok(stream) => open.push(stream),
            Err(status) => assert_eq!(status, 503),
        }
    }
    assert!((1..=16).contains(&open.len()), "{} are open", open.len());
    let other = cluster.sluice(&["token", "user", "nobody", "--name", "streams"]).ok();
    assert!(open_stream(&address, other.trim()).is_ok(), "another user has streams of his own");
    let (status, answer) = get(&address, "/api/web/session", &token);
    assert_eq!(status, 200, "{answer}");
}
