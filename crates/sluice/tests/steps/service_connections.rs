//! The connections to a replica: who makes them, and that they stay where more clients ask at once than a replica is asked by, of whom each
//! has its answer in turn.

use crate::harness::ssh_client::free_port;
use crate::harness::{Cluster, TWO_NODES, until};
use crate::services::{PAGE, answered, apply_lines};
use crate::web_pages::{address, admin};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Clients that keep their connections, and requests of each; more clients than one replica is asked by at once.
const CLIENTS: usize = 300;
const REQUESTS: usize = 5;
/// Requests at once to one replica.
const OUTSTANDING_MAX: usize = 240;

/// A program that writes a byte to the file `connections` at the first request of each connection, and to `requests` at each request
/// for `/wait`, which it answers once the file `go` is there.
const COUNTING_SERVER: &str = r#"
import asyncio, os, sys
def count(name):
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, b"x")
    os.close(file)
async def serve(reader, writer):
    is_counted = False
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return writer.close()
        if not is_counted:
            is_counted = True
            count("connections")
        if head.startswith(b"GET /wait "):
            count("requests")
            while not os.path.exists("go"): await asyncio.sleep(0.05)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=1024)
    await server.serve_forever()
asyncio.run(main())
"#;

/// Sends a request on a connection that stays open.
fn ask(stream: &mut TcpStream, token: &str) {
    let request = format!("GET {PAGE}wait HTTP/1.1\r\nHost: x\r\n{token}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
}

/// The status line of the answer to it, all of which is read.
fn answer(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).expect("an answer in time");
        line
    };
    let status = line();
    let mut length = 0;
    loop {
        let header = line().to_ascii_lowercase();
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
    }
    reader.read_exact(&mut vec![0; length]).expect("a body");
    status
}

/// `doors`: bounds of the server.
fn assert_connections_stay(doors: &str) {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.start_with(&[("SLUICE_DOORS", doors)]);
    let (token, port) = (admin(&cluster), free_port());
    cluster.write("count.py", COUNTING_SERVER);
    apply_lines(&cluster, "web", port, &format!("commands: ['exec python3 count.py {port}']"));
    answered(&cluster, PAGE, &[&token]);
    let count = |name: &str| {
        let path = cluster.path("work").join(name);
        std::fs::read(path).unwrap_or_default().len()
    };
    let address = address(&cluster);
    let mut clients: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).expect("the server");
            stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
            ask(&mut stream, &token);
            stream
        })
        .collect();
    until("the replica has as many as it may", || {
        (count("requests") >= OUTSTANDING_MAX).then_some(())
    });
    assert_eq!(count("requests"), OUTSTANDING_MAX);
    cluster.write("go", "");
    let refused: Vec<String> = std::thread::scope(|scope| {
        let ask_on = |stream: &mut TcpStream| {
            let mut statuses = vec![answer(stream)];
            for _ in 1..REQUESTS {
                ask(stream, &token);
                statuses.push(answer(stream));
            }
            statuses
        };
        let all: Vec<_> =
            clients.iter_mut().map(|stream| scope.spawn(move || ask_on(stream))).collect();
        let statuses = all.into_iter().flat_map(|one| one.join().expect("no panic"));
        statuses.filter(|status| !status.starts_with("HTTP/1.1 200")).collect()
    });
    assert!(refused.is_empty(), "{}: {:?}", refused.len(), refused.first());
    assert_eq!(count("requests"), CLIENTS * REQUESTS);
    let opened = count("connections");
    assert!(opened <= OUTSTANDING_MAX, "{opened} connections");
}

#[test]
fn up_more_clients_than_a_replica_is_asked_by_are_answered_by_the_connections_that_it_has() {
    assert_connections_stay("");
}

#[test]
fn up_connections_to_a_replica_by_its_step_stay_under_more_clients_than_it_is_asked_by() {
    assert_connections_stay("near_connections=0");
}

/// A program that answers each request with the number of its connection: one for the first.
const NUMBERING_SERVER: &str = r#"
import asyncio, sys
opened = 0
async def serve(reader, writer):
    global opened
    opened += 1
    number = b"%03d" % opened
    while True:
        try:
            await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return writer.close()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n" + number)
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()
asyncio.run(main())
"#;

/// The first connection is the step's, which finds out by it whose server it is. From then on the server connects by itself.
#[test]
fn up_no_request_goes_by_the_step_that_has_found_a_replica_on_the_servers_machine() {
    let cluster = Cluster::up(TWO_NODES);
    let (token, port) = (admin(&cluster), free_port());
    cluster.write("number.py", NUMBERING_SERVER);
    apply_lines(&cluster, "web", port, &format!("commands: ['exec python3 number.py {port}']"));
    let number = answered(&cluster, PAGE, &[&token]).text();
    let number: u32 = number.parse().expect("the number of a connection");
    assert!(number > 1, "by the first connection");
}
