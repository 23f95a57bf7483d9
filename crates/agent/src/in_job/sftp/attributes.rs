//! What SFTP says of a file and sets of it.

use super::packet::{Failure, Reader, Reply};
use nix::sys::stat::{FchmodatFlags, Mode, UtimensatFlags, fchmod, fchmodat, futimens, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, chown, fchown};
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SIZE: u32 = 1;
const OWNER: u32 = 2;
const MODE: u32 = 4;
const TIMES: u32 = 8;
const EXTENDED: u32 = 1 << 31;

/// Attributes that a client sends; what it does not say stays as it is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub size: Option<u64>,
    owner: Option<(u32, u32)>,
    pub mode: Option<u32>,
    /// When the file was last read and last changed, in seconds.
    times: Option<(u32, u32)>,
}

impl Attributes {
    pub fn read(reader: &mut Reader) -> Result<Self, Failure> {
        let said = reader.number()?;
        let mut all = Self::default();
        if said & SIZE != 0 {
            all.size = Some(reader.long()?);
        }
        if said & OWNER != 0 {
            all.owner = Some((reader.number()?, reader.number()?));
        }
        if said & MODE != 0 {
            all.mode = Some(reader.number()?);
        }
        if said & TIMES != 0 {
            all.times = Some((reader.number()?, reader.number()?));
        }
        if said & EXTENDED != 0 {
            for _ in 0..reader.number()? {
                reader.text()?;
                reader.text()?;
            }
        }
        Ok(all)
    }

    fn mode(&self) -> Option<Mode> {
        self.mode.map(|bits| Mode::from_bits_truncate(bits & 0o7777))
    }

    pub fn set_at(&self, path: &Path) -> Result<(), Failure> {
        if let Some(size) = self.size {
            OpenOptions::new().write(true).open(path)?.set_len(size)?;
        }
        if let Some((uid, gid)) = self.owner {
            chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        }
        if let Some(mode) = self.mode() {
            fchmodat(nix::fcntl::AT_FDCWD, path, mode, FchmodatFlags::FollowSymlink)?;
        }
        if let Some((accessed, changed)) = self.times {
            let (accessed, changed) = (seconds(accessed), seconds(changed));
            let follow = UtimensatFlags::FollowSymlink;
            utimensat(nix::fcntl::AT_FDCWD, path, &accessed, &changed, follow)?;
        }
        Ok(())
    }

    pub fn set_of(&self, file: &File) -> Result<(), Failure> {
        if let Some(size) = self.size {
            file.set_len(size)?;
        }
        if let Some((uid, gid)) = self.owner {
            fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        }
        if let Some(mode) = self.mode() {
            fchmod(file, mode)?;
        }
        if let Some((accessed, changed)) = self.times {
            futimens(file, &seconds(accessed), &seconds(changed))?;
        }
        Ok(())
    }
}

fn seconds(count: u32) -> TimeSpec {
    TimeSpec::new(i64::from(count), 0)
}

impl Reply {
    pub fn attributes(self, of: &Metadata) -> Self {
        let times = |seconds: i64| u32::try_from(seconds).unwrap_or(0);
        self.number(SIZE | OWNER | MODE | TIMES)
            .long(of.size())
            .number(of.uid())
            .number(of.gid())
            .number(of.mode())
            .number(times(of.atime()))
            .number(times(of.mtime()))
    }
}

/// The line of `ls -l` that clients print.
pub fn long_name(of: &Metadata, name: &[u8]) -> Vec<u8> {
    let kind = match of.mode() & libc::S_IFMT {
        libc::S_IFDIR => 'd',
        libc::S_IFLNK => 'l',
        libc::S_IFIFO => 'p',
        libc::S_IFSOCK => 's',
        libc::S_IFCHR => 'c',
        libc::S_IFBLK => 'b',
        _ => '-',
    };
    let bits = "rwxrwxrwx".chars().enumerate();
    let mode: String = bits
        .map(|(place, letter)| if of.mode() >> (8 - place) & 1 == 1 { letter } else { '-' })
        .collect();
    let changed = jiff::Timestamp::from_second(of.mtime()).unwrap_or_default();
    let changed = changed.strftime("%b %e %H:%M");
    let (links, uid, gid, size) = (of.nlink(), of.uid(), of.gid(), of.size());
    let mut line =
        format!("{kind}{mode} {links:>4} {uid:<8} {gid:<8} {size:>8} {changed} ").into_bytes();
    line.extend_from_slice(name);
    line
}
