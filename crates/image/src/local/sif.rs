//! The squashfs in a Singularity image file (`.sif`), or alone in a file. Every field is checked against the file's size.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::bytes_at;
use crate::error::{Error, Result};
use crate::platform::Platform;

/// What to mount, and where in the file it is.
#[derive(Debug)]
pub struct SquashImage {
    pub path: PathBuf,
    /// The file whose header was checked: mount by this handle (`/proc/self/fd/N`), not by the path.
    pub file: File,
    pub offset: u64,
    pub size: u64,
}

const SQUASHFS_MAGIC: &[u8] = b"hsqs";
const SQUASHFS_HEADER_LEN: usize = 96;

/// The global header: where the magic and the table of descriptors are told.
const MAGIC_AT: u64 = 32;
const MAGIC: &[u8] = b"SIF_MAGIC\0";
const HEADER_LEN: usize = 128;
const DESCRIPTORS_TOTAL_AT: usize = 88;
const DESCRIPTORS_OFFSET_AT: usize = 96;
const DESCRIPTORS_MAX: u64 = 4096;

/// A descriptor, packed: kind, used, id, group, link, offset, length, …, and for a partition what it is.
const DESCRIPTOR_LEN: u64 = 585;
const USED_AT: usize = 4;
const OFFSET_AT: usize = 17;
const LENGTH_AT: usize = 25;
const EXTRA_AT: usize = 201;
const KIND_PARTITION: u32 = 0x4004;
const FILE_SYSTEM_SQUASH: u32 = 1;
const FILE_SYSTEM_ENCRYPTED: u32 = 5;
const PARTITION_PRIMARY: u32 = 2;

/// Codes of architectures in a partition's descriptor.
const ARCHITECTURES: [(&[u8], &str); 8] = [
    (b"01", "386"),
    (b"02", "amd64"),
    (b"03", "arm"),
    (b"04", "arm64"),
    (b"05", "ppc64"),
    (b"06", "ppc64le"),
    (b"10", "s390x"),
    (b"11", "riscv64"),
];

/// The squashfs of a file; `None` when the file is neither a `.sif` nor a squashfs.
pub fn open(
    name: &str,
    path: &Path,
    file: &File,
    platform: &Platform,
) -> Result<Option<SquashImage>> {
    let len = file.metadata().map_err(Error::at(path))?.len();
    let (offset, size) = if bytes_at(file, 0, 4).is_some_and(|b| b == SQUASHFS_MAGIC) {
        (0, len)
    } else if bytes_at(file, MAGIC_AT, MAGIC.len()).is_some_and(|b| b == MAGIC) {
        primary_partition(name, file, len, platform)?
    } else if path.extension().is_some_and(|e| e == "sif") {
        return Err(Error::NotAnImage {
            what: name.to_owned(),
            fault: "it is called .sif and has not the header of one".into(),
        });
    } else {
        return Ok(None);
    };
    check_squashfs(name, file, offset, size)?;
    let file = file.try_clone().map_err(Error::at(path))?;
    Ok(Some(SquashImage { path: path.to_owned(), file, offset, size }))
}

fn primary_partition(name: &str, file: &File, len: u64, platform: &Platform) -> Result<(u64, u64)> {
    let not = |fault: String| Error::NotAnImage { what: name.to_owned(), fault };
    let header =
        bytes_at(file, 0, HEADER_LEN).ok_or_else(|| not("its header ends early".into()))?;
    let (total, table) =
        (u64_at(&header, DESCRIPTORS_TOTAL_AT), u64_at(&header, DESCRIPTORS_OFFSET_AT));
    if total > DESCRIPTORS_MAX {
        return Err(not(format!(
            "its header tells of {total} descriptors, more than {DESCRIPTORS_MAX}"
        )));
    }
    if table.checked_add(total * DESCRIPTOR_LEN).is_none_or(|end| end > len) {
        return Err(not("its table of descriptors lies beyond the end of the file".into()));
    }
    for number in 0..total {
        let at = table + number * DESCRIPTOR_LEN;
        let d = bytes_at(file, at, DESCRIPTOR_LEN as usize)
            .ok_or_else(|| not("a descriptor ends early".into()))?;
        let partition = u32_at(&d, 0) == KIND_PARTITION && d[USED_AT] != 0;
        if !partition || u32_at(&d, EXTRA_AT + 4) != PARTITION_PRIMARY {
            continue;
        }
        match u32_at(&d, EXTRA_AT) {
            FILE_SYSTEM_SQUASH => {}
            FILE_SYSTEM_ENCRYPTED => return Err(not("its system partition is encrypted".into())),
            other => {
                return Err(not(format!(
                    "its system partition has a file system of kind {other}, and squashfs (1) is needed"
                )));
            }
        }
        let code = &d[EXTRA_AT + 8..EXTRA_AT + 10];
        let known = ARCHITECTURES.iter().find(|(c, _)| *c == code).map(|(_, name)| *name);
        if let Some(architecture) = known
            && architecture != platform.architecture
        {
            let found = vec![format!("linux/{architecture}")];
            return Err(Error::WrongPlatform {
                what: name.to_owned(),
                wanted: platform.to_string(),
                found,
            });
        }
        let (offset, size) = (u64_at(&d, OFFSET_AT), u64_at(&d, LENGTH_AT));
        if offset.checked_add(size).is_none_or(|end| end > len) {
            return Err(not("its system partition lies beyond the end of the file".into()));
        }
        return Ok((offset, size));
    }
    Err(not("it has no primary system partition".into()))
}

/// The superblock must fit into the part of the file that it is said to be in.
fn check_squashfs(name: &str, file: &File, offset: u64, size: u64) -> Result<()> {
    let not = |fault: &str| Error::NotAnImage { what: name.to_owned(), fault: fault.to_owned() };
    let header =
        bytes_at(file, offset, SQUASHFS_HEADER_LEN).filter(|_| size >= SQUASHFS_HEADER_LEN as u64);
    let header = header.ok_or_else(|| not("its squashfs ends early"))?;
    if !header.starts_with(SQUASHFS_MAGIC) {
        return Err(not("its system partition is no squashfs"));
    }
    if u64_at(&header, 40) > size {
        return Err(not("its squashfs is longer than the file"));
    }
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |n, b| n << 8 | u32::from(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}
