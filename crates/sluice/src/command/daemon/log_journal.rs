//! Events for systemd's journal: as entries with fields where it takes them, else as lines with a priority in `<>`, which it
//! takes off, and no time, which it has itself.

use super::log_journal_socket::JournalSocket;
use std::fmt;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, format};
use tracing_subscriber::registry::LookupSpan;

/// Whether standard error goes to the journal: the manager names the stream's file, which a redirection changes.
pub fn is_behind_stderr() -> bool {
    let Ok(stderr) = nix::sys::stat::fstat(std::io::stderr()) else { return false };
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    is_stream(&named, stderr.st_dev, stderr.st_ino)
}

/// `DEVICE:INODE`
fn is_stream(named: &str, device: u64, inode: u64) -> bool {
    let parsed = named.split_once(':').and_then(|(device, inode)| {
        Some((device.parse::<u64>().ok()?, inode.parse::<u64>().ok()?))
    });
    parsed == Some((device, inode))
}

pub struct JournalLines {
    lines: Format<Full, ()>,
    socket: Option<JournalSocket>,
}

impl JournalLines {
    pub fn new(socket: Option<JournalSocket>) -> Self {
        Self { lines: format().without_time().with_level(false).with_ansi(false), socket }
    }
}

/// The priorities of syslog.
fn priority(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

impl<S, N> FormatEvent<S, N> for JournalLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.lines.format_event(context, Writer::new(&mut line), event)?;
        let (priority, line) = (priority(event.metadata().level()), line.trim_end_matches('\n'));
        if self.socket.as_ref().is_some_and(|socket| socket.send(priority, line, event)) {
            return Ok(());
        }
        writeln!(writer, "<{priority}>{line}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn journal_is_known_by_the_file_that_its_manager_names() {
        assert!(is_stream("8:4711", 8, 4711));
        for other in ["", "8", "8:4712", "9:4711", "x:y", "8:4711:1"] {
            assert!(!is_stream(other, 8, 4711), "{other}");
        }
    }

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("kept").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What goes to standard error of what is logged.
    fn lines_of(socket: Option<JournalSocket>, log: impl FnOnce()) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let lines = fmt::layer().with_writer(move || writer.clone()).with_ansi(false);
        let lines = lines.event_format(JournalLines::new(socket));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), log);
        let bytes = kept.0.lock().expect("kept").clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn entries_have_fields_and_what_the_journal_does_not_take_goes_to_standard_error() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("socket");
        let journal = UnixDatagram::bind(&path).expect("a socket");
        let socket = JournalSocket::connect_to(&path);
        assert!(socket.is_some());
        let mut received = Vec::new();
        let said = lines_of(socket, || {
            tracing::warn!(job = 31, node = "gpu1", "node down\nJOB_ID=32");
            let mut buffer = [0; 4096];
            let length = journal.recv(&mut buffer).expect("an entry");
            received.extend_from_slice(&buffer[..length]);
            drop(journal);
            tracing::info!("works");
        });
        let entry = String::from_utf8(received).expect("text");
        let lines: Vec<&str> = entry.lines().collect();
        let message = lines[0].strip_prefix("MESSAGE=").expect("it comes first");
        assert!(message.ends_with("node down\\nJOB_ID=32 job=31 node=\"gpu1\""), "{entry}");
        for line in ["PRIORITY=4", "SYSLOG_IDENTIFIER=sluice", "JOB_ID=31", "SLUICE_NODE=gpu1"] {
            assert_eq!(lines.iter().filter(|one| **one == line).count(), 1, "{line} in {entry}");
        }
        assert!(said.starts_with("<6>") && said.ends_with("works\n"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }

    #[test]
    fn lines_begin_with_the_priority_and_have_no_time() {
        let text = lines_of(None, || {
            tracing::warn!(node = "gpu1", "node down");
            tracing::info!("works");
        });
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("<4>") && lines[0].ends_with("node down node=\"gpu1\""),
            "{text}"
        );
        assert!(lines[1].starts_with("<6>") && lines[1].ends_with("works"), "{text}");
    }
}
