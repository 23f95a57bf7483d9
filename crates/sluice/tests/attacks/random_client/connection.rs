//! Connections of one user: by the local socket, where the kernel says who it is, or by the port with a token.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// The path of the commands' own calls.
const CALL: &str = "/api/v1/call";

/// How a user reaches the server.
#[derive(Clone)]
pub enum Entry {
    Socket(PathBuf),
    /// An address, and the token if there is one.
    Port(String, Option<String>),
}

pub enum Connection {
    Socket(UnixStream),
    Port(TcpStream),
}

/// What the server answered to a request.
pub struct Response {
    pub status: u16,
    pub body: Vec<u8>,
}

/// The calling thread alone becomes this user, for good. The kernel tells the server who connects by the thread's user.
pub fn become_user(name: &str) {
    let user = nix::unistd::User::from_name(name).unwrap().expect("a user of this machine");
    let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
    // The C library would change all threads of the process; the system calls change this one.
    // SAFETY: the calls take numbers, and an empty list of groups that is not read.
    let changed = unsafe {
        libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) == 0
            && libc::syscall(libc::SYS_setresgid, gid, gid, gid) == 0
            && libc::syscall(libc::SYS_setresuid, uid, uid, uid) == 0
    };
    assert!(changed, "root can become {name}");
}

impl Entry {
    pub fn connect(&self) -> io::Result<Connection> {
        match self {
            Self::Socket(path) => UnixStream::connect(path).map(Connection::Socket),
            Self::Port(address, _) => TcpStream::connect(address).map(Connection::Port),
        }
    }

    /// The head of a request with these lines after its first.
    pub fn head(&self, first: &str, lines: &[&str]) -> Vec<u8> {
        let mut head = format!("{first}\r\nhost: x\r\n");
        if let Self::Port(_, Some(token)) = self {
            head += &format!("authorization: Bearer {token}\r\n");
        }
        for line in lines {
            head += line;
            head += "\r\n";
        }
        (head + "\r\n").into_bytes()
    }

    pub fn call_head(&self, length: usize) -> Vec<u8> {
        self.post_head(CALL, length)
    }

    fn post_head(&self, path: &str, length: usize) -> Vec<u8> {
        self.head(&format!("POST {path} HTTP/1.1"), &[&format!("content-length: {length}")])
    }

    /// Sends a call on a connection of its own, and reads the answer. `None` if there was none in time.
    pub fn call(&self, body: &[u8], timeout: Duration) -> Option<Response> {
        self.request(CALL, Some(body), timeout)
    }

    /// The same for any path: with POST, or with GET where there is no body.
    pub fn request(&self, path: &str, body: Option<&[u8]>, timeout: Duration) -> Option<Response> {
        let mut connection = self.connect().ok()?;
        connection.set_timeout(timeout);
        let head = match body {
            Some(body) => self.post_head(path, body.len()),
            None => self.head(&format!("GET {path} HTTP/1.1"), &[]),
        };
        connection.write_all(&head).ok()?;
        // A server that refuses a long body may close before all of it is written, and its answer is still there.
        let _ = connection.write_all(body.unwrap_or_default());
        connection.read_response()
    }
}

impl Connection {
    pub fn set_timeout(&self, timeout: Duration) {
        let timeout = Some(timeout);
        let set = match self {
            Self::Socket(s) => s.set_read_timeout(timeout).and(s.set_write_timeout(timeout)),
            Self::Port(s) => s.set_read_timeout(timeout).and(s.set_write_timeout(timeout)),
        };
        set.expect("timeouts");
    }

    /// The client says that it sends nothing more, and goes on reading.
    pub fn half_close(&self) {
        let _ = match self {
            Self::Socket(s) => s.shutdown(Shutdown::Write),
            Self::Port(s) => s.shutdown(Shutdown::Write),
        };
    }

    pub fn read_response(&mut self) -> Option<Response> {
        let mut bytes = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(response) = whole_response(&bytes) {
                return Some(response);
            }
            match self.read(&mut buffer) {
                Ok(length @ 1..) => bytes.extend_from_slice(&buffer[..length]),
                _ => return None,
            }
        }
    }
}

fn whole_response(bytes: &[u8]) -> Option<Response> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |text| text.parse().unwrap_or(0));
    let body = bytes.get(end..end + length)?.to_vec();
    Some(Response { status, body })
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Socket(stream) => stream.read(buffer),
            Self::Port(stream) => stream.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Socket(stream) => stream.write(bytes),
            Self::Port(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
