//! What a gateway passes on to which replica while servers end and services are updated.

use crate::gateway::Gateway;
use crate::harness::ssh_client::free_port;
use crate::harness::{Cluster, TWO_NODES, until, user_name};
use crate::services::{PAGE, answered, apply, apply_lines};
use crate::web_pages::{Answer, get, send_to, token_of};
use crate::web_server::WEB_SERVER;
use std::net::TcpStream;

/// A token that gateways take too.
fn user(cluster: &Cluster) -> String {
    format!("Authorization: Bearer {}", token_of(cluster, &user_name(), &["--name", "plain"]))
}

fn by_gateway(gateway: &Gateway, header: &str) -> Answer {
    send_to(&gateway.address, "GET", PAGE, &["Host: x", header], b"")
}

/// Commands of a service whose server ends when the file `stop` is there, while its job goes on.
fn server_that_stops(port: u16) -> String {
    let wait = "while [ ! -e stop ]; do sleep 0.1; done";
    format!("python3 serve.py {port} & {wait}; kill $!; wait; touch stopped; exec sleep 600")
}

#[test]
fn root_gateway_does_not_publish_another_users_server_at_the_port_of_a_replica_that_goes_on() {
    let cluster = Cluster::up(TWO_NODES);
    let port = free_port();
    cluster.write("serve.py", WEB_SERVER);
    let lines = format!("auth: false\ncommands: ['{}']", server_that_stops(port));
    apply_lines(&cluster, "web", port, &lines);
    answered(&cluster, PAGE, &["X: y"]);
    let gateway = Gateway::start(&cluster, &[]);
    gateway.await_route(port);
    assert_eq!(by_gateway(&gateway, "X: y").status, 200);
    cluster.write("stop", "");
    cluster.await_file("stopped", |_| true);
    let other = format!("exec python3 -m http.server {port} --bind 127.0.0.1");
    cluster.submit_as("games", &format!("-o /dev/null --wrap '{other}'"));
    until("the other user's server listens", || TcpStream::connect(("127.0.0.1", port)).ok());
    // Neither before the gateway is told that the replica's server has ended, nor then.
    let mut is_told = false;
    until("the gateway is told", || {
        let answer = by_gateway(&gateway, "X: y");
        assert_eq!(answer.status, 503, "{}", answer.text());
        std::mem::replace(&mut is_told, !gateway.has_route(port)).then_some(())
    });
}

#[test]
fn up_replica_whose_server_has_ended_is_found_again_once_it_listens() {
    let cluster = Cluster::up(TWO_NODES);
    let (token, port) = (user(&cluster), free_port());
    cluster.write("serve.py", WEB_SERVER);
    let again = "while [ ! -e again ]; do sleep 0.1; done";
    let first = server_that_stops(port).replace("exec sleep 600", again);
    apply_lines(
        &cluster,
        "web",
        port,
        &format!("commands: ['{first}; exec python3 serve.py {port}']"),
    );
    answered(&cluster, PAGE, &[&token]);
    let gateway = Gateway::start(&cluster, &[]);
    gateway.await_route(port);
    cluster.write("stop", "");
    until("the gateway is told", || (!gateway.has_route(port)).then_some(()));
    assert_eq!(by_gateway(&gateway, &token).status, 503);
    cluster.write("again", "");
    gateway.await_route(port);
    assert_eq!(by_gateway(&gateway, &token).status, 200);
}

#[test]
fn up_update_neither_opens_the_replicas_before_it_nor_shows_them_other_paths() {
    let cluster = Cluster::up(TWO_NODES);
    let token = user(&cluster);
    let (port, next) = (free_port(), free_port());
    apply(&cluster, port, "");
    answered(&cluster, PAGE, &[&token]);
    let gateway = Gateway::start(&cluster, &[]);
    gateway.await_route(port);
    let wait = "while [ ! -e go ]; do sleep 0.1; done";
    let commands = format!("commands: ['{wait}; exec python3 serve.py {next}']");
    let limits = "rate_limits: [{prefix: /limited, rps: 1000}]";
    let lines = format!("auth: false\nstrip_prefix: false\n{limits}\n{commands}");
    let said = apply_lines(&cluster, "web", next, &lines);
    assert!(said.contains("replaced once the new replicas are ready"), "{said}");
    let path = |answer: &Answer| answer.text().lines().next().unwrap_or_default().to_owned();
    until("the gateway is told", || gateway.routes().contains("/limited").then_some(()));
    for (header, expected) in [("X: y", 401), (&*token, 200)] {
        let (server, gateway) = (get(&cluster, PAGE, &[header]), by_gateway(&gateway, header));
        for answer in [server, gateway] {
            assert_eq!(answer.status, expected, "{}", answer.text());
            assert!(expected != 200 || path(&answer) == "/", "{}", answer.text());
        }
    }
    cluster.write("go", "");
    until("the next is open to everybody", || {
        let open = get(&cluster, PAGE, &["X: y"]);
        let closed = get(&cluster, PAGE, &[&token]);
        assert!(
            closed.status == 200 && ["/", PAGE].contains(&&*path(&closed)),
            "{}",
            closed.text()
        );
        (open.status == 200 && path(&open) == PAGE).then_some(())
    });
    until("so it is by the gateway", || {
        let open = by_gateway(&gateway, "X: y");
        (open.status == 200 && path(&open) == PAGE).then_some(())
    });
}
