//! Parses `/proc/self/mountinfo`, `/proc/self/cgroup` and `/proc/cgroups`: which trees are mounted where. Does no I/O.

use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// The controllers that Sluice can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Controller {
    Memory = 1,
    Cpuset = 2,
    Pids = 4,
    Freezer = 8,
    Cpuacct = 16,
    Devices = 32,
    Cpu = 64,
}

pub(super) const CONTROLLERS: [(Controller, &str); 7] = [
    (Controller::Memory, "memory"),
    (Controller::Cpuset, "cpuset"),
    (Controller::Pids, "pids"),
    (Controller::Freezer, "freezer"),
    (Controller::Cpuacct, "cpuacct"),
    (Controller::Devices, "devices"),
    (Controller::Cpu, "cpu"),
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ControllerSet(u8);

impl ControllerSet {
    /// v2 controllers that are delegated to job groups; v2 counts CPU time without any.
    pub const DELEGATED: ControllerSet = ControllerSet(
        Controller::Memory as u8
            | Controller::Cpuset as u8
            | Controller::Pids as u8
            | Controller::Cpu as u8,
    );
    /// The delegated controllers that groups of steps may use.
    pub const OF_STEPS: ControllerSet =
        ControllerSet(Controller::Memory as u8 | Controller::Cpuset as u8);

    pub fn of(controllers: &[Controller]) -> ControllerSet {
        controllers.iter().fold(ControllerSet::default(), |set, one| set.with(*one))
    }

    /// The known controllers among `words`; others are ignored.
    pub fn from_words<'a>(words: impl Iterator<Item = &'a str>) -> ControllerSet {
        words
            .filter_map(|word| CONTROLLERS.iter().find(|(_, name)| *name == word))
            .fold(ControllerSet::default(), |set, (one, _)| set.with(*one))
    }

    pub fn with(self, one: Controller) -> ControllerSet {
        ControllerSet(self.0 | one as u8)
    }

    pub fn without(self, one: Controller) -> ControllerSet {
        ControllerSet(self.0 & !(one as u8))
    }

    pub fn has(self, one: Controller) -> bool {
        self.0 & one as u8 != 0
    }

    pub fn both(self, other: ControllerSet) -> ControllerSet {
        ControllerSet(self.0 & other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn names(self) -> impl Iterator<Item = (Controller, &'static str)> {
        CONTROLLERS.into_iter().filter(move |(one, _)| self.has(*one))
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub version: Version,
    /// Where it is mounted.
    pub at: PathBuf,
    /// Which group of the hierarchy is at the mount point; not `/` in some containers.
    pub top: PathBuf,
    /// The controllers of a v1 mount.
    pub controllers: ControllerSet,
}

pub(super) fn parse_mountinfo(text: &str) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = text.lines().filter_map(parse_mount_line).collect();
    // The usual paths first, in case a tree is mounted more than once.
    mounts
        .sort_by_key(|mount| (!mount.at.starts_with("/sys/fs/cgroup"), mount.at.as_os_str().len()));
    mounts
}

fn parse_mount_line(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let top = unescape(left.next()?);
    let at = unescape(left.next()?);
    let mut right = right.split(' ');
    let version = match right.next()? {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    let options = right.nth(1).unwrap_or_default();
    let controllers = match version {
        Version::V1 => ControllerSet::from_words(options.split(',')),
        Version::V2 => ControllerSet::default(),
    };
    (version == Version::V2 || !controllers.is_empty()).then_some(Mount {
        version,
        at,
        top,
        controllers,
    })
}

/// mountinfo writes blanks and backslashes of a path as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('\\') {
        out.push_str(&rest[..start]);
        let digits = rest.get(start + 1..start + 4).unwrap_or_default();
        match u8::from_str_radix(digits, 8) {
            Ok(byte) => {
                out.push(char::from(byte));
                rest = &rest[start + 4..];
            }
            Err(_) => {
                out.push('\\');
                rest = &rest[start + 1..];
            }
        }
    }
    out.push_str(rest);
    PathBuf::from(out)
}

/// This process's own group in the hierarchy of `mount`, from the text of `/proc/self/cgroup`.
pub(super) fn own_group(text: &str, mount: &Mount) -> Option<PathBuf> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        let path = fields.next()?;
        let matches = match mount.version {
            Version::V2 => controllers.is_empty(),
            Version::V1 => {
                let set = ControllerSet::from_words(controllers.split(','));
                !set.both(mount.controllers).is_empty()
            }
        };
        matches.then(|| PathBuf::from(path))
    })
}

/// The folder of group `own` under `mount`; `None` if the mount does not show that group.
pub(super) fn folder_of(mount: &Mount, own: &Path) -> Option<PathBuf> {
    let inside = own.strip_prefix(&mount.top).ok()?;
    let climbs = inside.components().any(|part| part.as_os_str() == "..");
    // As its parts: joined with nothing, the mount point would end in a slash.
    (!climbs).then(|| mount.at.components().chain(inside.components()).collect())
}

/// Why the v1 controller `name` is not mounted, from the text of `/proc/cgroups`.
pub(super) fn absence(proc_cgroups: &str, name: &str) -> String {
    let row = proc_cgroups
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&name));
    match row.as_deref() {
        None => format!("this kernel has no {name} controller"),
        Some([.., "0"]) => format!("the {name} controller is disabled at boot"),
        Some(_) => format!("the {name} controller is in no hierarchy that Sluice may use"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
23 1 0:22 / /sys rw - sysfs sysfs rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /mnt/a\\040b rw,relatime - cgroup2 cgroup2 rw
42 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn mountinfo_gives_versions_paths_and_controllers() {
        let mounts = parse_mountinfo(HYBRID);
        let seen: Vec<_> = mounts
            .iter()
            .map(|m| {
                let names: Vec<_> = m.controllers.names().map(|(_, name)| name).collect();
                (m.version, m.at.to_str().expect("utf-8"), names.join(","))
            })
            .collect();
        let expected = [
            (Version::V1, "/sys/fs/cgroup/memory", "memory"),
            (Version::V2, "/sys/fs/cgroup/unified", ""),
            (Version::V1, "/sys/fs/cgroup/cpu,cpuacct", "cpuacct,cpu"),
            (Version::V2, "/mnt/a b", ""),
        ];
        assert_eq!(seen, expected.map(|(v, at, names)| (v, at, names.to_owned())));
    }

    #[test]
    fn lines_that_are_no_cgroup_mounts_are_ignored() {
        for line in ["", "garbage", "1 2 3", "1 2 0:3 / /x rw", "1 2 0:3 / /x rw - ext4 sda rw"] {
            assert_eq!(parse_mountinfo(line), [], "{line:?}");
        }
    }

    #[test]
    fn own_groups_are_found_by_controller_and_version() {
        let own = "4:memory:/api/x:y\n2:cpu,cpuacct:/c\n1:name=systemd:/s\n0::/user.slice/a\n";
        let mounts = parse_mountinfo(HYBRID);
        let paths: Vec<_> = mounts.iter().map(|m| own_group(own, m)).collect();
        let expected = ["/api/x:y", "/user.slice/a", "/c", "/user.slice/a"];
        assert_eq!(paths, expected.map(|path| Some(PathBuf::from(path))));
    }

    #[test]
    fn folders_stay_inside_the_mount() {
        let mount = |top: &str| Mount {
            version: Version::V2,
            at: "/m".into(),
            top: top.into(),
            controllers: ControllerSet::default(),
        };
        for (top, own, folder) in [
            ("/", "/a/b", Some("/m/a/b")),
            ("/", "/", Some("/m")),
            ("/docker/x", "/docker/x/y", Some("/m/y")),
            ("/docker/x", "/other", None),
            ("/", "/../escaped", None),
        ] {
            let found = folder_of(&mount(top), Path::new(own));
            assert_eq!(found.as_deref().and_then(Path::to_str), folder, "{own}");
        }
    }

    #[test]
    fn missing_controller_has_a_reason() {
        let table =
            "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t0\t1\t0\npids\t0\t1\t1\n";
        for (name, words) in [("memory", "disabled at boot"), ("pids", "in no"), ("cpu", "has no")]
        {
            assert!(absence(table, name).contains(words), "{name}: {}", absence(table, name));
        }
    }
}
