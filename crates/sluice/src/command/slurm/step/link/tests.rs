//! Tests of a link whose supervisor is the test itself.

use super::super::listener::StepListener;
use super::*;
use crate::client::ServerLocation;
use ring::rand::SystemRandom;
use std::os::unix::net::UnixStream;

/// A supervisor's end and ours.
fn connect(listener: &StepListener) -> (TcpStream, Link) {
    let endpoint = listener.endpoint().expect("addresses");
    let theirs = TcpStream::connect(endpoint.listen.last().expect("loopback").as_str());
    let theirs = theirs.expect("the listener is open");
    wait_for(listener.fd().expect("it listens"));
    let (stream, channel) = listener.accept().expect("one knocks");
    (theirs, Link::new(stream, channel))
}

fn wait_for(fd: BorrowedFd<'_>) {
    let mut fds = [nix::poll::PollFd::new(fd, nix::poll::PollFlags::POLLIN)];
    assert_eq!(nix::poll::poll(&mut fds, 5_000u16), Ok(1));
}

fn hello(key: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (key, node) = (key.into(), "n1".into());
    let message = StepMessage::Hello { key, node, node_index: 0, waits: false, step_tasks: None };
    frame::encode_message(channel::CONTROL, &message, &mut bytes).expect("small");
    bytes
}

fn read(link: &mut Link) -> Vec<Frame> {
    wait_for(link.fd().expect("open"));
    link.read(true)
}

/// Sends what the channel has to say.
fn send(theirs: &mut TcpStream, channel: &mut StepChannel) {
    theirs.write_all(channel.unsent()).expect("sent");
    channel.mark_sent(channel.unsent().len());
}

/// A supervisor under this key: it greets, and takes the answer.
fn greet(key: &str) -> (StepListener, TcpStream, Link, StepChannel, bool) {
    let listener =
        StepListener::open(&ServerLocation::Socket("sluice.sock".into())).expect("a port");
    let own = listener.endpoint().expect("addresses").key;
    let key = if key.is_empty() { own } else { key.to_owned() };
    let (mut theirs, mut link) = connect(&listener);
    let mut channel = StepChannel::dialler(&key, &SystemRandom::new()).expect("a key");
    send(&mut theirs, &mut channel);
    assert!(read(&mut link).is_empty() && link.peer.is_none());
    let mut answer = [0; 64];
    theirs.read_exact(&mut answer).expect("every greeting is answered");
    let proven = channel.receive(&answer, &mut Vec::new()).is_ok();
    (listener, theirs, link, channel, proven)
}

#[test]
fn a_supervisor_that_proves_the_key_is_heard() {
    let (_listener, mut theirs, mut link, mut channel, proven) = greet("");
    assert!(proven);
    let mut bytes = hello("");
    frame::encode(channel::STDOUT, b"\0\0\0\0hi", &mut bytes).expect("small");
    channel.seal(&bytes).expect("proven");
    send(&mut theirs, &mut channel);
    assert_eq!(read(&mut link).len(), 1, "what follows the hello");
    assert_eq!(link.peer.as_ref().map(|peer| peer.node.as_str()), Some("n1"));
}

#[test]
fn a_connection_without_the_proof_is_closed_whatever_it_sends() {
    let (listener, mut theirs, mut link, _, proven) = greet(&"0".repeat(64));
    assert!(!proven, "srun's proof is of another key");
    theirs.write_all(&[hello("").as_slice(), &[0; 64]].concat()).expect("sent");
    assert!(read(&mut link).is_empty() && !link.is_open() && link.peer.is_none());

    // A supervisor of a build without encryption shows the key itself, and is refused all the same.
    let key = listener.endpoint().expect("addresses").key;
    for wrong in [
        hello(&key),
        b"GET / HTTP/1.1\r\nHost: srun.example.com:1234\r\n\r\n".to_vec(),
        vec![0; 8192],
    ] {
        let (mut theirs, mut link) = connect(&listener);
        theirs.write_all(&wrong).expect("sent");
        while link.is_open() {
            assert!(read(&mut link).is_empty());
            assert!(link.peer.is_none());
        }
    }
}

#[test]
fn the_link_closes_when_the_other_end_does() {
    let listener =
        StepListener::open(&ServerLocation::Socket("sluice.sock".into())).expect("a port");
    let (theirs, mut link) = connect(&listener);
    drop(theirs);
    assert!(read(&mut link).is_empty());
    assert!(!link.is_open());
}

#[test]
fn what_has_arrived_is_read_though_the_other_end_takes_no_more() {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("non-blocking");
    let stream = File::from(OwnedFd::from(ours));
    let mut link = Link::by_stream(UpgradedStream { stream, early: Vec::new(), tls: None }, "n1");
    theirs.write_all(&hello("")).expect("sent");
    assert!(link.read(false).is_empty() && link.peer.is_some());
    let mut bytes = Vec::new();
    frame::encode(channel::STDOUT, b"\0\0\0\0last words", &mut bytes).expect("small");
    theirs.write_all(&bytes).expect("sent");
    drop(theirs);
    link.send(&StepMessage::InputEnd);
    assert_eq!(link.read(false).len(), 1, "the last output");
    assert!(link.read(false).is_empty() && !link.is_open());
}
