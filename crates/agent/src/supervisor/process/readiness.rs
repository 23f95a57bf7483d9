//! What a child that was just forked tells its supervisor: that it is ready, with its standard error and its network, or why nothing
//! was executed. It is one message on a socket pair.

use model::container::ContainerNetwork;
use model::reason::{LaunchFailure, LaunchFault};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recv, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The longest error text that a child sends.
const REASON_BYTES_MAX: usize = 4096;
/// What a child says that is ready, where it has no network to name.
pub(super) const READY: &[u8] = b"R";
/// Why nothing was executed, where nobody could say more.
pub(crate) const DIED: &str = "the process died before it was executed";

/// What the child has said.
#[derive(Debug)]
pub(crate) enum Readiness {
    /// The files are open; the program is executed next.
    Ready {
        stderr: OwnedFd,
        /// The network of the container that it has made, where that is not the node's.
        network: Option<ContainerNetwork>,
    },
    /// Nothing was executed.
    Failed(LaunchFailure),
    /// It was killed before it said anything.
    Silent,
}

/// Reads the child's message. Call it when `Spawned::ready` is readable, or when the child has ended: the copy of it that makes
/// a container may still have said nothing then, and is not waited for.
pub(crate) fn readiness(ready: &OwnedFd) -> Readiness {
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let mut buffer = [0; REASON_BYTES_MAX];
    let mut iov = [IoSliceMut::new(&mut buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let received = recvmsg::<UnixAddr>(ready.as_raw_fd(), &mut iov, Some(&mut space), flags);
    let (length, passed) = match received {
        Ok(message) => {
            let fds = message.cmsgs().into_iter().flatten().find_map(|control| match control {
                ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
                _ => None,
            });
            // SAFETY: the kernel has just installed this descriptor for us.
            (message.bytes, fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
        }
        Err(errno) => {
            let why = format!("no word from the process: {}", errno.desc());
            return Readiness::Failed(why.into());
        }
    };
    match passed {
        Some(stderr) => {
            Readiness::Ready { stderr, network: serde_json::from_slice(&buffer[..length]).ok() }
        }
        None => match buffer[..length].split_first() {
            Some((part, words)) => Readiness::Failed(failure_of(*part, words)),
            None => Readiness::Silent,
        },
    }
}

/// Whether nobody is left who could send the child's message, and none was sent: who would have was killed.
pub(crate) fn is_silent(ready: &OwnedFd) -> bool {
    peek(ready) == Ok(0)
}

/// Whether the child's message is there, and was not read yet.
pub(crate) fn has_spoken(ready: &OwnedFd) -> bool {
    peek(ready).is_ok_and(|bytes| bytes > 0)
}

/// A message has at least one byte; none are its end.
fn peek(ready: &OwnedFd) -> nix::Result<usize> {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    recv(ready.as_raw_fd(), &mut [0], flags)
}

/// The parts of a launch, by the first byte of a child's message about its failure.
const FAULTS: [LaunchFault; 4] =
    [LaunchFault::Other, LaunchFault::Container, LaunchFault::Volume, LaunchFault::Ports];

/// A child's message about its failure: the part, and the words up to the bound.
pub(super) fn failure_bytes(failure: &LaunchFailure) -> Vec<u8> {
    let part = FAULTS.iter().position(|fault| *fault == failure.fault).unwrap_or(0);
    let words = failure.what.as_bytes().iter().copied();
    std::iter::once(part as u8).chain(words).take(REASON_BYTES_MAX).collect()
}

fn failure_of(part: u8, words: &[u8]) -> LaunchFailure {
    let fault = FAULTS.get(usize::from(part)).copied().unwrap_or_default();
    LaunchFailure::new(fault, String::from_utf8_lossy(words))
}

/// Sends a message, with the descriptors that go with it.
pub(super) fn send(
    report: &OwnedFd,
    bytes: &[u8],
    passed: &[ControlMessage],
) -> nix::Result<usize> {
    let iov = [IoSlice::new(bytes)];
    sendmsg::<UnixAddr>(report.as_raw_fd(), &iov, passed, MsgFlags::MSG_NOSIGNAL, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use std::os::fd::AsFd;

    #[test]
    fn child_is_silent_when_it_has_ended_without_a_message() {
        let pair = || {
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
                .expect("a pair")
        };
        let (ready, report) = pair();
        assert!(!is_silent(&ready) && !has_spoken(&ready), "it may still speak");
        let copy = report.try_clone().expect("a copy");
        drop(report);
        assert!(!is_silent(&ready), "its copy may still speak");
        drop(copy);
        // A child that another test has just forked may have one more for a moment.
        let mut fds = [PollFd::new(ready.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::NONE).expect("an end");
        assert!(is_silent(&ready) && !has_spoken(&ready));
        assert!(matches!(readiness(&ready), Readiness::Silent));
        let (ready, report) = pair();
        let failure = LaunchFailure::from(String::from("no image"));
        send(&report, &failure_bytes(&failure), &[]).expect("sent");
        drop(report);
        assert!(!is_silent(&ready) && has_spoken(&ready));
        let Readiness::Failed(heard) = readiness(&ready) else { panic!("it has failed") };
        assert_eq!(&*heard.what, "no image");
    }
}
