//! The folders of volumes on this node: made, opened and removed by handle, below a folder that nobody else can change. Each
//! belongs to its owner, mode 700; its parent is closed, so that only a job that is shown the volume reaches it.

use crate::disk;
use crate::ownership::give_to_user;
use crate::supervisor::folders::quota;
use crate::supervisor::folders::remove_tree::remove_tree;
use crate::trusted_dir::TrustedDir;
use model::amount::Bytes;
use model::bounds::INSTANCE_VOLUMES;
use model::id::{AttemptId, JobId};
use model::volume::VolumeFolder;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use wire::order::UserIds;
use wire::volume::{VolumeAction, VolumeOrder};

/// The folder of all volumes, among a node's own files and in a shared folder.
const OF_NODE: &str = "volumes";
const IN_SHARED: &str = ".sluice-volumes";
const CLOSED: u32 = 0o700;

const FOLDER: OFlag =
    OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC).union(OFlag::O_RDONLY);

/// An order about a volume that was admitted. It may take long, and touches nothing of the agent's own state.
pub(crate) struct VolumeWork {
    /// The node's own files.
    pub node: PathBuf,
    pub uid: u32,
    pub order: VolumeOrder,
}

impl VolumeWork {
    pub fn carry_out(self) -> Result<(), String> {
        let VolumeWork { node, uid, order: VolumeOrder { folder, action } } = self;
        match action {
            VolumeAction::Make { gid, size } => make(&node, &folder, (uid, gid), size),
            VolumeAction::Remove => remove(&node, &folder),
            VolumeAction::Mount { gid, devices } => {
                disk::mount(&make_home(&node, &folder)?, &folder.name, (uid, gid), &devices)
            }
            VolumeAction::Unmount => match open_home(&node, &folder)? {
                Some(home) => disk::unmount(&home, &folder.name),
                None => Ok(()),
            },
        }
    }
}

/// Makes the folder of a new volume, or leaves nothing.
fn make(
    node: &Path,
    folder: &VolumeFolder,
    (uid, gid): (u32, u32),
    size: Option<Bytes>,
) -> Result<(), String> {
    let home = make_home(node, folder)?;
    let made = make_in(&home, folder, (uid, gid))?;
    let Some(size) = size else { return Ok(()) };
    let limited = limit(&home, &made, folder, size);
    if limited.is_err() {
        // Nobody has written to it yet.
        let _ = unlinkat(&home, folder.name.as_str(), UnlinkatFlags::RemoveDir);
    }
    limited
}

/// The new folder, its owner's alone; or nothing is left of it.
fn make_in(
    home: &TrustedDir,
    folder: &VolumeFolder,
    (uid, gid): (u32, u32),
) -> Result<OwnedFd, String> {
    let failed = |e: Errno| format!("cannot make its folder: {}", e.desc());
    let name = folder.name.as_str();
    mkdirat(home, name, Mode::S_IRWXU).map_err(failed)?;
    let made = openat(home, name, FOLDER, Mode::empty())
        .and_then(|made| give_to_user(&made, uid, gid).map(|()| made));
    if made.is_err() {
        // One that stayed would be root's, and in the way of the next attempt.
        let _ = unlinkat(home, name, UnlinkatFlags::RemoveDir);
    }
    made.map_err(failed)
}

fn limit(
    home: &TrustedDir,
    made: &OwnedFd,
    folder: &VolumeFolder,
    size: Bytes,
) -> Result<(), String> {
    // The kernel tells which numbers are taken: the search for a free one may begin anywhere.
    let begin = AttemptId { job: JobId(number_of(&folder.name)), number: 0 };
    match quota::limit_folder(home.as_fd(), made.as_fd(), size, OF_NODE, begin) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => {
            let why = quota::unsupported_at(home.path());
            let why = why.unwrap_or_else(|| "there are no quotas".to_owned());
            Err(format!("a size cannot be held: {why}; leave out the size"))
        }
        Err(errno) => Err(format!("cannot hold it to {} bytes: {}", size.0, errno.desc())),
    }
}

/// A number from a name; which one does not matter.
fn number_of(name: &str) -> u32 {
    name.bytes().fold(7, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
}

fn remove(node: &Path, folder: &VolumeFolder) -> Result<(), String> {
    // A node's own folder may be gone with all of its volumes.
    let Some(home) = open_home(node, folder)? else { return Ok(()) };
    let opened = openat(&home, folder.name.as_str(), FOLDER, Mode::empty()).ok();
    let project = opened.as_ref().and_then(|opened| quota::project_of(opened.as_fd()));
    drop(opened);
    let name = CString::new(folder.name.as_str()).map_err(|e| e.to_string())?;
    remove_tree(home.as_fd(), &name)
        .map_err(|e| format!("cannot remove all of its files: {}", e.desc()))?;
    if let Some(project) = project {
        quota::release_unused(home.as_fd(), project);
    }
    Ok(())
}

/// Opens the folder of a volume for a job of this user, which makes one of `instance: true` that is missing.
pub(crate) fn open(node: &Path, folder: &VolumeFolder, user: &UserIds) -> Result<OwnedFd, String> {
    const MISSING: &str = "its folder is not there";
    let home = if folder.instance {
        make_home(node, folder)?
    } else {
        open_home(node, folder)?.ok_or(MISSING)?
    };
    let opened = match openat(&home, folder.name.as_str(), FOLDER, Mode::empty()) {
        Err(Errno::ENOENT) if folder.instance => {
            check_count(&home, user.uid)?;
            make_in(&home, folder, (user.uid, user.gid))?
        }
        Err(Errno::ENOENT) => return Err(MISSING.into()),
        opened => opened.map_err(|e| format!("cannot open its folder: {}", e.desc()))?,
    };
    let owner = fstat(&opened).map_err(|e| e.desc().to_owned())?.st_uid;
    if owner != user.uid && user.uid != 0 {
        return Err(format!("its folder belongs to user {owner}"));
    }
    Ok(opened)
}

/// The closed folder that holds the volumes of this place, for a new one of them.
fn make_home(node: &Path, folder: &VolumeFolder) -> Result<TrustedDir, String> {
    let path = home_path(node, folder)?;
    closed(TrustedDir::make(&path), &path)
}

/// The folder that holds the volumes of this place; nothing where the node has none of its own. A shared folder without it
/// is one that is not mounted here, and its volumes are elsewhere: what is made below it now would look like them.
fn open_home(node: &Path, folder: &VolumeFolder) -> Result<Option<TrustedDir>, String> {
    let path = home_path(node, folder)?;
    match (TrustedDir::open(&path), &folder.shared) {
        (Err(e), None) if e.kind() == ErrorKind::NotFound => Ok(None),
        (Err(e), Some(shared)) if e.kind() == ErrorKind::NotFound => {
            Err(format!("the shared folder {shared} has no volumes here: is it mounted?"))
        }
        (opened, _) => closed(opened, &path).map(Some),
    }
}

fn home_path(node: &Path, folder: &VolumeFolder) -> Result<PathBuf, String> {
    match &folder.shared {
        None => Ok(node.join(OF_NODE)),
        Some(shared) if !Path::new(shared).is_dir() => {
            Err(format!("the shared folder {shared} is not there"))
        }
        Some(shared) => Ok(Path::new(shared).join(IN_SHARED)),
    }
}

fn closed(home: io::Result<TrustedDir>, path: &Path) -> Result<TrustedDir, String> {
    let closed = home.and_then(|home| home.set_mode(CLOSED).map(|()| home));
    closed.map_err(|e| format!("{}: {e}", path.display()))
}

/// Refuses a user's next folder beyond the bound.
fn check_count(home: &TrustedDir, uid: u32) -> Result<(), String> {
    let failed = |e: Errno| format!("cannot list volumes: {}", e.desc());
    let again = openat(home, ".", FOLDER, Mode::empty()).map_err(failed)?;
    let own = format!("{uid}.");
    let mut entries = Dir::from_fd(again).map_err(failed)?;
    let names = entries.iter().flatten();
    let of_user = names.filter(|entry| entry.file_name().to_bytes().starts_with(own.as_bytes()));
    let most = INSTANCE_VOLUMES.most;
    if of_user.count() >= most {
        return Err(format!("this user has {most} folders of this kind on the node already"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn folder(name: &str) -> VolumeFolder {
        let json = serde_json::json!({"name": format!("{name}.0123456789abcdef")});
        serde_json::from_value(json).expect("a folder")
    }

    fn instance(name: &str, uid: u32) -> VolumeFolder {
        VolumeFolder::of_instance(name, uid)
    }

    fn own_user() -> UserIds {
        let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
        UserIds { name: "me".into(), uid, gid, groups: vec![gid] }
    }

    #[test]
    fn folder_is_made_once_and_removed_with_its_files() {
        let node = tempfile::tempdir().expect("a folder");
        let (user, data) = (own_user(), folder("data"));
        let ids = (user.uid, user.gid);
        assert_eq!(make(node.path(), &data, ids, None), Ok(()));
        let path = node.path().join("volumes").join(&data.name);
        let found = std::fs::metadata(&path).expect("made");
        assert_eq!((found.permissions().mode() & 0o7777, found.uid()), (0o700, user.uid));
        let home = std::fs::metadata(node.path().join("volumes")).expect("made");
        assert_eq!(home.permissions().mode() & 0o7777, 0o700);
        assert!(make(node.path(), &data, ids, None).is_err(), "it is there already");
        std::fs::create_dir_all(path.join("a/b")).expect("made");
        assert!(open(node.path(), &data, &user).is_ok());
        assert_eq!(remove(node.path(), &data), Ok(()));
        assert!(!path.exists());
        assert_eq!(remove(node.path(), &data), Ok(()), "a deletion that is repeated");
        let gone = open(node.path(), &data, &user).expect_err("gone");
        assert!(gone.contains("not there"), "{gone}");
    }

    #[test]
    fn link_in_place_of_a_folder_is_neither_opened_nor_followed() {
        let node = tempfile::tempdir().expect("a folder");
        let outside = tempfile::tempdir().expect("a folder");
        std::fs::write(outside.path().join("kept"), "x").expect("a file");
        let (user, data) = (own_user(), folder("data"));
        std::fs::create_dir(node.path().join("volumes")).expect("made");
        let link = node.path().join("volumes").join(&data.name);
        symlink(outside.path(), &link).expect("a link");
        assert!(open(node.path(), &data, &user).is_err());
        assert!(make(node.path(), &data, (user.uid, user.gid), None).is_err());
        assert_eq!(remove(node.path(), &data), Ok(()), "the link itself goes");
        assert!(!link.is_symlink() && outside.path().join("kept").exists());
    }

    #[test]
    fn size_is_refused_where_the_file_system_has_no_quotas() {
        let node = tempfile::tempdir_in("/dev/shm").expect("a folder of memory");
        let (user, data) = (own_user(), folder("data"));
        let ids = (user.uid, user.gid);
        let said = make(node.path(), &data, ids, Some(Bytes::from_mib(1))).expect_err("no quotas");
        assert!(said.contains("a size cannot be held"), "{said}");
        assert!(!node.path().join("volumes").join(&data.name).exists(), "nothing is left");
    }

    #[test]
    fn instance_folders_are_made_when_asked_for_and_bounded() {
        let node = tempfile::tempdir().expect("a folder");
        let user = own_user();
        for n in 0..INSTANCE_VOLUMES.most {
            assert!(open(node.path(), &instance(&format!("c{n}"), user.uid), &user).is_ok());
        }
        let more = open(node.path(), &instance("more", user.uid), &user).expect_err("too many");
        assert!(more.contains("already"), "{more}");
        assert!(open(node.path(), &instance("c0", user.uid), &user).is_ok(), "a known one");
    }

    /// A shared folder that is not mounted is an empty folder here: nothing is made in it, and nothing counts as removed.
    #[test]
    fn shared_folder_that_is_not_mounted_is_neither_opened_nor_cleared() {
        let (node, shared) = (tempfile::tempdir(), tempfile::tempdir());
        let (node, shared) = (node.expect("a folder"), shared.expect("a folder"));
        let json = serde_json::json!({"shared": shared.path(), "name": "d.0123456789abcdef"});
        let data: VolumeFolder = serde_json::from_value(json).expect("a folder");
        let user = own_user();
        for _ in 0..2 {
            let opened = open(node.path(), &data, &user).map(drop);
            for said in [opened, remove(node.path(), &data)] {
                let said = said.expect_err("not mounted");
                assert!(said.ends_with("has no volumes here: is it mounted?"), "{said}");
            }
            let mut entries = std::fs::read_dir(shared.path()).expect("listed");
            assert!(entries.next().is_none(), "nothing is made there");
        }
        assert_eq!(make(node.path(), &data, (user.uid, user.gid), None), Ok(()));
        assert!(open(node.path(), &data, &user).is_ok());
        assert_eq!(remove(node.path(), &data), Ok(()));
        assert_eq!(remove(node.path(), &data), Ok(()), "a deletion that is repeated");
    }

    #[test]
    fn missing_shared_folder_is_named() {
        let node = tempfile::tempdir().expect("a folder");
        let json = serde_json::json!({"shared": "/none/here", "name": "d.0123456789abcdef"});
        let shared: VolumeFolder = serde_json::from_value(json).expect("a folder");
        let said = open(node.path(), &shared, &own_user()).expect_err("it is not there");
        assert_eq!(said, "the shared folder /none/here is not there");
    }
}
