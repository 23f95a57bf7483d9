//! The process that carries connections from ports of the node to those of a container. It is in the container's network
//! namespace and the job's user, and connects to the loopback address there: a program that listens on it alone is
//! reached too. It ends with the job, whose group it is in.

use crate::supervisor::container::holder::close_all_but;
use crate::supervisor::process::credentials::become_user;
use model::container::PortMapping;
use model::site::PortRange;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{Duration, Instant};
use wire::order::UserIds;

/// How long a listener inside may take to accept: the others wait meanwhile.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);
/// Connections at a time; more wait until one has ended.
const CONNECTIONS_MAX: usize = 256;
/// How long a connection may carry nothing and still be kept when others wait for a place.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// An end that is gone without a word is asked after this silence, so often, at this distance.
const KEEPALIVE: [(libc::c_int, libc::c_int); 3] =
    [(libc::TCP_KEEPIDLE, 300), (libc::TCP_KEEPINTVL, 30), (libc::TCP_KEEPCNT, 6)];
/// Bytes on their way, for each connection and direction.
const BUFFER_BYTES: usize = 32 << 10;

/// Free ports of the node, one for each port of the container, in their order.
pub(super) fn open_ports(range: PortRange, ports: &[u16]) -> Result<Vec<TcpListener>, String> {
    let count = u32::from(range.last - range.first) + 1;
    // Begins anywhere, so that a port that was just freed is not another job's at once.
    let mut next = RandomState::new().build_hasher().finish() as u32 % count;
    let mut tries = 0..count;
    let mut open_one = |_: &u16| {
        let found = tries.find_map(|_| {
            next = (next + 1) % count;
            listen(range.first + next as u16)
        });
        let (first, last) = (range.first, range.last);
        found.ok_or_else(|| format!("no port of this node from {first} to {last} is free"))
    };
    ports.iter().map(&mut open_one).collect()
}

/// All addresses of the node, IPv6 among them where it has that.
fn listen(port: u16) -> Option<TcpListener> {
    let any =
        [SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), (Ipv4Addr::UNSPECIFIED, port).into()];
    // A port that another has is not asked for once more.
    let listener = match TcpListener::bind(any[0]) {
        Err(e) if e.kind() != ErrorKind::AddrInUse => TcpListener::bind(any[1]).ok()?,
        made => made.ok()?,
    };
    listener.set_nonblocking(true).ok()?;
    Some(listener)
}

/// Which port leads where.
pub(super) fn mappings(ports: &[u16], listeners: &[TcpListener]) -> Vec<PortMapping> {
    let node = |listener: &TcpListener| listener.local_addr().map_or(0, |address| address.port());
    let pairs = ports.iter().zip(listeners);
    pairs
        .map(|(container, listener)| PortMapping { container: *container, node: node(listener) })
        .collect()
}

/// Starts the process, from one that is in the container's network namespace.
pub(super) fn start(
    user: &UserIds,
    ports: &[u16],
    listeners: Vec<TcpListener>,
) -> Result<(), String> {
    let failed = |e: Errno| format!("cannot forward the container's ports: {}", e.desc());
    // A process in between ends at once, so that the forwarder is the supervisor's child and not the container's.
    // SAFETY: this process has one thread, and the child ends below.
    match unsafe { fork() }.map_err(failed)? {
        ForkResult::Parent { child } => {
            let _ = waitpid(child, None);
            Ok(())
        }
        ForkResult::Child => {
            // SAFETY: as above.
            if let Ok(ForkResult::Child) = unsafe { fork() } {
                let ports: Vec<u16> = ports.to_vec();
                let run = || forward(user, &ports, &listeners);
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            }
            // SAFETY: ends the child without the exit handlers of its parent.
            unsafe { libc::_exit(0) }
        }
    }
}

fn forward(user: &UserIds, ports: &[u16], listeners: &[TcpListener]) {
    let _ = prctl::set_name(c"sluice:ports");
    let _ = prctl::set_dumpable(false);
    // The job's signals are not for it: it ends with the group.
    for number in [Signal::SIGPIPE, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        // SAFETY: ignoring a signal runs no code of ours.
        let _ = unsafe { signal(number, SigHandler::SigIgn) };
    }
    let _ = nix::unistd::chdir("/");
    let mut kept: Vec<RawFd> = listeners.iter().map(AsRawFd::as_raw_fd).collect();
    kept.sort_unstable();
    close_all_but(kept.into_iter());
    if become_user(user).is_err() || prctl::set_no_new_privs().is_err() {
        return;
    }
    let mut connections: Vec<Connection> = Vec::new();
    loop {
        for failed in wait(listeners, &connections) {
            connections[failed].is_broken = true;
        }
        for connection in &mut connections {
            connection.advance();
        }
        connections.retain(|connection| !connection.is_over());
        if connections.len() >= CONNECTIONS_MAX
            && listeners.iter().any(has_waiting)
            && let Some(idle) = longest_idle(connections.iter().map(|one| one.active), IDLE_MAX)
        {
            connections.swap_remove(idle);
        }
        for (listener, port) in listeners.iter().zip(ports) {
            while connections.len() < CONNECTIONS_MAX {
                let Ok((outside, _)) = listener.accept() else { break };
                connections.extend(Connection::open(outside, *port));
            }
        }
    }
}

/// Waits until something can go on. Returns the numbers of the connections that an end has reset: nothing else tells it of an
/// end that is neither read nor written any more.
fn wait(listeners: &[TcpListener], connections: &[Connection]) -> Vec<usize> {
    let of_connections = connections.iter().flat_map(Connection::waits_for);
    let mut fds: Vec<PollFd> = of_connections.collect();
    if connections.len() < CONNECTIONS_MAX {
        fds.extend(listeners.iter().map(|one| PollFd::new(one.as_fd(), PollFlags::POLLIN)));
    }
    // All places are taken: somebody may wait for one, and a connection may have become idle meanwhile.
    let pause = PollTimeout::try_from(IDLE_MAX / 4).unwrap_or(PollTimeout::MAX);
    let timeout = if connections.len() < CONNECTIONS_MAX { PollTimeout::NONE } else { pause };
    let _ = poll(&mut fds, timeout);
    let is_reset = |fd: &PollFd| fd.revents().is_some_and(|r| r.contains(PollFlags::POLLERR));
    let ends = fds.chunks(2).take(connections.len()).enumerate();
    ends.filter(|(_, ends)| ends.iter().any(is_reset)).map(|(number, _)| number).collect()
}

/// Whether somebody waits to be accepted.
fn has_waiting(listener: &TcpListener) -> bool {
    let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// The one that has carried nothing for the longest time, if that is over `idle_max`; `active` is when each last did.
fn longest_idle(active: impl Iterator<Item = Instant>, idle_max: Duration) -> Option<usize> {
    let (number, at) = active.enumerate().min_by_key(|(_, at)| *at)?;
    (at.elapsed() >= idle_max).then_some(number)
}

struct Connection {
    outside: TcpStream,
    inside: TcpStream,
    inward: Direction,
    outward: Direction,
    is_broken: bool,
    /// When it last carried something.
    active: Instant,
}

impl Connection {
    /// `None` if nobody listens inside: the client sees its connection closed.
    fn open(outside: TcpStream, port: u16) -> Option<Connection> {
        // Within one network namespace this is answered at once, unless its listener is overrun.
        let at = |ip: IpAddr| TcpStream::connect_timeout(&(ip, port).into(), CONNECT_TIMEOUT);
        let inside =
            at(Ipv4Addr::LOCALHOST.into()).or_else(|_| at(Ipv6Addr::LOCALHOST.into())).ok()?;
        for end in [&outside, &inside] {
            end.set_nonblocking(true).ok()?;
            let _ = end.set_nodelay(true);
        }
        keep_alive(&outside);
        let (inward, outward) = (Direction::default(), Direction::default());
        let active = Instant::now();
        Some(Connection { outside, inside, inward, outward, is_broken: false, active })
    }

    fn advance(&mut self) {
        let carried = self.inward.carry(&self.outside, &self.inside)
            | self.outward.carry(&self.inside, &self.outside);
        if carried {
            self.active = Instant::now();
        }
    }

    fn is_over(&self) -> bool {
        self.is_broken
            || self.inward.broken
            || self.outward.broken
            || (self.inward.closed && self.outward.closed)
    }

    fn waits_for(&self) -> [PollFd<'_>; 2] {
        let events = |reads: &Direction, writes: &Direction| {
            let mut events = PollFlags::empty();
            events.set(PollFlags::POLLIN, reads.waits_to_read());
            events.set(PollFlags::POLLOUT, writes.waits_to_write());
            events
        };
        [
            PollFd::new(self.outside.as_fd(), events(&self.inward, &self.outward)),
            PollFd::new(self.inside.as_fd(), events(&self.outward, &self.inward)),
        ]
    }
}

#[derive(Default)]
struct Direction {
    waiting: Vec<u8>,
    /// Its source has said all.
    ended: bool,
    /// Its target has been told so.
    closed: bool,
    broken: bool,
}

impl Direction {
    fn waits_to_read(&self) -> bool {
        self.waiting.is_empty() && !self.ended
    }

    fn waits_to_write(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns whether anything was written.
    fn carry(&mut self, mut from: &TcpStream, mut to: &TcpStream) -> bool {
        let mut carried = false;
        if self.waits_to_read() {
            let mut buffer = [0; BUFFER_BYTES];
            match from.read(&mut buffer) {
                Ok(0) => self.ended = true,
                Ok(length) => self.waiting = buffer[..length].to_vec(),
                Err(e) => self.broken |= !is_passing(&e),
            }
        }
        if self.waits_to_write() {
            match to.write(&self.waiting) {
                Ok(length) => {
                    self.waiting.drain(..length);
                    carried = true;
                }
                Err(e) => self.broken |= !is_passing(&e),
            }
        }
        if self.ended && self.waiting.is_empty() && !self.closed {
            self.closed = true;
            let _ = to.shutdown(Shutdown::Write);
        }
        carried
    }
}

/// Has the kernel find out whether the other end is still there: its connection ends with an error if it is not.
fn keep_alive(stream: &TcpStream) {
    let set = |level: libc::c_int, option: libc::c_int, value: libc::c_int| {
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the value lives through the call, and the size is its own.
        unsafe {
            libc::setsockopt(stream.as_raw_fd(), level, option, (&raw const value).cast(), size)
        };
    };
    // A connection goes without where it cannot be set.
    set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    KEEPALIVE.iter().for_each(|(option, value)| set(libc::IPPROTO_TCP, *option, *value));
}

fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_that_carried_nothing_for_longest_gives_its_place() {
        let now = Instant::now();
        let ago = |seconds: u64| now.checked_sub(Duration::from_secs(seconds)).expect("a time");
        let idle = |all: &[u64]| longest_idle(all.iter().map(|one| ago(*one)), IDLE_MAX);
        assert_eq!(idle(&[10, 300, 70]), Some(1));
        assert_eq!(idle(&[10, 20]), None, "none is idle");
        assert_eq!(idle(&[]), None);
    }

    #[test]
    fn somebody_who_waits_is_seen_and_what_a_connection_carries_makes_it_active() {
        let listener = listen(0).expect("a port");
        assert!(!has_waiting(&listener));
        let port = listener.local_addr().expect("an address").port();
        let mut client = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        while !has_waiting(&listener) {}
        let inner = TcpListener::bind("127.0.0.1:0").expect("a port");
        let inner_port = inner.local_addr().expect("an address").port();
        let (outside, _) = listener.accept().expect("accepted");
        let mut connection = Connection::open(outside, inner_port).expect("somebody listens");
        let long_ago = connection.active.checked_sub(IDLE_MAX).expect("a time");
        connection.active = long_ago;
        connection.advance();
        assert_eq!(connection.active, long_ago, "nothing was said");
        client.write_all(b"x").expect("written");
        while connection.active == long_ago {
            connection.advance();
        }
    }

    #[test]
    fn ports_are_free_ones_of_the_range_and_there_is_an_end_to_them() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("an address").port();
        let none = open_ports(PortRange { first: port, last: port }, &[80]);
        let expected = format!("no port of this node from {port} to {port} is free");
        assert_eq!(none.err(), Some(expected));
        let range = PortRange { first: 20_000, last: 29_999 };
        let listeners = open_ports(range, &[80, 443]).expect("two of ten thousand");
        let found = mappings(&[80, 443], &listeners);
        assert_eq!(found.iter().map(|one| one.container).collect::<Vec<_>>(), [80, 443]);
        assert!(found.iter().all(|one| (range.first..=range.last).contains(&one.node)));
        assert_ne!(found[0].node, found[1].node);
    }
}
