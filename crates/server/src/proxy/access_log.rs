//! The access log: a line for each request to a service, in a file of its own that is kept below a bound. A thread writes it, so
//! that no request waits for a disk; lines that come faster than they are written are left out, and counted.

use crate::clock;
use crate::repeated_failure::RepeatedFailure;
use axum::body::Body;
use axum::http::Method;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use jiff::tz::TimeZone;
use model::printable::printable;
use model::time::format_iso;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The name of the file. What it held before is in a second one, with `.1` at its end.
pub const FILE: &str = "access.log";
/// How large each of the two files may grow.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Lines that wait to be written, and characters of a path in one.
const LINES_MAX: usize = 8192;
const PATH_CHARS_MAX: usize = 512;
/// Characters of any other field.
const WORD_CHARS_MAX: usize = 255;
/// Lines that are written at once.
const BATCH_MAX: usize = 512;

/// Takes lines, while the site wants them.
pub struct AccessLog {
    dir: PathBuf,
    is_on: AtomicBool,
    lines: OnceLock<SyncSender<String>>,
    left_out: Arc<AtomicU64>,
}

impl AccessLog {
    pub fn new(dir: &Path) -> Self {
        let (is_on, lines, left_out) = Default::default();
        Self { dir: dir.to_path_buf(), is_on, lines, left_out }
    }

    /// Begins or ends to take lines. The thread starts with the first time.
    pub fn turn(&self, on: bool) {
        if on && self.lines.get().is_none() {
            let (sender, lines) = sync_channel(LINES_MAX);
            let file = LogFile::new(&self.dir, FILE_BYTES_MAX);
            let left_out = self.left_out.clone();
            let thread = std::thread::Builder::new().name("access log".into());
            match thread.spawn(move || write_all(&lines, file, &left_out)) {
                Ok(_) => drop(self.lines.set(sender)),
                Err(error) => tracing::error!("the access log has no thread: {error}"),
            }
        }
        self.is_on.store(on, Relaxed);
    }

    /// A request that is to be logged; `None` where nothing is, and nobody asks what the line would say.
    pub fn begin(self: &Arc<Self>, asked: impl FnOnce() -> Asked) -> Option<Entry> {
        if !self.is_on.load(Relaxed) {
            return None;
        }
        let Asked { client, service, method, path } = asked();
        let path: String = path.chars().take(PATH_CHARS_MAX).collect();
        let (client, service) = (word(&client), word(&service));
        let what = format!("{client} {service} \"{method} {}\"", printable(&path));
        Some(Entry { log: self.clone(), what, status: 0, bytes: 0, began: Instant::now() })
    }

    fn write(&self, line: String) {
        let is_taken = self.lines.get().is_some_and(|lines| lines.try_send(line).is_ok());
        if !is_taken {
            self.left_out.fetch_add(1, Relaxed);
        }
    }
}

/// What a line says of a request. A query is left out: it may hold a secret.
pub struct Asked {
    pub client: String,
    pub service: String,
    pub method: Method,
    pub path: String,
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
    pub fn follow(mut self, answer: axum::response::Response) -> axum::response::Response {
        self.status = answer.status().as_u16();
        answer.map(|body| Body::new(LoggedBody { body, entry: self }))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        let line = line(&self.what, self.status, self.bytes, took);
        self.log.write(line);
    }
}

/// A field without blanks, as a client may have put into its host.
fn word(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() && c != '"' { c } else { '_' };
    text.chars().take(WORD_CHARS_MAX).map(plain).collect()
}

fn line(what: &str, status: u16, bytes: u64, took: Duration) -> String {
    let time = format_iso(clock::now(), &TimeZone::UTC);
    format!("{time}Z {what} {status} {bytes} {:.3}\n", took.as_secs_f64())
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
            self.entry.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
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

/// Writes what comes until nobody can send any more.
fn write_all(lines: &Receiver<String>, mut file: LogFile, left_out: &AtomicU64) {
    let mut failures = RepeatedFailure::new("the access log");
    while let Ok(mut batch) = lines.recv() {
        for line in lines.try_iter().take(BATCH_MAX) {
            batch.push_str(&line);
        }
        match left_out.swap(0, Relaxed) {
            0 => {}
            count => tracing::warn!("the access log leaves {count} requests out"),
        }
        match file.write(batch.as_bytes()) {
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
        let asked = || Asked {
            client: "10.0.0.1".into(),
            service: "main/web \"".into(),
            method: Method::GET,
            path: "/a\nb".into(),
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
}
