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
    StepMessage::Hello { key: String::new(), node: "n1".into(), node_index: 0, waits: false }
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

#[test]
fn dialling_passes_over_unreachable_addresses() {
    let dead = TcpListener::bind("127.0.0.1:0").expect("a port");
    let dead_address = dead.local_addr().expect("its address").to_string();
    drop(dead);
    let alive = TcpListener::bind("127.0.0.1:0").expect("a port");
    let alive_address = alive.local_addr().expect("its address").to_string();
    let mut link = ClientLink::dial(&["nonsense".into(), dead_address, alive_address]);
    assert_eq!(settle(&mut link), Progress::Opened);

    let (mut peer, _) = alive.accept().expect("dialled");
    link.send_bytes(channel::STDOUT, b"\x07\0\0\0hello");
    link.flush();
    let mut bytes = [0; frame::HEADER + 9];
    peer.read_exact(&mut bytes).expect("a frame");
    let mut decoder = Decoder::default();
    decoder.push(&bytes);
    let frame = decoder.next_frame().expect("well formed").expect("whole");
    assert_eq!(
        (frame.channel, frame.payload.as_slice()),
        (channel::STDOUT, b"\x07\0\0\0hello".as_slice())
    );
    assert!(link.check_resume(0).is_err(), "it has its srun");

    drop(peer);
    assert_eq!(settle(&mut link), Progress::Lost);
}

#[test]
fn srun_that_cannot_be_dialled_connects_by_stream_and_resumes() {
    let mut link = ClientLink::dial(&["host.example:1".into()]);
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
