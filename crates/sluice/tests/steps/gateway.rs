//! `sluice gateway`: requests to services at an address of its own, also while the server is away.

use crate::harness::{Cluster, TIMEOUT, TWO_NODES, signal, until, user_name};
use crate::service_restart::ask;
use crate::services::{answered, apply, free_port};
use crate::web_pages::{admin, clients_address, get, send_to};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// A token of this user, with further options.
fn token(cluster: &Cluster, options: &[&str]) -> String {
    let user = user_name();
    let args: Vec<&str> = ["token", "user", &user].iter().chain(options).copied().collect();
    let said = cluster.sluice(&args).ok();
    said.lines().find(|line| !line.trim().is_empty()).expect("a token").trim().to_owned()
}

struct Gateway {
    process: Child,
    address: String,
}

impl Gateway {
    fn start(cluster: &Cluster, options: &[&str]) -> Self {
        let file = cluster.path("gateway.token");
        if !file.exists() {
            let text = token(cluster, &["--role", "gateway", "--name", "edge"]);
            std::fs::write(&file, text).expect("written");
        }
        let server = format!("http://{}", clients_address(cluster));
        let mut command = cluster.command(&["gateway", "--server", &server, "--name", "edge"]);
        command.args(["--listen", "127.0.0.1:0", "--token-file"]).arg(file);
        command.arg("--dir").arg(cluster.path("gateway")).args(options);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("it runs");
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().expect("its output"));
        output.read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("the gateway is up: ").expect(&line).to_owned();
        let address = url.split("//").nth(1).expect("an address").to_owned();
        Self { process, address }
    }

    /// Waits until it knows where the service listens.
    fn await_route(&self, cluster: &Cluster, port: u16) {
        let file = cluster.path("gateway").join("routes.json");
        let route = format!("\"port\":{port}");
        until("the gateway has the route", || {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            text.contains(&route).then_some(())
        });
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        signal(self.process.id() as i32, "TERM");
        let _ = self.process.wait();
    }
}

#[test]
fn up_gateway_loses_no_request_while_the_server_is_killed_and_started_again() {
    let cluster = Cluster::up(TWO_NODES);
    let (port, page) = (free_port(), "/proxy/services/main/web/");
    apply(&cluster, port, "");
    answered(&cluster, page, &[&admin(&cluster)]);
    let user = format!("Authorization: Bearer {}", token(&cluster, &["--name", "plain"]));
    let gateway = Gateway::start(&cluster, &[]);
    gateway.await_route(&cluster, port);
    let (ends, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let deadline = Instant::now() + 3 * TIMEOUT;
    let failures: Vec<String> = std::thread::scope(|scope| {
        let mut loads = Vec::new();
        for _ in 0..3 {
            let (address, user, ends, answers) = (&gateway.address, &user, &ends, &answers);
            loads.push(scope.spawn(move || {
                let mut failures = Vec::new();
                while !ends.load(Ordering::Relaxed) && Instant::now() < deadline {
                    match ask(address, page, user) {
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
        cluster.kill("server");
        more(100);
        cluster.start();
        more(100);
        ends.store(true, Ordering::Relaxed);
        loads.into_iter().flat_map(|load| load.join().expect("no panic")).collect()
    });
    let count = answers.load(Ordering::Relaxed);
    assert!(failures.is_empty(), "{} of {count}: {:?}", failures.len(), failures.first());
    // One that starts while the server is away has the routes of before.
    drop(gateway);
    cluster.kill("server");
    let again = Gateway::start(&cluster, &[]);
    assert_eq!(ask(&again.address, page, &user), Ok(()));
    drop(again);
    cluster.start();
}

#[test]
fn up_gateway_asks_the_server_about_tokens_and_services_that_it_does_not_know() {
    let cluster = Cluster::up(TWO_NODES);
    let (port, page) = (free_port(), "/proxy/services/main/web/");
    apply(&cluster, port, "");
    answered(&cluster, page, &[&admin(&cluster)]);
    let gateway = Gateway::start(&cluster, &["--access-log"]);
    gateway.await_route(&cluster, port);
    let user = format!("Authorization: Bearer {}", token(&cluster, &["--name", "late"]));
    let own = std::fs::read_to_string(cluster.path("gateway.token")).expect("a token");
    let own = format!("Authorization: Bearer {own}");
    let status = |path: &str, header: &str| {
        send_to(&gateway.address, "GET", path, &["Host: x", header], b"").status
    };
    assert_eq!(status(page, &user), 200, "made since the gateway last asked");
    assert_eq!(status(page, "Authorization: Bearer none"), 401);
    assert_eq!(status(page, "X: y"), 401);
    assert_eq!(status("/proxy/services/main/none/", &user), 404);
    for path in ["/", "/metrics", "/api/v1/call", "/proxy/jobs/1/80/"] {
        assert_eq!(status(path, &user), 404, "{path}");
    }
    // The gateway's own token opens neither a service nor the server.
    assert_eq!(status(page, &own), 401);
    for path in ["/metrics", "/api/v1/logs?job=1", page] {
        assert_eq!(get(&cluster, path, &[&own]).status, 401, "{path}");
    }
    let log = cluster.path("gateway").join("access.log");
    until("requests are logged", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.contains("\"GET /proxy/services/main/web/\" 200 ").then_some(())
    });
}
