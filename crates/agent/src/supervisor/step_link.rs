//! The connection from a step to the `srun` that waits for it: dialled without blocking, framed, and bounded.

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, setsockopt, socket,
    sockopt,
};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use wire::frame::{self, Decoder, Frame};
use wire::step::{StepMessage, channel};

/// How long one address may take to answer.
const DIAL_PATIENCE: Duration = Duration::from_secs(5);
/// Addresses that are tried at most.
const ADDRESSES_MAX: usize = 16;
/// Tasks' output is not read while this much waits to be sent.
const OUT_BYTES_MAX: usize = 256 << 10;
const READ_BYTES: usize = 64 << 10;

enum State {
    Dialling { fd: OwnedFd, until: Instant },
    Open { stream: TcpStream, decoder: Decoder },
    Closed,
}

pub(super) struct StepLink {
    state: State,
    rest: VecDeque<SocketAddr>,
    out: VecDeque<u8>,
}

/// What came of looking at a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    /// Now, and only now, it has become usable.
    Opened,
    Frames(Vec<Frame>),
    /// `srun` is gone, or was never reached.
    Lost,
}

impl StepLink {
    /// Starts to dial. Addresses that are not `IP:PORT` are passed over: a supervisor asks no name server.
    pub fn dial(addresses: &[String]) -> StepLink {
        let rest =
            addresses.iter().filter_map(|text| text.parse().ok()).take(ADDRESSES_MAX).collect();
        let mut link = StepLink { state: State::Closed, rest, out: VecDeque::new() };
        link.dial_next();
        link
    }

    fn dial_next(&mut self) {
        self.state = State::Closed;
        while let Some(address) = self.rest.pop_front() {
            if let Ok(fd) = begin_dial(&address) {
                self.state = State::Dialling { fd, until: Instant::now() + DIAL_PATIENCE };
                return;
            }
        }
    }

    /// The descriptor to watch, and whether for writing.
    pub fn interest(&self) -> Option<(BorrowedFd<'_>, bool)> {
        match &self.state {
            State::Dialling { fd, .. } => Some((fd.as_fd(), true)),
            State::Open { stream, .. } => Some((stream.as_fd(), !self.out.is_empty())),
            State::Closed => None,
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Dialling { until, .. } => Some(*until),
            _ => None,
        }
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    pub fn has_room(&self) -> bool {
        self.out.len() < OUT_BYTES_MAX
    }

    pub fn is_flushed(&self) -> bool {
        self.out.is_empty()
    }

    /// Moves the connection on as far as it goes without waiting. `read` is false while nothing more can be taken in.
    pub fn advance(&mut self, read: bool) -> Progress {
        match &mut self.state {
            State::Closed => Progress::Lost,
            State::Dialling { fd, until } => match dial_result(fd) {
                Ok(true) => self.open(),
                Ok(false) if Instant::now() < *until => Progress::Waiting,
                _ => {
                    self.dial_next();
                    if self.is_closed() { Progress::Lost } else { Progress::Waiting }
                }
            },
            State::Open { .. } => {
                self.flush();
                if read { self.read() } else { Progress::Waiting }
            }
        }
    }

    fn open(&mut self) -> Progress {
        let State::Dialling { fd, .. } = std::mem::replace(&mut self.state, State::Closed) else {
            return Progress::Lost;
        };
        let stream = TcpStream::from(fd);
        // Small frames must not wait for an acknowledgement; without it the step is only slower.
        let _ = stream.set_nodelay(true);
        self.state = State::Open { stream, decoder: Decoder::default() };
        Progress::Opened
    }

    pub fn send(&mut self, message: &StepMessage) {
        if let Ok(json) = serde_json::to_vec(message) {
            self.send_bytes(channel::CONTROL, &json);
        }
    }

    /// A task's output.
    pub fn send_output(&mut self, channel: u8, rank: u32, bytes: &[u8]) {
        let payload = [&rank.to_le_bytes(), bytes].concat();
        self.send_bytes(channel, &payload);
    }

    fn send_bytes(&mut self, channel: u8, payload: &[u8]) {
        if self.is_closed() {
            return;
        }
        let mut encoded = Vec::with_capacity(frame::HEADER + payload.len());
        if frame::encode(channel, payload, &mut encoded).is_ok() {
            self.out.extend(encoded);
        }
    }

    pub fn flush(&mut self) {
        let State::Open { stream, .. } = &mut self.state else { return };
        while !self.out.is_empty() {
            let (front, _) = self.out.as_slices();
            match stream.write(front) {
                Ok(written) if written > 0 => drop(self.out.drain(..written)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Ok(_) | Err(_) => return self.close(),
            }
        }
    }

    fn read(&mut self) -> Progress {
        let State::Open { stream, decoder } = &mut self.state else { return Progress::Lost };
        let mut buffer = vec![0; READ_BYTES];
        match stream.read(&mut buffer) {
            Ok(length) if length > 0 => decoder.push(&buffer[..length]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Progress::Waiting;
            }
            Ok(_) | Err(_) => {
                self.close();
                return Progress::Lost;
            }
        }
        let mut frames = Vec::new();
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => return Progress::Frames(frames),
                Err(_) => {
                    self.close();
                    return Progress::Lost;
                }
            }
        }
    }

    pub fn close(&mut self) {
        self.state = State::Closed;
        self.rest.clear();
        self.out.clear();
    }
}

fn begin_dial(address: &SocketAddr) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Stream, flags, None)?;
    // A host that vanished without a word must show in the end.
    setsockopt(&fd, sockopt::KeepAlive, &true)?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(*address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(fd),
        Err(errno) => Err(errno),
    }
}

/// Whether the connection is there; an error if it was refused.
fn dial_result(fd: &OwnedFd) -> nix::Result<bool> {
    let error = getsockopt(fd, sockopt::SocketError)?;
    if error != 0 {
        return Err(Errno::from_raw(error));
    }
    match nix::sys::socket::getpeername::<SockaddrStorage>(fd.as_raw_fd()) {
        Ok(_) => Ok(true),
        Err(Errno::ENOTCONN) => Ok(false),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Waits for the link's own descriptor, so that the test takes no longer than the kernel.
    fn settle(link: &mut StepLink) -> Progress {
        for _ in 0..100 {
            match link.advance(true) {
                Progress::Waiting => {}
                progress => return progress,
            }
            if let Some((fd, write)) = link.interest() {
                let flags = if write {
                    nix::poll::PollFlags::POLLOUT
                } else {
                    nix::poll::PollFlags::POLLIN
                };
                let mut fds = [nix::poll::PollFd::new(fd, flags)];
                nix::poll::poll(&mut fds, 1_000u16).expect("poll");
            }
        }
        panic!("the link never settled");
    }

    #[test]
    fn a_dead_address_gives_way_to_the_next() {
        let dead = TcpListener::bind("127.0.0.1:0").expect("a port");
        let dead_address = dead.local_addr().expect("its address").to_string();
        drop(dead);
        let alive = TcpListener::bind("127.0.0.1:0").expect("a port");
        let alive_address = alive.local_addr().expect("its address").to_string();
        let mut link = StepLink::dial(&["nonsense".into(), dead_address, alive_address]);
        assert_eq!(settle(&mut link), Progress::Opened);

        let (mut peer, _) = alive.accept().expect("dialled");
        link.send_output(channel::STDOUT, 7, b"hello");
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

        drop(peer);
        assert_eq!(settle(&mut link), Progress::Lost);
    }

    #[test]
    fn without_any_address_the_link_is_lost() {
        let mut link = StepLink::dial(&["host.example:1".into()]);
        assert_eq!(link.advance(true), Progress::Lost);
    }
}
