//! The disk quota of a job's folders: a project quota, where the file system has them. Files made below a folder
//! inherit its project, and the kernel counts a project's blocks and files.
//!
//! A project number is in use if the kernel has a limit or a file for it. So nothing is remembered here, and a
//! restarted agent or machine never reuses a number.
//!
//! The quota stops accidents, not evasion: the kernel lets a file's owner change its project, and exempts root.

use crate::privilege;
use model::amount::Bytes;
use model::id::AttemptId;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::statvfs::fstatvfs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

/// Project numbers of Sluice have this bit; a site's own should not.
const OURS: u32 = 1 << 30;
/// Each node has a range of project numbers. The search for a free one starts at the job's number.
const OF_NODE_BITS: u32 = 20;
const OF_NODE: u32 = (1 << OF_NODE_BITS) - 1;
const NODES: u32 = (1 << 10) - 1;
/// Numbers that are tried to find a free one.
const TRIES_MAX: u32 = 4096;

/// The smallest quota: with less, not even the folder itself fits.
const BYTES_MIN: u64 = 1 << 20;
const FILES_MIN: u64 = 4096;
/// The unit of the kernel's block limits.
const BLOCK: u64 = 1024;

const PROJECT_KIND: i32 = 2;
const GET: i32 = 0x80_0007;
const SET: i32 = 0x80_0008;
const STATE: i32 = 0x5808;
/// Flag in the answer to `STATE`: project limits are enforced.
const ENFORCED: u16 = 1 << 5;
/// The fields of a record that are set: the limits of blocks and of files.
const LIMITS: u32 = 1 | 4;
/// New files inherit the project of their folder.
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
struct QuotaRecord {
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

/// Space for `struct fs_quota_statv`, whose first byte is the requested version.
#[repr(C, align(8))]
struct QuotaStateBuffer([u8; 256]);

/// The project of a folder with a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Project(u32);

/// Why folders at this path cannot have a quota; `None` if they can.
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
    if !privilege::is_root() {
        return Some("only root sets quotas");
    }
    let mut state = QuotaStateBuffer([0; 256]);
    state.0[0] = 1;
    match ask(folder, STATE, 0, (&raw mut state).cast()) {
        Ok(()) if u16::from_ne_bytes([state.0[2], state.0[3]]) & ENFORCED != 0 => None,
        _ => Some(NOT_THERE),
    }
}

/// Limits the disk of `folder` by a project of its own. `jobs` is its parent folder, which only we can open: numbers
/// are assigned under its lock. Returns `None` where the file system has no quotas.
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

/// Adds a folder of the same file system to the project, so that both count together.
pub(crate) fn join(folder: BorrowedFd<'_>, project: Project) -> Result<(), Errno> {
    let mut attributes = Attributes::default();
    // SAFETY: the descriptor is open, and the value is of the size that the call's number says.
    unsafe { get_attributes(folder.as_raw_fd(), &mut attributes) }?;
    attributes.project = project.0;
    attributes.flags |= INHERIT;
    // SAFETY: as above.
    unsafe { set_attributes(folder.as_raw_fd(), &attributes) }.map(drop)
}

/// The project of Sluice that a folder belongs to, if any.
pub(crate) fn project_of(folder: BorrowedFd<'_>) -> Option<Project> {
    let mut attributes = Attributes::default();
    // SAFETY: the descriptor is open, and the value is of the size that the call's number says.
    unsafe { get_attributes(folder.as_raw_fd(), &mut attributes) }.ok()?;
    let ours = attributes.project & OURS != 0 && attributes.flags & INHERIT != 0;
    ours.then_some(Project(attributes.project))
}

/// Removes the limits of an ended job's project; its number is free once its last file is gone. `folder` may be any
/// folder of that file system.
pub(crate) fn release(folder: BorrowedFd<'_>, project: Project) {
    let mut none = QuotaRecord { valid: LIMITS, ..QuotaRecord::default() };
    // A project that cannot be released counts as used.
    let _ = ask(folder, SET, project.0, (&raw mut none).cast());
}

/// The same for a project that a user may have set on a folder: one that still counts files is another's, and stays limited.
pub(crate) fn release_unused(folder: BorrowedFd<'_>, project: Project) {
    let mut record = QuotaRecord::default();
    let asked = ask(folder, GET, project.0, (&raw mut record).cast());
    if asked.is_ok() && record.bytes == 0 && record.files == 0 {
        release(folder, project);
    }
}

fn number(group_root: &str, job: u32) -> u32 {
    // FNV-1a: any hash will do, but it must not change between versions.
    let spread = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let node = group_root.bytes().fold(0x811c_9dc5, spread);
    OURS | ((node & NODES) << OF_NODE_BITS) | (job & OF_NODE)
}

fn is_free(folder: BorrowedFd<'_>, project: Project) -> Result<bool, Errno> {
    let mut record = QuotaRecord::default();
    match ask(folder, GET, project.0, (&raw mut record).cast()) {
        Ok(()) => Ok(record.blocks_hard == 0 && record.bytes == 0 && record.files == 0),
        // XFS has no record of a project that was never used.
        Err(Errno::ENOENT) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// Sets the limits of blocks and of inodes. Inodes are limited in proportion to the disk, because they run out too.
fn set(folder: BorrowedFd<'_>, project: Project, limit: Bytes) -> Result<(), Errno> {
    let bytes = limit.0.max(BYTES_MIN);
    let whole = fstatvfs(folder)?;
    let size = u128::from(whole.blocks()) * u128::from(whole.fragment_size());
    let files = u128::from(whole.files()) * u128::from(bytes) / size.max(1);
    let mut record = QuotaRecord {
        blocks_hard: bytes.div_ceil(BLOCK),
        files_hard: u64::try_from(files).unwrap_or(u64::MAX).max(FILES_MIN),
        valid: LIMITS,
        ..QuotaRecord::default()
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
    fn structs_have_the_sizes_of_the_kernels() {
        assert_eq!(size_of::<Attributes>(), 28);
        assert_eq!(size_of::<QuotaRecord>(), 72);
    }

    #[test]
    fn project_numbers_depend_on_node_and_job() {
        let (one, two) = (number("sluice-1-n1", 7), number("sluice-1-n2", 7));
        assert_ne!(one, two, "two nodes");
        assert_ne!(one, number("sluice-1-n1", 8), "two jobs");
        assert_eq!(one & OF_NODE, 7);
        assert_eq!(number("sluice-1-n1", u32::MAX) >> OF_NODE_BITS, one >> OF_NODE_BITS);
        assert!(one & OURS != 0 && one < i32::MAX as u32);
    }

    #[test]
    fn file_system_without_quotas_sets_no_limit() {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a folder of memory");
        let folder = std::fs::File::open(dir.path()).expect("a folder");
        let attempt = crate::spool::tests::attempt(7, 1);
        let (jobs, limit) = (folder.as_fd(), Bytes::from_mib(1));
        assert_eq!(limit_folder(jobs, jobs, limit, "sluice-n1", attempt), Ok(None));
        assert!(unsupported_at(dir.path()).is_some_and(|why| why.contains(':')));
        assert!(unsupported_at(Path::new("/nonexistent")).is_some());
    }
}
