//! What a service manager is told: `Type=notify` of systemd waits until the server answers, and keeps its listening sockets.

use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use std::io::{Error, IoSlice, Result};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;

/// Tells the service manager that started this process, if one did, that it is ready.
pub fn tell_ready() {
    tell("READY=1\n", None);
}

/// Has the service manager keep a descriptor for the next start of this service.
pub fn store(name: &str, fd: BorrowedFd<'_>) {
    tell(&format!("FDSTORE=1\nFDNAME={name}\n"), Some(fd));
}

/// Has it close what it keeps under this name.
pub fn forget(name: &str) {
    tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), None);
}

fn tell(text: &str, fd: Option<BorrowedFd<'_>>) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let told = address(socket.as_bytes()).and_then(|manager| {
        let own = UnixDatagram::unbound()?;
        let fds: Vec<_> = fd.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&fds)];
        let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
        let text = [IoSlice::new(text.as_bytes())];
        sendmsg(own.as_raw_fd(), &text, rights, MsgFlags::empty(), Some(&manager))?;
        Ok(())
    });
    if let Err(error) = told {
        tracing::warn!("the service manager at {socket:?} cannot be told: {error}");
    }
}

/// A path, or after `@` a name that has none.
fn address(socket: &[u8]) -> Result<UnixAddr> {
    let found = match socket.strip_prefix(b"@") {
        Some(name) => UnixAddr::new_abstract(name),
        None => UnixAddr::new(socket),
    };
    found.map_err(Error::from)
}
