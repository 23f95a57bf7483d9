//! The log of a daemon: lines on standard error. Where that is the log file of the state folder, the file is kept below
//! a bound: what it held moves to a second file, and what that one held is dropped.

use super::log_journal::{self, JournalLines};
use super::log_journal_socket::JournalSocket;
use super::log_json::JsonLines;
use super::state_dir::StateDir;
use model::printable::printable;
use nix::fcntl::{FcntlArg, fcntl};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, OnceLock};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::reload;
use wire::diagnostics::LogLevel;

/// How large a log file may grow. A second one of that size holds what was logged before.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// What is logged at which level; it can be changed while the process runs.
static LEVELS: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();
/// How much is copied at once when a log is moved.
const COPY_BYTES: usize = 1 << 16;

/// Starts the log on standard error. `SLUICE_LOG` sets its level, for all (`debug`) or by crate (`info,server=debug`);
/// `SLUICE_LOG_FORMAT=json` makes an object of each line. Where a service manager hands standard error to the journal, it gets
/// entries with the fields of each event.
pub fn start(state: &StateDir, of: &str) {
    use tracing_subscriber::{fmt, layer::SubscriberExt, util::SubscriberInitExt};
    let wanted = std::env::var("SLUICE_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let levels = wanted.unwrap_or_else(|| Targets::new().with_default(tracing::Level::INFO));
    let files = Arc::new(LogFiles::behind_stderr(state, of));
    let writer = move || LogWriter { files: files.clone() };
    let lines = fmt::layer().with_writer(writer).with_ansi(false);
    let (levels, handle) = reload::Layer::new(levels);
    let _ = LEVELS.set(handle);
    let registry = tracing_subscriber::registry().with(levels);
    let _ = if std::env::var("SLUICE_LOG_FORMAT").is_ok_and(|format| format == "json") {
        registry.with(lines.event_format(JsonLines)).try_init()
    } else if log_journal::is_behind_stderr() {
        let entries = JournalLines::new(JournalSocket::connect());
        registry.with(lines.event_format(entries)).try_init()
    } else {
        registry.with(lines).try_init()
    };
}

/// Sets the level of all that this process logs from now on.
pub fn set_level(level: LogLevel) {
    let level = match level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
        LogLevel::Trace => tracing::Level::TRACE,
    };
    // Without a log there is nothing to set.
    let _ = LEVELS.get().map(|handle| handle.reload(Targets::new().with_default(level)));
}

struct LogWriter {
    files: Arc<Option<LogFiles>>,
}

impl Write for LogWriter {
    /// Takes one event. Whatever it says, it is one line: a text of a user in it cannot forge another.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        if let Some(files) = self.files.as_ref() {
            files.make_room(event.len() as u64);
        }
        io::stderr().write_all(&one_line(event))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn one_line(event: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(event);
    let mut line = printable(text.trim_end_matches('\n')).into_owned().into_bytes();
    line.push(b'\n');
    line
}

/// The log file and its predecessor. Both are opened before the server gives up root: it could not make them later.
struct LogFiles {
    current: KnownFile,
    previous: KnownFile,
    bytes_max: u64,
}

impl LogFiles {
    /// The files of this log, if standard error goes to it.
    fn behind_stderr(state: &StateDir, of: &str) -> Option<LogFiles> {
        let stderr = nix::sys::stat::fstat(io::stderr()).ok()?;
        let log = std::fs::symlink_metadata(state.path.join(format!("{of}.log"))).ok()?;
        if (log.dev(), log.ino()) != (stderr.st_dev, stderr.st_ino) {
            return None;
        }
        let open = |of: &str| state.open_log(of).ok().and_then(KnownFile::new);
        let current = open(&format!("{of}.log"))?;
        Some(LogFiles {
            current,
            previous: open(&format!("{of}.log.1"))?,
            bytes_max: LOG_BYTES_MAX,
        })
    }

    /// Moves the log away if these bytes would not fit. A log that cannot be moved grows on.
    fn make_room(&self, bytes: u64) {
        if self.is_full(bytes) && self.current.is_same() && self.previous.is_same() {
            let _ = self.rotate(bytes);
        }
    }

    fn is_full(&self, bytes: u64) -> bool {
        let length = self.current.file.metadata().map_or(0, |file| file.len());
        length > 0 && length + bytes > self.bytes_max
    }

    fn rotate(&self, bytes: u64) -> io::Result<()> {
        // Agent, keeper and launcher write to one log; another of them may be at it.
        let mut lock = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        if fcntl(&self.previous.file, FcntlArg::F_SETLK(&lock)).is_err() {
            return Ok(());
        }
        let moved = if self.is_full(bytes) { self.copy() } else { Ok(()) };
        lock.l_type = libc::F_UNLCK as libc::c_short;
        fcntl(&self.previous.file, FcntlArg::F_SETLK(&lock))?;
        moved
    }

    fn copy(&self) -> io::Result<()> {
        let mut part = vec![0; COPY_BYTES];
        let mut from = 0;
        self.previous.file.set_len(0)?;
        loop {
            let length = self.current.file.read_at(&mut part, from)?;
            if length == 0 {
                return self.current.file.set_len(0);
            }
            (&self.previous.file).write_all(&part[..length])?;
            from += length as u64;
        }
    }
}

/// A file and its identity: in a launcher, which closes all that it inherited, another file may have its descriptor.
struct KnownFile {
    file: File,
    identity: (u64, u64),
}

impl KnownFile {
    fn new(file: File) -> Option<Self> {
        let found = file.metadata().ok()?;
        Some(Self { identity: (found.dev(), found.ino()), file })
    }

    fn is_same(&self) -> bool {
        self.file.metadata().is_ok_and(|file| (file.dev(), file.ino()) == self.identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_moves_to_its_second_file_before_it_exceeds_its_bound() {
        let dir = tempfile::tempdir().expect("a folder");
        let state = StateDir::open(dir.path());
        let open = |name| KnownFile::new(state.open_log(name).expect("opened")).expect("known");
        let files = LogFiles { current: open("a.log"), previous: open("a.log.1"), bytes_max: 25 };
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("read");
        for line in ["one.......\n", "two.......\n", "three.....\n", "four......\n", "five......\n"]
        {
            files.make_room(line.len() as u64);
            (&files.current.file).write_all(line.as_bytes()).expect("written");
        }
        assert_eq!(read("a.log"), "five......\n");
        assert_eq!(read("a.log.1"), "three.....\nfour......\n");
        for name in ["a.log", "a.log.1"] {
            let mode = std::fs::metadata(dir.path().join(name)).expect("there").mode();
            assert_eq!(mode & 0o777, 0o640, "{name}");
        }
    }

    #[test]
    fn one_event_is_one_line() {
        let forged = b"INFO job name=a\nINFO root logged in\x1b[2J\n";
        let line = one_line(forged);
        assert_eq!(line, b"INFO job name=a\\nINFO root logged in\\u{1b}[2J\n");
    }
}
