//! Makes the server's folder reachable for its user when a folder above it is closed to others.
//!
//! The server works from within its own folder, but SQLite needs absolute paths. If a folder on the path from `/` is closed,
//! the server's folder is bind-mounted at another path, in a mount namespace that only the server has.

use super::server_user::ServerUser;
use crate::command::verb::VerbError;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the folder may be mounted: paths that every system has and that the server does not use.
const MOUNT_POINTS: [&str; 4] = ["/mnt", "/media", "/srv", "/opt"];

/// A path of `dir` that `user` can reach. Called while this process is still root.
pub fn reachable(
    dir: &Path,
    user: ServerUser,
    also_needed: &[&Path],
) -> Result<PathBuf, VerbError> {
    let Some(closed) = dir.ancestors().skip(1).find(|above| !is_open(above, user)) else {
        return Ok(dir.to_path_buf());
    };
    let free = |mount_point: &&&str| {
        let mount_point = Path::new(mount_point);
        mount_point.is_dir()
            && !dir.starts_with(mount_point)
            && !also_needed.iter().any(|n| n.starts_with(mount_point))
    };
    let failed = |why: String| {
        VerbError::Message(format!(
            "the server's user cannot pass {}: {why}; open it (chmod o+x), or choose another --state",
            closed.display()
        ))
    };
    let Some(mount_point) = MOUNT_POINTS.iter().find(free).map(Path::new) else {
        return Err(failed("and there is no place to show the state folder at".into()));
    };
    let show = || -> nix::Result<()> {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        mount(Some(dir), mount_point, none, MsFlags::MS_BIND, none)
    };
    show().map_err(|e| failed(e.to_string()))?;
    Ok(mount_point.to_path_buf())
}

/// Whether `user` may search this folder.
fn is_open(dir: &Path, user: ServerUser) -> bool {
    let Ok(found) = std::fs::metadata(dir) else { return false };
    let shift = match (found.uid() == user.uid.as_raw(), found.gid() == user.gid.as_raw()) {
        (true, _) => 6,
        (false, true) => 3,
        (false, false) => 0,
    };
    (found.mode() >> shift) & 0o1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{Gid, Uid};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_is_open_to_users_that_its_mode_lets_search() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::fs::metadata(dir.path()).unwrap();
        let user = |uid, gid| ServerUser { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid) };
        let (me, stranger) = (user(own.uid(), own.gid()), user(own.uid() + 7, own.gid() + 7));
        for (mode, mine, others) in
            [(0o700, true, false), (0o711, true, true), (0o600, false, false)]
        {
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!((is_open(dir.path(), me), is_open(dir.path(), stranger)), (mine, others));
        }
    }
}
