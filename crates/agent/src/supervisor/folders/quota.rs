//! How much disk a job may have in its own folders: a project quota, where the file system has them. All that is made
//! below a folder belongs to its project, and the kernel counts a project's blocks and files.
//!
//! The kernel's own record says which projects are taken: one with a limit or with a file is. So nothing has to be
//! remembered here, and an agent or a machine that starts anew takes nobody's.
//!
//! It holds whoever writes too much, not whoever wants to get away: the kernel lets the owner of a file give it another
//! project, and does not hold root at all.

use model::amount::Bytes;
use model::id::AttemptId;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::Uid;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

/// Our projects have this bit, and a site's own should not.
const OURS: u32 = 1 << 30;
/// Each node's jobs have a range of numbers of their own, and begin in it at the number of the job.
const OF_NODE_BITS: u32 = 20;
const OF_NODE: u32 = (1 << OF_NODE_BITS) - 1;
const NODES: u32 = (1 << 10) - 1;
/// Numbers that are looked at for one that is free.
const TRIES_MAX: u32 = 4096;

/// With less, not even the folder itself has room.
const BYTES_MIN: u64 = 1 << 20;
const FILES_MIN: u64 = 4096;
/// The unit in which the kernel takes limits of disk.
const BLOCK: u64 = 1024;

const PROJECT_KIND: i32 = 2;
const GET: i32 = 0x80_0007;
const SET: i32 = 0x80_0008;
const STATE: i32 = 0x5808;
/// In the answer to `STATE`: limits of projects are enforced.
const ENFORCED: u16 = 1 << 5;
/// Which fields of a record are to be set: both limits of blocks, both of files.
const LIMITS: u32 = 1 | 4;
/// What is made in a folder has the folder's project.
const INHERIT: u32 = 0x200;

/// `struct fsxattr` of the kernel.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    pad: [u8; 8],
}

nix::ioctl_read!(get_attributes, b'X', 31, Attributes);
nix::ioctl_write_ptr!(set_attributes, b'X', 32, Attributes);

/// `struct if_dqblk` of the kernel.
#[repr(C)]
#[derive(Default)]
struct Record {
    blocks_hard: u64,
    blocks_soft: u64,
    bytes: u64,
    files_hard: u64,
    files_soft: u64,
    files: u64,
    blocks_time: u64,
    files_time: u64,
    valid: u32,
}

/// Room for `struct fs_quota_statv`, whose first byte is the version that is asked for.
#[repr(C, align(8))]
struct State([u8; 256]);

/// The project of a folder that is held to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Project(u32);

/// Why folders at this path cannot be held to an amount of disk; none: they can.
pub(crate) fn unsupported_at(path: &Path) -> Option<String> {
    let folder = match std::fs::File::open(path) {
        Ok(folder) => folder,
        Err(error) => return Some(format!("{}: {error}", path.display())),
    };
    let why = unsupported(folder.as_fd())?;
    Some(format!("{}: {why}", path.display()))
}

fn unsupported(folder: BorrowedFd<'_>) -> Option<&'static str> {
    const NOT_THERE: &str = "its file system has no project quotas that are enforced \
                             (ext4: made with -O quota,project; ext4 and XFS: mounted with prjquota)";
    if !Uid::effective().is_root() {
        return Some("only root sets quotas");
    }
    let mut state = State([0; 256]);
    state.0[0] = 1;
    match ask(folder, STATE, 0, (&raw mut state).cast()) {
        Ok(()) if u16::from_ne_bytes([state.0[2], state.0[3]]) & ENFORCED != 0 => None,
        _ => Some(NOT_THERE),
    }
}

/// Holds what is made in `folder` to so much, in a project that nothing else has. `jobs` is the folder that it is in,
/// which nobody but us can open: the numbers are given out under its lock. None where the file system has no quotas.
pub(crate) fn limit_folder(
    jobs: BorrowedFd<'_>,
    folder: BorrowedFd<'_>,
    limit: Bytes,
    group_root: &str,
    attempt: AttemptId,
) -> Result<Option<Project>, Errno> {
    if unsupported(folder).is_some() {
        return Ok(None);
    }
    let own = openat(jobs, c".", OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let _turn = Flock::lock(own, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
    let numbers = (0..TRIES_MAX).map(|n| number(group_root, attempt.job.0.wrapping_add(n)));
    for project in numbers.map(Project) {
        if is_free(folder, project)? {
            set(folder, project, limit)?;
            return match join(folder, project) {
                Ok(()) => Ok(Some(project)),
                Err(errno) => {
                    release(folder, project);
                    Err(errno)
                }
            };
        }
    }
    Err(Errno::EUSERS)
}

/// Puts a folder of the same file system into the project as well, so that both count together.
pub(crate) fn join(folder: BorrowedFd<'_>, project: Project) -> Result<(), Errno> {
    let mut attributes = Attributes::default();
    // SAFETY: the descriptor is open, and the value is of the size that the call's number says.
    unsafe { get_attributes(folder.as_raw_fd(), &mut attributes) }?;
    attributes.project = project.0;
    attributes.flags |= INHERIT;
    // SAFETY: as above.
    unsafe { set_attributes(folder.as_raw_fd(), &attributes) }.map(drop)
}

/// The project of ours that a folder is in, if any.
pub(crate) fn project_of(folder: BorrowedFd<'_>) -> Option<Project> {
    let mut attributes = Attributes::default();
    // SAFETY: the descriptor is open, and the value is of the size that the call's number says.
    unsafe { get_attributes(folder.as_raw_fd(), &mut attributes) }.ok()?;
    let ours = attributes.project & OURS != 0 && attributes.flags & INHERIT != 0;
    ours.then_some(Project(attributes.project))
}

/// The job is over: its number is free once its last file is gone. `folder` is any of that file system.
pub(crate) fn release(folder: BorrowedFd<'_>, project: Project) {
    let mut none = Record { valid: LIMITS, ..Record::default() };
    // What cannot be released now is not given to anybody else.
    let _ = ask(folder, SET, project.0, (&raw mut none).cast());
}

fn number(group_root: &str, job: u32) -> u32 {
    // FNV-1a: any spread will do, but it must be the same in every version.
    let spread = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let node = group_root.bytes().fold(0x811c_9dc5, spread);
    OURS | ((node & NODES) << OF_NODE_BITS) | (job & OF_NODE)
}

fn is_free(folder: BorrowedFd<'_>, project: Project) -> Result<bool, Errno> {
    let mut record = Record::default();
    match ask(folder, GET, project.0, (&raw mut record).cast()) {
        Ok(()) => Ok(record.blocks_hard == 0 && record.bytes == 0 && record.files == 0),
        // XFS has no record of what was never used.
        Err(Errno::ENOENT) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// As many files, in proportion, as the whole file system can have: they run out too.
fn set(folder: BorrowedFd<'_>, project: Project, limit: Bytes) -> Result<(), Errno> {
    let bytes = limit.0.max(BYTES_MIN);
    let whole = fstatvfs(folder)?;
    let size = u128::from(whole.blocks()) * u128::from(whole.fragment_size());
    let files = u128::from(whole.files()) * u128::from(bytes) / size.max(1);
    let mut record = Record {
        blocks_hard: bytes.div_ceil(BLOCK),
        files_hard: u64::try_from(files).unwrap_or(u64::MAX).max(FILES_MIN),
        valid: LIMITS,
        ..Record::default()
    };
    ask(folder, SET, project.0, (&raw mut record).cast())
}

/// `value` is a live value of the type that the command takes.
fn ask(
    folder: BorrowedFd<'_>,
    command: i32,
    id: u32,
    value: *mut libc::c_void,
) -> Result<(), Errno> {
    let command = (command << 8) | PROJECT_KIND;
    // SAFETY: the kernel reads or writes one value of the command's type, which the caller holds.
    let result =
        unsafe { libc::syscall(libc::SYS_quotactl_fd, folder.as_raw_fd(), command, id, value) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_values_have_its_sizes() {
        assert_eq!(size_of::<Attributes>(), 28);
        assert_eq!(size_of::<Record>(), 72);
    }

    #[test]
    fn numbers_are_ours_and_of_their_node() {
        let (one, two) = (number("sluice-1-n1", 7), number("sluice-1-n2", 7));
        assert_ne!(one, two, "two nodes");
        assert_ne!(one, number("sluice-1-n1", 8), "two jobs");
        assert_eq!(one & OF_NODE, 7);
        assert_eq!(number("sluice-1-n1", u32::MAX) >> OF_NODE_BITS, one >> OF_NODE_BITS);
        assert!(one & OURS != 0 && one < i32::MAX as u32);
    }

    #[test]
    fn where_there_are_no_quotas_nothing_is_held() {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a folder of memory");
        let folder = std::fs::File::open(dir.path()).expect("a folder");
        let attempt = crate::spool::tests::attempt(7, 1);
        let (jobs, limit) = (folder.as_fd(), Bytes::from_mib(1));
        assert_eq!(limit_folder(jobs, jobs, limit, "sluice-n1", attempt), Ok(None));
        assert!(unsupported_at(dir.path()).is_some_and(|why| why.contains(':')));
        assert!(unsupported_at(Path::new("/nonexistent")).is_some());
    }
}
