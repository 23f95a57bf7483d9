//! Finds the control-group trees of this machine and keeps our own root group in each that is of use.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use nix::errno::Errno;
use nix::unistd::Uid;

use super::capability::{Capabilities, Findings};
use super::dir::{GroupDir, check_name};
use super::error::CgroupError;
use super::group::JobGroup;
use super::mounts::{
    Controller, ControllerSet, Mount, Version, folder_of, own_group, parse_mountinfo,
};
use super::prepare::{delegate_v2, leaf_name, prepare_v1, with_devices};
use super::process;

/// Which trees may be used: Slurm's `CgroupPlugin`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plugin {
    #[default]
    Auto,
    V1,
    V2,
    Disabled,
}

const PLUGINS: [(Plugin, &str); 4] = [
    (Plugin::Auto, "autodetect"),
    (Plugin::V1, "cgroup/v1"),
    (Plugin::V2, "cgroup/v2"),
    (Plugin::Disabled, "disabled"),
];

impl Plugin {
    pub fn as_str(self) -> &'static str {
        PLUGINS[self as usize].1
    }

    fn takes(self, version: Version) -> bool {
        match self {
            Plugin::Auto => true,
            Plugin::V1 => version == Version::V1,
            Plugin::V2 => version == Version::V2,
            Plugin::Disabled => false,
        }
    }
}

impl FromStr for Plugin {
    type Err = String;

    fn from_str(text: &str) -> Result<Plugin, String> {
        PLUGINS
            .into_iter()
            .find(|(_, word)| word.eq_ignore_ascii_case(text))
            .map(|(plugin, _)| plugin)
            .ok_or_else(|| {
                format!("CgroupPlugin={text}: use autodetect, cgroup/v1, cgroup/v2 or disabled")
            })
    }
}

impl fmt::Display for Plugin {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// Our root group in one tree.
pub(super) struct Root {
    pub version: Version,
    /// What a job's group in this tree can limit or count.
    pub controllers: ControllerSet,
    pub dir: Arc<GroupDir>,
    base: GroupDir,
}

pub struct Hierarchy {
    root_name: Box<str>,
    /// The tree that says who belongs to a job comes first. Empty: processes are only tracked.
    roots: Vec<Root>,
    capabilities: Capabilities,
}

impl Hierarchy {
    /// Finds the trees that `plugin` allows and makes our root group `root_name` in each.
    /// `Auto` never fails for want of trees or rights: it says what is missing in [`Hierarchy::capabilities`].
    pub fn discover(plugin: Plugin, root_name: &str) -> Result<Hierarchy, CgroupError> {
        check_name(root_name)?;
        let own = read_proc("/proc/self/cgroup")?;
        // Gone from kernels built without v1.
        let proc_cgroups = fs::read_to_string("/proc/cgroups").unwrap_or_default();
        let mut mounts = parse_mountinfo(&read_proc("/proc/self/mountinfo")?);
        mounts.sort_by_key(|mount| mount.version == Version::V1);

        let mut found = Findings { plugin, proc_cgroups: &proc_cgroups, refusals: Vec::new() };
        let mut roots: Vec<Root> = Vec::new();
        for mount in &mounts {
            if !plugin.takes(mount.version) {
                continue;
            }
            let wanted = wanted_of(mount, &roots);
            if wanted.is_empty() {
                continue;
            }
            match open_root(mount, wanted, &own, root_name, &mut found.refusals) {
                Ok(root) => roots.push(root),
                Err(error) => found.refusals.push((wanted, error.to_string())),
            }
        }
        if roots.is_empty() && matches!(plugin, Plugin::V1 | Plugin::V2) {
            let reason = found.refusals.into_iter().next().map(|(_, answer)| answer);
            return Err(CgroupError::Unavailable {
                plugin: plugin.as_str(),
                reason: reason.unwrap_or_else(|| "no such tree is mounted".to_owned()),
            });
        }
        roots.sort_by_key(|root| match root.version {
            Version::V2 => 0,
            Version::V1 if root.controllers.has(Controller::Freezer) => 1,
            Version::V1 => 2,
        });
        let capabilities = Capabilities::assess(&roots, &found);
        Ok(Hierarchy { root_name: root_name.into(), roots, capabilities })
    }

    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    pub fn root_name(&self) -> &str {
        &self.root_name
    }

    pub(super) fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// Where our groups are, for messages.
    pub(super) fn place(&self) -> String {
        match self.roots.first() {
            Some(root) => root.dir.path().to_owned(),
            None => format!("the tracked processes of {}", self.root_name),
        }
    }

    /// Every group of ours that is there now, sorted. After a restart, those of no known attempt are left over.
    pub fn leftovers(&self) -> Result<Vec<String>, CgroupError> {
        let mut names = Vec::new();
        for root in &self.roots {
            names.extend(root.dir.children()?);
        }
        if self.roots.is_empty() {
            names = process::marked_groups(&self.root_name)?;
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Takes up a group that an earlier process made.
    pub fn open_existing(&self, name: &str) -> Result<JobGroup, CgroupError> {
        JobGroup::open(self, name)
    }

    /// Takes our root groups away again; an error if a job's group is still there.
    pub fn remove_root(&self) -> Result<(), CgroupError> {
        if let Some(name) = self.leftovers()?.into_iter().next() {
            return Err(CgroupError::io("remove the parent of", name, Errno::EBUSY));
        }
        self.roots.iter().try_for_each(|root| root.base.remove_child(&self.root_name))
    }
}

fn read_proc(path: &str) -> Result<String, CgroupError> {
    fs::read_to_string(path).map_err(|source| CgroupError::io("read", path, source))
}

/// What a mount would add to the roots found so far; empty if nothing.
/// Every further tree costs each job a directory, so freezer and cpuacct are used only where v2 is not.
fn wanted_of(mount: &Mount, roots: &[Root]) -> ControllerSet {
    let have_v2 = roots.iter().any(|root| root.version == Version::V2);
    match mount.version {
        Version::V2 if have_v2 => ControllerSet::default(),
        Version::V2 => ControllerSet::DELEGATED,
        Version::V1 => {
            let limiting = ControllerSet::DELEGATED;
            let mut useful = match have_v2 {
                true => limiting,
                false => limiting.with(Controller::Freezer).with(Controller::Cpuacct),
            };
            let guarded = roots.iter().any(|root| root.controllers.has(Controller::Devices));
            if Uid::effective().is_root() && !guarded {
                useful = useful.with(Controller::Devices);
            }
            let fresh = mount.controllers.both(useful);
            let taken = |root: &Root| !root.controllers.both(fresh).is_empty();
            if roots.iter().any(taken) { ControllerSet::default() } else { fresh }
        }
    }
}

/// The groups under which our root may be made: root takes the top of the tree, others what was delegated to them.
fn bases(mount: &Mount, own: &str, root_name: &str) -> Vec<PathBuf> {
    let delegated = own_group(own, mount)
        .map(|path| above_ours(&path, root_name))
        .and_then(|path| folder_of(mount, &path));
    let top = Uid::effective().is_root().then(|| mount.at.clone());
    let mut bases: Vec<PathBuf> = top.into_iter().chain(delegated).collect();
    bases.dedup();
    bases
}

/// An agent started from inside one of our own groups works beside it, not below it.
fn above_ours(own: &Path, root_name: &str) -> PathBuf {
    let leaf = leaf_name(root_name);
    own.components()
        .take_while(|part| part.as_os_str() != root_name && part.as_os_str() != leaf.as_str())
        .collect()
}

fn open_root(
    mount: &Mount,
    wanted: ControllerSet,
    own: &str,
    root_name: &str,
    refusals: &mut Vec<(ControllerSet, String)>,
) -> Result<Root, CgroupError> {
    let mut failure =
        CgroupError::io("find our own group in", mount.at.to_string_lossy(), Errno::ENOENT);
    for base in bases(mount, own, root_name) {
        let opened = GroupDir::open(&base).and_then(|base| {
            let dir = base.make_or_open_child(root_name)?;
            // Moving a process into a group below `base` needs leave to write `base`'s own list too.
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
                return Ok(Root { version: mount.version, controllers, dir: dir.shared(), base });
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
    fn plugin_words_are_slurms() {
        for (plugin, word) in PLUGINS {
            assert_eq!(word.parse(), Ok(plugin));
            assert_eq!(plugin.as_str(), word);
        }
        assert!("cgroup/v3".parse::<Plugin>().expect_err("unknown").contains("cgroup/v3"));
    }

    #[test]
    fn an_agent_inside_our_groups_works_beside_them() {
        for (own, base) in [
            ("/user.slice/x", "/user.slice/x"),
            ("/a/sluice.agent", "/a"),
            ("/a/sluice/job_1", "/a"),
            ("/", "/"),
        ] {
            assert_eq!(above_ours(Path::new(own), "sluice"), Path::new(base), "{own}");
        }
    }

    #[test]
    fn trees_that_add_nothing_cost_nothing() {
        let mount = |version, controllers: &[Controller]| Mount {
            version,
            at: "/m".into(),
            top: "/".into(),
            controllers: ControllerSet::of(controllers),
        };
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = |version, controllers: &[Controller]| Root {
            version,
            controllers: ControllerSet::of(controllers),
            dir: GroupDir::open(scratch.path()).expect("open").shared(),
            base: GroupDir::open(scratch.path()).expect("open"),
        };
        let unified = [root(Version::V2, &[])];
        let memory = [root(Version::V1, &[Controller::Memory])];
        for (mount, roots, wanted) in [
            (mount(Version::V1, &[Controller::Freezer]), &unified[..], &[][..]),
            (mount(Version::V1, &[Controller::Freezer]), &memory, &[Controller::Freezer]),
            (mount(Version::V1, &[Controller::Memory]), &unified, &[Controller::Memory]),
            (mount(Version::V1, &[Controller::Memory]), &memory, &[]),
            (mount(Version::V1, &[Controller::Cpuacct]), &unified, &[]),
            (mount(Version::V2, &[]), &unified, &[]),
        ] {
            assert_eq!(wanted_of(&mount, roots), ControllerSet::of(wanted), "{mount:?}");
        }
    }
}
