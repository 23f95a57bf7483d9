//! A step's bytes through the server and the node's agent, for a client that the node cannot reach, or that looks on.
//!
//! A connection to the server is opened on a thread of its own and then becomes the step's frames.

use crate::connect::{Client, Place};
use model::id::{JobId, StepId};
use model::reason::Refusal;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use wire::client::{Answer, Call};
use wire::step::StepLaunch;
use wire::stream::PROTOCOL_NAME;

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer that is read instead of a stream.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What came of asking for a stream.
#[derive(Debug)]
pub enum Opened {
    Connected(File),
    Refused(Refusal),
    /// The server does not answer, or not in these words.
    Unreachable,
}

/// Asks for streams of one step; answers come with a descriptor to wait on.
pub struct Streams {
    place: Place,
    job: JobId,
    step: StepId,
    /// Shown by the step's own `srun`; one that looks on has none.
    key: Option<String>,
    sender: Sender<(String, Opened)>,
    answers: Receiver<(String, Opened)>,
    bell: UnixStream,
    rope: UnixStream,
}

impl Streams {
    pub fn new(place: Place, job: JobId, step: StepId, key: Option<String>) -> io::Result<Self> {
        let (sender, answers) = channel();
        let (bell, rope) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        Ok(Self { place, job, step, key, sender, answers, bell, rope })
    }

    /// Asks for the stream of one node after a pause; `received` bytes have come over earlier ones.
    pub fn open(&self, node: &str, received: u64, after: Duration) -> io::Result<()> {
        let mut path = format!("/api/v1/step?job={}&step={}&node={node}", self.job, self.step);
        if let Some(key) = &self.key {
            path.push_str(&format!("&key={key}&received={received}"));
        }
        let (place, node, sender) = (self.place.clone(), node.to_owned(), self.sender.clone());
        let rope = self.rope.try_clone()?;
        let ask = move || {
            std::thread::sleep(after);
            let opened = open(&place, &path).unwrap_or(Opened::Unreachable);
            // When nobody listens any more, the command is at its end.
            if sender.send((node, opened)).is_ok() {
                let _ = (&rope).write(b"!");
            }
        };
        std::thread::Builder::new().name("stream".into()).spawn(ask).map(drop)
    }

    /// Says the launch again, to a server that may have been restarted since it was told.
    pub fn launch_again(&self, launch: &StepLaunch) -> io::Result<()> {
        let call =
            Call::LaunchStep { job: self.job, step: self.step, launch: Box::new(launch.clone()) };
        let place = self.place.clone();
        // Whether it helped shows when the stream is asked for the next time.
        let say = move || drop(Client::at(place).and_then(|mut client| client.call(call)));
        std::thread::Builder::new().name("again".into()).spawn(say).map(drop)
    }

    /// What the configuration says of tasks that fail; a server that cannot be asked says nothing.
    pub fn kill_on_bad_exit(&self) -> bool {
        configured(self.place.clone(), "KillOnBadExit") == Some(1)
    }

    /// Asks what the configuration says of tasks that outlive the first, without waiting: the step's bytes go on, also
    /// where the server is away.
    pub fn ask_wait_time(&self) -> io::Result<Receiver<Duration>> {
        let (place, (sender, answer)) = (self.place.clone(), channel());
        let ask = move || {
            let secs = configured(place, "WaitTime").unwrap_or(0);
            // When nobody listens any more, the step is over.
            let _ = sender.send(Duration::from_secs(secs));
        };
        std::thread::Builder::new().name("config".into()).spawn(ask)?;
        Ok(answer)
    }

    /// The next answer, if there is one: the node's name, and what came of it.
    pub fn take(&mut self) -> Option<(String, Opened)> {
        let mut rung = [0; 16];
        // Only empties the bell; that it was empty already is no matter.
        let _ = self.bell.read(&mut rung);
        self.answers.try_recv().ok()
    }
}

impl AsFd for Streams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// A number of the configuration, with its unit or without.
fn configured(place: Place, key: &str) -> Option<u64> {
    match Client::at(place).and_then(|mut one| one.call(Call::Config)) {
        Ok(Answer::Config(config)) => {
            config.values.get(key)?.split_whitespace().next()?.parse().ok()
        }
        _ => None,
    }
}

trait Socket: Read + Write {}
impl<T: Read + Write> Socket for T {}

fn open(place: &Place, path: &str) -> io::Result<Opened> {
    match place {
        Place::Socket(socket) => {
            let mut stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let opened = ask(&mut stream, path, None)?;
            stream.set_nonblocking(true)?;
            Ok(finish(opened, OwnedFd::from(stream)))
        }
        Place::Http { address, token } => {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let opened = ask(&mut stream, path, Some(token))?;
            stream.set_nonblocking(true)?;
            Ok(finish(opened, OwnedFd::from(stream)))
        }
    }
}

/// The refusal, or none: then the connection is the stream.
fn finish(refused: Option<Opened>, stream: OwnedFd) -> Opened {
    refused.unwrap_or_else(|| Opened::Connected(File::from(stream)))
}

fn ask(stream: &mut dyn Socket, path: &str, token: Option<&str>) -> io::Result<Option<Opened>> {
    let authorization =
        token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: sluice\r\nConnection: upgrade\r\nUpgrade: {PROTOCOL_NAME}\r\n{authorization}\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let head = read_head(stream)?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status == "101" {
        return Ok(None);
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0).min(ANSWER_BYTES_MAX)];
    stream.read_exact(&mut body)?;
    Ok(Some(match serde_json::from_slice(&body) {
        Ok(Answer::Refused(why)) => Opened::Refused(why),
        _ => Opened::Unreachable,
    }))
}

/// Byte by byte: what follows the head is the stream's.
fn read_head(stream: &mut dyn Socket) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= ANSWER_BYTES_MAX || stream.read(&mut byte)? == 0 {
            return Err(io::Error::new(ErrorKind::InvalidData, "the server's answer is cut off"));
        }
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that gives this answer to one question.
    fn answer(bytes: &'static [u8]) -> (tempfile::TempDir, Place) {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("asked");
            let mut seen = Vec::new();
            let mut byte = [0];
            while !seen.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("asked") > 0 {
                seen.push(byte[0]);
            }
            stream.write_all(bytes).expect("heard");
        });
        (dir, Place::Socket(path))
    }

    #[test]
    fn the_first_bytes_after_the_head_are_the_streams() {
        let (_dir, place) = answer(b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\nfirst");
        let Ok(Opened::Connected(mut file)) = open(&place, "/") else { panic!("a stream") };
        let mut fds = [nix::poll::PollFd::new(file.as_fd(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut fds, 5_000u16).expect("poll");
        let mut buffer = [0; 5];
        file.read_exact(&mut buffer).expect("bytes");
        assert_eq!(&buffer, b"first");
    }

    #[test]
    fn a_refusal_is_read_as_one() {
        let json = br#"{"refused":{"job_ended":7}}"#;
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", json.len());
        let bytes = [text.as_bytes(), json].concat().leak();
        let (_dir, place) = answer(bytes);
        let opened = open(&place, "/").expect("an answer");
        assert!(matches!(opened, Opened::Refused(Refusal::JobEnded(JobId(7)))), "{opened:?}");
    }
}
