//! Requests to a service all the while that something is done to it, with every failure counted.

use crate::harness::{TIMEOUT, until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// One request on a connection of its own; what went wrong.
pub fn ask(address: &str, path: &str, token: &str) -> Result<(), String> {
    let failed = |e: std::io::Error| e.to_string();
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{token}\r\n\r\n");
    stream.write_all(head.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    let is_whole = answer.starts_with("HTTP/1.1 200") && answer.contains("x-forwarded-prefix");
    if is_whole { Ok(()) } else { Err(answer) }
}

/// Does the work while each address and path is asked without a pause. The work may wait for so many more answers. None may fail.
pub fn under_load(targets: &[(&str, &str)], token: &str, work: impl FnOnce(&dyn Fn(usize))) {
    let failures = failures_under_load(targets, token, work);
    assert!(failures.is_empty(), "{}: {:?}", failures.len(), failures.first());
}

/// The same; what went wrong.
pub fn failures_under_load(
    targets: &[(&str, &str)],
    token: &str,
    work: impl FnOnce(&dyn Fn(usize)),
) -> Vec<String> {
    let (ends, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    // A test that fails does not go on asking.
    let deadline = Instant::now() + 3 * TIMEOUT;
    std::thread::scope(|scope| {
        let mut loads = Vec::new();
        for (address, path) in targets {
            let (ends, answers) = (&ends, &answers);
            loads.push(scope.spawn(move || {
                let mut failures = Vec::new();
                while !ends.load(Ordering::Relaxed) && Instant::now() < deadline {
                    match ask(address, path, token) {
                        Ok(()) => {
                            answers.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(why) => failures.push(why),
                    }
                }
                failures
            }));
        }
        let more = |count: usize| {
            let before = answers.load(Ordering::Relaxed);
            until("requests are answered", || {
                (answers.load(Ordering::Relaxed) >= before + count).then_some(())
            });
        };
        more(50);
        work(&more);
        ends.store(true, Ordering::Relaxed);
        loads.into_iter().flat_map(|load| load.join().expect("no panic")).collect()
    })
}
