//! Which device files a job may open: those of its granted units, the driver files that these need, and those that
//! every program needs.

use crate::cdi::DeviceEdits;
use crate::cgroup::DeviceRule;
use crate::spool::LaunchRecord;
use model::limits::DeviceLimits;
use nix::sys::stat::stat;
use std::fs;
use std::path::Path;

/// Devices that every program may need, by the kernel's fixed numbers: null, zero, full, random, urandom; tty, console,
/// ptmx, pseudo-terminals; tun, fuse and loop, for containers. The files' modes still apply.
const STANDARD: [DeviceRule; 13] = [
    DeviceRule::char(1, Some(3)),
    DeviceRule::char(1, Some(5)),
    DeviceRule::char(1, Some(7)),
    DeviceRule::char(1, Some(8)),
    DeviceRule::char(1, Some(9)),
    DeviceRule::char(5, Some(0)),
    DeviceRule::char(5, Some(1)),
    DeviceRule::char(5, Some(2)),
    DeviceRule::char(136, None),
    DeviceRule::char(10, Some(200)),
    DeviceRule::char(10, Some(229)),
    DeviceRule::char(10, Some(237)),
    DeviceRule::block(7, None),
];

/// Prefixes of GPU files whose drivers need further files, and these files' device numbers or names in `/proc/devices`.
const NVIDIA: &str = "/dev/nvidia";
const NVIDIA_MAJOR: u32 = 195;
/// `nvidiactl` and `nvidia-modeset`.
const NVIDIA_CONTROL: [u32; 2] = [255, 254];
const NVIDIA_UVM: &str = "nvidia-uvm";
const RENDER: &str = "/dev/dri/";
const AMD_COMPUTE: &str = "/dev/kfd";
/// Files of groups of devices that are opened by VFIO, TPUs among them, and the one that is opened with each.
const VFIO: &str = "/dev/vfio/";
const VFIO_CONTROL: &str = "/dev/vfio/vfio";
/// Gaudi's files by number, and those that control them.
const GAUDI: &str = "/dev/accel/accel";
const GAUDI_CONTROL: &str = "/dev/accel/accel_controlD";

/// Files of drivers that copy memory directly to and from NVIDIA GPUs.
const NVIDIA_PATHS: [&str; 3] =
    ["/dev/gdrdrv", "/dev/nvidia-fs*", "/dev/nvidia-caps-imex-channels/channel*"];
/// Files of drivers that share memory between processes of one machine.
const SHARING: [&str; 2] = ["/dev/xpmem", "/dev/knem"];
/// Files of network fabrics (RDMA) between machines.
const FABRIC: [&str; 3] = ["/dev/infiniband/*", "/dev/hfi1*", "/dev/cxi*"];
/// The files of a fabric that exist only if there is a port. The others exist as soon as a kernel module is loaded.
const PORTS: [&str; 3] = ["/dev/infiniband/uverbs*", "/dev/hfi1*", "/dev/cxi*"];
/// Files of accelerators and of their drivers.
const ACCELERATORS: [&str; 8] = [
    "/dev/nvidia*",
    "/dev/nvidia-caps/*",
    "/dev/dri/render*",
    "/dev/kfd",
    "/dev/accel/*",
    "/dev/accel*",
    "/dev/vfio/*",
    "/dev/tenstorrent/*",
];
/// Files read for one pattern.
const FILES_MAX: usize = 4096;

/// What decides on a job's devices beside those that it was granted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceScope<'a> {
    pub of_several_nodes: bool,
    /// The folders of vendors' files, which add to granted devices.
    pub cdi: &'a [String],
}

impl<'a> DeviceScope<'a> {
    pub fn of(record: &'a LaunchRecord) -> Self {
        DeviceScope { of_several_nodes: record.launch.nodes > 1, cdi: &record.site.containers.cdi }
    }
}

/// The rules for the granted units, or an error that names a file that is no device.
pub(crate) fn allowed(
    limits: &DeviceLimits,
    scope: DeviceScope,
) -> Result<Vec<DeviceRule>, String> {
    let mut rules = DeviceRoot::HOST.allowed(limits, scope.of_several_nodes)?;
    for node in DeviceEdits::find(scope.cdi, Some(limits)).nodes {
        if !rules.contains(&node.rule) {
            rules.push(node.rule);
        }
    }
    Ok(rules)
}

/// The rules of the devices that a container shows: what was granted, and what drivers share; where nobody limits devices,
/// every accelerator.
pub(crate) fn shown(limits: Option<&DeviceLimits>, scope: DeviceScope) -> Vec<DeviceRule> {
    let host = &DeviceRoot::HOST;
    let Some(limits) = limits else {
        let all = ACCELERATORS.iter().chain(&SHARING).chain(&FABRIC);
        return host.matching_rules(&all.collect::<Vec<_>>());
    };
    let granted: Vec<DeviceRule> =
        limits.files().filter_map(|file| host.device(file).ok()).collect();
    let rules = allowed(limits, scope).unwrap_or_default().into_iter();
    rules.filter(|rule| granted.contains(rule) || !STANDARD.contains(rule)).collect()
}

/// The root folder of the machine's files; tests use another.
struct DeviceRoot<'a>(&'a str);

impl DeviceRoot<'static> {
    const HOST: DeviceRoot<'static> = DeviceRoot("");
}

impl DeviceRoot<'_> {
    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    fn majors(&self) -> String {
        fs::read_to_string(self.at("/proc/devices")).unwrap_or_default()
    }

    fn allowed(
        &self,
        limits: &DeviceLimits,
        of_several_nodes: bool,
    ) -> Result<Vec<DeviceRule>, String> {
        let mut shared = self.matching_rules(&SHARING);
        shared.extend(self.matching_rules(&limits.allowed));
        if of_several_nodes {
            shared.extend(self.matching_rules(&FABRIC));
        }
        self.rules(limits, &self.majors(), &shared)
    }

    /// The devices that match these patterns.
    fn matching_rules<T: AsRef<str>>(&self, patterns: &[T]) -> Vec<DeviceRule> {
        patterns.iter().flat_map(|pattern| matching(&self.at(pattern.as_ref()))).collect()
    }

    fn rules(
        &self,
        limits: &DeviceLimits,
        majors: &str,
        shared: &[DeviceRule],
    ) -> Result<Vec<DeviceRule>, String> {
        let mut rules: Vec<DeviceRule> = Vec::new();
        for file in limits.files() {
            rules.push(self.device(file)?);
            rules.extend(self.control_devices(file, majors));
        }
        // Units that can be granted are not open by default, whatever else allows them. A missing file guards nothing.
        let guarded: Vec<DeviceRule> =
            limits.guarded.iter().filter_map(|file| self.device(file).ok()).collect();
        let free = |rule: &&DeviceRule| !guarded.iter().any(|guarded| rule.covers(guarded));
        rules.extend(STANDARD.iter().chain(shared).filter(free));
        let mut kept: Vec<DeviceRule> = Vec::with_capacity(rules.len());
        for rule in rules {
            if !kept.contains(&rule) {
                kept.push(rule);
            }
        }
        Ok(kept)
    }

    /// The device of a file, or why it is no device.
    fn device(&self, file: &str) -> Result<DeviceRule, String> {
        let status = stat(self.at(file).as_str()).map_err(|errno| {
            format!("device file {file} of a granted resource: {}", errno.desc())
        })?;
        DeviceRule::of_file(&status).ok_or_else(|| {
            format!("File={file} is not a device: gres.conf must name a device file")
        })
    }

    /// The devices of its driver that a granted device needs as well.
    fn control_devices(&self, file: &str, majors: &str) -> Vec<DeviceRule> {
        if file.starts_with(NVIDIA) {
            let control = NVIDIA_CONTROL.map(|minor| DeviceRule::char(NVIDIA_MAJOR, Some(minor)));
            // Its major number is assigned dynamically.
            let uvm = major_of(majors, NVIDIA_UVM).map(|major| DeviceRule::char(major, None));
            return control
                .into_iter()
                .chain(uvm)
                .chain(self.matching_rules(&NVIDIA_PATHS))
                .collect();
        }
        let further = match file.strip_prefix(GAUDI) {
            Some(number) => Some(format!("{GAUDI_CONTROL}{number}")),
            None if file.starts_with(RENDER) => Some(AMD_COMPUTE.to_owned()),
            None if file.starts_with(VFIO) => Some(VFIO_CONTROL.to_owned()),
            None => None,
        };
        further.and_then(|file| self.device(&file).ok()).into_iter().collect()
    }

    /// Whether there is a fabric for jobs of several nodes.
    fn has_fabric(&self) -> bool {
        !self.matching_rules(&PORTS).is_empty()
    }
}

fn matching(pattern: &str) -> Vec<DeviceRule> {
    let rule = |path: &Path| DeviceRule::of_file(&stat(path).ok()?);
    let Some((start, end)) = pattern.split_once('*') else {
        return rule(Path::new(pattern)).into_iter().collect();
    };
    let Some((folder, start)) = start.rsplit_once('/') else { return Vec::new() };
    let fits = |name: &str| {
        name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(FILES_MAX);
    let named = entries.filter(|entry| entry.file_name().to_str().is_some_and(fits));
    named.filter_map(|entry| rule(&entry.path())).collect()
}

/// The major number of a driver among the character devices of `/proc/devices`.
fn major_of(devices: &str, driver: &str) -> Option<u32> {
    let chars = devices.lines().take_while(|line| !line.starts_with("Block devices"));
    chars
        .filter_map(|line| line.trim().split_once(' '))
        .find_map(|(number, name)| (name.trim() == driver).then(|| number.parse().ok()).flatten())
}

/// Whether this machine has a fabric for jobs of several nodes.
pub(crate) fn has_fabric() -> bool {
    DeviceRoot::HOST.has_fabric()
}

/// The reason why these devices are not usable yet, in one line.
pub(crate) fn not_ready<'a>(mut files: impl Iterator<Item = &'a str>) -> Option<String> {
    let majors = DeviceRoot::HOST.majors();
    let lacks =
        files.any(|file| file.starts_with(NVIDIA)) && major_of(&majors, NVIDIA_UVM).is_none();
    lacks.then(|| "nvidia-uvm is not loaded: CUDA needs it (nvidia-modprobe -u -c 0)".to_owned())
}

/// An error line for each of these files that is no device.
pub(crate) fn not_devices<'a>(files: impl Iterator<Item = &'a str>) -> Vec<String> {
    files.filter_map(|file| DeviceRoot::HOST.device(file).err()).collect()
}

#[cfg(test)]
mod tests;
