//! The client beside a server that gives prepared responses.

use super::*;
use model::id::JobId;
use model::reason::Refusal;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;

/// Gives each connection one response, cut into pieces, and then hangs up. Returns the requests.
struct FakeServer {
    _dir: tempfile::TempDir,
    location: ServerLocation,
    served: JoinHandle<Vec<String>>,
}

impl FakeServer {
    fn start(responses: Vec<Vec<Vec<u8>>>) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).expect("a socket");
        let serve = move || {
            let serve_one = |pieces: Vec<Vec<u8>>| {
                let (mut stream, _) = listener.accept().expect("asked");
                let request = read_request(&mut stream);
                for piece in pieces {
                    // A client that has had enough may hang up first.
                    let _ = stream.write_all(&piece);
                }
                request
            };
            responses.into_iter().map(serve_one).collect()
        };
        let served = std::thread::spawn(serve);
        Self { _dir: dir, location: ServerLocation::Socket(path), served }
    }

    fn one(response: &[u8]) -> Self {
        Self::start(vec![vec![response.to_vec()]])
    }

    fn client(&self) -> Client {
        Client::at(self.location.clone())
    }

    fn requests(self) -> Vec<String> {
        self.served.join().expect("no panic")
    }
}

/// The head and the body of one request.
fn read_request(stream: &mut UnixStream) -> String {
    let mut text = String::new();
    let mut byte = [0];
    let mut length = 0;
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let header = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            length = header.map_or(length, |value| value.parse().expect("a number"));
            if body.len() == length {
                return text;
            }
        }
        if stream.read(&mut byte).expect("readable") == 0 {
            return text;
        }
        text.push(char::from(byte[0]));
    }
}

fn json_response(json: &str) -> Vec<u8> {
    let length = json.len();
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{json}")
        .into_bytes()
}

const REFUSED: &str = r#"{"refused":{"job_ended":7}}"#;

fn is_refused(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(Refusal::JobEnded(JobId(7))))
}

#[test]
fn a_call_is_posted_and_its_answer_read_however_it_arrives() {
    let whole = json_response(REFUSED);
    let bytes = whole.iter().map(|byte| vec![*byte]).collect();
    let server = FakeServer::start(vec![bytes]);
    let answer = server.client().call(Call::Cluster).expect("an answer");
    assert!(is_refused(&answer), "{answer:?}");
    let request = &server.requests()[0];
    assert!(request.starts_with("POST /api/v1/call HTTP/1.1\r\nHost: sluice\r\n"), "{request}");
    assert!(!request.contains("Authorization"), "{request}");
}

#[test]
fn lines_are_told_apart_from_an_answer() {
    let lines = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab\n\r\n0\r\n\r\n";
    let server = FakeServer::one(lines);
    let reply = server.client().call_for_lines(Call::Cluster).expect("a reply");
    assert!(matches!(reply, ListingReply::Lines(text) if text == b"ab\n"));
    let server = FakeServer::one(&json_response(REFUSED));
    let reply = server.client().call_for_lines(Call::Cluster).expect("a reply");
    assert!(matches!(reply, ListingReply::Answer(answer) if is_refused(&answer)));
}

#[test]
fn another_status_is_an_error_with_its_text() {
    let server = FakeServer::one(b"HTTP/1.1 401 No\r\nContent-Length: 9\r\n\r\nno token\n");
    let error = server.client().call(Call::Cluster).expect_err("no answer");
    assert!(matches!(error, ClientError::Protocol(_)), "{error}");
    let said = error.to_string();
    assert!(said.starts_with(&format!("{}: 401: no token (", server.location)), "{said}");
    assert!(said.contains("SLUICE_TOKEN"), "{said}");
    let server = FakeServer::one(b"HTTP/1.1 403 No\r\nContent-Length: 9\r\n\r\nnot root\n");
    let error = server.client().call(Call::Cluster).expect_err("no answer");
    assert!(matches!(error, ClientError::Forbidden(_)), "{error}");
}

#[test]
fn a_server_that_hangs_up_is_unreachable() {
    let table: [(&[u8], &str); 3] = [
        (b"", "the connection was closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "the connection was closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"re", "the answer was cut"),
    ];
    for (response, why) in table {
        let server = FakeServer::one(response);
        let error = server.client().call(Call::Cluster).expect_err("no answer");
        assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
        assert!(error.to_string().ends_with(why), "{error}");
    }
}

#[test]
fn a_connection_that_the_server_closed_between_calls_is_replaced() {
    let server =
        FakeServer::start(vec![vec![json_response(REFUSED)], vec![json_response(REFUSED)]]);
    let mut client = server.client();
    client.call(Call::Cluster).expect("an answer");
    let kept = client.connection.as_ref().expect("kept");
    while kept.is_idle() {
        std::thread::yield_now();
    }
    client.call(Call::Cluster).expect("an answer");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_server_that_was_never_there_is_not_waited_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let client = Client::at(ServerLocation::Socket(dir.path().join("none")));
    let Err(error) = client.stream("/", |_| true) else { panic!("no server") };
    assert!(error.to_string().contains("No such file"), "{error}");
}

#[test]
fn a_server_that_refuses_connections_while_it_restarts_is_waited_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s");
    drop(UnixListener::bind(&path).expect("a socket"));
    let mut client = Client::at(ServerLocation::Socket(path.clone()));
    let refused = client.upgrade("/", "x", Duration::from_secs(10)).expect_err("refused");
    assert!(refused.to_string().contains("refused"), "an upgrade is not tried again: {refused}");
    let asked = std::thread::spawn(move || client.call(Call::Cluster));
    let again = dir.path().join("t");
    let listener = UnixListener::bind(&again).expect("a socket");
    std::fs::rename(again, path).expect("moved");
    let (mut stream, _) = listener.accept().expect("asked");
    read_request(&mut stream);
    stream.write_all(&json_response(REFUSED)).expect("heard");
    assert!(is_refused(&asked.join().expect("no panic").expect("an answer")));
}

#[test]
fn a_streamed_body_is_passed_on_until_its_end_or_until_the_caller_stops() {
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let pieces = |rest: &[&[u8]]| {
        let rest = rest.iter().map(|piece| piece.to_vec());
        std::iter::once(head.clone()).chain(rest).collect::<Vec<_>>()
    };
    let server = FakeServer::start(vec![
        pieces(&[b"2\r\na", b"b\r\n", b"1\r\nc\r\n0\r\n\r\n"]),
        pieces(&[b"2\r\nab\r\n"]),
        pieces(&[b"2\r\nab\r\n1\r\n"]),
    ]);
    let client = server.client();
    let mut seen = Vec::new();
    let mut take = |bytes: &[u8]| {
        seen.extend_from_slice(bytes);
        true
    };
    assert!(client.stream("/api/v1/logs?job=1", &mut take).expect("a stream").is_none());
    assert_eq!(seen, b"abc");
    assert!(client.stream("/", |_| false).expect("stopped").is_none());
    let cut = client.stream("/", |_| true).expect_err("cut");
    assert!(cut.to_string().ends_with("the answer was cut"), "{cut}");
    assert_eq!(server.requests()[0], "GET /api/v1/logs?job=1 HTTP/1.1\r\nHost: sluice\r\n\r\n");
}

#[test]
fn an_answer_instead_of_a_stream_is_given_back() {
    let server = FakeServer::one(&json_response(REFUSED));
    let answer = server.client().stream("/", |_| panic!("no stream")).expect("an answer");
    assert!(answer.is_some_and(|answer| is_refused(&answer)));
}

#[test]
fn bytes_that_arrive_with_the_upgrade_belong_to_the_stream() {
    let response = b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nfirst";
    let server = FakeServer::one(response);
    let reply = server.client().upgrade("/step", "x", Duration::from_secs(10)).expect("a reply");
    let UpgradeReply::Upgraded(UpgradedStream { mut stream, early, .. }) = reply else {
        panic!("an answer")
    };
    let mut fds =
        [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(&stream), nix::poll::PollFlags::POLLIN)];
    nix::poll::poll(&mut fds, 5_000u16).expect("poll");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("bytes");
    assert_eq!([early, rest].concat(), b"first");
    let request = &server.requests()[0];
    assert!(request.contains("Connection: upgrade\r\nUpgrade: x\r\n"), "{request}");
}

#[test]
fn lost_answer_is_told_apart_from_a_server_that_is_not_there() {
    let server = FakeServer::one(b"");
    let error = server.client().call(Call::Cluster).expect_err("no answer");
    assert!(matches!(error, ClientError::Unreachable { was_asked: true, .. }), "{error}");
    let dir = tempfile::tempdir().expect("a folder");
    let mut client = Client::at(ServerLocation::Socket(dir.path().join("s")));
    let error = client.call(Call::Cluster).expect_err("no server");
    assert!(matches!(error, ClientError::Unreachable { was_asked: false, .. }), "{error}");
}

#[test]
fn a_refused_upgrade_is_an_answer() {
    let server = FakeServer::one(&json_response(REFUSED));
    let reply = server.client().upgrade("/", "x", Duration::from_secs(10)).expect("a reply");
    assert!(matches!(reply, UpgradeReply::Answer(answer) if is_refused(&answer)));
}

const IMPATIENT: Patience =
    Patience { look: Duration::from_millis(20), silence_max: Duration::from_millis(40) };

#[test]
fn a_server_that_takes_connections_and_answers_nobody_is_given_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s");
    let _frozen = UnixListener::bind(&path).expect("a socket");
    let mut client = Client::at(ServerLocation::Socket(path));
    client.set_patience(IMPATIENT);
    let error = client.call(Call::Cluster).expect_err("nobody answers");
    assert!(matches!(error, ClientError::Unreachable { was_asked: true, .. }), "{error}");
    assert!(error.to_string().contains("answers nobody"), "{error}");
}

#[test]
fn a_server_that_freezes_within_its_answer_is_given_up() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab\n\r\n",
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).expect("a socket");
        let mut client = Client::at(ServerLocation::Socket(path));
        client.set_patience(IMPATIENT);
        let asked = std::thread::spawn(move || client.call_for_lines(Call::Cluster).err());
        let (mut stream, _) = listener.accept().expect("asked");
        read_request(&mut stream);
        stream.write_all(answer).expect("heard");
        let error = asked.join().expect("no panic").expect("it is not whole");
        assert!(error.to_string().contains("answers nobody"), "{error}");
    }
}

#[test]
fn a_socket_that_takes_no_more_connections_is_given_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s");
    let frozen = UnixListener::bind(&path).expect("a socket");
    nix::sys::socket::listen(&frozen, nix::sys::socket::Backlog::new(1).expect("a backlog"))
        .expect("it listens");
    let address = nix::sys::socket::UnixAddr::new(&path).expect("an address");
    let connect = || {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, connect, socket};
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let client = socket(AddressFamily::Unix, SockType::Stream, flags, None).expect("a socket");
        connect(std::os::fd::AsRawFd::as_raw_fd(&client), &address).is_ok().then_some(client)
    };
    let _full: Vec<_> = std::iter::from_fn(connect).collect();
    let mut client = Client::at(ServerLocation::Socket(path));
    client.set_patience(IMPATIENT);
    let error = client.call(Call::Cluster).expect_err("it has no room");
    assert!(matches!(error, ClientError::Unreachable { was_asked: false, .. }), "{error}");
    assert!(error.to_string().contains("takes no more connections"), "{error}");
}

#[test]
fn a_server_that_lives_is_waited_for_however_long_an_answer_takes() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).expect("a socket");
    let mut client = Client::at(ServerLocation::Socket(path));
    client.set_patience(Patience { look: Duration::from_millis(20), ..Patience::LONG });
    let asked = std::thread::spawn(move || client.call(Call::Cluster));
    let (mut first, _) = listener.accept().expect("asked");
    read_request(&mut first);
    for _ in 0..5 {
        let (mut look, _) = listener.accept().expect("it looks whether the server lives");
        assert!(read_request(&mut look).starts_with("GET /healthz "));
        // One that came too late is not heard, which costs nothing here.
        let _ = look.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n");
    }
    first.write_all(&json_response(REFUSED)).expect("heard");
    // One look more may be under way.
    drop(listener);
    assert!(is_refused(&asked.join().expect("no panic").expect("an answer")));
}

#[test]
fn a_server_that_says_nothing_to_an_upgrade_is_given_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s");
    let _silent = UnixListener::bind(&path).expect("a socket");
    let client = Client::at(ServerLocation::Socket(path));
    let error = client.upgrade("/", "x", Duration::from_millis(20)).expect_err("silence");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
}
