//! Prepares our root group in a tree for the groups of jobs below it.

use nix::errno::Errno;

use super::device_program::DeviceProgram;
use super::dir::GroupDir;
use super::error::CgroupError;
use super::mounts::{Controller, ControllerSet};
use crate::privilege;

/// The group into which the agent moves itself if its presence prevents delegation.
pub(super) fn leaf_name(root_name: &str) -> String {
    format!("{root_name}.agent")
}

/// Adds the devices controller where the kernel accepts a device program: v2 has no such controller itself.
pub(super) fn with_devices(
    passed: ControllerSet,
    refusals: &mut Vec<(ControllerSet, String)>,
) -> ControllerSet {
    if !privilege::is_root() {
        return passed;
    }
    match DeviceProgram::load(&[]) {
        Ok(_) => passed.with(Controller::Devices),
        Err(errno) => {
            let reason = format!("the kernel takes no device program: {}", errno.desc());
            refusals.push((ControllerSet::of(&[Controller::Devices]), reason));
            passed
        }
    }
}

/// Sets up our v1 root group, from which the groups of jobs copy their settings.
pub(super) fn prepare_v1(
    base: &GroupDir,
    dir: &GroupDir,
    wanted: ControllerSet,
    refusals: &mut Vec<(ControllerSet, String)>,
) -> ControllerSet {
    if wanted.has(Controller::Memory) && dir.read_number("memory.use_hierarchy") == Some(0) {
        // Kernels from 5.11 are always hierarchical; on older ones a failure shows when the limit is set.
        let _ = dir.write("memory.use_hierarchy", "1");
    }
    if !wanted.has(Controller::Cpuset) {
        return wanted;
    }
    match prepare_cpuset(base, dir) {
        Ok(()) => wanted,
        Err(error) => {
            let cpuset = ControllerSet::of(&[Controller::Cpuset]);
            refusals.push((cpuset, error.to_string()));
            wanted.without(Controller::Cpuset)
        }
    }
}

/// Sets CPUs and memory nodes of a v1 cpuset, without which it takes no process; children copy them.
fn prepare_cpuset(base: &GroupDir, dir: &GroupDir) -> Result<(), CgroupError> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if dir.read(file)?.trim().is_empty() {
            dir.write(file, base.read(file)?.trim())?;
        }
    }
    dir.write("cgroup.clone_children", "1")
}

/// Delegates the v2 controllers that we use through `base` to the groups of jobs. Returns those that are delegated.
pub(super) fn delegate_v2(
    base: &GroupDir,
    dir: &GroupDir,
    root_name: &str,
    refusals: &mut Vec<(ControllerSet, String)>,
) -> Result<ControllerSet, CgroupError> {
    for (group, is_base) in [(base, true), (dir, false)] {
        let offered = controller_list(group, "cgroup.controllers")?.both(ControllerSet::DELEGATED);
        let on = controller_list(group, "cgroup.subtree_control")?;
        for (controller, name) in offered.names().filter(|(one, _)| !on.has(*one)) {
            let switch = || group.write("cgroup.subtree_control", &format!("+{name}"));
            let result = switch().or_else(|error| {
                if !is_base || error.raw_os_error() != Some(Errno::EBUSY as i32) {
                    return Err(error);
                }
                // v2 delegates only from a group without processes; the agent's may be the one in it.
                let leaf = base.make_or_open_child(&leaf_name(root_name))?;
                leaf.write("cgroup.procs", "0")?;
                switch()
            });
            if let Err(error) = result {
                refusals.push((ControllerSet::of(&[controller]), error.to_string()));
            }
        }
    }
    Ok(controller_list(dir, "cgroup.subtree_control")?.both(ControllerSet::DELEGATED))
}

fn controller_list(group: &GroupDir, file: &str) -> Result<ControllerSet, CgroupError> {
    Ok(ControllerSet::from_words(group.read(file)?.split_whitespace()))
}
