//! What a service's clients and a service itself may send that is wrong, too much or too slow: it costs nobody else anything.

use crate::harness::ssh_client::free_port;
use crate::harness::{Cluster, TWO_NODES, until};
use crate::load::under_load;
use crate::services::{PAGE, apply_lines, replicas, serve, serving};
use crate::web_pages::{address, admin, get, send, token_of};
use crate::websocket;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How many of the requests to one replica may be WebSockets.
const WEBSOCKETS_MAX: usize = 120;

/// More than a replica may have requests.
const SLOW_BODIES: usize = 300;

/// Bytes of the body of a request where the server is told a lower bound than its own.
const BODY_BYTES_MAX: usize = 100_000;

/// Everything that the server answers to these bytes until it closes the connection, or says nothing for a while.
fn exchange(cluster: &Cluster, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address(cluster)).expect("the server");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    // It may have closed the connection before the last byte.
    let _ = stream.write_all(bytes);
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(count) = stream.read(&mut part) {
        if count == 0 {
            break;
        }
        all.extend_from_slice(&part[..count]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Asks for a WebSocket of the service; the status of the answer, and the connection.
fn open_websocket(address: &str, token: &str) -> std::io::Result<(u16, TcpStream)> {
    websocket::open(address, &format!("{PAGE}socket"), &[token])
}

#[test]
fn up_bad_requests_to_a_service_are_refused_and_leave_it_to_others() {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.start_with(&[("SLUICE_DOORS", &format!("service_body_bytes={BODY_BYTES_MAX}"))]);
    let token = serve(&cluster, "");
    let begin = format!("POST {PAGE} HTTP/1.1\r\nHost: x\r\n{token}\r\n");
    let hidden = format!("GET {PAGE}hidden HTTP/1.1\r\nHost: x\r\n{token}\r\n\r\n");
    // One request that others might read as two.
    for (lengths, status) in [
        // It is taken by its chunks, and passed on so: this replica asks for a length and ends.
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "502"),
        ("Content-Length: 0\r\nContent-Length: 5\r\n", "400"),
        ("Transfer-Encoding: gzip\r\n", "400"),
        ("Content-Length: +5\r\n", "400"),
    ] {
        let said = exchange(&cluster, format!("{begin}{lengths}\r\n0\r\n\r\n{hidden}").as_bytes());
        assert!(said.starts_with(&format!("HTTP/1.1 {status}")), "{lengths}: {said}");
        assert!(!said.contains("/hidden\n"), "{lengths}: {said}");
    }
    // A chunk whose length is none.
    let chunked = format!("{begin}Transfer-Encoding: chunked\r\n\r\nZZ\r\n");
    let said = exchange(&cluster, chunked.replace(PAGE, &format!("{PAGE}never")).as_bytes());
    assert!(said.starts_with("HTTP/1.1 400"), "{said}");
    // A body of chunks that goes on: as many bytes as there may be, and one more.
    let chunk = "x".repeat(BODY_BYTES_MAX);
    let long = format!(
        "POST {PAGE}never HTTP/1.1\r\nHost: x\r\n{token}\r\nTransfer-Encoding: chunked\r\n\r\n\
         {BODY_BYTES_MAX:x}\r\n{chunk}\r\n1\r\nx\r\n"
    );
    let said = exchange(&cluster, long.as_bytes());
    assert!(said.starts_with("HTTP/1.1 413"), "{said}");
    assert!(said.trim_end().ends_with(&format!("at most {BODY_BYTES_MAX} bytes")), "{said}");
    // A head without an end, and one that goes round in circles.
    let flood =
        format!("GET {PAGE} HTTP/1.1\r\nHost: x\r\n{}", "X-Flood: 0123456789\r\n".repeat(8000));
    let said = exchange(&cluster, flood.as_bytes());
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 431"), "{said}");
    let via = "Via: 1.1 sluice, 1.1 sluice, 1.1 sluice, 1.1 sluice";
    assert_eq!(get(&cluster, PAGE, &[&token, via]).status, 508);
    // Bodies that never come hold no place that others need: more of them, short and long, than one replica has places.
    let slow: Vec<TcpStream> = (0..SLOW_BODIES)
        .map(|number| {
            let length = if number % 2 == 0 { 1000 } else { BODY_BYTES_MAX };
            let mut stream = TcpStream::connect(address(&cluster)).expect("the server");
            let head = format!("{begin}Content-Length: {length}\r\n\r\nx");
            stream.write_all(head.as_bytes()).expect("sent");
            stream
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(get(&cluster, PAGE, &[&token]).status, 200);
    }
    drop(slow);
}

#[test]
fn root_service_is_not_answered_by_a_server_of_another_user_at_its_port() {
    let cluster = Cluster::up(TWO_NODES);
    let (token, port) = (admin(&cluster), free_port());
    let serve = format!("exec python3 -m http.server {port} --bind 127.0.0.1");
    cluster.submit_as("games", &format!("-o /dev/null --wrap '{serve}'"));
    until("the other user's job listens", || TcpStream::connect(("127.0.0.1", port)).ok());
    let service = format!("--service={port} -J web -o /dev/null");
    cluster.shell(&format!("sbatch {service} --wrap 'exec sleep 600'")).ok();
    let said = until("its replica is asked", || {
        let answer = get(&cluster, PAGE, &[&token]);
        assert_eq!(answer.status, 503, "{}", answer.text());
        Some(answer.text()).filter(|text| text.contains("takes connections"))
    });
    assert!(said.contains(&port.to_string()), "{said}");
    let job = replicas(&cluster).remove(0);
    let page = get(&cluster, &format!("/proxy/jobs/{job}/{port}/"), &[&token]);
    assert_eq!(page.status, 502, "nor is its page: {}", page.text());
}

#[test]
fn up_replica_that_answers_garbage_is_said_in_one_line() {
    let cluster = Cluster::up(TWO_NODES);
    let (token, port) = (admin(&cluster), free_port());
    let garbage = "import socket, sys\n\
        server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n\
        while True:\n\
        \x20   client, _ = server.accept()\n\
        \x20   client.recv(65536)\n\
        \x20   client.sendall(b'\\x00\\xff nothing of HTTP\\r\\n\\r\\n')\n\
        \x20   client.close()\n";
    cluster.write("garbage.py", garbage);
    let lines = format!("commands: ['exec python3 garbage.py {port}']");
    apply_lines(&cluster, "web", port, &lines);
    let body = "Content-Length: 0";
    let answer = until("it answers with garbage", || {
        let answer = send(&cluster, "POST", PAGE, &[&token, body], b"");
        (answer.status == 502).then_some(answer)
    });
    assert_eq!(answer.text().lines().count(), 1, "{}", answer.text());
    let answer = get(&cluster, PAGE, &[&token]);
    assert!(answer.status == 502 && answer.text().contains("no HTTP"), "{}", answer.text());
}

#[test]
fn up_replica_that_never_answers_is_given_up_in_time() {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.start_with(&[("SLUICE_DOORS", "answer_ms=2000")]);
    let (token, never) = (serve(&cluster, ""), format!("{PAGE}never"));
    for (method, body) in [("GET", &b""[..]), ("POST", b"a request")] {
        let answer = send(&cluster, method, &never, &[&token], body);
        assert_eq!((answer.status, answer.text().lines().count()), (504, 1), "{}", answer.text());
        assert!(answer.text().contains("took too long"), "{}", answer.text());
    }
    assert_eq!(get(&cluster, PAGE, &[&token]).status, 200, "and it answers others");
}

#[test]
fn up_body_that_does_not_come_is_given_up_in_time() {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.start_with(&[("SLUICE_DOORS", "service_silence_ms=1000")]);
    let token = serve(&cluster, "");
    let begun = |path: &str, length: usize| {
        format!(
            "POST {PAGE}{path} HTTP/1.1\r\nHost: x\r\n{token}\r\nContent-Length: {length}\r\n\r\n1"
        )
    };
    // A shorter one is waited for before its replica is asked.
    const LONG: usize = 70_000;
    // One whose answer has begun may be silent for longer than the one below, which comes later.
    let mut answered = TcpStream::connect(address(&cluster)).expect("the server");
    answered.write_all(begun("echo", LONG).as_bytes()).expect("sent");
    let mut head = Vec::<u8>::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        answered.read_exact(&mut byte).expect("the head of an answer");
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    for length in [9, LONG] {
        let said = exchange(&cluster, begun("never", length).as_bytes());
        assert!(said.starts_with("HTTP/1.1 408"), "{said}");
        assert!(said.contains("too slowly: expected more of it within 1 s"), "{said}");
    }
    answered.write_all(&[b'2'; LONG - 1]).expect("sent");
    let mut echoed = [0; LONG];
    answered.read_exact(&mut echoed).expect("the rest of the answer");
    assert!(echoed[0] == b'1' && echoed[1..].iter().all(|byte| *byte == b'2'));
}

/// A server whose answers do not end by themselves.
const ENDLESS: &str = r#"
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        try:
            while True: self.wfile.write(b"x" * 65536)
        except OSError:
            with open("endless.ended", "w") as file: file.write("x")
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

#[test]
fn up_client_that_does_not_take_its_answer_leaves_the_replica_in_time() {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.start_with(&[("SLUICE_DOORS", "service_stall_ms=500")]);
    let (token, port) = (admin(&cluster), free_port());
    cluster.write("endless.py", ENDLESS);
    apply_lines(&cluster, "web", port, &format!("commands: ['exec python3 endless.py {port}']"));
    let mut client = until("an answer begins", || {
        let mut stream = TcpStream::connect(address(&cluster)).expect("the server");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        let asked = format!("GET {PAGE} HTTP/1.1\r\nHost: x\r\n{token}\r\n\r\n");
        stream.write_all(asked.as_bytes()).expect("sent");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("a status");
        status.ends_with(b" 200").then_some(stream)
    });
    let ended = cluster.path("work").join("endless.ended");
    until("its replica is asked no longer", || ended.exists().then_some(()));
    // What had been sent by then is still to be read: the client was there all the while.
    let mut part = [0; 4096];
    assert!(client.read(&mut part).expect("the connection is the client's own") > 0);
}

/// A server that passes each request on to the proxy, at its own address there.
const CIRCLE: &str = r#"
import http.client, http.server, sys
port, address, path, token = int(sys.argv[1]), *sys.argv[2:5]
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def do_GET(self):
        with open("circle.count", "a") as file: file.write("x")
        onward = http.client.HTTPConnection(address)
        onward.putrequest("GET", path)
        onward.putheader("Authorization", token)
        for via in self.headers.get_all("Via", []): onward.putheader("Via", via)
        onward.endheaders()
        answer = onward.getresponse()
        text = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"#;

#[test]
fn up_service_that_asks_itself_through_the_proxy_ends_with_one_line() {
    let cluster = Cluster::up(TWO_NODES);
    let (token, port) = (admin(&cluster), free_port());
    cluster.write("circle.py", CIRCLE);
    let value = token.strip_prefix("Authorization: ").expect("a header");
    let command = format!("exec python3 circle.py {port} {} {PAGE} \"{value}\"", address(&cluster));
    apply_lines(&cluster, "web", port, &format!("commands: ['{command}']"));
    let answer = until("the circle ends", || {
        Some(get(&cluster, PAGE, &[&token])).filter(|answer| answer.status == 508)
    });
    assert_eq!(answer.text().lines().count(), 1, "{}", answer.text());
    let rounds = cluster.read("circle.count").len();
    assert_eq!(rounds % 4, 0, "each request goes round four times: {rounds}");
}

#[test]
fn up_killed_replica_loses_no_request_that_is_safe_to_repeat() {
    let (cluster, token) = serving("replicas: 2");
    until("both replicas run", || (replicas(&cluster).len() == 2).then_some(()));
    let server = address(&cluster);
    let kill_one = |left: usize| {
        let killed = replicas(&cluster).remove(0);
        cluster.sluice(&["scancel", "--full", "--signal=KILL", &killed]).ok();
        until("a replica is gone", || (replicas(&cluster).len() == left).then_some(()));
    };
    // Requests that may not be repeated, one to each replica.
    let posts = [(); 2].map(|()| {
        let mut stream = TcpStream::connect(&server).expect("the server");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        let head = format!("POST {PAGE}never HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        let post = format!("{head}{token}\r\nContent-Length: 1\r\n\r\nx");
        stream.write_all(post.as_bytes()).expect("sent");
        stream
    });
    let count = cluster.path("work").join("never.count");
    let count = || std::fs::read_to_string(&count).unwrap_or_default().len();
    until("replicas have them", || (count() == 2).then_some(()));
    // A short answer that had begun when its replica was killed is asked for again, too.
    under_load(&[(&*server, PAGE); 3], &token, |more| {
        kill_one(1);
        more(100);
    });
    kill_one(0);
    for mut post in posts {
        let mut answer = String::new();
        post.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert!(answer.ends_with("ended without an answer\n"), "{answer}");
    }
    assert_eq!(count(), 2, "neither was sent again");
}

#[test]
fn up_websockets_are_counted_and_leave_room_for_requests() {
    let (cluster, token) = serving("");
    let address = address(&cluster);
    let open = || open_websocket(&address, &token).expect("an answer");
    let opened: Vec<(u16, TcpStream)> = (0..WEBSOCKETS_MAX + 10).map(|_| open()).collect();
    let count = |status: u16| opened.iter().filter(|(found, _)| *found == status).count();
    assert_eq!((count(101), count(503)), (WEBSOCKETS_MAX, 10));
    assert_eq!(get(&cluster, PAGE, &[&token]).status, 200, "requests have their own part");
    let shown = |number: usize| {
        let line = format!("sluice_service_websockets{{project=\"main\",run=\"web\"}} {number}");
        until(&line, || {
            let figures = get(&cluster, "/metrics", &[&token]).text();
            figures.lines().any(|have| have == line).then_some(())
        });
    };
    shown(WEBSOCKETS_MAX);
    drop(opened);
    shown(0);
    assert_eq!(open().0, 101, "and there is room again");
}

/// Idle WebSockets that one user opens, or tries to.
const IDLE_WEBSOCKETS: usize = 10_000;
/// Descriptors that the test has beside those.
const OTHER_DESCRIPTORS: usize = 1_000;

/// `make soak` runs it.
#[test]
#[ignore = "opens ten thousand connections: make soak"]
fn root_soak_ten_thousand_idle_websockets_leave_requests_through() {
    let limit = nix::sys::resource::Resource::RLIMIT_NOFILE;
    let (_, hard) = nix::sys::resource::getrlimit(limit).expect("a limit");
    let needed = (IDLE_WEBSOCKETS + OTHER_DESCRIPTORS) as u64;
    assert!(hard >= needed, "{hard} descriptors are too few for this test: {needed} are needed");
    nix::sys::resource::setrlimit(limit, hard, hard).expect("the most that there is");
    let (cluster, token) = serving("");
    let address = address(&cluster);
    let other = format!("Authorization: Bearer {}", token_of(&cluster, "games", &[]));
    // Each is kept as long as the server lets it: open, told that there is no room, or closed at once.
    let (mut open, mut told, mut closed) = (Vec::new(), Vec::new(), 0);
    for n in 0..IDLE_WEBSOCKETS {
        match open_websocket(&address, &other) {
            Ok((101, stream)) => open.push(stream),
            Ok((503, stream)) => told.push(stream),
            Ok((status, _)) => panic!("{n}: {status}"),
            Err(_) => closed += 1,
        }
        if n % 500 == 0 {
            assert_eq!(get(&cluster, PAGE, &[&token]).status, 200, "{n}");
        }
    }
    println!("{} open, {} told that there is no room, {closed} closed", open.len(), told.len());
    assert_eq!(open.len(), WEBSOCKETS_MAX);
    assert_eq!(get(&cluster, PAGE, &[&token]).status, 200);
    // WebSockets that were open stay so, however many came after them.
    open.iter_mut().for_each(websocket::assert_echoes);
    drop((open, told));
    until("there is room again", || {
        open_websocket(&address, &other).is_ok_and(|(status, _)| status == 101).then_some(())
    });
}
