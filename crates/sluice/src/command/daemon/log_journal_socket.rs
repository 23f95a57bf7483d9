//! Entries of systemd's journal by its own protocol: the line, its priority, and each field under a name of its own, so that
//! `journalctl JOB_ID=31` finds what was said of a job.

use super::log_json::Fields;
use model::printable::printable;
use nix::sys::stat::fstat;
use serde_json::Value;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use tracing::Event;

const SOCKET: &str = "/run/systemd/journal/socket";
/// The field that names the job; all others have a prefix, since the journal has fields of every program.
const JOB: (&str, &str) = ("job", "JOB_ID");
const PREFIX: &str = "SLUICE_";

pub struct JournalSocket {
    socket: UnixDatagram,
    inode: u64,
}

impl JournalSocket {
    /// `None` where there is no journal to send to.
    pub fn connect() -> Option<Self> {
        Self::connect_to(Path::new(SOCKET))
    }

    pub fn connect_to(path: &Path) -> Option<Self> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.connect(path).ok()?;
        // A journal that is behind is not waited for here.
        socket.set_nonblocking(true).ok()?;
        let inode = fstat(&socket).ok()?.st_ino;
        Some(Self { socket, inode })
    }

    /// Sends one entry. Returns whether it went out: one that is too long for a message did not, for example.
    pub fn send(&self, priority: u8, line: &str, event: &Event<'_>) -> bool {
        // In a launcher, which closes all that it inherited, another file may have the descriptor.
        let is_same = fstat(&self.socket).is_ok_and(|found| found.st_ino == self.inode);
        is_same && self.socket.send(entry(priority, line, event).as_bytes()).is_ok()
    }
}

/// A line `NAME=value` for each field. No value has a line's end in it: a text of a user cannot forge another field.
fn entry(priority: u8, line: &str, event: &Event<'_>) -> String {
    let mut fields = Fields::default();
    event.record(&mut fields);
    let mut text = format!(
        "MESSAGE={}\nPRIORITY={priority}\nSYSLOG_IDENTIFIER=sluice\n{PREFIX}TARGET={}\n",
        printable(line),
        event.metadata().target()
    );
    for (name, value) in fields.0.iter().filter(|(name, _)| *name != "message") {
        let name = match name.as_str() {
            name if name == JOB.0 => JOB.1.to_owned(),
            name => format!("{PREFIX}{}", field_name(name)),
        };
        let value = match value {
            Value::String(value) => value.clone(),
            other => other.to_string(),
        };
        text += &format!("{name}={}\n", printable(&value));
    }
    text
}

/// Letters, digits and underscores, as the journal has them.
fn field_name(name: &str) -> String {
    let shown = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    name.chars().map(shown).collect()
}
