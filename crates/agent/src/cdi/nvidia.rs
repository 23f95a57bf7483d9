//! The CDI specification of NVIDIA's GPUs, made from what is detected: a machine need not have the vendor's toolkit. It
//! has no hooks: what the toolkit's are for, further names of libraries, are mounts here.

use super::driver_files::DriverFiles;
use super::specification::{ContainerEdits, Device, DeviceNode, FileMount, Specification};
use crate::detect::gpu::{self, GpuDevice};
use std::path::Path;

/// As the vendor's toolkit names its devices.
const KIND: &str = "nvidia.com/gpu";
/// The driver's files that every device needs, where the machine has them.
const CONTROL: [&str; 4] =
    ["/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"];

/// The specification of the machine below `root`; `None` without a driver, its libraries or a GPU. A device is named after
/// the number of its file, a slice `GPU:SLICE`, as the toolkit does it.
pub(super) fn specification(root: &Path) -> Option<Specification> {
    let DriverFiles(files) = DriverFiles::find(root)?;
    let gpus = gpu::nvidia_gpus(root);
    let node = |path: &str| {
        let host = root.join(path.trim_start_matches('/'));
        let host = host.to_str().filter(|host| *host != path).map(str::to_owned);
        DeviceNode::new(path, host)
    };
    let device = |(at, one): (usize, &GpuDevice)| {
        let slices_before = gpus[..at].iter().filter(|other| other.minor == one.minor).count();
        let name = if one.is_slice() {
            format!("{}:{slices_before}", one.minor)
        } else {
            one.minor.to_string()
        };
        let files = std::iter::once(&one.path).chain(&one.capabilities);
        let device_nodes = files.map(|file| node(file)).collect();
        Device { name, container_edits: ContainerEdits { device_nodes, ..Default::default() } }
    };
    let devices: Vec<Device> = gpus.iter().enumerate().map(device).collect();
    let is_there = |path: &&str| root.join(path.trim_start_matches('/')).exists();
    let mounts = files.into_iter().filter_map(|(inside, file)| {
        // A path that is no text cannot be named in a specification.
        Some(FileMount::read_only(file.to_str()?.to_owned(), inside))
    });
    let container_edits = ContainerEdits {
        device_nodes: CONTROL.iter().copied().filter(is_there).map(node).collect(),
        mounts: mounts.collect(),
        ..Default::default()
    };
    (!devices.is_empty()).then(|| Specification::new(KIND, devices, container_edits))
}
