//! Our root group in one tree: found or made, and prepared for the groups of jobs below it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;

use super::dir::GroupDir;
use super::error::CgroupError;
use super::mounts::{ControllerSet, Mount, Version, folder_of, own_group};
use super::prepare::{delegate_v2, leaf_name, prepare_v1, with_devices};
use crate::privilege;

pub(super) struct RootGroup {
    pub version: Version,
    /// The controllers that a job's group in this tree can use.
    pub controllers: ControllerSet,
    pub dir: Arc<GroupDir>,
    pub base: GroupDir,
}

/// The groups under which our root group may be made: as root the top of the tree, else the group delegated to this
/// user.
fn bases(mount: &Mount, own: &str, root_name: &str) -> Vec<PathBuf> {
    let leaf = leaf_name(root_name);
    let is_ours = |part: &OsStr| part == root_name || part == leaf.as_str();
    bases_above(mount, own, &is_ours)
}

fn bases_above(mount: &Mount, own: &str, is_ours: &dyn Fn(&OsStr) -> bool) -> Vec<PathBuf> {
    let delegated = own_group(own, mount)
        .map(|path| above_ours(&path, is_ours))
        .and_then(|path| folder_of(mount, &path));
    let top = privilege::is_root().then(|| mount.at.clone());
    let mut bases: Vec<PathBuf> = top.into_iter().chain(delegated).collect();
    bases.dedup();
    bases
}

/// The path above our own groups: an agent that was started inside one of them works beside it, not below it.
fn above_ours(own: &Path, is_ours: &dyn Fn(&OsStr) -> bool) -> PathBuf {
    own.components().take_while(|part| !is_ours(part.as_os_str())).collect()
}

/// The root groups in one tree whose names begin with `prefix`.
pub(super) fn roots_named(
    mount: &Mount,
    own: &str,
    prefix: &str,
) -> Result<Vec<String>, CgroupError> {
    let is_ours = |part: &OsStr| part.as_encoded_bytes().starts_with(prefix.as_bytes());
    let mut found = Vec::new();
    for base in bases_above(mount, own, &is_ours) {
        // A tree that this user cannot list has no group of his.
        let Ok(base) = GroupDir::open(&base) else { continue };
        found.extend(base.children()?.into_iter().filter(|name| name.starts_with(prefix)));
    }
    Ok(found)
}

pub(super) fn open_root(
    mount: &Mount,
    wanted: ControllerSet,
    own: &str,
    root_name: &str,
    refusals: &mut Vec<(ControllerSet, String)>,
) -> Result<RootGroup, CgroupError> {
    let mut failure =
        CgroupError::io("find our own group in", mount.at.to_string_lossy(), Errno::ENOENT);
    for base in bases(mount, own, root_name) {
        let opened = GroupDir::open(&base).and_then(|base| {
            let dir = base.make_or_open_child(root_name)?;
            // Moving a process into a group below `base` needs write permission for `base`'s own `cgroup.procs` too.
            base.check_writable("cgroup.procs")?;
            dir.check_writable(".")?;
            Ok((base, dir))
        });
        match opened {
            Ok((base, dir)) => {
                let controllers = match mount.version {
                    Version::V1 => prepare_v1(&base, &dir, wanted, refusals),
                    Version::V2 => {
                        let passed = delegate_v2(&base, &dir, root_name, refusals)?;
                        with_devices(passed, refusals)
                    }
                };
                return Ok(RootGroup {
                    version: mount.version,
                    controllers,
                    dir: dir.shared(),
                    base,
                });
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_started_inside_our_groups_works_beside_them() {
        for (own, base) in [
            ("/user.slice/x", "/user.slice/x"),
            ("/a/sluice.agent", "/a"),
            ("/a/sluice/job_1", "/a"),
            ("/", "/"),
        ] {
            let is_ours = |part: &OsStr| part == "sluice" || part == "sluice.agent";
            assert_eq!(above_ours(Path::new(own), &is_ours), Path::new(base), "{own}");
        }
    }
}
