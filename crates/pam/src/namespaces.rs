//! The namespaces of a job that has folders of its own: they come as descriptors with the agent's answer, and a process
//! can enter them only by itself.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Reads some bytes, and takes the descriptors that come with them.
pub fn receive(
    stream: &UnixStream,
    piece: &mut [u8],
    namespaces: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    /// Room for as many descriptors as a job has namespaces, and some; what is more the kernel closes.
    const CONTROL_BYTES: usize = 64;
    #[repr(align(8))]
    struct Room([u8; CONTROL_BYTES]);
    let mut room = Room([0; CONTROL_BYTES]);
    let mut part = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() };
    // SAFETY: all of its fields are numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = room.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: the message points to live memory of the lengths that it says.
    let length =
        unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled the room with whole headers, and these calls stay within it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(header).cast::<libc::c_int>();
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for index in 0..bytes / size_of::<libc::c_int>() {
                    // Each was made for this process, and nobody else here knows of it.
                    namespaces.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok(length)
}

/// Brings this process, and all that it starts from now on, into the job's own namespaces.
pub fn enter(namespaces: &[OwnedFd]) -> io::Result<()> {
    for namespace in namespaces {
        // SAFETY: the descriptor is open; the kernel checks what it is of.
        if unsafe { libc::setns(namespace.as_raw_fd(), 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    /// As the agent does: bytes, and descriptors with them.
    fn send(stream: &UnixStream, bytes: &[u8], fds: [i32; 2]) {
        #[repr(align(8))]
        struct Room([u8; 64]);
        let mut room = Room([0; 64]);
        let base = bytes.as_ptr().cast_mut().cast();
        let mut part = libc::iovec { iov_base: base, iov_len: bytes.len() };
        // SAFETY: the message is made of live memory, and the header and its data fit into the room.
        let sent = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = room.0.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of_val(&fds) as u32) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of_val(&fds) as u32) as _;
            libc::CMSG_DATA(header).cast::<[i32; 2]>().write_unaligned(fds);
            libc::sendmsg(stream.as_raw_fd(), &raw const message, 0)
        };
        assert_eq!(sent, bytes.len() as isize);
    }

    #[test]
    fn descriptors_come_with_the_bytes_and_only_namespaces_are_entered() {
        let (mut here, there) = UnixStream::pair().expect("a pair");
        let file = tempfile::tempfile().expect("a file");
        let own = std::fs::File::open("/proc/self/ns/mnt").expect("a namespace");
        send(&here, b"entered 7\n", [file.as_raw_fd(), own.as_raw_fd()]);
        let (mut piece, mut came) = ([0; 64], Vec::new());
        assert_eq!(receive(&there, &mut piece, &mut came).expect("bytes"), 10);
        assert_eq!((&piece[..10], came.len()), (&b"entered 7\n"[..], 2));
        let name = |fd: &OwnedFd| {
            std::fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())).expect("a link")
        };
        assert_eq!(name(&came[1]), std::fs::read_link("/proc/self/ns/mnt").expect("a link"));
        assert!(enter(&came[..1]).is_err(), "a file is no namespace");
        assert!(enter(&[]).is_ok());
        here.write_all(b"more").expect("room");
        assert_eq!(receive(&there, &mut piece, &mut came).expect("bytes"), 4);
        assert_eq!(came.len(), 2, "nothing comes with these");
    }
}
