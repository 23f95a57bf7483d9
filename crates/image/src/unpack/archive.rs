//! The entries of a tar archive: ustar, GNU and pax, each part bounded. Names come as bytes and are not yet trusted.

use std::io::{self, BufRead, Read};

use super::pax::Extensions;
use crate::error::{Error, shown};

const BLOCK: usize = 512;
/// The extended headers of one entry together. They hold names and attributes; Linux takes at most 64 KiB of an attribute.
const EXTENDED_BYTES_MAX: u64 = 1 << 20;
const FILE_BYTES_MAX: u64 = 1 << 50;

/// Why an archive or one of its entries is not taken.
#[derive(Debug)]
pub enum Fault {
    /// The archive ends inside an entry.
    Truncated {
        entry: String,
    },
    Refused {
        entry: String,
        fault: String,
    },
    Full {
        fault: String,
    },
    Io(io::Error),
}

impl Fault {
    pub fn refused(entry: &[u8], fault: impl Into<String>) -> Self {
        Self::Refused { entry: shown(entry), fault: fault.into() }
    }

    pub fn into_error(self, layer: &str) -> Error {
        let layer = layer.to_owned();
        match self {
            Self::Truncated { entry } => Error::NotAnImage {
                what: layer,
                fault: format!("its archive ends early, at {entry}"),
            },
            Self::Refused { entry, fault } => Error::HostileLayer { layer, entry, fault },
            Self::Full { fault } => Error::StoreFull { store: layer, fault },
            Self::Io(source) if source.raw_os_error() == Some(libc::ENOSPC) => Error::StoreFull {
                store: layer,
                fault: "no space is left on the file system".into(),
            },
            Self::Io(source) => Error::Io { what: layer, source },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
    Symlink,
    HardLink,
    /// Devices and pipes.
    Special,
}

pub struct Entry {
    pub path: Vec<u8>,
    pub link: Vec<u8>,
    pub kind: Kind,
    pub size: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: (i64, u32),
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The entries of an archive in order. The data of an entry is read before the next one is asked for, or skipped.
pub struct Archive<R> {
    reader: R,
    /// Bytes of the current entry's data that are not read yet.
    left: u64,
    /// Bytes that fill the last block of the current entry's data.
    padding: u64,
    current: String,
    /// Where the current entry's data begins.
    position: u64,
    pub ended_by_mark: bool,
}

impl<R: BufRead> Archive<R> {
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            left: 0,
            padding: 0,
            current: "its start".into(),
            position: 0,
            ended_by_mark: false,
        }
    }

    pub fn next_entry(&mut self) -> Result<Option<Entry>, Fault> {
        self.skip(self.left + self.padding)?;
        (self.left, self.padding) = (0, 0);
        let mut extensions = Extensions::default();
        let (mut long_path, mut long_link) = (None, None);
        let mut extended_left = EXTENDED_BYTES_MAX;
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            let size = number(&header.as_bytes()[124..136]).ok_or_else(|| self.bad_number())?;
            match header.as_bytes()[156] {
                b'x' => {
                    let bytes = self.extended(size, &mut extended_left)?;
                    extensions
                        .read(&bytes)
                        .map_err(|fault| Fault::refused(self.current.as_bytes(), fault))?;
                }
                b'g' => drop(self.extended(size, &mut extended_left)?),
                b'L' => long_path = Some(without_nul(self.extended(size, &mut extended_left)?)),
                b'K' => long_link = Some(without_nul(self.extended(size, &mut extended_left)?)),
                kind => {
                    extensions.path = extensions.path.or(long_path);
                    extensions.link = extensions.link.or(long_link);
                    return self.entry(&header, kind, size, extensions).map(Some);
                }
            }
        }
    }

    fn entry(
        &mut self,
        header: &tar::Header,
        kind: u8,
        size: u64,
        extensions: Extensions,
    ) -> Result<Entry, Fault> {
        let path = extensions.path.unwrap_or_else(|| header.path_bytes().into_owned());
        self.current = shown(&path);
        let refused = |fault: &str| Err(Fault::refused(&path, fault));
        let kind = match kind {
            b'0' | 0 | b'7' if path.ends_with(b"/") => Kind::Folder,
            b'0' | 0 | b'7' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'3' | b'4' | b'6' => Kind::Special,
            b'5' => Kind::Folder,
            b'S' => {
                return refused(
                    "sparse files are not supported; make the archive without --sparse",
                );
            }
            other => {
                return refused(&format!("entries of type {:?} are not known", char::from(other)));
            }
        };
        if extensions.sparse {
            return refused("sparse files are not supported; make the archive without --sparse");
        }
        // Only files have data; what other entries say about their size is an old habit of some tools.
        let size = if kind == Kind::File { extensions.size.unwrap_or(size) } else { 0 };
        if size > FILE_BYTES_MAX {
            return refused("it says that it is larger than any file");
        }
        let bytes = header.as_bytes();
        let field =
            |at: std::ops::Range<usize>| number(&bytes[at]).ok_or_else(|| self.bad_number());
        let id = |id: u64| u32::try_from(id).map_err(|_| self.bad_number());
        let entry = Entry {
            link: extensions
                .link
                .unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned()),
            kind,
            size,
            mode: (field(100..108)? & 0o7777) as u32,
            uid: id(extensions.uid.map_or_else(|| field(108..116), Ok)?)?,
            gid: id(extensions.gid.map_or_else(|| field(116..124), Ok)?)?,
            mtime: match extensions.mtime {
                Some(mtime) => mtime,
                // A time before 1970 is negative, and one that no clock shows is left out too.
                None => {
                    (number(&bytes[136..148]).and_then(|t| i64::try_from(t).ok()).unwrap_or(0), 0)
                }
            },
            xattrs: extensions.xattrs,
            path,
        };
        (self.left, self.padding) = (size, padding(size));
        Ok(entry)
    }

    /// Gives all data of the current entry to `sink`, piece by piece.
    pub fn read_data(
        &mut self,
        mut sink: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        while self.left > 0 {
            let buffer = self.reader.fill_buf().map_err(Fault::Io)?;
            let n = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            if n == 0 {
                return Err(Fault::Truncated { entry: self.current.clone() });
            }
            sink(&buffer[..n])?;
            self.reader.consume(n);
            self.position += n as u64;
            self.left -= n as u64;
        }
        Ok(())
    }

    /// Where the current entry's data begins in the archive.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Reads to the end of the stream, past the end of the archive.
    pub fn drain(&mut self) -> io::Result<()> {
        loop {
            let n = self.reader.fill_buf()?.len();
            if n == 0 {
                return Ok(());
            }
            self.reader.consume(n);
        }
    }

    /// One header; `None` at the end of the archive, which is a block of zeroes or the end of the stream.
    fn header(&mut self) -> Result<Option<tar::Header>, Fault> {
        let mut header = tar::Header::new_old();
        let block = header.as_mut_bytes();
        let mut filled = 0;
        while filled < BLOCK {
            match self.reader.read(&mut block[filled..]).map_err(Fault::Io)? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(Fault::Truncated { entry: self.current.clone() }),
                n => filled += n,
            }
        }
        self.position += BLOCK as u64;
        if block.iter().all(|b| *b == 0) {
            self.ended_by_mark = true;
            return Ok(None);
        }
        let sum: u32 = block
            .iter()
            .enumerate()
            .map(|(at, b)| if (148..156).contains(&at) { 32 } else { u32::from(*b) })
            .sum();
        if header.cksum().ok() != Some(sum) {
            let after = format!("after {}", self.current);
            return Err(Fault::Refused {
                entry: after,
                fault: "what follows is no header of a tar archive".into(),
            });
        }
        Ok(Some(header))
    }

    /// Reads an extended header, of which an entry may have several; `left` are the bytes that they may still have.
    fn extended(&mut self, size: u64, left: &mut u64) -> Result<Vec<u8>, Fault> {
        *left = left.checked_sub(size).ok_or_else(|| {
            let fault = format!(
                "an extended header has {size} bytes, and those of an entry at most {EXTENDED_BYTES_MAX}"
            );
            Fault::refused(self.current.as_bytes(), fault)
        })?;
        let mut bytes = Vec::new();
        let n = self.reader.by_ref().take(size).read_to_end(&mut bytes).map_err(Fault::Io)?;
        if n as u64 != size {
            return Err(Fault::Truncated { entry: self.current.clone() });
        }
        self.position += size;
        self.skip(padding(size))?;
        Ok(bytes)
    }

    fn skip(&mut self, mut n: u64) -> Result<(), Fault> {
        self.position += n;
        while n > 0 {
            let there = self.reader.fill_buf().map_err(Fault::Io)?.len();
            if there == 0 {
                return Err(Fault::Truncated { entry: self.current.clone() });
            }
            let step = there.min(usize::try_from(n).unwrap_or(usize::MAX));
            self.reader.consume(step);
            n -= step as u64;
        }
        Ok(())
    }

    fn bad_number(&self) -> Fault {
        Fault::Refused {
            entry: self.current.clone(),
            fault: "its header has a number that is none".into(),
        }
    }
}

/// A number of a header: octal digits, or for large ones the bytes themselves; blank is 0. `None` for what is neither.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] == 0x80 {
        let (high, low) = field[1..].split_at(field.len() - 1 - 7);
        return high
            .iter()
            .all(|b| *b == 0)
            .then(|| low.iter().fold(0, |n, b| n << 8 | u64::from(*b)));
    }
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    let text = std::str::from_utf8(&field[..end]).ok()?.trim();
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

fn padding(size: u64) -> u64 {
    size.next_multiple_of(BLOCK as u64) - size
}

fn without_nul(mut name: Vec<u8>) -> Vec<u8> {
    if let Some(end) = name.iter().position(|b| *b == 0) {
        name.truncate(end);
    }
    name
}
