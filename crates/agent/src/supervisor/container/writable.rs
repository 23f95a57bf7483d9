//! What a container writes to its own files: into a folder of its own, which is of the node's disk; or, where it is bounded, into
//! a file system of that size. That is in a sparse file, so it takes of the disk what is written, and it needs nothing of the
//! file system that the file is on: project quotas would need a file system that has them, and a tmpfs would take the job's
//! memory. A container that has filled it finds no space left, and nobody else does.

use super::ContainerSpec;
use super::loop_device::LoopFile;
use super::node_programs;
use model::amount::Bytes;
use model::site::CONTAINER_DISK_MIN;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use std::fs::{self, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the file system is mounted.
const MOUNTED: &str = "/mnt/parts/writable";
/// The file that it is in, in the folder of its container.
const FILE: &str = "writable";
const MAKER: &str = "mkfs.ext4";
/// No journal: nobody reads it after a crash. No reserve for root, nor room to grow. Tables are written when they are needed.
const OPTIONS: [&str; 10] = [
    "-q",
    "-F",
    "-b",
    "4096",
    "-m",
    "0",
    "-O",
    "^has_journal,^resize_inode",
    "-E",
    "lazy_itable_init=1,nodiscard",
];

/// How much a container may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WritableMax {
    pub bytes: Bytes,
    /// The site bounds containers: none runs without. Else the run asked for that much, and a node that cannot bound it runs it
    /// without a bound.
    pub is_required: bool,
}

impl WritableMax {
    /// The less of what a run asks for and the site's bound, which must hold where the site has set it.
    pub fn of(asked: Option<Bytes>, sites: Option<Bytes>) -> Option<WritableMax> {
        let least = asked.into_iter().chain(sites).min();
        least.map(|bytes| WritableMax { bytes, is_required: sites.is_some() })
    }
}

/// The folder in which the container's own files are to be. `say` is told where a bound does not hold.
pub(super) fn folder(
    spec: &ContainerSpec,
    say: &mut (dyn FnMut(&str) + Send),
) -> Result<PathBuf, String> {
    let file = spec.folder.join(FILE);
    let is_there = file.exists();
    let Some(max) = spec.writable_max.filter(|_| is_there || !is_used(&spec.folder)) else {
        return Ok(spec.folder.clone());
    };
    let mounted = make_once(&file, is_there, max.bytes).and_then(|()| mount_file(&file));
    match mounted {
        Ok(()) => Ok(PathBuf::from(MOUNTED)),
        Err(why) if max.is_required || is_there => {
            Err(format!("cannot bound what the container writes: {why}"))
        }
        Err(why) => {
            let _ = fs::remove_file(&file);
            say(&format!("sluice: what the container writes has no bound on this node: {why}"));
            Ok(spec.folder.clone())
        }
    }
}

/// Whether a container of this folder has written without a bound: it goes on so.
fn is_used(folder: &Path) -> bool {
    folder.join("upper").exists()
}

/// Makes the file system if it is not there.
fn make_once(file: &Path, is_there: bool, size: Bytes) -> Result<(), String> {
    if is_there {
        return Ok(());
    }
    let maker = node_programs::find(MAKER).ok_or(format!("{MAKER} is not on this node"))?;
    // A maker that is killed leaves no file that would be taken for whole.
    let new = file.with_extension("new");
    let failed = |e: std::io::Error| format!("{}: {e}", new.display());
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let made = options.open(&new).map_err(failed)?;
    made.set_len(size.max(CONTAINER_DISK_MIN).0).map_err(failed)?;
    let mut command = Command::new(maker);
    command.args(OPTIONS).arg(&new).env_clear().stdin(Stdio::null());
    let said = command.output().map_err(failed)?;
    if !said.status.success() {
        let errors = String::from_utf8_lossy(&said.stderr);
        let last = errors.lines().rfind(|line| !line.trim().is_empty());
        return Err(format!("{MAKER}: {}", last.unwrap_or("it was killed").trim()));
    }
    fs::rename(&new, file).map_err(failed)
}

fn mount_file(file: &Path) -> Result<(), String> {
    let failed = |e: Errno| format!("{}: {}", file.display(), e.desc());
    let io = |e: std::io::Error| format!("{}: {e}", file.display());
    fs::create_dir_all(MOUNTED).map_err(io)?;
    let opened = OpenOptions::new().read(true).write(true).open(file).map_err(io)?;
    let whole = LoopFile { file: opened.as_fd(), offset: 0, size: 0, is_read_only: false };
    let (path, device) = whole.attach().map_err(failed)?;
    let flags = MsFlags::MS_NODEV | MsFlags::MS_NOATIME;
    // What is removed inside is given back to the node's disk.
    mount(Some(path.as_str()), MOUNTED, Some("ext4"), flags, Some("discard")).map_err(failed)?;
    drop(device);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_gets_no_more_than_the_sites_bound() {
        let max = |asked: Option<u64>, sites: Option<u64>| {
            let max = WritableMax::of(asked.map(Bytes), sites.map(Bytes));
            max.map(|max| (max.bytes.0, max.is_required))
        };
        assert_eq!(max(None, None), None);
        assert_eq!(max(Some(9), None), Some((9, false)));
        assert_eq!(max(None, Some(5)), Some((5, true)));
        assert_eq!(max(Some(9), Some(5)), Some((5, true)));
        assert_eq!(max(Some(3), Some(5)), Some((3, true)));
    }
}
