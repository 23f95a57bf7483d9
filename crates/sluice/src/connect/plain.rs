//! One question and one answer over a plain blocking socket: a command that lives for two
//! milliseconds does not start a runtime for it.

use super::{Place, RETRY_FOR};
use nix::sys::socket::{MsgFlags, recv};
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest head of an answer, and the most headers in it.
const HEAD_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 64;

/// The longest answer that is read.
const ANSWER_MAX: usize = 4 << 30;

/// A connection that is kept between questions.
pub enum Plain {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// What came back: the status, whether it is JSON, and the body.
pub struct Reply {
    pub status: u16,
    pub json: bool,
    pub body: Vec<u8>,
}

impl Plain {
    /// A socket that refuses is a server that restarts: tried again for a while. One that was never
    /// there is not.
    pub fn connect(place: &Place) -> io::Result<Self> {
        let deadline = Instant::now() + RETRY_FOR;
        loop {
            let error = match Self::connect_once(place) {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            let restarting = error.kind() == io::ErrorKind::ConnectionRefused;
            if !restarting || Instant::now() >= deadline {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn connect_once(place: &Place) -> io::Result<Self> {
        match place {
            Place::Socket(path) => UnixStream::connect(path).map(Self::Unix),
            Place::Http { address, .. } => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
        }
    }

    /// Whether the server has not hung up meanwhile.
    pub fn is_open(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        recv(self.fd().as_raw_fd(), &mut [0], flags) == Err(nix::Error::EAGAIN)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }

    /// Posts the body and reads the answer to it.
    pub fn post(&mut self, path: &str, token: Option<&str>, body: &[u8]) -> io::Result<Reply> {
        let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: sluice\r\n{}Content-Length: {}\r\n\r\n",
            authorization.as_deref().unwrap_or_default(),
            body.len()
        );
        match self {
            Self::Unix(stream) => exchange(stream, head.as_bytes(), body),
            Self::Tcp(stream) => exchange(stream, head.as_bytes(), body),
        }
    }
}

fn exchange(stream: &mut (impl Read + Write), head: &[u8], body: &[u8]) -> io::Result<Reply> {
    // In one piece where the socket takes it: the server wakes once.
    let sent = stream.write_vectored(&[IoSlice::new(head), IoSlice::new(body)])?;
    stream.write_all(head.get(sent..).unwrap_or_default())?;
    stream.write_all(&body[sent.saturating_sub(head.len())..])?;
    let mut seen = Vec::with_capacity(4096);
    loop {
        let before = seen.len();
        seen.resize(before + 4096, 0);
        let read = stream.read(&mut seen[before..])?;
        seen.truncate(before + read);
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
        }
        if let Some(Head { status, json, at, length }) = head_of(&seen)? {
            let mut body = Vec::with_capacity(length);
            body.extend_from_slice(&seen[at..]);
            stream.take(length.saturating_sub(body.len()) as u64).read_to_end(&mut body)?;
            if body.len() < length {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer was cut"));
            }
            return Ok(Reply { status, json, body });
        }
    }
}

/// The head of an answer: its status and kind, where the body begins, and its length.
struct Head {
    status: u16,
    json: bool,
    at: usize,
    length: usize,
}

/// None while the head is not whole.
fn head_of(seen: &[u8]) -> io::Result<Option<Head>> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(seen).map_err(|e| invalid(&format!("no HTTP answer: {e}")))?;
    let httparse::Status::Complete(at) = parsed else {
        if seen.len() > HEAD_MAX {
            return Err(invalid("the head of the answer is too long"));
        }
        return Ok(None);
    };
    let header = |name: &str| {
        let found = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value).ok()
    };
    let length = header("content-length").and_then(|text| text.parse().ok());
    let json = header("content-type") == Some("application/json");
    let length: usize = length.ok_or_else(|| invalid("the answer does not say how long it is"))?;
    if length > ANSWER_MAX {
        return Err(invalid("the answer is too long"));
    }
    Ok(Some(Head { status: response.code.unwrap_or(0), json, at, length }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_however_it_is_cut() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Type: x\r\ncontent-length: 5\r\n\r\nhello";
        for cut in 0..whole.len() - 5 {
            assert!(matches!(head_of(&whole[..cut]), Ok(None)), "{cut}");
        }
        let Head { status, json, at, length } =
            head_of(whole).expect("well formed").expect("whole");
        assert_eq!((status, json, &whole[at..], length), (200, false, &b"hello"[..], 5));
    }

    #[test]
    fn what_is_no_answer_is_said() {
        for bad in [&b"SSH-2.0-OpenSSH\r\n\r\n"[..], b"HTTP/1.1 200 OK\r\n\r\n"] {
            assert!(head_of(bad).is_err());
        }
    }

    #[test]
    fn a_server_that_hung_up_is_noticed_and_one_that_waits_is_not() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let plain = Plain::Unix(ours);
        assert!(plain.is_open());
        drop(theirs);
        assert!(!plain.is_open());
    }
}
