//! Tests of a link whose other end is the test itself.

use super::*;
use std::net::TcpListener;

/// Polls the link's descriptors until it makes progress.
fn settle(link: &mut ClientLink) -> Progress {
    for _ in 0..100 {
        match link.advance() {
            Progress::Waiting => {}
            progress => return progress,
        }
        let flags = |write| {
            if write { nix::poll::PollFlags::POLLOUT } else { nix::poll::PollFlags::POLLIN }
        };
        let interests = link.interests();
        let mut fds: Vec<_> = interests
            .into_iter()
            .map(|(fd, write)| nix::poll::PollFd::new(fd, flags(write)))
            .collect();
        nix::poll::poll(&mut fds, 1_000u16).expect("poll");
    }
    panic!("the link never settled");
}

fn hello() -> StepMessage {
    let (key, node, step_tasks) = (String::new(), "n1".into(), None);
    StepMessage::Hello { key, node, node_index: 0, waits: false, step_tasks }
}

/// The frames that have arrived at the client's end.
fn heard(client: &mut UnixStream, decoder: &mut Decoder) -> Vec<Frame> {
    let mut buffer = [0; 4096];
    let length = client.read(&mut buffer).expect("bytes");
    decoder.push(&buffer[..length]);
    std::iter::from_fn(|| decoder.next_frame().expect("well formed")).collect()
}

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("set");
    (ours, theirs)
}

const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The launch of an `srun` in this network stack that listens at these addresses.
fn launch(listen: &[&str]) -> StepLaunch {
    let text = format!(r#"{{"name":"x","argv":[],"environment":"","work_dir":"/","key":"{KEY}"}}"#);
    let mut launch: StepLaunch = serde_json::from_str(&text).expect("a launch");
    launch.encrypted_listen = listen.iter().map(ToString::to_string).collect();
    launch.network_stack = network_stack();
    launch
}

fn port() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    (listener, address)
}

/// Proves the key to a link as its `srun` does.
fn prove(stream: &mut TcpStream, link: &mut ClientLink) -> StepChannel {
    let mut channel = StepChannel::listener(KEY, &ring::rand::SystemRandom::new()).expect("a key");
    let mut greeting = [0; 40];
    stream.read_exact(&mut greeting).expect("it greets");
    channel.receive(&greeting, &mut Vec::new()).expect("a greeting");
    stream.write_all(channel.unsent()).expect("sent");
    channel.mark_sent(channel.unsent().len());
    assert_eq!(settle(link), Progress::Opened);
    channel
}

#[test]
fn dialling_passes_over_unreachable_addresses() {
    let (dead, dead_address) = port();
    drop(dead);
    let (alive, alive_address) = port();
    let mut link = ClientLink::dial(&launch(&["nonsense", &dead_address, &alive_address]));
    let (mut peer, _) = alive.accept().expect("dialled");
    assert_eq!(link.advance(), Progress::Waiting, "it has proven nothing");
    let mut channel = prove(&mut peer, &mut link);
    link.send_bytes(channel::STDOUT, b"\x07\0\0\0hello");
    link.flush();
    assert!(link.is_flushed());
    let (mut decoder, mut buffer, mut plain) = (Decoder::default(), [0; 4096], Vec::new());
    let frame = loop {
        let length = peer.read(&mut buffer).expect("bytes");
        assert!(!buffer[..length].windows(5).any(|part| part == b"hello"), "in plain text");
        channel.receive(&buffer[..length], &mut plain).expect("whole records");
        decoder.push(&std::mem::take(&mut plain));
        if let Some(frame) = decoder.next_frame().expect("well formed") {
            break frame;
        }
    };
    assert_eq!(
        (frame.channel, frame.payload.as_slice()),
        (channel::STDOUT, b"\x07\0\0\0hello".as_slice())
    );
    assert!(link.check_resume(0).is_err(), "it has its srun");

    drop(peer);
    assert_eq!(settle(&mut link), Progress::Lost);
}

#[test]
fn whoever_holds_an_address_without_the_key_gets_nothing_and_the_next_is_taken() {
    let ((silent, first), (wrong, second), (right, third)) = (port(), port(), port());
    let mut link = ClientLink::dial(&launch(&[&first, &second, &third]));
    let (mut silent, _) = silent.accept().expect("dialled");
    let (mut wrong, _) = wrong.accept().expect("dialled");
    let (mut right, _) = right.accept().expect("dialled");
    assert_eq!(link.advance(), Progress::Waiting);
    wrong.write_all(&[9; 64]).expect("sent");
    let _channel = prove(&mut right, &mut link);
    for imposter in [&mut silent, &mut wrong] {
        let mut heard = Vec::new();
        // A connection that is closed with unread bytes may be reset.
        let _ = imposter.read_to_end(&mut heard);
        assert!(heard.len() <= 40, "a greeting, and nothing after it: {} bytes", heard.len());
        assert!(!heard.windows(8).any(|part| KEY.as_bytes().windows(8).any(|of| of == part)));
    }
}

#[test]
fn frames_beyond_the_bound_close_the_link_before_they_are_held() {
    let (listener, address) = port();
    let mut link = ClientLink::dial(&launch(&[&address]));
    let (mut peer, _) = listener.accept().expect("dialled");
    assert_eq!(link.advance(), Progress::Waiting);
    let mut channel = prove(&mut peer, &mut link);
    link.flush();
    let mut proof = [0; 32];
    peer.read_exact(&mut proof).expect("the supervisor's own proof");
    channel.receive(&proof, &mut Vec::new()).expect("it knows the key");
    let header = (STEP_PAYLOAD_MAX as u32 + 1).to_le_bytes();
    channel.seal(&[header.as_slice(), &[1]].concat()).expect("proven");
    peer.write_all(channel.unsent()).expect("sent");
    assert_eq!(settle(&mut link), Progress::Lost);
}

#[test]
fn srun_that_cannot_be_dialled_connects_by_stream_and_resumes() {
    let mut link = ClientLink::dial(&launch(&["host.example:1"]));
    assert_eq!(link.advance(), Progress::Waiting);
    assert!(link.deadline().is_some(), "it is not waited for without a bound");
    assert!(link.check_resume(7).is_err(), "it cannot have had anything");

    let (ours, mut client) = pair();
    link.resume_srun(ours, Decoder::default(), 1, 0, &hello()).expect("nothing is missing");
    link.send_bytes(channel::STDOUT, b"one");
    link.send_bytes(channel::STDOUT, b"two");
    link.flush();
    let frames = heard(&mut client, &mut Decoder::default());
    assert_eq!(frames.len(), 4, "hello, count, and the two");
    assert!(!link.is_flushed(), "kept until it is acknowledged");
    // The client has received only the first of the two.
    let received = (frame::HEADER + 3) as u64;
    drop(client);
    assert_eq!(link.advance(), Progress::Waiting);
    assert!(!link.is_closed());

    let (ours, mut client) = pair();
    link.resume_srun(ours, Decoder::default(), 2, received, &hello()).expect("still here");
    link.flush();
    let frames = heard(&mut client, &mut Decoder::default());
    assert_eq!(frames[2].payload, b"two", "the rest, once");
    assert_eq!(frames.len(), 3);
    link.acknowledged(2 * received);
    assert!(link.is_flushed());
    assert!(!link.client_gone(1), "the old way's end is not the client's");
    assert!(link.client_gone(2));
    assert_eq!(link.advance(), Progress::Lost);
}

#[test]
fn broken_link_of_an_observer_is_not_waited_for() {
    let (ours, client) = pair();
    let mut link = ClientLink::attached(ours, Decoder::default(), 1);
    drop(client);
    assert_eq!(settle(&mut link), Progress::Lost);
}
