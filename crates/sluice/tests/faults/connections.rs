//! Connections that are silent, slow, or never read: the server keeps answering, limits their number, and closes each after
//! its timeout.

use crate::harness::{Cluster, TWO_NODES, program, until, within};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A cluster with these connection limits.
fn up(limits: &str) -> Cluster {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.start_with(&[("SLUICE_DOORS", limits)]);
    cluster
}

fn connect(cluster: &Cluster) -> UnixStream {
    UnixStream::connect(cluster.state().join("sluice.sock")).unwrap()
}

/// Whether the other side has closed the connection.
fn is_closed(stream: &mut impl Read) -> bool {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

fn descriptors(cluster: &Cluster) -> usize {
    let pid = cluster.pid("server");
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count())
}

/// The request of `squeue` as raw HTTP.
fn jobs_request() -> Vec<u8> {
    let call = wire::client::Call::Jobs(Default::default());
    let envelope = wire::client::Envelope::new(call);
    let body = serde_json::to_string(&envelope).unwrap();
    let head =
        format!("POST /api/v1/call HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    (head + &body).into_bytes()
}

fn works(cluster: &Cluster) {
    let id = cluster.submit(&["-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
}

#[test]
fn up_ten_thousand_silent_connections_lock_nobody_out_and_time_out() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    // Fewer than the default limit, which is a share of the file descriptors.
    let each = (hard.saturating_sub(512) / 4).min(3400) as usize;
    let cluster = up("silence_ms=20000");
    let before = descriptors(&cluster);
    let (port, agents) = (cluster.address_of("listen"), cluster.address_of("agents"));
    let mut sockets = Vec::new();
    let mut streams = Vec::new();
    for _ in 0..each {
        sockets.push(connect(&cluster));
        streams.push(TcpStream::connect(&port).unwrap());
        streams.push(TcpStream::connect(&agents).unwrap());
    }
    let memory = crate::harness::processes::resident_kb(cluster.pid("server")).unwrap();
    println!("{} silent connections, server {memory} kB", 3 * each);
    until("the server has taken most of them", || {
        (descriptors(&cluster) >= before + 2 * each).then_some(())
    });
    works(&cluster);
    let nodes = cluster.sluice(&["sinfo", "-h", "-p", "gpu", "-o", "%t"]).ok();
    assert_eq!(nodes.trim(), "idle", "the agent keeps its place");
    within(2 * crate::harness::TIMEOUT, "each is let go", || {
        (descriptors(&cluster) <= before + 8).then_some(())
    });
    for socket in &mut sockets {
        assert!(is_closed(socket));
    }
    for stream in &mut streams {
        assert!(is_closed(stream));
    }
    works(&cluster);
    assert!(!cluster.log("server").contains("refuses"), "{}", cluster.log("server"));
}

#[test]
fn up_connections_beyond_the_limit_are_refused_and_logged_once() {
    let cluster = up("places=20");
    let inside: Vec<UnixStream> = (0..20).map(|_| connect(&cluster)).collect();
    for _ in 0..50 {
        let mut refused = connect(&cluster);
        refused.set_read_timeout(Some(crate::harness::TIMEOUT)).unwrap();
        assert!(is_closed(&mut refused), "there is no place for it");
    }
    let lines = cluster.log("server").matches("the local socket refuses connections").count();
    assert_eq!(lines, 1, "{}", cluster.log("server"));
    // The other listener has a limit of its own.
    let token = std::fs::read_to_string(cluster.state().join("admin.token")).unwrap();
    let said = cluster
        .command(&["sinfo", "-h", "-p", "gpu", "-o", "%t"])
        .env("SLUICE_SERVER", format!("http://{}", cluster.address_of("listen")))
        .env("SLUICE_TOKEN", token.trim())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "idle");
    drop(inside);
    until("there is a place again", || (cluster.sluice(&["squeue", "-h"]).code == 0).then_some(()));
    works(&cluster);
}

#[test]
fn up_slow_or_oversized_requests_are_cut_off() {
    let cluster = up("silence_ms=5000,body_ms=5000");
    let body = "POST /api/v1/call HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n";
    for (what, head) in [("head", ""), ("body", body)] {
        let mut socket = connect(&cluster);
        socket.write_all(head.as_bytes()).unwrap();
        socket.set_nonblocking(true).unwrap();
        // A byte now and then does not extend the timeout, which is for the whole request.
        let mut said = Vec::new();
        let mut trickle = "GET /healthz HTTP/1.1\r\n".bytes().chain(std::iter::repeat(b'x'));
        until(&format!("a slow {what} is cut off"), || {
            let _ = socket.write(&[trickle.next().unwrap()]);
            std::thread::sleep(Duration::from_millis(50));
            let mut buffer = [0; 512];
            match socket.read(&mut buffer) {
                Ok(0) => Some(()),
                Ok(length) => {
                    said.extend_from_slice(&buffer[..length]);
                    None
                }
                Err(error) => (error.kind() != ErrorKind::WouldBlock).then_some(()),
            }
        });
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(what == "head" || said.starts_with("HTTP/1.1 408"), "{what}: '{said}'");
    }
    let mut socket = connect(&cluster);
    let length = wire::client::REQUEST_BYTES_MAX + 1;
    let head = format!("POST /api/v1/call HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    socket.write_all(head.as_bytes()).unwrap();
    // The connection may be closed while it still writes.
    let _ = socket.write_all(&vec![b' '; length]);
    let mut answer = [0; 12];
    if socket.read_exact(&mut answer).is_ok() {
        assert_eq!(&answer, b"HTTP/1.1 413");
    }
    works(&cluster);
}

#[test]
fn up_clients_that_do_not_read_block_nobody_and_are_dropped() {
    let cluster = up("silence_ms=600000,stall_ms=8000,stream_stall_ms=8000");
    // Each comment is different: equal ones are stored once. Together they make an answer that no socket buffers.
    let submit = r#"sbatch -H --comment "$number$long" --wrap true >/dev/null"#;
    let long = "x".repeat(4_000);
    cluster
        .shell(&format!("long={long}; for number in $(seq 1 150); do {submit} || exit 1; done"))
        .ok();
    cluster.write(
        "loud.yml",
        "type: task\nname: loud\ncommands:\n  - yes 0123456789abcde | head -c 4000000\nresources:\n  cpu: 1\n  memory: 16MB..\n",
    );
    cluster.shell(&format!("{} apply -y -d -f loud.yml", program())).ok();
    let loud = until("the run is there", || {
        let text = cluster.sluice(&["squeue", "-h", "-t", "all", "-n", "loud", "-o", "%A"]).stdout;
        text.trim().parse::<u32>().ok()
    });
    assert_eq!(cluster.await_end(loud), "COMPLETED|0:0");
    let before = descriptors(&cluster);
    let mut deaf = Vec::new();
    for number in 0..40 {
        let mut socket = connect(&cluster);
        let logs = format!("GET /api/v1/logs?job={loud}&follow=true HTTP/1.1\r\nhost: x\r\n\r\n");
        let request = if number % 4 == 0 { logs.into_bytes() } else { jobs_request() };
        socket.write_all(&request).unwrap();
        deaf.push(socket);
    }
    until("they are all inside", || (descriptors(&cluster) >= before + 40).then_some(()));
    let memory = crate::harness::processes::resident_kb(cluster.pid("server")).unwrap();
    println!("40 deaf clients, server {memory} kB");
    works(&cluster);
    let read = cluster.sluice(&["logs", "loud"]);
    assert_eq!(read.stdout.len(), 4_000_000, "{}", read.stderr);
    until("they are dropped", || (descriptors(&cluster) <= before + 4).then_some(()));
    drop(deaf);
    works(&cluster);
}
