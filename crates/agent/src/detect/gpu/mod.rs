//! Detects GPUs by what their drivers show in `/proc`, `/sys` and `/dev`, without a vendor library.
//!
//! `nvidia` with `mig` (slices), `amd` (the compute driver's topology), `intel`, `accelerator` (Gaudi, Tenstorrent, TPUs);
//! `models` names models that their drivers do not name; `vendor_tool` runs a vendor's tool for what no file says.

mod accelerator;
mod amd;
mod intel;
mod mig;
mod models;
mod nvidia;
pub(crate) mod vendor_tool;

use model::amount::Bytes;
use model::gpu::ComputeCapability;
use model::gpu_health::GpuReading;
use std::fs;
use std::path::{Path, PathBuf};

/// Entries read of one folder; `/dev` of a large host holds a few thousand.
const ENTRIES_MAX: usize = 65_536;

/// Names another root folder for the GPUs' files, for tests.
const ROOT_VARIABLE: &str = "SLUICE_GPU_ROOT";

/// The folder of a render node, by which GPUs of AMD and Intel are opened.
const RENDER_NODES: &str = "dev/dri";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Nvidia,
    Amd,
    Intel,
    /// Intel's Gaudi, by its driver's name.
    Habana,
    Tenstorrent,
    /// Its TPUs.
    Google,
}

impl Vendor {
    pub fn as_str(self) -> &'static str {
        match self {
            Vendor::Nvidia => "nvidia",
            Vendor::Amd => "amd",
            Vendor::Intel => "intel",
            Vendor::Habana => "gaudi",
            Vendor::Tenstorrent => "tenstorrent",
            Vendor::Google => "tpu",
        }
    }

    /// The variable that tells a process of its GPUs, where only one is this vendor's. Others would be read by the same
    /// library a second time, and would number what the first has left.
    pub fn variable(self) -> Option<&'static str> {
        match self {
            Vendor::Amd => Some("ROCR_VISIBLE_DEVICES"),
            Vendor::Intel => Some("ZE_AFFINITY_MASK"),
            Vendor::Nvidia | Vendor::Habana | Vendor::Tenstorrent | Vendor::Google => None,
        }
    }

    /// Whether its GPUs are read. Their numbers do not meet: those of render nodes are the kernel's for all vendors, and
    /// begin at 128, and those of accelerators begin far above.
    pub fn is_read(self) -> bool {
        self != Vendor::Google
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuDevice {
    /// Position on this node, counted from zero.
    pub index: u32,
    pub vendor: Vendor,
    /// The driver's name for it, or the vendor's if the driver gives none.
    pub model: String,
    /// The device file a job must be able to open.
    pub path: String,
    /// Further files that a job must be able to open: the capabilities of a MIG slice, the control device of an accelerator.
    pub capabilities: Vec<String>,
    /// The UUID of a MIG slice, by which a process is told of it. Whole GPUs are told by their numbers.
    pub uuid: Option<String>,
    /// What tells a whole GPU from all others, where its driver's files say it.
    pub unique_id: Option<String>,
    /// `0000:21:00.0`
    pub pci: Option<String>,
    /// The number of its device file. Those of accelerators are counted on from a number of their vendor's.
    pub minor: u32,
    pub numa_node: Option<u32>,
    /// The processors near it, in the kernel's list form.
    pub cpus: Option<String>,
    /// Its memory and its links to each GPU of the machine, where the driver's files or the vendor's library say them.
    pub memory: Option<Bytes>,
    /// What programs it can run, where the vendor's library says it.
    pub compute_capability: Option<ComputeCapability>,
    pub links: Vec<i32>,
}

impl GpuDevice {
    /// It is a part of a GPU, which has no readings of its own.
    pub fn is_slice(&self) -> bool {
        self.vendor == Vendor::Nvidia && !self.capabilities.is_empty()
    }

    /// All files that a job must be able to open, as gres.conf's `MultipleFiles` has them.
    pub fn files(&self) -> String {
        let capabilities = self.capabilities.iter().map(String::as_str);
        std::iter::once(self.path.as_str()).chain(capabilities).collect::<Vec<_>>().join(",")
    }

    /// The model as a GRES type: lower case, no blanks, as Slurm's detection writes it.
    pub fn gres_type(&self) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        let plain = |c: char| if is_plain(c) { c } else { '_' };
        self.model.trim().to_ascii_lowercase().chars().map(plain).collect()
    }
}

/// The root folder of the files by which this machine's GPUs are found.
pub(crate) fn root() -> PathBuf {
    std::env::var_os(ROOT_VARIABLE).map_or_else(|| "/".into(), PathBuf::from)
}

/// The GPUs below `root`, NVIDIA, AMD, Intel, Gaudi, Tenstorrent and TPUs in this order. None is not an error.
pub fn detect_gpus(root: &Path) -> Vec<GpuDevice> {
    let mut gpus = nvidia::detect(root);
    mig::set_slice_uuids(root, &mut gpus);
    for found in [amd::detect(root), intel::detect(root), accelerator::detect(root)] {
        // The links of these are to one another.
        let before = vec![0; gpus.len()];
        gpus.extend(found.into_iter().map(|mut gpu| {
            if !gpu.links.is_empty() {
                gpu.links.splice(..0, before.iter().copied());
            }
            gpu
        }));
    }
    for (index, gpu) in (0..).zip(&mut gpus) {
        gpu.index = index;
    }
    gpus
}

/// NVIDIA's GPUs and slices in the order of [`detect_gpus`], without what takes a program of the vendor's to know.
pub(crate) fn nvidia_gpus(root: &Path) -> Vec<GpuDevice> {
    nvidia::detect(root)
}

/// The files of each of NVIDIA's GPUs and slices, in the order of [`detect_gpus`].
pub(crate) fn nvidia_units(root: &Path) -> Vec<String> {
    nvidia_gpus(root).iter().map(GpuDevice::files).collect()
}

/// A GPU that is read by files of the kernel's.
pub(crate) struct FileGpu {
    pub gpu: GpuDevice,
    /// The folder of its device.
    pub device: PathBuf,
    /// That of its driver's class, where the driver has files of its own there.
    pub class: Option<PathBuf>,
}

/// The GPUs below `root` that are read by files of the kernel's.
pub(crate) fn readable_by_files(root: &Path) -> Vec<FileGpu> {
    let mut found = amd::detect(root);
    found.extend(intel::detect(root));
    found.extend(accelerator::readable(root));
    if found.is_empty() {
        return Vec::new();
    }
    // They follow NVIDIA's, as in `detect_gpus`.
    let first = nvidia::detect(root).len() as u32;
    let numbered = (first..).zip(found).map(|(index, gpu)| GpuDevice { index, ..gpu });
    let with_folders = |gpu: GpuDevice| {
        let class = accelerator::class_folder(root, &gpu);
        let device = match (&class, &gpu.pci) {
            (Some(class), _) => class.join("device"),
            (None, Some(address)) => pci_device(root, address),
            (None, None) => root.join(format!("sys/class/drm/renderD{}/device", gpu.minor)),
        };
        FileGpu { gpu, device, class }
    };
    numbered.map(with_folders).collect()
}

/// A device of which only its files tell. `device` is its folder in `/sys`.
fn plain(
    vendor: Vendor,
    model: Option<String>,
    path: String,
    minor: u32,
    device: &Path,
) -> GpuDevice {
    GpuDevice {
        index: 0,
        vendor,
        model: model.unwrap_or_else(|| vendor.as_str().to_owned()),
        path,
        capabilities: Vec::new(),
        uuid: None,
        unique_id: None,
        pci: pci_address(device),
        minor,
        numa_node: numa_node(device),
        cpus: near_cpus(device),
        memory: None,
        compute_capability: None,
        links: Vec::new(),
    }
}

fn sorted(found: impl Iterator<Item = GpuDevice>) -> Vec<GpuDevice> {
    let mut gpus: Vec<GpuDevice> = found.collect();
    gpus.sort_by_key(|gpu| gpu.minor);
    gpus
}

/// Adds what the vendor's library says of the GPUs that were found. Slices keep what the driver's files say.
pub(super) fn add_readings(gpus: &mut [GpuDevice], readings: &[GpuReading]) {
    let device_of = |reading: &GpuReading, gpus: &[GpuDevice]| {
        let is_it = |gpu: &GpuDevice| {
            gpu.vendor == Vendor::Nvidia
                && gpu.capabilities.is_empty()
                && Some(gpu.minor) == reading.minor
        };
        gpus.iter().position(is_it)
    };
    let devices: Vec<Option<usize>> =
        readings.iter().map(|reading| device_of(reading, gpus)).collect();
    for (reading, device) in readings.iter().zip(&devices) {
        let Some(device) = device else { continue };
        let mut links = vec![0; gpus.len()];
        for (count, other) in reading.links.iter().zip(&devices) {
            if let Some(other) = other {
                links[*other] = *count;
            }
        }
        let gpu = &mut gpus[*device];
        if !reading.model.is_empty() {
            gpu.model.clone_from(&reading.model);
        }
        gpu.memory = (reading.memory.0 > 0).then_some(reading.memory);
        gpu.compute_capability = reading.compute_capability;
        if !reading.links.is_empty() {
            gpu.links = links;
        }
    }
}

/// The render nodes whose device file is there, by number, with the folders of their devices: a container may show the
/// driver's list but not the device.
fn render_nodes(root: &Path) -> Vec<(u32, PathBuf)> {
    let mut found: Vec<(u32, PathBuf)> = minors(&root.join("sys/class/drm"), "renderD")
        .filter(|minor| has_render_node(root, *minor))
        .map(|minor| (minor, root.join(format!("sys/class/drm/renderD{minor}/device"))))
        .collect();
    found.sort_unstable();
    found
}

fn has_render_node(root: &Path, minor: u32) -> bool {
    root.join(RENDER_NODES).join(format!("renderD{minor}")).exists()
}

fn render_path(minor: u32) -> String {
    format!("/{RENDER_NODES}/renderD{minor}")
}

fn pci_device(root: &Path, address: &str) -> PathBuf {
    root.join("sys/bus/pci/devices").join(address)
}

/// The address of a device on the PCI bus, by the name of its folder or by what its driver says there.
fn pci_address(device: &Path) -> Option<String> {
    let is_address = |name: &str| {
        let digits = name.bytes().filter(u8::is_ascii_hexdigit).count();
        digits >= 8 && name.matches(':').count() == 2 && name.contains('.')
    };
    let real = fs::canonicalize(device).ok()?;
    let name = real.file_name()?.to_str()?.to_owned();
    let said = || {
        let text = fs::read_to_string(device.join("uevent")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME=").map(str::to_owned))
    };
    Some(name).filter(|name| is_address(name)).or_else(said)
}

/// Whether a device's file in `/sys` begins with this text.
fn is(device: &Path, file: &str, start: &str) -> bool {
    trimmed(&device.join(file)).is_some_and(|text| text.starts_with(start))
}

/// The numbers N for which `folder` holds `prefixN`.
pub(super) fn minors(folder: &Path, prefix: &'static str) -> impl Iterator<Item = u32> {
    names_in(folder).into_iter().filter_map(move |name| {
        let digits = name.strip_prefix(prefix)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    })
}

pub(super) fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES_MAX);
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The value of `Key: value` in a file of the driver.
pub(super) fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()))
}

fn trimmed(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number(path: &Path) -> Option<u64> {
    trimmed(path)?.parse().ok()
}

/// A name of a model that a driver's file gives, if it is one.
fn model_in(path: &Path) -> Option<String> {
    trimmed(path).filter(|name| !name.is_empty())
}

/// The kernel writes -1 where it does not know.
fn numa_node(device: &Path) -> Option<u32> {
    trimmed(&device.join("numa_node"))?.parse().ok()
}

fn near_cpus(device: &Path) -> Option<String> {
    trimmed(&device.join("local_cpulist")).filter(|list| !list.is_empty())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::detect) fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        fs::write(path, text).expect("write");
    }

    pub(in crate::detect) fn link(root: &Path, path: &str, to: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        std::os::unix::fs::symlink(to, path).expect("a link");
    }

    #[test]
    fn readings_are_joined_with_the_devices_by_their_numbers() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        for name in ["nvidia0", "nvidia1", "nvidia2"] {
            put(root, &format!("dev/{name}"), "");
        }
        let mut gpus = detect_gpus(root);
        // The library counts by PCI address: the other way round, and without the one that is lost.
        let reading = |index, minor, links: [i32; 2]| GpuReading {
            index,
            minor: Some(minor),
            model: "NVIDIA H200".into(),
            memory: Bytes::from_gib(141),
            links: links.to_vec(),
            ..GpuReading::default()
        };
        add_readings(&mut gpus, &[reading(0, 2, [-1, 18]), reading(1, 0, [18, -1])]);
        let seen: Vec<_> =
            gpus.iter().map(|gpu| (gpu.gres_type(), gpu.memory, gpu.links.clone())).collect();
        let known = |links: [i32; 3]| {
            ("nvidia_h200".to_owned(), Some(Bytes::from_gib(141)), links.to_vec())
        };
        let unknown = ("nvidia".to_owned(), None, Vec::new());
        assert_eq!(seen, [known([-1, 0, 18]), unknown, known([18, 0, -1])]);
    }

    #[test]
    fn machine_without_gpus_has_none() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        assert_eq!(detect_gpus(scratch.path()), []);
    }
}
