//! Detects GPUs by what their drivers show in `/proc`, `/sys` and `/dev`, without a vendor library.

mod mig;

use model::amount::Bytes;
use model::gpu_health::GpuReading;
use std::fs;
use std::path::Path;

/// Entries read of one folder; `/dev` of a large host holds a few thousand.
const ENTRIES_MAX: usize = 65_536;

const AMD_PCI_VENDOR: &str = "0x1002";
const INTEL_PCI_VENDOR: &str = "0x8086";
const HABANA_PCI_VENDOR: &str = "0x1da3";
/// The PCI class of display controllers without a screen: accelerators.
const ACCELERATOR_PCI_CLASS: &str = "0x0380";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Nvidia,
    Amd,
    Intel,
    /// Intel's Gaudi, by its driver's name.
    Habana,
    Tenstorrent,
}

impl Vendor {
    pub fn as_str(self) -> &'static str {
        match self {
            Vendor::Nvidia => "nvidia",
            Vendor::Amd => "amd",
            Vendor::Intel => "intel",
            Vendor::Habana => "gaudi",
            Vendor::Tenstorrent => "tenstorrent",
        }
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
    /// The capability files of a MIG slice.
    pub capabilities: Vec<String>,
    /// The UUID of a MIG slice.
    pub uuid: Option<String>,
    pub minor: u32,
    pub numa_node: Option<u32>,
    /// The processors near it, in the kernel's list form.
    pub cpus: Option<String>,
    /// Its memory and its links to each GPU of the machine, where the vendor's library says them.
    pub memory: Option<Bytes>,
    pub links: Vec<i32>,
}

impl GpuDevice {
    /// All files that a job must be able to open, as gres.conf's `MultipleFiles` has them.
    pub fn files(&self) -> String {
        let capabilities = self.capabilities.iter().map(String::as_str);
        std::iter::once(self.path.as_str()).chain(capabilities).collect::<Vec<_>>().join(",")
    }

    /// The model as a GRES type: lower case, no blanks, as Slurm's detection writes it.
    pub fn gres_type(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        self.model.trim().to_ascii_lowercase().chars().map(plain).collect()
    }
}

/// The GPUs below `root`, NVIDIA, AMD, Intel, Gaudi and Tenstorrent in this order, each by device number. None is not an error.
pub fn detect_gpus(root: &Path) -> Vec<GpuDevice> {
    let mut gpus = nvidia(root);
    mig::set_slice_uuids(root, &mut gpus);
    gpus.extend(amd(root));
    gpus.extend(intel(root));
    gpus.extend(gaudi(root));
    gpus.extend(tenstorrent(root));
    for (index, gpu) in (0..).zip(&mut gpus) {
        gpu.index = index;
    }
    gpus
}

/// A GPU counts only if its device file is there: a container may show the driver's list but not the device.
fn nvidia(root: &Path) -> Vec<GpuDevice> {
    let described: Vec<(u32, String, String)> = names_in(&root.join("proc/driver/nvidia/gpus"))
        .into_iter()
        .filter_map(|address| {
            let path = root.join("proc/driver/nvidia/gpus").join(&address).join("information");
            let text = fs::read_to_string(path).ok()?;
            let minor = value_of(&text, "Device Minor")?.parse().ok()?;
            let model = value_of(&text, "Model").unwrap_or("nvidia").to_owned();
            Some((minor, model, address.to_ascii_lowercase()))
        })
        .collect();
    let mut gpus: Vec<GpuDevice> = minors(&root.join("dev"), "nvidia")
        .flat_map(|minor| {
            let known = described.iter().find(|(number, ..)| *number == minor);
            let device = known.map(|(.., address)| root.join("sys/bus/pci/devices").join(address));
            let whole = GpuDevice {
                index: 0,
                vendor: Vendor::Nvidia,
                model: known.map_or("nvidia".to_owned(), |(_, model, _)| model.clone()),
                path: format!("/dev/nvidia{minor}"),
                capabilities: Vec::new(),
                uuid: None,
                minor,
                numa_node: device.as_deref().and_then(numa_node),
                cpus: device.as_deref().and_then(near_cpus),
                memory: None,
                links: Vec::new(),
            };
            mig::split_into_slices(root, whole)
        })
        .collect();
    gpus.sort_by_key(|gpu| gpu.minor);
    gpus
}

/// AMD's compute driver is `/dev/kfd`; without it a card is for graphics only.
fn amd(root: &Path) -> Vec<GpuDevice> {
    if !root.join("dev/kfd").exists() {
        return Vec::new();
    }
    render_nodes(root, Vendor::Amd, |device| is(device, "vendor", AMD_PCI_VENDOR))
}

/// Intel's compute runtime opens the render node itself. A processor's integrated graphics is not counted.
fn intel(root: &Path) -> Vec<GpuDevice> {
    render_nodes(root, Vendor::Intel, |device| {
        is(device, "vendor", INTEL_PCI_VENDOR) && is(device, "class", ACCELERATOR_PCI_CLASS)
    })
}

/// Gaudi's driver makes an accelerator device, with a second file to control it.
fn gaudi(root: &Path) -> Vec<GpuDevice> {
    let is_one = |device: &Path| is(device, "vendor", HABANA_PCI_VENDOR);
    sorted(minors(&root.join("sys/class/accel"), "accel").filter_map(|minor| {
        let device = root.join(format!("sys/class/accel/accel{minor}/device"));
        let model = trimmed(&device.join("device_type")).filter(|name| !name.is_empty());
        let control = format!("/dev/accel/accel_controlD{minor}");
        let has_control = root.join(&control[1..]).exists();
        is_one(&device).then(|| GpuDevice {
            capabilities: has_control.then_some(control).into_iter().collect(),
            ..plain(Vendor::Habana, model, format!("/dev/accel/accel{minor}"), minor, &device)
        })
    }))
}

/// Tenstorrent's driver numbers the files in a folder of its own.
fn tenstorrent(root: &Path) -> Vec<GpuDevice> {
    sorted(minors(&root.join("dev/tenstorrent"), "").map(|minor| {
        let class = root.join(format!("sys/class/tenstorrent/tenstorrent!{minor}"));
        let model = trimmed(&class.join("tt_card_type")).map(|card| format!("tenstorrent {card}"));
        let path = format!("/dev/tenstorrent/{minor}");
        plain(Vendor::Tenstorrent, model, path, minor, &class.join("device"))
    }))
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
        minor,
        numa_node: numa_node(device),
        cpus: near_cpus(device),
        memory: None,
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
        if !reading.links.is_empty() {
            gpu.links = links;
        }
    }
}

fn render_nodes(root: &Path, vendor: Vendor, is_one: impl Fn(&Path) -> bool) -> Vec<GpuDevice> {
    let mut gpus: Vec<GpuDevice> = minors(&root.join("sys/class/drm"), "renderD")
        .filter_map(|minor| {
            let device = root.join(format!("sys/class/drm/renderD{minor}/device"));
            let model = trimmed(&device.join("product_name")).filter(|name| !name.is_empty());
            is_one(&device).then(|| GpuDevice {
                index: 0,
                vendor,
                model: model.unwrap_or_else(|| vendor.as_str().to_owned()),
                path: format!("/dev/dri/renderD{minor}"),
                capabilities: Vec::new(),
                uuid: None,
                minor,
                numa_node: numa_node(&device),
                cpus: near_cpus(&device),
                memory: trimmed(&device.join("mem_info_vram_total"))
                    .and_then(|bytes| bytes.parse().ok())
                    .map(Bytes),
                links: Vec::new(),
            })
        })
        .collect();
    gpus.sort_by_key(|gpu| gpu.minor);
    gpus
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

    #[test]
    fn nvidia_devices_are_ordered_by_minor_and_described_by_the_driver() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        for (address, minor, numa) in [("0000:C1:00.0", 1, "1"), ("0000:21:00.0", 0, "-1")] {
            let text =
                format!("Model: \t\t NVIDIA H200\nIRQ:   \t\t 1\nDevice Minor: \t {minor}\n");
            put(root, &format!("proc/driver/nvidia/gpus/{address}/information"), &text);
            let device = format!("sys/bus/pci/devices/{}", address.to_ascii_lowercase());
            put(root, &format!("{device}/numa_node"), &format!("{numa}\n"));
            put(root, &format!("{device}/local_cpulist"), "0-7\n");
        }
        for name in ["nvidia10", "nvidia1", "nvidia0", "nvidiactl", "nvidia-uvm", "null"] {
            put(root, &format!("dev/{name}"), "");
        }
        let gpus = detect_gpus(root);
        let seen: Vec<_> = gpus
            .iter()
            .map(|gpu| (gpu.index, gpu.path.as_str(), gpu.gres_type(), gpu.numa_node))
            .collect();
        let expected = [
            (0, "/dev/nvidia0", "nvidia_h200", None),
            (1, "/dev/nvidia1", "nvidia_h200", Some(1)),
            (2, "/dev/nvidia10", "nvidia", None),
        ];
        assert_eq!(
            seen,
            expected.map(|(index, path, kind, numa)| (index, path, kind.to_owned(), numa))
        );
        assert_eq!(gpus[1].cpus.as_deref(), Some("0-7"));
    }

    #[test]
    fn amd_gpus_need_the_compute_driver_and_intel_gpus_the_accelerator_class() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        put(root, "sys/class/drm/renderD128/device/vendor", "0x1002\n");
        put(root, "sys/class/drm/renderD128/device/product_name", "AMD Instinct MI300X\n");
        put(root, "sys/class/drm/renderD129/device/vendor", "0x8086\n");
        put(root, "sys/class/drm/renderD129/device/class", "0x030000\n");
        assert_eq!(detect_gpus(root), [], "what drives a screen is no accelerator");
        put(root, "dev/kfd", "");
        let gpus = detect_gpus(root);
        let seen: Vec<_> = gpus.iter().map(|gpu| (gpu.path.as_str(), gpu.gres_type())).collect();
        assert_eq!(seen, [("/dev/dri/renderD128", "amd_instinct_mi300x".to_owned())]);
        put(root, "sys/class/drm/renderD130/device/vendor", "0x8086\n");
        put(root, "sys/class/drm/renderD130/device/class", "0x038000\n");
        let gpus = detect_gpus(root);
        assert_eq!(
            (gpus[1].vendor, gpus[1].files()),
            (Vendor::Intel, "/dev/dri/renderD130".to_owned())
        );
    }

    #[test]
    fn gaudi_and_tenstorrent_are_found_by_their_files() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        put(root, "sys/class/accel/accel0/device/vendor", "0x1da3\n");
        put(root, "sys/class/accel/accel1/device/vendor", "0x8086\n");
        put(root, "dev/accel/accel_controlD0", "");
        put(root, "dev/tenstorrent/0", "");
        put(root, "dev/tenstorrent/by-id", "");
        put(root, "sys/class/tenstorrent/tenstorrent!0/tt_card_type", "n300\n");
        let found = detect_gpus(root);
        let seen: Vec<_> = found.iter().map(|gpu| (gpu.gres_type(), gpu.files())).collect();
        let expected = [
            ("gaudi", "/dev/accel/accel0,/dev/accel/accel_controlD0"),
            ("tenstorrent_n300", "/dev/tenstorrent/0"),
        ];
        assert_eq!(seen, expected.map(|(kind, files)| (kind.to_owned(), files.to_owned())));
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
