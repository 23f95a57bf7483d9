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
        let compute = file.starts_with(RENDER).then(|| self.device(AMD_COMPUTE).ok()).flatten();
        compute.into_iter().collect()
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
mod tests {
    use super::*;
    use model::limits::DeviceUnit;

    const HOST: DeviceRoot<'static> = DeviceRoot::HOST;

    /// A root folder whose device files are links to devices of this machine.
    fn machine(devices: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("scratch folder");
        for (path, here) in devices {
            let path = root.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().expect("a folder")).expect("mkdir");
            std::os::unix::fs::symlink(here, path).expect("a link");
        }
        root
    }

    const NULL: DeviceRule = DeviceRule::char(1, Some(3));
    const ZERO: DeviceRule = DeviceRule::char(1, Some(5));
    const FULL: DeviceRule = DeviceRule::char(1, Some(7));
    const RANDOM: DeviceRule = DeviceRule::char(1, Some(8));

    fn limits(granted: &[&str], guarded: &[&str]) -> DeviceLimits {
        let owned = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect();
        let unit = DeviceUnit { name: "gpu".into(), index: Some(0), files: owned(granted) };
        DeviceLimits { granted: vec![unit], guarded: owned(guarded), allowed: Vec::new() }
    }

    #[test]
    fn granted_devices_are_allowed_and_guarded_ones_are_not() {
        let (null, full) = (DeviceRule::char(1, Some(3)), DeviceRule::char(1, Some(7)));
        let both = ["/dev/null", "/dev/full", "/dev/not-there"];
        let rules = HOST.rules(&limits(&["/dev/full"], &both), "", &[]).expect("a device");
        assert!(rules.contains(&full) && !rules.contains(&null), "{rules:?}");
        assert!(rules.contains(&DeviceRule::char(136, None)), "terminals are everybody's");
        let none = HOST.rules(&limits(&[], &[]), "", &[]).expect("no device");
        assert_eq!(none, STANDARD);
    }

    #[test]
    fn file_that_is_no_device_is_an_error() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let plain = scratch.path().join("plain");
        fs::write(&plain, "").expect("write");
        let plain = plain.to_str().expect("utf-8");
        let line = HOST.rules(&limits(&[plain], &[plain]), "", &[]).expect_err("refused");
        assert_eq!(
            line,
            format!("File={plain} is not a device: gres.conf must name a device file")
        );
        let gone = "/dev/not-there";
        let line = HOST.rules(&limits(&[gone], &[gone]), "", &[]).expect_err("refused");
        assert!(line.contains(gone) && line.contains("No such file"), "{line}");
        assert_eq!(not_devices(["/dev/null", plain].into_iter()).len(), 1);
    }

    #[test]
    fn nvidia_gpu_brings_its_drivers_control_files() {
        let majors = "Character devices:\n  1 mem\n195 nvidia\n238 nvidia-uvm\n\nBlock devices:\n  7 loop\n239 nvidia-uvm\n";
        assert_eq!(major_of(majors, "nvidia-uvm"), Some(238));
        assert_eq!(major_of(majors, "loop"), None, "a block device");
        let needed = HOST.control_devices("/dev/nvidia3", majors);
        let (control, uvm) = (DeviceRule::char(195, Some(255)), DeviceRule::char(238, None));
        assert!(needed.contains(&control) && needed.contains(&uvm), "{needed:?}");
        assert_eq!(HOST.control_devices("/dev/fpga0", majors), []);
    }

    #[test]
    fn guarded_fabric_is_not_shared() {
        let port = DeviceRule::char(1, Some(7));
        let none = limits(&[], &[]);
        assert!(HOST.rules(&none, "", &[port]).expect("no device").contains(&port));
        let guarded = limits(&[], &["/dev/full"]);
        assert!(!HOST.rules(&guarded, "", &[port]).expect("no device").contains(&port));
    }

    #[test]
    fn site_may_allow_further_devices_for_every_job() {
        let full = DeviceRule::char(1, Some(7));
        assert_eq!(HOST.matching_rules(&["/dev/full", "/dev/not-there"]), [full]);
        assert!(
            HOST.matching_rules(&["/dev/ful*"]).contains(&full)
                && HOST.matching_rules(&["/dev/f*l"]).contains(&full)
        );
        assert!(
            !HOST.matching_rules(&["/dev/z*"]).contains(&full)
                && HOST.matching_rules(&["/not-there/*"]).is_empty()
        );
        let site = DeviceLimits { allowed: vec!["/dev/mem".into()], ..limits(&[], &[]) };
        let scope = DeviceScope { of_several_nodes: false, cdi: &[] };
        let rules = allowed(&site, scope).expect("no device");
        assert_eq!(rules.contains(&DeviceRule::char(1, Some(1))), Path::new("/dev/mem").exists());
    }

    #[test]
    fn mig_slice_opens_its_own_capabilities_only() {
        let cap = |n: u32| format!("/dev/nvidia-caps/nvidia-cap{n}");
        let root = machine(&[
            ("/dev/nvidia0", "/dev/null"),
            (&cap(12), "/dev/zero"),
            (&cap(13), "/dev/full"),
            (&cap(21), "/dev/random"),
            (&cap(22), "/dev/random"),
        ]);
        let machine = DeviceRoot(root.path().to_str().expect("utf-8"));
        let (own, others) = ([cap(12), cap(13)], [cap(21), cap(22)]);
        let granted = ["/dev/nvidia0", &own[0], &own[1]];
        let guarded = ["/dev/nvidia0", &own[0], &own[1], &others[0], &others[1]];
        let rules = machine.allowed(&limits(&granted, &guarded), false).expect("devices");
        assert!([NULL, ZERO, FULL].iter().all(|rule| rules.contains(rule)), "{rules:?}");
        assert!(!rules.contains(&RANDOM), "the rights to another slice: {rules:?}");
        assert!(rules.contains(&DeviceRule::char(195, Some(255))), "the control device: {rules:?}");
    }

    #[test]
    fn amd_render_node_brings_the_compute_driver_and_intels_does_not() {
        let (amd, intel) = ("/dev/dri/renderD128", "/dev/dri/renderD129");
        let root =
            machine(&[(amd, "/dev/null"), (intel, "/dev/random"), ("/dev/kfd", "/dev/full")]);
        let machine = DeviceRoot(root.path().to_str().expect("utf-8"));
        let of = |file| machine.allowed(&limits(&[file], &[amd, intel]), false).expect("devices");
        let rules = of(amd);
        assert!(rules.contains(&NULL) && rules.contains(&FULL) && !rules.contains(&RANDOM));
        let rules = of(intel);
        assert!(rules.contains(&RANDOM) && !rules.contains(&NULL));
        let none = machine.allowed(&limits(&[], &[amd, intel]), true).expect("devices");
        assert!(!none.contains(&RANDOM) && !none.contains(&NULL));
        let without = machine_without_compute();
        let machine = DeviceRoot(without.path().to_str().expect("utf-8"));
        let rules = machine.allowed(&limits(&[intel], &[intel, "/dev/kfd"]), false);
        assert!(rules.expect("devices").contains(&RANDOM), "Intel's needs no other");
    }

    fn machine_without_compute() -> tempfile::TempDir {
        machine(&[("/dev/dri/renderD129", "/dev/random")])
    }

    #[test]
    fn fabric_is_open_to_jobs_of_several_nodes_only() {
        let root = machine(&[
            ("/dev/infiniband/uverbs0", "/dev/null"),
            ("/dev/infiniband/rdma_cm", "/dev/zero"),
            ("/dev/hfi1_0", "/dev/random"),
        ]);
        let machine = DeviceRoot(root.path().to_str().expect("utf-8"));
        assert!(machine.has_fabric());
        // All are guarded, because some are devices that every job may open.
        let all = ["/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm", "/dev/hfi1_0"];
        assert_eq!(machine.matching_rules(&FABRIC).len(), all.len());
        let alone = machine.allowed(&limits(&[], &all), true).expect("no device");
        assert!(!alone.contains(&NULL) && !alone.contains(&RANDOM), "granted singly: {alone:?}");
        let (block, bare) = ("/dev/cxi0", machine_with_port());
        let machine = DeviceRoot(bare.path().to_str().expect("utf-8"));
        let port = machine.device(block).expect("a device");
        let of = |several| machine.allowed(&limits(&[], &[]), several).expect("no device");
        assert!(of(true).contains(&port) && !of(false).contains(&port));
        let without = super::tests::machine(&[("/dev/infiniband/rdma_cm", "/dev/zero")]);
        assert!(!DeviceRoot(without.path().to_str().expect("utf-8")).has_fabric(), "no port");
    }

    /// Its port links to the kernel's log, a device that is not open by default.
    fn machine_with_port() -> tempfile::TempDir {
        machine(&[("/dev/cxi0", "/dev/kmsg")])
    }
}
