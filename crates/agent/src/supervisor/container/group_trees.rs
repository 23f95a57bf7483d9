//! The trees of control groups as an OCI runtime sees them. It makes a group in each tree that it finds, removes it unless it
//! was told to leave it, with what was counted there (on v1 OOM kills too), and leaves the groups above its own behind. So it is
//! shown as few trees as it can do with: in the others its processes stay in the group of their step.

use crate::supervisor::mount_calls::Tree;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A v1 runtime refuses to work without this tree, in which a job that has no devices of its own has no group.
const NEEDED: &str = "devices";
/// Groups inside one another that are removed.
const DEPTH_MAX: usize = 8;

/// One mounted tree.
#[derive(Debug)]
struct Mounted {
    point: String,
    /// Whether it is a v1 tree with the controller that a runtime needs.
    is_needed: bool,
    is_unified: bool,
}

/// Users' folders, whose names may be any bytes, are among them; the trees are not.
fn read_mounts() -> Result<String, String> {
    let bytes = fs::read("/proc/self/mountinfo").map_err(|e| e.to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn mounted() -> Result<Vec<Mounted>, String> {
    Ok(trees_in(&read_mounts()?))
}

/// The trees among the lines of a `mountinfo`.
fn trees_in(mounts: &str) -> Vec<Mounted> {
    let tree = |line: &str| {
        let (mount, rest) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?.to_owned();
        let mut words = rest.split(' ');
        let kind = words.next()?;
        let is_needed = kind == "cgroup" && words.nth(1)?.split(',').any(|one| one == NEEDED);
        let is_unified = kind == "cgroup2";
        (is_unified || kind == "cgroup").then_some(Mounted { point, is_needed, is_unified })
    };
    mounts.lines().filter_map(tree).collect()
}

/// The one mount that has every tree mounted in it and is none itself; `None` if they are mounted in different places.
fn folder_of_trees(mounts: &str) -> Option<String> {
    let fields = |line: &str| -> Option<(String, String, String, bool)> {
        let (mount, rest) = line.split_once(" - ")?;
        let mut words = mount.split(' ').map(str::to_owned);
        let (id, parent, point) = (words.next()?, words.next()?, words.nth(2)?);
        Some((id, parent, point, rest.starts_with("cgroup")))
    };
    let all: Vec<_> = mounts.lines().filter_map(fields).collect();
    let mut parents: Vec<&String> =
        all.iter().filter(|(.., is_tree)| *is_tree).map(|(_, parent, ..)| parent).collect();
    parents.dedup();
    let [parent] = parents[..] else { return None };
    let (_, _, point, is_tree) = all.iter().find(|(id, ..)| id == parent)?;
    (!is_tree && point != "/").then(|| point.clone())
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

/// Hides the trees that the runtime can do without, in this mount namespace alone, and unmounts `parts` with them. The kernel
/// waits for all processors at each unmount: one is faster than two.
pub(super) fn hide_most_and_unmount(parts: &str) -> Result<(), String> {
    let mounts = without(&read_mounts()?, parts);
    let trees = trees_in(&mounts);
    // Where v2 is the only version, its one tree stays: it counts for a group what its inner groups did.
    let is_unified = trees.iter().all(|tree| tree.is_unified);
    if !is_unified
        && let (Some(folder), Some(needed)) =
            (folder_of_trees(&mounts), trees.iter().find(|tree| tree.is_needed))
        && Path::new(&needed.point).starts_with(&folder)
    {
        return keep_alone(&folder, &needed.point, parts)
            .map_err(|e| format!("cannot hide control groups in {folder}: {}", e.desc()));
    }
    umount2(parts, MntFlags::MNT_DETACH)
        .map_err(|e| format!("cannot unmount {parts}: {}", e.desc()))?;
    if is_unified {
        return Ok(());
    }
    for tree in trees.iter().filter(|tree| !tree.is_needed) {
        // A runtime that sees it all the same uses it, and little is lost.
        let _ = umount2(tree.point.as_str(), MntFlags::MNT_DETACH);
    }
    Ok(())
}

/// The lines of a `mountinfo` but those of what is mounted at `parts` and below.
fn without(mounts: &str, parts: &str) -> String {
    let is_other = |line: &&str| {
        line.split(' ').nth(4).is_none_or(|point| !Path::new(point).starts_with(parts))
    };
    mounts.lines().filter(is_other).map(|line| format!("{line}\n")).collect()
}

/// Replaces the folder of all trees by one in which only this tree is mounted, and unmounts `parts`, in one unmount.
fn keep_alone(folder: &str, tree: &str, parts: &str) -> nix::Result<()> {
    let handle = |path: &str| -> nix::Result<OwnedFd> {
        open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
    };
    let kept = Tree::copy_alone(handle(tree)?)?;
    let none: Option<&str> = None;
    // What is moved into the folder goes with it.
    if mount(Some(parts), tree, none, MsFlags::MS_MOVE, none).is_err() {
        umount2(parts, MntFlags::MNT_DETACH)?;
    }
    umount2(folder, MntFlags::MNT_DETACH)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), folder, Some("tmpfs"), flags, Some("mode=755,size=64k"))?;
    fs::create_dir_all(tree).map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))?;
    kept.show_at(handle(tree)?)
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

/// The file in which the kernel counts the OOM kills of a process's own group alone; `groups` is the process's file
/// `cgroup` in `/proc`. `None` on v2, where the group of its step counts them too and outlives it.
pub(super) fn memory_events(groups: &str) -> Option<File> {
    let mounts = read_mounts().ok()?;
    File::open(memory_events_path(groups, &mounts)?).ok()
}

fn memory_events_path(groups: &str, mounts: &str) -> Option<String> {
    let has_memory = |list: &str| list.split(',').any(|one| one == "memory");
    let mounted = |line: &str| {
        let (mount, rest) = line.split_once(" - ")?;
        let is_memory = rest.starts_with("cgroup ") && has_memory(rest.rsplit(' ').next()?);
        is_memory.then(|| mount.split(' ').nth(4).map(str::to_owned)).flatten()
    };
    let group = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        has_memory(controllers).then(|| path.to_owned())
    };
    let (point, path) = (mounts.lines().find_map(mounted)?, groups.lines().find_map(group)?);
    Some(format!("{point}{path}/memory.oom_control"))
}

/// Whether a process is in the group of a container that an engine made inside `group`; `groups` as above.
pub(super) fn is_of_container(groups: &str, group: &str, container: &str) -> bool {
    let names = [container.to_owned(), format!("libpod-{container}")];
    let is_own = |path: &str| {
        let inner = path.strip_prefix(group).and_then(|rest| rest.strip_prefix('/'));
        let first = inner.and_then(|inner| inner.split('/').next());
        first.is_some_and(|first| names.iter().any(|name| name == first))
    };
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    !container.is_empty() && paths.into_iter().any(is_own)
}

/// The OOM kills that the file counts.
pub(super) fn oom_kills(events: &File) -> Option<u64> {
    let mut text = [0; 1024];
    let length = events.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
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
    fn a_process_is_of_the_container_by_its_group_alone() {
        let of = |path: &str| {
            is_of_container(&format!("4:memory:{path}\n0::{path}\n"), "/job_1", "c0ffee")
        };
        assert!(of("/job_1/c0ffee") && of("/job_1/libpod-c0ffee/container"));
        for other in
            ["/job_1", "/job_1/step_0", "/job_1/step_0/c0ffee", "/job_10/c0ffee", "/c0ffee", "/"]
        {
            assert!(!of(other), "{other}");
        }
        assert!(!is_of_container("0::/job_1/\n", "/job_1", ""));
    }

    #[test]
    fn oom_kills_are_read_where_no_group_above_counts_them() {
        let v1 =
            "30 24 0:26 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n";
        let v2 = "31 24 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:8 - cgroup2 cgroup2 rw,nsdelegate\n";
        let path = |groups: &str, mounts: &str| memory_events_path(groups, mounts);
        let counted = Some("/sys/fs/cgroup/memory/job/c/memory.oom_control".to_owned());
        let both = format!("{v2}{v1}");
        assert_eq!(path("9:cpu,cpuacct:/job\n4:memory:/job/c\n0::/job/c\n", &both), counted);
        assert_eq!(path("0::/job/c\n", v2), None);
    }

    #[test]
    fn trees_are_hidden_at_once_where_one_folder_has_them_all() {
        let folder = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n";
        let tree = |id: u32, parent: u32, name: &str| {
            format!("{id} {parent} 0:{id} / {name} rw - cgroup cgroup rw,{id}\n")
        };
        let (cpu, devices) =
            (tree(32, 31, "/sys/fs/cgroup/cpu"), tree(33, 31, "/sys/fs/cgroup/devices"));
        let mounts = format!("23 1 0:2 / /sys rw - sysfs sysfs rw\n{folder}{cpu}{devices}");
        assert_eq!(folder_of_trees(&mounts).as_deref(), Some("/sys/fs/cgroup"));
        let elsewhere = format!("{mounts}{}", tree(40, 1, "/cgroup/memory"));
        assert_eq!(folder_of_trees(&elsewhere), None);
        let unified = "30 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let inner = format!("{unified}{}", tree(34, 30, "/sys/fs/cgroup/devices"));
        assert_eq!(folder_of_trees(&inner), None, "one is in another");
        assert_eq!(folder_of_trees(folder), None, "there is none");
        let copied = format!("{mounts}{}", tree(50, 45, "/mnt/parts/0/sys/fs/cgroup/cpu"));
        assert_eq!(folder_of_trees(&copied), None, "a layer has a tree of its own");
        assert_eq!(without(&copied, "/mnt/parts"), mounts);
    }

    #[test]
    fn path_of_a_group_is_below_its_tree_only() {
        let below = |group: &str| relative(group, "/sys/fs/cgroup/cpu");
        assert_eq!(below("/sys/fs/cgroup/cpu/a/b"), Some("/a/b".into()));
        assert_eq!(below("/sys/fs/cgroup/cpuset/a/b"), None);
        assert_eq!(below("/sys/fs/cgroup/cpu"), None);
    }
}
