//! What a service manager is told: `Type=notify` of systemd waits until the server answers.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells the service manager that started this process, if one did, that it is ready.
pub fn tell_ready() {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let told = address(socket.as_bytes()).and_then(|manager| {
        let own = UnixDatagram::unbound()?;
        own.send_to_addr(b"READY=1\n", &manager).map(drop)
    });
    if let Err(error) = told {
        tracing::warn!("the service manager at {socket:?} cannot be told: {error}");
    }
}

/// A path, or after `@` a name that has none.
fn address(socket: &[u8]) -> std::io::Result<SocketAddr> {
    match socket.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(socket)),
    }
}
