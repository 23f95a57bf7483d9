//! The encoding of SFTP: numbers are big-endian, texts have their length before them.

use nix::errno::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most bytes of one read or write.
pub const DATA_BYTES_MAX: usize = 255 << 10;
/// The longest packet: a write with its name and numbers.
pub const PACKET_BYTES_MAX: usize = DATA_BYTES_MAX + 1024;

/// Kinds of packets.
pub mod kind {
    pub const INIT: u8 = 1;
    pub const VERSION: u8 = 2;
    pub const OPEN: u8 = 3;
    pub const CLOSE: u8 = 4;
    pub const READ: u8 = 5;
    pub const WRITE: u8 = 6;
    pub const LSTAT: u8 = 7;
    pub const FSTAT: u8 = 8;
    pub const SETSTAT: u8 = 9;
    pub const FSETSTAT: u8 = 10;
    pub const OPENDIR: u8 = 11;
    pub const READDIR: u8 = 12;
    pub const REMOVE: u8 = 13;
    pub const MKDIR: u8 = 14;
    pub const RMDIR: u8 = 15;
    pub const REALPATH: u8 = 16;
    pub const STAT: u8 = 17;
    pub const RENAME: u8 = 18;
    pub const READLINK: u8 = 19;
    pub const SYMLINK: u8 = 20;
    pub const STATUS: u8 = 101;
    pub const HANDLE: u8 = 102;
    pub const DATA: u8 = 103;
    pub const NAME: u8 = 104;
    pub const ATTRS: u8 = 105;
    pub const EXTENDED: u8 = 200;
    pub const EXTENDED_REPLY: u8 = 201;
}

/// Why a request was not done.
#[derive(Debug)]
pub enum Failure {
    /// No more entries or bytes.
    End,
    BadMessage,
    Unsupported,
    System(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

impl Failure {
    /// The protocol's number for it, and a line.
    pub fn status(&self) -> (u32, String) {
        const END: u32 = 1;
        const NO_SUCH_FILE: u32 = 2;
        const PERMISSION_DENIED: u32 = 3;
        const FAILURE: u32 = 4;
        const BAD_MESSAGE: u32 = 5;
        const UNSUPPORTED: u32 = 8;
        match self {
            Self::End => (END, "End of file".into()),
            Self::BadMessage => (BAD_MESSAGE, "Bad message".into()),
            Self::Unsupported => (UNSUPPORTED, "Operation unsupported".into()),
            Self::System(error) => {
                let number = match error.kind() {
                    io::ErrorKind::NotFound => NO_SUCH_FILE,
                    io::ErrorKind::PermissionDenied => PERMISSION_DENIED,
                    _ => FAILURE,
                };
                let errno = error.raw_os_error().map(|errno| Errno::from_raw(errno).desc());
                (number, errno.map_or_else(|| error.to_string(), str::to_owned))
            }
        }
    }
}

/// Takes a packet apart.
pub struct Reader<'p> {
    rest: &'p [u8],
}

impl<'p> Reader<'p> {
    pub fn new(packet: &'p [u8]) -> Self {
        Self { rest: packet }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Failure::BadMessage)?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub fn byte(&mut self) -> Result<u8, Failure> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    pub fn number(&mut self) -> Result<u32, Failure> {
        self.bytes().map(u32::from_be_bytes)
    }

    pub fn long(&mut self) -> Result<u64, Failure> {
        self.bytes().map(u64::from_be_bytes)
    }

    pub fn text(&mut self) -> Result<&'p [u8], Failure> {
        let length = self.number()? as usize;
        let (text, rest) = self.rest.split_at_checked(length).ok_or(Failure::BadMessage)?;
        self.rest = rest;
        Ok(text)
    }

    /// A path; the empty one is the working directory.
    pub fn path(&mut self) -> Result<PathBuf, Failure> {
        let text = self.text()?;
        if text.contains(&0) {
            return Err(Failure::BadMessage);
        }
        let text = if text.is_empty() { b"." } else { text };
        Ok(PathBuf::from(OsStr::from_bytes(text)))
    }
}

/// An answer, without its length.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply(pub Vec<u8>);

impl Reply {
    pub fn new(kind: u8, request: u32) -> Self {
        Self(vec![kind]).number(request)
    }

    pub fn number(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub fn long(mut self, number: u64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub fn text(self, text: &[u8]) -> Self {
        let mut with_length = self.number(text.len() as u32);
        with_length.0.extend_from_slice(text);
        with_length
    }

    pub fn path(self, path: &Path) -> Self {
        self.text(path.as_os_str().as_bytes())
    }

    pub fn status(request: u32, outcome: &Result<(), Failure>) -> Self {
        let (number, line) = match outcome {
            Ok(()) => (0, "Success".to_owned()),
            Err(failure) => failure.status(),
        };
        Self::new(kind::STATUS, request).number(number).text(line.as_bytes()).text(b"en")
    }
}
