//! The trees of control groups as an OCI runtime sees them. It makes a group in each tree that it finds, removes it with
//! what was counted there (on v1 OOM kills too), and leaves the groups above its own behind. So it is shown as few trees
//! as it can do with: in the others its processes stay in the group of their step.

use nix::mount::{MntFlags, umount2};
use std::fs;
use std::path::{Path, PathBuf};

/// A v1 runtime refuses to work without this tree, in which a job that has no devices of its own has no group.
const NEEDED: &str = "devices";
/// Groups inside one another that are removed.
const DEPTH_MAX: usize = 8;

/// One mounted tree.
struct Mounted {
    point: String,
    /// Whether it is a v1 tree with the controller that a runtime needs.
    is_needed: bool,
    is_unified: bool,
}

fn mounted() -> Result<Vec<Mounted>, String> {
    let text = fs::read_to_string("/proc/self/mountinfo").map_err(|e| e.to_string())?;
    let tree = |line: &str| {
        let (mount, rest) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?.to_owned();
        let mut words = rest.split(' ');
        let kind = words.next()?;
        let is_needed = kind == "cgroup" && words.nth(1)?.split(',').any(|one| one == NEEDED);
        let is_unified = kind == "cgroup2";
        (is_unified || kind == "cgroup").then_some(Mounted { point, is_needed, is_unified })
    };
    Ok(text.lines().filter_map(tree).collect())
}

/// The path of a group below the root of its tree.
fn relative(group: &str, point: &str) -> Option<String> {
    group.strip_prefix(point).filter(|rest| rest.starts_with('/')).map(str::to_owned)
}

/// The path of a process's group below the roots of its trees.
pub(super) fn path(groups: &[String]) -> Result<String, String> {
    let trees = mounted()?;
    let found =
        trees.iter().find_map(|tree| groups.iter().find_map(|one| relative(one, &tree.point)));
    found.ok_or_else(|| "containers need control groups on their node".into())
}

/// Hides the trees that the runtime can do without, in this mount namespace alone.
pub(super) fn hide_most() -> Result<(), String> {
    let trees = mounted()?;
    // Where v2 is the only version, its one tree stays: it counts for a group what its inner groups did.
    let only_unified = trees.iter().all(|tree| tree.is_unified);
    for tree in trees.iter().filter(|tree| !tree.is_needed && !only_unified) {
        // A runtime that sees it all the same uses it, and little is lost.
        let _ = umount2(tree.point.as_str(), MntFlags::MNT_DETACH);
    }
    Ok(())
}

/// Removes what a runtime left of an ended job in trees in which the job has no group of its own.
pub(super) fn remove_foreign(groups: &[String]) {
    let Ok(trees) = mounted() else { return };
    let known = |point: &str| groups.iter().find_map(|group| relative(group, point));
    let Some(path) = trees.iter().find_map(|tree| known(&tree.point)) else { return };
    for tree in trees.iter().filter(|tree| known(&tree.point).is_none()) {
        let group = PathBuf::from(format!("{}{path}", tree.point));
        if group.is_dir() {
            remove(&group, DEPTH_MAX);
            // The group above is that of all jobs of the node: it stays while another job has one in it.
            group.parent().map(fs::remove_dir);
        }
    }
}

fn remove(group: &Path, depth: usize) {
    let inner = fs::read_dir(group).into_iter().flatten().flatten();
    for entry in inner.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        if depth > 1 {
            remove(&entry.path(), depth - 1);
        }
    }
    let _ = fs::remove_dir(group);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_a_group_is_below_its_tree_only() {
        let below = |group: &str| relative(group, "/sys/fs/cgroup/cpu");
        assert_eq!(below("/sys/fs/cgroup/cpu/a/b"), Some("/a/b".into()));
        assert_eq!(below("/sys/fs/cgroup/cpuset/a/b"), None);
        assert_eq!(below("/sys/fs/cgroup/cpu"), None);
    }
}
