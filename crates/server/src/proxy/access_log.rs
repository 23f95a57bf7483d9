//! The access log: a line for each request to a service, in a file of its own that is kept below a bound. A thread writes it, so
//! that no request waits for a disk, many lines at once, so that no request wakes it for itself; lines that come faster than they
//! are written are left out, and counted.

use crate::clock;
use crate::http::peer::{ClientAddress, push_address};
use crate::repeated_failure::RepeatedFailure;
use axum::body::Body;
use axum::http::{Method, StatusCode};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use jiff::tz::TimeZone;
use model::printable::printable;
use model::time::{Timestamp, format_iso};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The name of the file. What it held before is in a second one, with `.1` at its end.
pub const FILE: &str = "access.log";
/// How large each of the two files may grow.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Bytes of lines that wait to be written, and characters of a path in one.
const WAITING_BYTES_MAX: usize = 4 << 20;
const PATH_CHARS_MAX: usize = 512;
/// Characters of any other field.
const WORD_CHARS_MAX: usize = 255;
/// Bytes of most addresses, and of the method and the signs between the fields.
const REST_BYTES: usize = 64;
/// How long lines are gathered before they are written together.
const GATHERED: Duration = Duration::from_millis(100);

/// Takes lines, while the site wants them.
pub struct AccessLog {
    dir: PathBuf,
    is_on: AtomicBool,
    has_thread: AtomicBool,
    lines: Arc<Lines>,
}

/// The lines that wait to be written.
#[derive(Default)]
struct Lines {
    waiting: Mutex<Waiting>,
    /// Told when the first line comes.
    came: Condvar,
}

#[derive(Default)]
struct Waiting {
    text: String,
    /// Lines for which there was no room.
    left_out: u64,
    /// The second that the last line was of, and its text.
    second: (i64, String),
    /// Nobody sends any more.
    is_over: bool,
}

impl Lines {
    fn held(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no panic with the lines held")
    }

    /// Adds the line of a request that ended now, of which `rest` is all but the time.
    fn add(&self, now: Timestamp, rest: &str) {
        let mut waiting = self.held();
        if waiting.text.len() >= WAITING_BYTES_MAX {
            waiting.left_out += 1;
            return;
        }
        if waiting.second.0 != now.secs() || waiting.second.1.is_empty() {
            waiting.second = (now.secs(), format_iso(now, &TimeZone::UTC));
        }
        let is_first = waiting.text.is_empty();
        let Waiting { text, second, .. } = &mut *waiting;
        text.extend([second.1.as_str(), "Z ", rest, "\n"]);
        drop(waiting);
        if is_first {
            self.came.notify_one();
        }
    }

    /// Waits for lines, and takes them with how many were left out; `None` when no more will come.
    fn take(&self) -> Option<(String, u64)> {
        let is_idle = |waiting: &mut Waiting| waiting.text.is_empty() && !waiting.is_over;
        let waiting = self.came.wait_while(self.held(), is_idle);
        let is_over = waiting.expect("no panic with the lines held").is_over;
        if !is_over {
            std::thread::sleep(GATHERED);
        }
        let mut waiting = self.held();
        if waiting.text.is_empty() {
            return None;
        }
        Some((std::mem::take(&mut waiting.text), std::mem::take(&mut waiting.left_out)))
    }
}

impl AccessLog {
    pub fn new(dir: &Path) -> Self {
        let (is_on, has_thread, lines) = Default::default();
        Self { dir: dir.to_path_buf(), is_on, has_thread, lines }
    }

    /// Begins or ends to take lines. The thread starts with the first time.
    pub fn turn(&self, on: bool) {
        if on && !self.has_thread.swap(true, Relaxed) {
            let file = LogFile::new(&self.dir, FILE_BYTES_MAX);
            let lines = self.lines.clone();
            let thread = std::thread::Builder::new().name("access log".into());
            if let Err(error) = thread.spawn(move || write_all(&lines, file)) {
                tracing::error!("the access log has no thread: {error}");
            }
        }
        self.is_on.store(on, Relaxed);
    }

    /// A request that is to be logged; `None` where nothing is, and nobody asks what the line would say.
    pub fn begin<'a>(self: &Arc<Self>, asked: impl FnOnce() -> Asked<'a>) -> Option<Entry> {
        if !self.is_on.load(Relaxed) {
            return None;
        }
        let Asked { client, service, method, path } = asked();
        let end = path.char_indices().nth(PATH_CHARS_MAX).map_or(path.len(), |(end, _)| end);
        let mut what = String::with_capacity(service.len() + end + REST_BYTES);
        match client {
            ClientAddress::Address(address) => push_address(&mut what, address),
            other => push_word(&mut what, &other.to_string()),
        }
        what.push(' ');
        push_word(&mut what, service);
        what.extend([" \"", method.as_str(), " ", &printable(&path[..end]), "\""]);
        Some(Entry { log: self.clone(), what, status: 0, bytes: 0, began: Instant::now() })
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.lines.held().is_over = true;
        self.lines.came.notify_one();
    }
}

/// What a line says of a request. A query is left out: it may hold a secret.
pub struct Asked<'a> {
    pub client: ClientAddress,
    pub service: &'a str,
    pub method: &'a Method,
    pub path: &'a str,
}

/// A line that is written when this is dropped.
pub struct Entry {
    log: Arc<AccessLog>,
    what: String,
    status: u16,
    bytes: u64,
    began: Instant,
}

impl Entry {
    /// Follows the answer to its last byte.
    pub fn follow(self, answer: axum::response::Response) -> axum::response::Response {
        let entry = self.answered(answer.status());
        answer.map(|body| Body::new(LoggedBody { body, entry }))
    }

    /// The same where the answer's body itself counts what is read of it.
    pub fn answered(mut self, status: StatusCode) -> Self {
        self.status = status.as_u16();
        self
    }

    pub fn count(&mut self, frame: &Frame<Bytes>) {
        self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Self { log, what, status, bytes, began } = self;
        // Written before others have to wait for the lines.
        push_outcome(what, *status, *bytes, began.elapsed());
        log.lines.add(clock::now(), what);
    }
}

/// Adds how a request was answered: its status, the bytes of the answer's body, and how many seconds it took. Without the formatter: each
/// request has one, and that of a number with decimals takes longer than all the rest of the line.
fn push_outcome(line: &mut String, status: u16, bytes: u64, took: Duration) {
    const MS: u128 = 1_000;
    let ms = (took.as_micros() + MS / 2) / MS;
    let mut digits = itoa::Buffer::new();
    line.push(' ');
    line.push_str(digits.format(status));
    line.push(' ');
    line.push_str(digits.format(bytes));
    line.push(' ');
    line.push_str(digits.format(ms / MS));
    line.push('.');
    // With a digit before them, so that those behind it have their zeros.
    line.push_str(&digits.format(MS + ms % MS)[1..]);
}

/// Adds a field without blanks, as a client may have put into its host.
fn push_word(line: &mut String, text: &str) {
    let plain = |c: char| if c.is_ascii_graphic() && c != '"' { c } else { '_' };
    line.extend(text.chars().take(WORD_CHARS_MAX).map(plain));
}

/// The body of an answer, of which the bytes are counted.
struct LoggedBody {
    body: Body,
    entry: Entry,
}

impl hyper::body::Body for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.entry.count(frame);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The file and its predecessor.
struct LogFile {
    path: PathBuf,
    bytes_max: u64,
    open: Option<(File, u64)>,
}

impl LogFile {
    fn new(dir: &Path, bytes_max: u64) -> Self {
        Self { path: dir.join(FILE), bytes_max, open: None }
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let added = lines.len() as u64;
        let (file, length) = match self.open.take() {
            Some(open) => open,
            None => self.reopen()?,
        };
        let (mut file, length) = if length > 0 && length + added > self.bytes_max {
            drop(file);
            std::fs::rename(&self.path, self.path.with_extension("log.1"))?;
            self.reopen()?
        } else {
            (file, length)
        };
        file.write_all(lines)?;
        self.open = Some((file, length + added));
        Ok(())
    }

    fn reopen(&self) -> io::Result<(File, u64)> {
        let file = OpenOptions::new().append(true).create(true).mode(0o640).open(&self.path)?;
        let length = file.metadata()?.len();
        Ok((file, length))
    }
}

/// Writes what comes until nobody sends any more.
fn write_all(lines: &Lines, mut file: LogFile) {
    let mut failures = RepeatedFailure::new("the access log");
    while let Some((text, left_out)) = lines.take() {
        if left_out > 0 {
            tracing::warn!("the access log leaves {left_out} requests out");
        }
        match file.write(text.as_bytes()) {
            Ok(()) => failures.succeeded(),
            Err(error) => failures.failed("requests are not logged", &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_moves_to_its_second_before_it_exceeds_its_bound() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut file = LogFile::new(dir.path(), 25);
        for line in ["one.......\n", "two.......\n", "three.....\n", "four......\n", "five......\n"]
        {
            file.write(line.as_bytes()).expect("written");
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("read");
        assert_eq!(read("access.log"), "five......\n");
        assert_eq!(read("access.log.1"), "three.....\nfour......\n");
    }

    #[test]
    fn request_is_one_line_whatever_its_path_and_none_while_the_log_is_off() {
        let dir = tempfile::tempdir().expect("a folder");
        let log = Arc::new(AccessLog::new(dir.path()));
        let method = Method::GET;
        let asked = || Asked {
            client: ClientAddress::Address("10.0.0.1".parse().expect("an address")),
            service: "main/web \"",
            method: &method,
            path: "/a\nb",
        };
        assert!(log.begin(asked).is_none());
        log.turn(true);
        let answer = axum::response::Response::new(Body::from("hello"));
        let entry = log.begin(asked).expect("a line");
        drop(entry.follow(answer));
        let path = dir.path().join(FILE);
        let text = (0..1000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))
        });
        let text = text.expect("a line");
        assert!(text.contains(" 10.0.0.1 main/web__ \"GET /a\\nb\" 200 0 "), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    #[test]
    fn outcome_has_its_time_in_seconds_with_three_decimals() {
        for (took_us, expected) in [
            (0, " 200 17 0.000"),
            (499, " 200 17 0.000"),
            (500, " 200 17 0.001"),
            (42_000, " 200 17 0.042"),
            (999_600, " 200 17 1.000"),
            (123_456_789, " 200 17 123.457"),
        ] {
            let mut line = String::new();
            push_outcome(&mut line, 200, 17, Duration::from_micros(took_us));
            assert_eq!(line, expected, "{took_us} us");
        }
    }

    #[test]
    fn lines_beyond_the_bound_are_counted_and_the_rest_is_taken_together() {
        let lines = Lines::default();
        let now = Timestamp::from_secs(1_000);
        let long = "x".repeat(WAITING_BYTES_MAX);
        for text in ["one", &long, "too late", "and again"] {
            lines.add(now, text);
        }
        let (text, left_out) = lines.take().expect("lines");
        assert_eq!((text.lines().count(), left_out), (2, 2));
        assert!(text.starts_with("1970-01-01T00:16:40Z one\n"), "{}", &text[..40]);
        lines.held().is_over = true;
        assert!(lines.take().is_none());
    }
}
