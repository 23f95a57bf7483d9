//! Requests that are no proper HTTP, streams of garbage, and connections that are left in the middle of something.

use super::connection::{Connection, Entry};
use crate::harness::dice::Dice;
use std::io::{Read, Write};
use std::time::Duration;

/// How long an answer to a broken request is waited for: most get none.
const TIMEOUT: Duration = Duration::from_millis(50);

/// Sends one broken request. The connection is returned where it is to be left open for a while.
pub fn send(entry: &Entry, dice: &mut Dice) -> Option<Connection> {
    let mut connection = entry.connect().ok()?;
    connection.set_timeout(TIMEOUT);
    let bytes = request(entry, dice);
    // The server may refuse it before all is written.
    let _ = connection.write_all(&bytes);
    match dice.below(4) {
        // Left open in the middle of it.
        0 => return Some(connection),
        1 => connection.half_close(),
        // Closed with an answer under way.
        2 => return None,
        _ => {}
    }
    let _ = connection.read(&mut [0; 4096]);
    None
}

fn request(entry: &Entry, dice: &mut Dice) -> Vec<u8> {
    let body = br#"{"version":1,"call":"ping"}"#;
    let length = format!("content-length: {}", body.len());
    let call = "POST /api/v1/call HTTP/1.1";
    let with = |lines: &[&str], body: &[u8]| [entry.head(call, lines), body.to_vec()].concat();
    match dice.below(16) {
        0 => {
            let length = 1 + dice.below(5000) as usize;
            dice.bytes(length)
        }
        1 => with(&[&length, "content-length: 3"], body),
        2 => with(&[&length, "transfer-encoding: chunked"], body),
        3 => with(&["transfer-encoding: chunked"], b"ffffffffffffffffff\r\nx"),
        4 => with(&["transfer-encoding: chunked"], b"5\r\n{\"ver\r\nzz\r\n"),
        5 => with(&["transfer-encoding: chunked"], &b"1\r\n \r\n".repeat(3000)),
        6 => with(&[&format!("x: {}", "y".repeat(200_000))], body),
        7 => {
            let lines: Vec<String> = (0..2000).map(|n| format!("x-{n}: y")).collect();
            with(&lines.iter().map(String::as_str).collect::<Vec<_>>(), body)
        }
        8 => with(&["content-length: 18446744073709551616"], body),
        9 => with(&["content-length: -1"], body),
        10 => with(&["content-length: 16777217"], body),
        11 => entry.head("GET /../../etc/passwd HTTP/1.1", &[]),
        12 => entry.head("POST /api/v1/call HTTP/9.9", &[&length]),
        13 => entry.head("\u{0}\u{ff} / HTTP/1.1", &["no colon here"]),
        // The preface of HTTP/2, then no frames of it.
        14 => [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &dice.bytes(200)].concat(),
        _ => with(&[&length], &body[..body.len() / 2]),
    }
}

/// Opens a stream of the API with values that mostly do not fit, and sends garbage where it is upgraded.
pub fn open_stream(entry: &Entry, jobs: u64, dice: &mut Dice) -> Option<Connection> {
    let job = dice.below(jobs + 2);
    let query = match dice.below(6) {
        0 => format!("hold?job={job}"),
        1 => format!("logs?job={job}&follow=true&offset={}", dice.next()),
        2 => format!("logs?job={job}&node={}&attempt={}", dice.next(), dice.below(3)),
        3 => format!("step?job={job}&step=batch&node=node1"),
        4 => format!(
            "step?job={job}&step=0&node=rogue1&key={}&received={}",
            "0".repeat(64),
            dice.next()
        ),
        _ => format!("step?job=-1&step={}&node=%00", "9".repeat(40)),
    };
    let first = format!("GET /api/v1/{query} HTTP/1.1");
    let upgrade = ["connection: upgrade", "upgrade: sluice-step"];
    let mut connection = entry.connect().ok()?;
    connection.set_timeout(TIMEOUT);
    connection.write_all(&entry.head(&first, &upgrade)).ok()?;
    let _ = connection.read(&mut [0; 4096]);
    // Frames: a length, a channel, and a payload that may be shorter, longer or nonsense.
    let length = *dice.pick(&[0_u32, 1, 20, 300_000, 16 << 20, u32::MAX]);
    let payload = dice.bytes(1 + length.min(2000) as usize);
    let frame = [&length.to_le_bytes()[..], &[dice.next() as u8], &payload].concat();
    let _ = connection.write_all(&frame);
    dice.one_in(2).then_some(connection)
}
