//! The requests of SFTP, each as a call of the kernel.

use super::attributes::{Attributes, long_name};
use super::packet::{DATA_BYTES_MAX, Failure, PACKET_BYTES_MAX, Reader, Reply, kind};
use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, ReadDir};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

const VERSION: u32 = 3;
/// Files and folders that a client has open.
const HANDLES_MAX: usize = 1024;
/// Entries of a folder in one answer.
const ENTRIES_MAX: usize = 128;

const POSIX_RENAME: &[u8] = b"posix-rename@openssh.com";
const HARDLINK: &[u8] = b"hardlink@openssh.com";
const FSYNC: &[u8] = b"fsync@openssh.com";
const LIMITS: &[u8] = b"limits@openssh.com";
const EXTENSIONS: [&[u8]; 4] = [POSIX_RENAME, HARDLINK, FSYNC, LIMITS];

/// How a file is opened.
mod flag {
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const APPEND: u32 = 4;
    pub const CREATE: u32 = 8;
    pub const TRUNCATE: u32 = 16;
    pub const EXCLUSIVE: u32 = 32;
}

enum Handle {
    File { file: File, appends: bool },
    Folder { path: PathBuf, entries: ReadDir },
}

#[derive(Default)]
pub struct Server {
    handles: HashMap<u32, Handle>,
    next: u32,
}

/// An answer that is more than a status.
type Answer = Result<Reply, Failure>;

impl Server {
    /// Answers one packet, whatever it holds.
    pub fn answer(&mut self, packet: &[u8]) -> Reply {
        let mut reader = Reader::new(packet);
        let (Ok(kind), Ok(request)) = (reader.byte(), reader.number()) else {
            return Reply::status(0, &Err(Failure::BadMessage));
        };
        if kind == kind::INIT {
            return greeting();
        }
        let answer = self.answer_kind(kind, request, &mut reader);
        answer.unwrap_or_else(|failure| Reply::status(request, &Err(failure)))
    }

    fn answer_kind(&mut self, kind: u8, request: u32, reader: &mut Reader) -> Answer {
        let done = |outcome: Result<(), Failure>| outcome.map(|()| Reply::status(request, &Ok(())));
        match kind {
            kind::OPEN => {
                let (path, flags) = (reader.path()?, reader.number()?);
                let file = open(&path, flags, &Attributes::read(reader)?)?;
                let appends = flags & flag::APPEND != 0;
                self.keep(request, Handle::File { file, appends })
            }
            kind::CLOSE => {
                let number = handle_number(reader)?;
                done(self.handles.remove(&number).map(drop).ok_or(Failure::BadMessage))
            }
            kind::READ => self.read(request, reader),
            kind::WRITE => done(self.write(reader)),
            kind::LSTAT => attributes(request, &fs::symlink_metadata(reader.path()?)?),
            kind::STAT => attributes(request, &fs::metadata(reader.path()?)?),
            kind::FSTAT => attributes(request, &self.file(reader)?.0.metadata()?),
            kind::SETSTAT => {
                let path = reader.path()?;
                done(Attributes::read(reader)?.set_at(&path))
            }
            kind::FSETSTAT => {
                let (file, _) = self.file(reader)?;
                done(Attributes::read(reader)?.set_of(file))
            }
            kind::OPENDIR => {
                let path = reader.path()?;
                let entries = fs::read_dir(&path)?;
                self.keep(request, Handle::Folder { path, entries })
            }
            kind::READDIR => self.read_folder(request, reader),
            kind::REMOVE => done(fs::remove_file(reader.path()?).map_err(Failure::from)),
            kind::MKDIR => {
                let path = reader.path()?;
                let mode = Attributes::read(reader)?.mode.unwrap_or(0o777) & 0o7777;
                done(DirBuilder::new().mode(mode).create(path).map_err(Failure::from))
            }
            kind::RMDIR => done(fs::remove_dir(reader.path()?).map_err(Failure::from)),
            kind::REALPATH => {
                let path = real_path(&reader.path()?)?;
                Ok(name(request, &path))
            }
            kind::RENAME => {
                let (from, to) = (reader.path()?, reader.path()?);
                done(rename_new(&from, &to))
            }
            kind::READLINK => Ok(name(request, &fs::read_link(reader.path()?)?)),
            // Clients send what the link points at first, as OpenSSH's do.
            kind::SYMLINK => {
                let (target, link) = (reader.path()?, reader.path()?);
                done(std::os::unix::fs::symlink(target, link).map_err(Failure::from))
            }
            kind::EXTENDED => self.extended(request, reader),
            _ => Err(Failure::Unsupported),
        }
    }

    fn extended(&mut self, request: u32, reader: &mut Reader) -> Answer {
        let done = |outcome: io::Result<()>| {
            outcome.map(|()| Reply::status(request, &Ok(()))).map_err(Failure::from)
        };
        match reader.text()? {
            POSIX_RENAME => {
                let (from, to) = (reader.path()?, reader.path()?);
                done(fs::rename(from, to))
            }
            HARDLINK => {
                let (from, to) = (reader.path()?, reader.path()?);
                done(fs::hard_link(from, to))
            }
            FSYNC => done(self.file(reader)?.0.sync_all()),
            LIMITS => Ok(Reply::new(kind::EXTENDED_REPLY, request)
                .long(PACKET_BYTES_MAX as u64)
                .long(DATA_BYTES_MAX as u64)
                .long(DATA_BYTES_MAX as u64)
                .long(HANDLES_MAX as u64)),
            _ => Err(Failure::Unsupported),
        }
    }

    fn keep(&mut self, request: u32, handle: Handle) -> Answer {
        if self.handles.len() >= HANDLES_MAX {
            return Err(io::Error::from_raw_os_error(libc::EMFILE).into());
        }
        while self.handles.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        self.handles.insert(self.next, handle);
        Ok(Reply::new(kind::HANDLE, request).text(&self.next.to_be_bytes()))
    }

    fn file(&self, reader: &mut Reader) -> Result<(&File, bool), Failure> {
        match self.handles.get(&handle_number(reader)?) {
            Some(Handle::File { file, appends }) => Ok((file, *appends)),
            Some(Handle::Folder { .. }) | None => Err(Failure::BadMessage),
        }
    }

    fn read(&self, request: u32, reader: &mut Reader) -> Answer {
        let (file, _) = self.file(reader)?;
        let (offset, length) = (reader.long()?, reader.number()? as usize);
        let mut data = vec![0; length.min(DATA_BYTES_MAX)];
        let read = file.read_at(&mut data, offset)?;
        if read == 0 && !data.is_empty() {
            return Err(Failure::End);
        }
        Ok(Reply::new(kind::DATA, request).text(&data[..read]))
    }

    fn write(&self, reader: &mut Reader) -> Result<(), Failure> {
        let (mut file, appends) = self.file(reader)?;
        let (offset, data) = (reader.long()?, reader.text()?);
        if appends {
            file.write_all(data)?
        } else {
            file.write_all_at(data, offset)?
        }
        Ok(())
    }

    fn read_folder(&mut self, request: u32, reader: &mut Reader) -> Answer {
        let Some(Handle::Folder { path, entries }) = self.handles.get_mut(&handle_number(reader)?)
        else {
            return Err(Failure::BadMessage);
        };
        let mut names = Vec::new();
        for entry in entries.take(ENTRIES_MAX) {
            let name = entry?.file_name();
            // A file that was removed meanwhile is not there.
            if let Ok(of) = fs::symlink_metadata(path.join(&name)) {
                names.push((name, of));
            }
        }
        if names.is_empty() {
            return Err(Failure::End);
        }
        let reply = Reply::new(kind::NAME, request).number(names.len() as u32);
        let add = |reply: Reply, (name, of): (std::ffi::OsString, Metadata)| {
            let line = long_name(&of, name.as_bytes());
            reply.text(name.as_bytes()).text(&line).attributes(&of)
        };
        Ok(names.into_iter().fold(reply, add))
    }
}

fn greeting() -> Reply {
    let reply = Reply(vec![kind::VERSION]).number(VERSION);
    EXTENSIONS.iter().fold(reply, |reply, name| reply.text(name).text(b"1"))
}

fn handle_number(reader: &mut Reader) -> Result<u32, Failure> {
    let handle = reader.text()?.try_into().map_err(|_| Failure::BadMessage)?;
    Ok(u32::from_be_bytes(handle))
}

fn attributes(request: u32, of: &Metadata) -> Answer {
    Ok(Reply::new(kind::ATTRS, request).attributes(of))
}

/// One name, of which nothing else is said.
fn name(request: u32, path: &Path) -> Reply {
    Reply::new(kind::NAME, request).number(1).path(path).path(path).number(0)
}

fn open(path: &Path, flags: u32, attributes: &Attributes) -> Result<File, Failure> {
    let has = |flag: u32| flags & flag != 0;
    let mut options = OpenOptions::new();
    options.read(has(flag::READ)).write(has(flag::WRITE) && !has(flag::APPEND));
    options.append(has(flag::APPEND)).truncate(has(flag::TRUNCATE) && has(flag::WRITE));
    if has(flag::CREATE) {
        options.create(!has(flag::EXCLUSIVE)).create_new(has(flag::EXCLUSIVE));
    }
    options.mode(attributes.mode.unwrap_or(0o666) & 0o7777);
    Ok(options.open(path)?)
}

/// The path without links; what is not there is taken by its name alone.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let absolute = std::path::absolute(path)?;
            let mut plain = PathBuf::new();
            for part in absolute.components() {
                match part {
                    Component::ParentDir => drop(plain.pop()),
                    part => plain.push(part),
                }
            }
            Ok(plain)
        }
        found => found,
    }
}

/// Renames where nothing has the new name, as this version of the protocol has it.
fn rename_new(from: &Path, to: &Path) -> Result<(), Failure> {
    let taken = || Failure::from(io::Error::from_raw_os_error(libc::EEXIST));
    if fs::symlink_metadata(to).is_ok() {
        return Err(taken());
    }
    Ok(fs::rename(from, to)?)
}
