//! From a layer's archive to a folder that overlayfs takes as a lower layer.
//!
//! - `compression.rs`: gzip, zstd or plain, told by the first bytes; the stream and its digest on a thread of its own.
//! - `archive.rs`: the entries of a tar archive, bounded; `pax.rs`: their extended headers.
//! - `entry_path.rs`: the names of entries, and the whiteouts among them.
//! - `folder.rs`: files and folders by handle; no path is put together by root.
//! - `placement.rs`: where each entry goes, and what is refused; `budget.rs`: what a layer may take.

mod archive;
mod budget;
mod compression;
mod entry_path;
mod folder;
mod pax;
mod placement;

use std::io::Read;
use std::os::fd::BorrowedFd;

use crate::digest::Digest;
use crate::error::{Error, Result};

pub use archive::{Archive, Kind};
pub use compression::decoder;
pub use entry_path::EntryPath;
#[cfg(test)]
use folder::is_opaque;
pub use folder::{exists, open_beneath, read_bounded, remove_tree};

/// What a layer may be. Beyond a bound it is refused, and nothing of it stays.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the archive once decompressed, and bytes on disk.
    pub bytes_max: u64,
    /// What is left in the store.
    pub room_bytes: u64,
    pub entries_max: u64,
    /// What must stay free on the file system.
    pub free_bytes_min: u64,
    /// Keep the bits set-user-ID and set-group-ID, and file capabilities.
    pub keep_setuid: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes_max: 256 << 30,
            room_bytes: u64::MAX,
            entries_max: 10_000_000,
            free_bytes_min: 256 << 20,
            keep_setuid: false,
        }
    }
}

#[derive(Debug)]
pub struct Unpacked {
    /// The digest of the decompressed archive: the layer's diff-id.
    pub diff_id: Digest,
    /// What it takes on disk, about.
    pub disk_bytes: u64,
    pub entries: u64,
    /// Devices, sockets and pipes, which are not made.
    pub skipped: u64,
}

/// Unpacks a layer into the empty folder `root`. `expected` is the diff-id it must have, where that is known.
/// On an error the folder holds rubbish, which the caller removes.
pub fn unpack(
    layer: &str,
    source: impl Read + Send,
    expected: Option<&Digest>,
    root: BorrowedFd,
    limits: &Limits,
) -> Result<Unpacked> {
    let stream_limit = limits.bytes_max;
    let (placed, stream) = compression::with_stream(source, stream_limit, |stream| {
        let mut archive = Archive::new(stream);
        let placed = placement::place(layer, &mut archive, root, limits, expected.is_none());
        // What follows the archive's end belongs to its digest.
        placed.and_then(|placed| archive.drain().map(|()| placed).map_err(archive::Fault::Io))
    });
    let diff_id = digest_of(layer, stream, stream_limit)?;
    let placed = placed.map_err(|fault| fault.into_error(layer))?;
    let diff_id = diff_id.ok_or_else(|| no_digest(layer))?;
    if let Some(expected) = expected {
        check_digest(layer, expected, &diff_id)?;
    }
    Ok(Unpacked {
        diff_id,
        disk_bytes: placed.disk_bytes,
        entries: placed.entries,
        skipped: placed.skipped,
    })
}

/// Checks that a layer has this diff-id, and makes nothing of it.
pub fn verify(
    layer: &str,
    source: impl Read + Send,
    expected: &Digest,
    limits: &Limits,
) -> Result<()> {
    let (read, stream) = compression::with_stream(source, limits.bytes_max, |mut stream| {
        std::io::copy(&mut stream, &mut std::io::sink())
    });
    let diff_id = digest_of(layer, stream, limits.bytes_max)?;
    read.map_err(Error::io(layer))?;
    check_digest(layer, expected, &diff_id.ok_or_else(|| no_digest(layer))?)
}

/// The digest of a stream; `None` if its reader stopped before the end.
fn digest_of(layer: &str, stream: compression::Outcome, bytes_max: u64) -> Result<Option<Digest>> {
    match stream {
        compression::Outcome::Whole(digest) => Ok(Some(digest)),
        compression::Outcome::NotRead => Ok(None),
        compression::Outcome::TooLong => Err(Error::HostileLayer {
            layer: layer.to_owned(),
            entry: "its data".into(),
            fault: format!("it is more than {bytes_max} bytes unpacked, which is the bound"),
        }),
        compression::Outcome::Failed(error) => Err(stream_fault(layer, error)),
    }
}

fn no_digest(layer: &str) -> Error {
    Error::io(layer)(std::io::Error::other("the stream ended without a digest"))
}

fn check_digest(layer: &str, expected: &Digest, found: &Digest) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::DigestMismatch {
        what: format!("{layer}, unpacked,"),
        expected: expected.to_string(),
        found: found.to_string(),
    })
}

/// A stream that cannot be read to its end is truncated or no such stream.
fn stream_fault(layer: &str, error: std::io::Error) -> Error {
    use std::io::ErrorKind;
    let not = |fault: String| Error::NotAnImage { what: layer.to_owned(), fault };
    match error.kind() {
        ErrorKind::UnexpectedEof => not("its compressed data ends early".into()),
        ErrorKind::InvalidData
        | ErrorKind::InvalidInput
        | ErrorKind::Unsupported
        | ErrorKind::Other => not(format!(
            "its compressed data is not readable: {}",
            crate::error::shown(error.to_string().as_bytes())
        )),
        _ => Error::Io { what: layer.to_owned(), source: error },
    }
}

#[cfg(test)]
mod tests;
