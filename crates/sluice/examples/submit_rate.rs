//! Durable submits over few HTTP/2 connections: `submit_rate SOCKET JOBS IN_FLIGHT [equal] [ready] [sleep=SECONDS] [rate=N] [http1]`.
//! With `http1` one at a time over one connection of HTTP/1.1, by a client that blocks: so the program's own commands ask.
//!
//! Held jobs with a script of 1 kB and an environment of 4 kB each; every one has a script and an
//! environment of its own, also among several runs, unless `equal` is said: a server stores what it knows no second time.
//! A request is made while the server has the one before. With `ready` they are not held, and with `sleep` they last. With `rate` at
//! most so many are sent a second. Prints submits a second, and the CPU that this client took for each.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::error::Error;
use std::io::{IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::client::CALL_PATH;

const SCRIPT_BYTES: usize = 1 << 10;
const ENVIRONMENT_BYTES: usize = 4 << 10;
/// Requests at a time on one connection: what the server takes.
const STREAMS: usize = 8;
const SUBMITTED: &[u8] = b"{\"submitted\"";
/// More than a whole answer takes.
const ANSWER_BYTES: usize = 4 << 10;
const HEADERS: usize = 16;

type Failure = Box<dyn Error + Send + Sync>;

/// What the submits are.
struct Submits {
    /// Names of scripts begin with it.
    run: u128,
    jobs: usize,
    equal: bool,
    ready: bool,
    sleep_s: u32,
    /// The time between the beginnings of two.
    apart: Duration,
    begin: Instant,
    next: AtomicUsize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [socket, jobs, in_flight, rest @ ..] = args.as_slice() else {
        let words = "SOCKET JOBS IN_FLIGHT [equal] [ready] [sleep=SECONDS] [rate=N] [http1]";
        return Err(format!("usage: submit_rate {words}").into());
    };
    let (jobs, in_flight): (usize, usize) = (jobs.parse()?, in_flight.parse()?);
    let has = |wanted: &str| rest.iter().any(|word| word == wanted);
    let equal = has("equal");
    let sleep_s: u32 = match rest.iter().find_map(|word| word.strip_prefix("sleep=")) {
        Some(seconds) => seconds.parse()?,
        None => 0,
    };
    let apart = match rest.iter().find_map(|word| word.strip_prefix("rate=")) {
        Some(rate) => Duration::from_secs(1) / rate.parse::<u32>()?.max(1),
        None => Duration::ZERO,
    };
    let run = if equal { 0 } else { SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() };
    let (ready, next, begin) = (has("ready"), AtomicUsize::new(0), Instant::now());
    let submits = Submits { run, jobs, equal, ready, sleep_s, apart, begin, next };
    if !has("http1") {
        submits.over_http2(socket, in_flight).await?;
    } else if in_flight == 1 {
        submits.over_http1(socket)?;
    } else {
        return Err("`http1` is one at a time".into());
    }
    let wall = begin.elapsed().as_secs_f64();
    let cpu = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    let cpu = cpu.tv_sec() as f64 + cpu.tv_nsec() as f64 / 1e9;
    let per_job_us = cpu * 1e6 / jobs as f64;
    let rate = jobs as f64 / wall;
    println!(
        "submits n={jobs} in_flight={in_flight} per_s={rate:.0} client_cpu_us={per_job_us:.0}"
    );
    Ok(())
}

impl Submits {
    /// The next one: its number and its body.
    fn make_next(&self) -> Option<(usize, Vec<u8>)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let own = if self.equal { 0 } else { number };
        let body = || submission(&format!("{}.{own}", self.run), self.ready, self.sleep_s);
        (number < self.jobs).then(|| (number, body()))
    }

    fn due(&self, number: usize) -> Option<Instant> {
        (!self.apart.is_zero()).then(|| self.begin + self.apart * number as u32)
    }

    async fn over_http2(self, socket: &str, in_flight: usize) -> Result<(), Failure> {
        let mut senders = Vec::new();
        for _ in 0..in_flight.div_ceil(STREAMS) {
            let stream = TokioIo::new(tokio::net::UnixStream::connect(socket).await?);
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .initial_max_send_streams(STREAMS)
                .handshake::<_, Full<Bytes>>(stream)
                .await?;
            tokio::spawn(connection);
            senders.push(sender);
        }
        let submits = Arc::new(self);
        let workers: Vec<_> = (0..in_flight)
            .map(|worker| {
                let (mut sender, submits) = (senders[worker / STREAMS].clone(), submits.clone());
                tokio::spawn(async move {
                    let mut coming = submits.make_next();
                    while let Some((number, body)) = coming {
                        if let Some(due) = submits.due(number) {
                            tokio::time::sleep_until(due.into()).await;
                        }
                        let request =
                            Request::post("http://sluice/api/v1/call").body(body.into())?;
                        let answered = async {
                            let response = sender.send_request(request).await?;
                            Ok::<Bytes, Failure>(response.into_body().collect().await?.to_bytes())
                        };
                        // Made while the server has this one, so that it is there when it is sent.
                        let made = async {
                            tokio::task::yield_now().await;
                            submits.make_next()
                        };
                        let (answer, made) = tokio::join!(answered, made);
                        check(&answer?)?;
                        coming = made;
                    }
                    Ok::<(), Failure>(())
                })
            })
            .collect();
        for worker in workers {
            worker.await??;
        }
        Ok(())
    }

    fn over_http1(self, socket: &str) -> Result<(), Failure> {
        let mut stream = UnixStream::connect(socket)?;
        let mut coming = self.make_next();
        while let Some((number, body)) = coming {
            if let Some(due) = self.due(number) {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            let length = body.len();
            let head = format!(
                "POST {CALL_PATH} HTTP/1.1\r\nHost: sluice\r\nContent-Length: {length}\r\n\r\n"
            );
            let pieces = [IoSlice::new(head.as_bytes()), IoSlice::new(&body)];
            if stream.write_vectored(&pieces)? != head.len() + length {
                return Err("the socket has no room for a request".into());
            }
            coming = self.make_next();
            check(&read_answer(&mut stream)?)?;
        }
        Ok(())
    }
}

/// The body of one answer.
fn read_answer(stream: &mut UnixStream) -> Result<Vec<u8>, Failure> {
    let (mut read, mut buffer) = (Vec::new(), [0; ANSWER_BYTES]);
    loop {
        let length = stream.read(&mut buffer)?;
        read.extend_from_slice(&buffer[..length]);
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        if let httparse::Status::Complete(begin) = response.parse(&read)? {
            let is_length =
                |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case("content-length");
            let header = response.headers.iter().find(is_length).ok_or("no length is named")?;
            let body: usize = std::str::from_utf8(header.value)?.parse()?;
            if read.len() >= begin + body {
                return Ok(read.split_off(begin));
            }
        }
        if length == 0 {
            return Err("the server hung up".into());
        }
    }
}

fn check(answer: &[u8]) -> Result<(), Failure> {
    if answer.starts_with(SUBMITTED) {
        return Ok(());
    }
    Err(String::from_utf8_lossy(answer).into())
}

/// One job, as a program would send it. Its script and its environment are of this name.
fn submission(name: &str, ready: bool, sleep_s: u32) -> Vec<u8> {
    let mut script = format!("#!/bin/bash\n#SBATCH --comment={name}\n");
    while script.len() < SCRIPT_BYTES {
        script.push_str("# the work of this job is described here, line by line\n");
    }
    if sleep_s > 0 {
        script.push_str(&format!("sleep {sleep_s}\n"));
    }
    let mut environment = format!("NUMBER={name}\\u0000");
    for number in 0.. {
        if environment.len() >= ENVIRONMENT_BYTES {
            break;
        }
        let variable = format!("VARIABLE_{number}=/opt/software/{number}/lib/python\\u0000");
        environment.push_str(&variable);
    }
    let script = script.replace('\n', "\\n");
    let hold = if ready { "" } else { r#""hold":"user","# };
    format!(
        r##"{{"version":1,"call":{{"submit":{{"spec":{{"name":"rate","owner":{{"name":"","uid":0,"gid":0}},
"components":[{{"request":{{"nodes":{{"min":1,"max":1}},"cpus_per_task":{{"min":1,"max":1}},
"memory":{{"per_node":{{"min":10485760,"max":10485760}}}}}}}}],
"launch":{{"kind":"batch","work_dir":"/tmp","stdout":"/dev/null"}},"requeue":true}},
{hold}"script":"{script}","environment":"{environment}"}}}}}}"##
    )
    .into_bytes()
}
