//! Durable submits over few HTTP/2 connections: `submit_rate SOCKET JOBS IN_FLIGHT [equal] [ready] [sleep=SECONDS] [rate=N]`.
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
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const SCRIPT_BYTES: usize = 1 << 10;
const ENVIRONMENT_BYTES: usize = 4 << 10;
/// Requests at a time on one connection: what the server takes.
const STREAMS: usize = 8;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [socket, jobs, in_flight, rest @ ..] = args.as_slice() else {
        let words = "SOCKET JOBS IN_FLIGHT [equal] [ready] [sleep=SECONDS] [rate=N]";
        return Err(format!("usage: submit_rate {words}").into());
    };
    let (jobs, in_flight): (usize, usize) = (jobs.parse()?, in_flight.parse()?);
    let equal = rest.iter().any(|word| word == "equal");
    let ready = rest.iter().any(|word| word == "ready");
    let sleep_s: u32 = match rest.iter().find_map(|word| word.strip_prefix("sleep=")) {
        Some(seconds) => seconds.parse()?,
        None => 0,
    };
    let apart = match rest.iter().find_map(|word| word.strip_prefix("rate=")) {
        Some(rate) => Duration::from_secs(1) / rate.parse::<u32>()?.max(1),
        None => Duration::ZERO,
    };
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
    let run = if equal { 0 } else { SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() };
    let next = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    let workers: Vec<_> = (0..in_flight)
        .map(|worker| {
            let (mut sender, next) = (senders[worker / STREAMS].clone(), next.clone());
            tokio::spawn(async move {
                let make_next = || {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let own = if equal { 0 } else { number };
                    let body = || submission(&format!("{run}.{own}"), ready, sleep_s);
                    (number < jobs).then(|| (number, body()))
                };
                let mut coming = make_next();
                while let Some((number, body)) = coming {
                    if !apart.is_zero() {
                        tokio::time::sleep_until((begin + apart * number as u32).into()).await;
                    }
                    let request = Request::post("http://sluice/api/v1/call").body(body.into())?;
                    let answered = async {
                        let response = sender.send_request(request).await?;
                        Ok::<Bytes, Failure>(response.into_body().collect().await?.to_bytes())
                    };
                    // Made while the server has this one, so that it is there when it is sent.
                    let made = async {
                        tokio::task::yield_now().await;
                        make_next()
                    };
                    let (answer, made) = tokio::join!(answered, made);
                    let answer = answer?;
                    if !answer.starts_with(b"{\"submitted\"") {
                        return Err(String::from_utf8_lossy(&answer).into());
                    }
                    coming = made;
                }
                Ok::<(), Failure>(())
            })
        })
        .collect();
    for worker in workers {
        worker.await??;
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
