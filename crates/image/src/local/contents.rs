//! The named parts of a folder or of an archive, by handle.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use nix::fcntl::OFlag;

use super::file_user::FileUser;
use crate::error::{Error, Result, shown};
use crate::unpack::{Archive, EntryPath, Kind, decoder, open_beneath, read_bounded};

/// An archive of an image has a few parts for each layer.
const PARTS_MAX: usize = 4096;

pub enum Contents {
    /// The folder, and whose rights open the files in it.
    Folder(File, Option<FileUser>),
    Archive {
        file: File,
        parts: BTreeMap<Vec<u8>, Part>,
    },
}

#[derive(Clone)]
pub enum Part {
    Data {
        offset: u64,
        size: u64,
    },
    /// Old archives name a layer that occurs twice by a link.
    Link(Vec<u8>),
}

pub fn part_missing(name: &str, part: &str) -> Error {
    Error::NotAnImage {
        what: name.to_owned(),
        fault: format!("its part {} is missing", shown(part.as_bytes())),
    }
}

impl Contents {
    /// Finds the parts of an archive that is not compressed.
    pub fn index(name: &str, file: File) -> Result<Self> {
        let mut parts = BTreeMap::new();
        let mut archive = Archive::new(BufReader::new(At { file: &file, at: 0, end: u64::MAX }));
        while let Some(entry) = archive.next_entry().map_err(|f| f.into_error(name))? {
            let path =
                EntryPath::new(&entry.path).map_err(|f| f.into_error(name))?.as_bytes().to_vec();
            let part = match entry.kind {
                Kind::File => Part::Data { offset: archive.position(), size: entry.size },
                Kind::Symlink | Kind::HardLink => Part::Link(beside(&path, &entry.link)),
                Kind::Folder | Kind::Special => continue,
            };
            if parts.len() >= PARTS_MAX {
                return Err(Error::NotAnImage {
                    what: name.to_owned(),
                    fault: format!("it has more than {PARTS_MAX} parts"),
                });
            }
            parts.insert(path, part);
        }
        Ok(Self::Archive { file, parts })
    }

    fn extent(&self, part: &str) -> Option<(u64, u64)> {
        let Self::Archive { parts, .. } = self else { return None };
        match parts.get(part.as_bytes())? {
            Part::Data { offset, size } => Some((*offset, *size)),
            Part::Link(to) => match parts.get(to)? {
                Part::Data { offset, size } => Some((*offset, *size)),
                Part::Link(_) => None,
            },
        }
    }

    fn part_file(&self, part: &str) -> Option<File> {
        let Self::Folder(folder, user) = self else { return None };
        let open = || {
            let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
            open_beneath(folder.as_fd(), part.as_bytes(), flags)
        };
        let opened = match user {
            Some(user) => user.with_rights(open).ok()?,
            None => open(),
        };
        opened.ok().map(File::from).filter(|f| f.metadata().is_ok_and(|m| m.is_file()))
    }

    pub fn size(&self, part: &str) -> Option<u64> {
        match self {
            Self::Folder(..) => self.part_file(part)?.metadata().ok().map(|m| m.len()),
            Self::Archive { .. } => self.extent(part).map(|(_, size)| size),
        }
    }

    pub fn open(&self, name: &str, part: &str) -> Result<Box<dyn Read + Send + '_>> {
        let missing = || part_missing(name, part);
        match self {
            Self::Folder(..) => Ok(Box::new(self.part_file(part).ok_or_else(missing)?)),
            Self::Archive { file, .. } => {
                let (offset, size) = self.extent(part).ok_or_else(missing)?;
                Ok(Box::new(At { file, at: offset, end: offset.saturating_add(size) }))
            }
        }
    }

    /// A small part, whole.
    pub fn read(&self, name: &str, part: &str, max: u64) -> Result<Vec<u8>> {
        let what = || format!("{} of {name}", shown(part.as_bytes()));
        if let Some(file) = self.part_file(part) {
            return read_bounded(file.into(), max).map_err(Error::io(what()));
        }
        let size = self.size(part).ok_or_else(|| part_missing(name, part))?;
        if size > max {
            return Err(Error::NotAnImage {
                what: name.to_owned(),
                fault: format!("its part {part} has more than {max} bytes"),
            });
        }
        let mut bytes = Vec::new();
        self.open(name, part)?.take(max).read_to_end(&mut bytes).map_err(Error::io(what()))?;
        if (bytes.len() as u64) < size {
            return Err(Error::Truncated {
                what: what(),
                expected: size,
                found: bytes.len() as u64,
            });
        }
        Ok(bytes)
    }
}

/// A link's target as a part's name, seen from the folder of the link.
fn beside(path: &[u8], link: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
    parts.pop();
    for part in link.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join(&b'/')
}

/// A stretch of a file, read without moving the file's own position.
struct At<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let n = self.file.read_at(&mut buffer[..wanted], self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// Whether a tarball holds an image, and not a root file system: every name up to the first that tells is of an image.
pub fn is_image_archive(name: &str, file: &File) -> Result<bool> {
    let clone = file.try_clone().map_err(Error::io(name))?;
    let decoder = decoder(clone).map_err(|e| Error::NotAnImage {
        what: name.to_owned(),
        fault: shown(e.to_string().as_bytes()),
    })?;
    let mut archive = Archive::new(BufReader::new(decoder));
    let mut any = false;
    for _ in 0..PARTS_MAX {
        let Some(entry) =
            archive.next_entry().map_err(|f| not_a_tarball(name, f.into_error(name)))?
        else {
            return Ok(any);
        };
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        let path = path.trim_start_matches("./").trim_end_matches('/');
        match path {
            "oci-layout" | "manifest.json" | "index.json" => return Ok(true),
            "" | "repositories" | "blobs" | "blobs/sha256" => {}
            _ if is_part(path) => any = true,
            _ => return Ok(false),
        }
    }
    Ok(any)
}

/// The first thing that is read of a file of any kind: what it is not, is what is said.
fn not_a_tarball(name: &str, error: Error) -> Error {
    let fault = match error {
        Error::HostileLayer { entry, fault, .. } => format!("{entry}: {fault}"),
        Error::NotAnImage { fault, .. } => fault,
        other => return other,
    };
    let fault = format!("it is no .sif, no squashfs and no sound tarball ({fault})");
    Error::NotAnImage { what: name.to_owned(), fault }
}

/// `blobs/sha256/HEX`, or Docker's older `HEX.json`, `HEX.tar`, `HEX/layer.tar`.
fn is_part(path: &str) -> bool {
    let hex = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let first = path.split('/').next().unwrap_or_default();
    path.strip_prefix("blobs/sha256/").is_some_and(hex)
        || hex(first)
        || [".json", ".tar"].iter().any(|end| path.strip_suffix(end).is_some_and(hex))
}
