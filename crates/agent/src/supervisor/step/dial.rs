//! Dials an `srun` at all its addresses at once, until one of them has proven that it knows the step's key.
//!
//! A listener that is not this `srun` receives a random public key and nothing more; the supervisor then goes on with the
//! other addresses.

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getpeername, getsockopt,
    setsockopt, socket, sockopt,
};
use ring::rand::SystemRandom;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use wire::step::StepLaunch;
use wire::step_channel::{KEY_CHARACTERS_MIN, StepChannel};

/// Addresses that are dialled at most.
const ADDRESSES_MAX: usize = 16;
/// The answer of an `srun` is shorter; whoever sends more is none.
const READ_BYTES: usize = 256;

/// Connections of which one may become the link to `srun`.
pub(crate) struct Dials {
    attempts: Vec<DialAttempt>,
    key: String,
}

struct DialAttempt {
    stream: TcpStream,
    /// `None` until it is connected.
    channel: Option<StepChannel>,
}

/// A connection whose other end has proven the key.
pub(crate) struct ProvenConnection {
    pub stream: TcpStream,
    pub channel: StepChannel,
}

impl Dials {
    /// Starts to dial. `here` is the network stack of this process.
    pub fn start(launch: &StepLaunch, here: Option<&str>) -> Dials {
        let key = launch.key.clone();
        let addresses = addresses(launch, here);
        let attempts = addresses.iter().filter_map(|address| begin(address).ok());
        let attempts = attempts.map(|fd| DialAttempt { stream: fd.into(), channel: None });
        Dials { attempts: attempts.collect(), key }
    }

    pub fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// The descriptors to poll, and whether for writing.
    pub fn interests(&self) -> Vec<(BorrowedFd<'_>, bool)> {
        let writes = |one: &DialAttempt| {
            one.channel.as_ref().is_none_or(|channel| !channel.unsent().is_empty())
        };
        self.attempts.iter().map(|one| (one.stream.as_fd(), writes(one))).collect()
    }

    /// Advances all of them without blocking. Returns the first that has proven the key, and forgets those that failed.
    pub fn advance(&mut self) -> Option<ProvenConnection> {
        let mut index = 0;
        while index < self.attempts.len() {
            match self.attempts[index].advance(&self.key) {
                Ok(true) => {
                    let DialAttempt { stream, channel } = self.attempts.swap_remove(index);
                    return channel.map(|channel| ProvenConnection { stream, channel });
                }
                Ok(false) => index += 1,
                Err(()) => drop(self.attempts.swap_remove(index)),
            }
        }
        None
    }
}

impl DialAttempt {
    /// Returns whether the other end has proven the key; an error if it cannot.
    fn advance(&mut self, key: &str) -> Result<bool, ()> {
        if self.channel.is_none() {
            if !is_connected(&self.stream).map_err(drop)? {
                return Ok(false);
            }
            // Without this small frames wait for an acknowledgement and the step is slower, but works.
            let _ = self.stream.set_nodelay(true);
            self.channel = Some(StepChannel::dialler(key, &SystemRandom::new()).map_err(drop)?);
        }
        let Some(channel) = &mut self.channel else { return Ok(false) };
        send(&mut self.stream, channel)?;
        let mut buffer = [0; READ_BYTES];
        match self.stream.read(&mut buffer) {
            Ok(length) if length > 0 => {
                let mut plain = Vec::new();
                channel.receive(&buffer[..length], &mut plain).map_err(drop)?;
                // The `srun` sends its first record after this end's proof.
                if !plain.is_empty() { Err(()) } else { Ok(channel.is_proven()) }
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(false)
            }
            Ok(_) | Err(_) => Err(()),
        }
    }
}

fn send(stream: &mut TcpStream, channel: &mut StepChannel) -> Result<(), ()> {
    while !channel.unsent().is_empty() {
        match stream.write(channel.unsent()) {
            Ok(written) if written > 0 => channel.mark_sent(written),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Ok(_) | Err(_) => return Err(()),
        }
    }
    Ok(())
}

/// The addresses to dial. Only `IP:PORT` is accepted: a supervisor resolves no names. A loopback address belongs to
/// `srun` in its own network stack alone, where no other is needed: elsewhere it is whoever listens on this machine.
fn addresses(launch: &StepLaunch, here: Option<&str>) -> Vec<SocketAddr> {
    if launch.key.len() < KEY_CHARACTERS_MIN {
        return Vec::new();
    }
    let same_stack = here.is_some() && launch.network_stack.as_deref() == here;
    let parsed = launch.encrypted_listen.iter().take(ADDRESSES_MAX);
    let parsed = parsed.filter_map(|text| text.parse::<SocketAddr>().ok());
    let (local, remote): (Vec<_>, Vec<_>) =
        parsed.partition(|address| is_local(address.ip().to_canonical()));
    if same_stack && !local.is_empty() { local } else { remote }
}

/// Whether the address means this very machine. The kernel takes the unspecified one as loopback.
fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

fn begin(address: &SocketAddr) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Stream, flags, None)?;
    // Keepalive detects a host that vanished without closing the connection.
    setsockopt(&fd, sockopt::KeepAlive, &true)?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(*address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(fd),
        Err(errno) => Err(errno),
    }
}

/// Whether the connection is established; an error if it was refused.
fn is_connected(stream: &TcpStream) -> nix::Result<bool> {
    let error = getsockopt(stream, sockopt::SocketError)?;
    if error != 0 {
        return Err(Errno::from_raw(error));
    }
    match getpeername::<SockaddrStorage>(stream.as_raw_fd()) {
        Ok(_) => Ok(true),
        Err(Errno::ENOTCONN) => Ok(false),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_dialled_in_the_network_stack_of_the_srun_alone() {
        let text = r#"{"name":"x","argv":[],"environment":"","work_dir":"/","key":"0123456789abcdef0123456789abcdef",
            "listen":["10.0.0.9:1"],"network_stack":"a net:[1]","encrypted_listen":["10.0.0.1:7","127.0.0.1:7",
            "127.9.9.9:7","[::1]:7","[::ffff:127.0.0.1]:7","0.0.0.0:7","[::]:7","host.example:7"]}"#;
        let mut launch: StepLaunch = serde_json::from_str(text).expect("a launch");
        let abroad = ["10.0.0.1:7".parse().expect("an address")];
        let at_home = addresses(&launch, Some("a net:[1]"));
        assert_eq!(at_home.len(), 6);
        assert!(!at_home.contains(&abroad[0]), "loopback is enough");
        for here in [Some("a net:[2]"), Some("b net:[1]"), None] {
            assert_eq!(addresses(&launch, here), abroad, "{here:?}");
        }
        launch.network_stack = None;
        assert_eq!(addresses(&launch, None), abroad);
        launch.key = "short".into();
        assert!(addresses(&launch, None).is_empty(), "a link that proves nothing");
    }
}
