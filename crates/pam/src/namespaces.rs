//! The namespaces of a job that has private folders: they come as descriptors with the agent's answer, and a process
//! can enter them only by itself.

use nix::cmsg_space;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixAddr, recvmsg};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Descriptors taken with one message: more than a job has namespaces. The kernel closes what is beyond.
const DESCRIPTORS_MAX: usize = 12;

/// Reads some bytes, and takes the descriptors that come with them.
pub fn receive(
    stream: &UnixStream,
    buffer: &mut [u8],
    namespaces: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = cmsg_space!([RawFd; DESCRIPTORS_MAX]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<UnixAddr>(stream.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = control {
            // SAFETY: the kernel has just made each for this process, and nobody else here knows of it.
            namespaces.extend(fds.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    Ok(message.bytes)
}

/// Brings this process, and all that it starts from now on, into the job's own namespaces.
pub fn enter(namespaces: &[OwnedFd]) -> io::Result<()> {
    // No kind is asked for: the kernel checks that each descriptor is a namespace.
    namespaces.iter().try_for_each(|fd| setns(fd, CloneFlags::empty())).map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{ControlMessage, sendmsg};
    use std::io::{IoSlice, Write};
    use std::os::fd::AsFd;

    #[test]
    fn descriptors_come_with_the_bytes_and_only_namespaces_are_entered() {
        let (mut here, there) = UnixStream::pair().expect("a pair");
        let file = tempfile::tempfile().expect("a file");
        let own = std::fs::File::open("/proc/self/ns/mnt").expect("a namespace");
        let line = [IoSlice::new(b"entered 7\n")];
        let fds = [file.as_raw_fd(), own.as_raw_fd()];
        let passed = [ControlMessage::ScmRights(&fds)];
        let sent = sendmsg::<UnixAddr>(here.as_raw_fd(), &line, &passed, MsgFlags::empty(), None);
        assert_eq!(sent, Ok(10));
        let (mut buffer, mut came) = ([0; 64], Vec::new());
        assert_eq!(receive(&there, &mut buffer, &mut came).expect("bytes"), 10);
        assert_eq!((&buffer[..10], came.len()), (&b"entered 7\n"[..], 2));
        let name = |fd: &OwnedFd| {
            std::fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())).expect("a link")
        };
        assert_eq!(name(&came[1]), std::fs::read_link("/proc/self/ns/mnt").expect("a link"));
        assert!(enter(&came[..1]).is_err(), "a file is no namespace");
        assert!(enter(&[]).is_ok());
        here.write_all(b"more").expect("written");
        assert_eq!(receive(&there, &mut buffer, &mut came).expect("bytes"), 4);
        assert_eq!(came.len(), 2, "nothing comes with these");
    }
}
