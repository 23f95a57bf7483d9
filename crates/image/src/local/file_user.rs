//! Opens files with the rights of the user who named the folder that they are in.

use nix::errno::Errno;

#[derive(Debug, Clone)]
pub struct FileUser {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl FileUser {
    /// Does the work with the user's rights on files, in this thread alone: others may work as root meanwhile. A process
    /// that is not root has no other rights than its own.
    pub(super) fn with_rights<T>(&self, work: impl FnOnce() -> T) -> nix::Result<T> {
        if !nix::unistd::Uid::effective().is_root() {
            return Ok(work());
        }
        let before: Vec<u32> = nix::unistd::getgroups()?.iter().map(|gid| gid.as_raw()).collect();
        set_groups(&self.groups)?;
        set_ids(self.uid, self.gid);
        let done = work();
        set_ids(0, nix::unistd::Gid::effective().as_raw());
        set_groups(&before)?;
        Ok(done)
    }
}

// The C library's functions would change every thread of the process.

fn set_groups(groups: &[u32]) -> nix::Result<()> {
    // SAFETY: the pointer and the length are of one slice, which the kernel only reads.
    let done = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    Errno::result(done).map(drop)
}

/// The kernel takes and gives the rights of root over files along with the id 0, and refuses root nothing here.
fn set_ids(uid: u32, gid: u32) {
    // SAFETY: both calls take numbers and touch no memory.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
    }
}
