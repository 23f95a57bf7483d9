//! Finds the control-group trees of this machine, and makes our root group in each that is useful.

use std::collections::BTreeSet;
use std::fs;

use nix::errno::Errno;

use super::capability::{Capabilities, Findings};
use super::dir::check_name;
use super::error::CgroupError;
use super::mounts::{Controller, ControllerSet, Mount, Version, parse_mountinfo};
use super::plugin::Plugin;
use super::root_group::{RootGroup, open_root, roots_named};
use super::tracked_processes;
use crate::privilege;

pub struct Hierarchy {
    root_name: Box<str>,
    /// The tree that decides which processes belong to a job comes first. Empty where processes are only tracked.
    roots: Vec<RootGroup>,
    capabilities: Capabilities,
}

impl Hierarchy {
    /// Finds the trees that `plugin` allows and makes our root group `root_name` in each. `Auto` never fails for lack
    /// of trees or permissions: [`Hierarchy::capabilities`] has what is missing.
    pub fn discover(plugin: Plugin, root_name: &str) -> Result<Hierarchy, CgroupError> {
        Hierarchy::discover_trees(plugin, root_name, &|_| true)
    }

    /// The same for jobs whose CPUs are only counted: a v1 tree of CPU sets alone is left out. The kernel compares each
    /// group in it with all its siblings, which takes long on a machine of thousands of declared nodes.
    pub fn discover_without_cpuset(
        plugin: Plugin,
        root_name: &str,
    ) -> Result<Hierarchy, CgroupError> {
        let cpuset = ControllerSet::of(&[Controller::Cpuset]);
        Hierarchy::discover_trees(plugin, root_name, &|wanted| wanted != cpuset)
    }

    /// The names of the root groups that begin with `prefix`, in any tree or by the mark of a tracked process. Makes none.
    pub fn existing_roots(prefix: &str) -> Result<BTreeSet<String>, CgroupError> {
        let own = read_proc("/proc/self/cgroup")?;
        let mut found = tracked_processes::marked_roots()?;
        found.retain(|name| name.starts_with(prefix));
        for mount in parse_mountinfo(&read_proc("/proc/self/mountinfo")?) {
            found.extend(roots_named(&mount, &own, prefix)?);
        }
        Ok(found)
    }

    fn discover_trees(
        plugin: Plugin,
        root_name: &str,
        is_needed: &dyn Fn(ControllerSet) -> bool,
    ) -> Result<Hierarchy, CgroupError> {
        check_name(root_name)?;
        let own = read_proc("/proc/self/cgroup")?;
        // The file does not exist in kernels built without v1.
        let proc_cgroups = fs::read_to_string("/proc/cgroups").unwrap_or_default();
        let mut mounts = parse_mountinfo(&read_proc("/proc/self/mountinfo")?);
        mounts.sort_by_key(|mount| mount.version == Version::V1);

        let mut found = Findings { plugin, proc_cgroups: &proc_cgroups, refusals: Vec::new() };
        let mut roots: Vec<RootGroup> = Vec::new();
        for mount in &mounts {
            if !plugin.takes(mount.version) {
                continue;
            }
            let wanted = wanted_of(mount, &roots);
            if wanted.is_empty() || (mount.version == Version::V1 && !is_needed(wanted)) {
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

    pub(super) fn roots(&self) -> &[RootGroup] {
        &self.roots
    }

    /// Where our groups are, for messages.
    pub(super) fn location(&self) -> String {
        match self.roots.first() {
            Some(root) => root.dir.path().to_owned(),
            None => format!("the tracked processes of {}", self.root_name),
        }
    }

    /// All groups of ours, sorted. After a restart, those of no known attempt are leftovers.
    pub fn leftovers(&self) -> Result<Vec<String>, CgroupError> {
        let mut names = Vec::new();
        for root in &self.roots {
            names.extend(root.dir.children()?);
        }
        if self.roots.is_empty() {
            names = tracked_processes::marked_groups(&self.root_name)?;
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Removes our root groups; an error if a job's group is still there.
    pub fn remove_root(&self) -> Result<(), CgroupError> {
        if let Some(name) = self.leftovers()?.into_iter().next() {
            return Err(CgroupError::io("remove the parent of", name, Errno::EBUSY));
        }
        self.roots.iter().try_for_each(|root| root.base.remove_child(&self.root_name))
    }
}

/// What users have mounted may have names of any bytes.
fn read_proc(path: &str) -> Result<String, CgroupError> {
    let bytes = fs::read(path).map_err(|source| CgroupError::io("read", path, source))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The controllers that a mount adds to the roots found so far. Every further tree costs each job a directory, so v1's
/// freezer and cpuacct are used only without v2.
fn wanted_of(mount: &Mount, roots: &[RootGroup]) -> ControllerSet {
    let have_v2 = roots.iter().any(|root| root.version == Version::V2);
    match mount.version {
        Version::V2 if have_v2 => ControllerSet::default(),
        Version::V2 => ControllerSet::DELEGATED,
        Version::V1 => {
            let limiting = ControllerSet::DELEGATED;
            let mut useful = if have_v2 {
                limiting
            } else {
                limiting.with(Controller::Freezer).with(Controller::Cpuacct)
            };
            let guarded = roots.iter().any(|root| root.controllers.has(Controller::Devices));
            if privilege::is_root() && !guarded {
                useful = useful.with(Controller::Devices);
            }
            let fresh = mount.controllers.both(useful);
            let taken = |root: &RootGroup| !root.controllers.both(fresh).is_empty();
            if roots.iter().any(taken) { ControllerSet::default() } else { fresh }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::dir::GroupDir;

    #[test]
    fn trees_that_add_no_controller_are_not_used() {
        let mount = |version, controllers: &[Controller]| Mount {
            version,
            at: "/m".into(),
            top: "/".into(),
            controllers: ControllerSet::of(controllers),
        };
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = |version, controllers: &[Controller]| RootGroup {
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
