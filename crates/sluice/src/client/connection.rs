//! One connection to the server: requests out, heads and bodies of responses in.

use super::chunked::{ChunkedDecoder, ChunkedPart};
use super::host_port::HostPort;
use super::location::ServerLocation;
use super::response::{self, BodyLength, Head};
use super::retry::retry;
use super::tls::{self, HttpsServer, TlsSocket};
use super::tls_tunnel::TlsTunnel;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const READ_BYTES: usize = 4096;
/// The same of a body whose length is known.
const LONG_READ_BYTES: usize = 256 << 10;

/// The longest response that is read as a whole.
const BODY_BYTES_MAX: usize = 4 << 30;
const STOPPED: &str = "the cluster was stopped; `sluice up` starts it again";
const TOO_LONG: &str = "the answer is too long";

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
    /// With the address that has answered.
    Tls(Box<TlsSocket>, HostPort),
}

impl Socket {
    /// The one place where a stream to the server is made. Each step may take this long.
    fn connect(location: &ServerLocation, timeout: Duration) -> io::Result<Self> {
        match location {
            ServerLocation::Socket(path) => connect_unix(path, timeout).map(Self::Unix),
            ServerLocation::Http { address, .. } => {
                let stream = tls::connect_tcp(address, timeout)?;
                // A name may resolve to another machine, which would read the token.
                if !stream.peer_addr()?.ip().to_canonical().is_loopback() {
                    return Err(io::Error::other(format!("{} is not this machine", address.host)));
                }
                Ok(Self::Tcp(stream))
            }
            ServerLocation::Https(server) => {
                let (socket, address) = server.connect(timeout)?;
                Ok(Self::Tls(Box::new(socket), address.clone()))
            }
        }
    }

    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(timeout),
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            Self::Tls(socket, _) => socket.sock.set_read_timeout(timeout),
        }
    }

    /// The descriptor, and what encrypts its bytes.
    fn into_nonblocking(self) -> io::Result<(OwnedFd, Option<Box<TlsTunnel>>)> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true).map(|()| (stream.into(), None)),
            Self::Tcp(stream) => stream.set_nonblocking(true).map(|()| (stream.into(), None)),
            Self::Tls(socket, _) => {
                let TlsSocket { conn, sock } = *socket;
                tls::without_write_bound(&sock)?;
                sock.set_nonblocking(true)?;
                Ok((sock.into(), Some(Box::new(TlsTunnel::new(conn)))))
            }
        }
    }
}

/// A server that is frozen takes no connection out of its socket, which has room for some.
fn connect_unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    // The kernel waits no longer for room.
    let bound = |timeout: Duration| {
        let (seconds, micros) = (timeout.as_secs() as i64, i64::from(timeout.subsec_micros()));
        setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(seconds, micros))
    };
    bound(timeout)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?).map_err(|errno| match errno {
        nix::Error::EAGAIN => {
            let why = "its socket takes no more connections: it hangs, or is frozen";
            io::Error::new(ErrorKind::TimedOut, why)
        }
        other => other.into(),
    })?;
    bound(Duration::ZERO)?;
    Ok(socket.into())
}

/// Whether a read has waited for as long as it may.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Asked when nothing came for as long as a read may wait: it is waited on, or an error ends it.
pub type OnSilence<'a> = dyn FnMut(&Connection) -> io::Result<()> + 'a;

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
            Self::Tls(socket, _) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
            Self::Tls(socket, _) => socket.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write_vectored(slices),
            Self::Tcp(stream) => stream.write_vectored(slices),
            Self::Tls(socket, _) => socket.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Unix(_) | Self::Tcp(_) => Ok(()),
            Self::Tls(socket, _) => socket.flush(),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
            Self::Tls(socket, _) => socket.sock.as_fd(),
        }
    }
}

/// What is asked of the server.
pub enum Request<'a> {
    Get { path: &'a str },
    Post { path: &'a str, body: &'a [u8] },
    Upgrade { path: &'a str, protocol: &'a str },
}

impl Request<'_> {
    fn head(&self, token: Option<&str>, is_far: bool) -> String {
        let (method, path) = match self {
            Self::Get { path } | Self::Upgrade { path, .. } => ("GET", path),
            Self::Post { path, .. } => ("POST", path),
        };
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: sluice\r\n");
        if let Some(token) = token {
            head.push_str("Authorization: Bearer ");
            head.push_str(token);
            head.push_str("\r\n");
        }
        match self {
            Self::Get { .. } => head.push_str("\r\n"),
            Self::Post { body, .. } => {
                if is_far {
                    head.push_str("Accept-Encoding: zstd\r\n");
                }
                head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
            }
            Self::Upgrade { protocol, .. } => {
                head.push_str(&format!("Connection: upgrade\r\nUpgrade: {protocol}\r\n\r\n"));
            }
        }
        head
    }

    fn body(&self) -> &[u8] {
        match self {
            Self::Post { body, .. } => body,
            Self::Get { .. } | Self::Upgrade { .. } => &[],
        }
    }
}

/// A connection that has changed to another protocol. It does not block.
#[derive(Debug)]
pub struct UpgradedStream {
    pub stream: File,
    /// What arrived together with the response: the first bytes of the stream.
    pub early: Vec<u8>,
    /// What encrypts the bytes of `stream`; those of `early` are decrypted already.
    pub tls: Option<Box<TlsTunnel>>,
}

pub struct Connection {
    socket: Socket,
    /// What was read and is not consumed yet.
    unread: Vec<u8>,
}

impl Connection {
    /// Connects; each step may take this long.
    pub fn open(location: &ServerLocation, timeout: Duration) -> io::Result<Self> {
        Socket::connect(location, timeout).map(|socket| Self { socket, unread: Vec::new() })
    }

    /// A socket that refuses is a server that restarts: tried again for a while. One that was never there is not.
    pub fn open_with_retry(location: &ServerLocation, timeout: Duration) -> io::Result<Self> {
        let refused = |error: &io::Error| {
            error.kind() == ErrorKind::ConnectionRefused && !location.is_stopped()
        };
        retry(refused, || Self::open(location, timeout)).map_err(|error| {
            let is_stopped = error.kind() == ErrorKind::ConnectionRefused && location.is_stopped();
            if is_stopped { io::Error::other(STOPPED) } else { error }
        })
    }

    /// Whether the server has neither hung up nor sent what nobody asked for.
    pub fn is_idle(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let peeked = recv(self.socket.as_fd().as_raw_fd(), &mut [0], flags);
        self.unread.is_empty() && peeked == Err(nix::Error::EAGAIN)
    }

    /// How long the server may let one read wait from now on.
    pub fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(timeout))
    }

    /// The server may let a read wait for as long as it takes.
    pub fn clear_read_timeout(&self) -> io::Result<()> {
        self.socket.set_read_timeout(None)
    }

    /// Where the server of this connection is, of those at `location`.
    pub fn place(&self, location: &ServerLocation) -> ServerLocation {
        match (&self.socket, location) {
            (Socket::Tls(_, address), ServerLocation::Https(server)) => {
                let (address, others) = (address.clone(), Vec::new());
                ServerLocation::Https(Box::new(HttpsServer {
                    address,
                    others,
                    ..(**server).clone()
                }))
            }
            _ => location.clone(),
        }
    }

    /// Sends the request and reads the head of the response; `on_silence` while nothing comes.
    pub fn send(
        &mut self,
        request: &Request<'_>,
        token: Option<&str>,
        on_silence: &mut OnSilence<'_>,
    ) -> io::Result<Head> {
        self.write_request(request, token)?;
        loop {
            self.read_more("the connection was closed", on_silence)?;
            if let Some((head, length)) = response::parse_head(&self.unread)? {
                self.unread.drain(..length);
                return Ok(head);
            }
        }
    }

    /// Sends the request.
    fn write_request(&mut self, request: &Request<'_>, token: Option<&str>) -> io::Result<()> {
        // On one machine the bytes cost less than packing them.
        let is_far = matches!(self.socket, Socket::Tls(..));
        let (head, body) = (request.head(token, is_far), request.body());
        let head = head.as_bytes();
        // In one piece where the socket takes it: the server wakes once.
        let sent = self.socket.write_vectored(&[IoSlice::new(head), IoSlice::new(body)])?;
        self.socket.write_all(head.get(sent..).unwrap_or_default())?;
        self.socket.write_all(&body[sent.saturating_sub(head.len())..])?;
        self.socket.flush()
    }

    /// The whole body of a response; `on_silence` while nothing comes of it.
    pub fn read_body(
        &mut self,
        head: &Head,
        on_silence: &mut OnSilence<'_>,
    ) -> io::Result<Vec<u8>> {
        let body = self.read_encoded(head, on_silence)?;
        if !head.is_zstd {
            return Ok(body);
        }
        let mut plain = Vec::new();
        let decoder = zstd::stream::read::Decoder::new(&body[..])?;
        decoder.take(BODY_BYTES_MAX as u64 + 1).read_to_end(&mut plain)?;
        if plain.len() > BODY_BYTES_MAX { Err(response::invalid(TOO_LONG)) } else { Ok(plain) }
    }

    fn read_encoded(&mut self, head: &Head, on_silence: &mut OnSilence<'_>) -> io::Result<Vec<u8>> {
        if let BodyLength::Bytes(length) = head.body {
            return self.read_exactly(length, on_silence);
        }
        let (mut body, mut too_long) = (Vec::new(), false);
        let take = |bytes: &[u8]| {
            too_long = body.len() + bytes.len() > BODY_BYTES_MAX;
            if !too_long {
                body.extend_from_slice(bytes);
            }
            !too_long
        };
        self.stream_body(head, on_silence, take)?;
        if too_long { Err(response::invalid(TOO_LONG)) } else { Ok(body) }
    }

    fn read_exactly(
        &mut self,
        length: usize,
        on_silence: &mut OnSilence<'_>,
    ) -> io::Result<Vec<u8>> {
        if length > BODY_BYTES_MAX {
            return Err(response::invalid(TOO_LONG));
        }
        let mut body = Vec::with_capacity(length);
        let arrived = length.min(self.unread.len());
        body.extend_from_slice(&self.unread[..arrived]);
        self.unread.drain(..arrived);
        while body.len() < length {
            let before = body.len();
            body.resize(length.min(before + LONG_READ_BYTES), 0);
            let read = self.read_some(&mut body[before..], on_silence)?;
            body.truncate(before + read);
            if read == 0 {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "the answer was cut"));
            }
        }
        Ok(body)
    }

    /// Hands each piece of a response's body to `take` as it arrives, until it ends or `take` says stop.
    pub fn stream_body(
        &mut self,
        head: &Head,
        on_silence: &mut OnSilence<'_>,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<()> {
        let mut framing = Framing::of(head)?;
        loop {
            let (consumed, goes_on) = match framing.next_part(&self.unread)? {
                ChunkedPart::End => return Ok(()),
                ChunkedPart::Framing(length) => (length, true),
                ChunkedPart::Data(length) => (length, take(&self.unread[..length])),
                ChunkedPart::Incomplete => {
                    self.read_more("the answer was cut", on_silence)?;
                    (0, true)
                }
            };
            self.unread.drain(..consumed);
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// The connection after the server has agreed to another protocol.
    pub fn into_upgraded(self) -> io::Result<UpgradedStream> {
        let mut early = self.unread;
        let (stream, mut tls) = self.socket.into_nonblocking()?;
        if let Some(tls) = &mut tls {
            tls.drain(&mut early)?;
        }
        Ok(UpgradedStream { stream: File::from(stream), early, tls })
    }

    /// Reads what there is, and waits for it if there is nothing. `at_end` says what the end means here.
    fn read_more(&mut self, at_end: &str, on_silence: &mut OnSilence<'_>) -> io::Result<()> {
        let mut buffer = [0; READ_BYTES];
        match self.read_some(&mut buffer, on_silence)? {
            0 => Err(io::Error::new(ErrorKind::UnexpectedEof, at_end)),
            read => {
                self.unread.extend_from_slice(&buffer[..read]);
                Ok(())
            }
        }
    }

    fn read_some(
        &mut self,
        buffer: &mut [u8],
        on_silence: &mut OnSilence<'_>,
    ) -> io::Result<usize> {
        loop {
            match self.socket.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_late(&error) => on_silence(self)?,
                read => return read,
            }
        }
    }
}

/// How the end of a body is known.
enum Framing {
    Length { left: usize },
    Chunked(ChunkedDecoder),
}

impl Framing {
    fn of(head: &Head) -> io::Result<Self> {
        match head.body {
            BodyLength::Bytes(left) => Ok(Self::Length { left }),
            BodyLength::Chunked => Ok(Self::Chunked(ChunkedDecoder::new())),
            BodyLength::None => Err(response::invalid("the answer has no body")),
        }
    }

    fn next_part(&mut self, unread: &[u8]) -> io::Result<ChunkedPart> {
        match self {
            Self::Chunked(decoder) => decoder.next_part(unread),
            Self::Length { left: 0 } => Ok(ChunkedPart::End),
            Self::Length { .. } if unread.is_empty() => Ok(ChunkedPart::Incomplete),
            Self::Length { left } => {
                let length = unread.len().min(*left);
                *left -= length;
                Ok(ChunkedPart::Data(length))
            }
        }
    }
}
