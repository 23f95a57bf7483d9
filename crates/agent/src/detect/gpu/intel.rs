//! Intel's GPUs, by their render nodes. Intel's compute runtime (Level Zero) opens the render node itself.

use std::path::Path;

use super::{GpuDevice, Vendor, is, minors, models, number, plain, render_nodes, render_path};
use model::amount::Bytes;

const PCI_VENDOR: &str = "0x8086";
/// The PCI class of display controllers without a screen: accelerators.
const ACCELERATOR_PCI_CLASS: &str = "0x0380";

/// A processor's integrated graphics is not counted: it is of the class of screens, and has no memory of its own.
pub(super) fn detect(root: &Path) -> Vec<GpuDevice> {
    let gpu = |(minor, device): (u32, std::path::PathBuf)| {
        let (model, memory) = (models::of_device(Vendor::Intel, &device), own_memory(&device));
        let is_one = is(&device, "vendor", PCI_VENDOR)
            && (is(&device, "class", ACCELERATOR_PCI_CLASS) || memory.is_some() || model.is_some());
        is_one.then(|| GpuDevice {
            memory,
            ..plain(Vendor::Intel, model, render_path(minor), minor, &device)
        })
    };
    render_nodes(root).into_iter().filter_map(gpu).collect()
}

/// The memory of all tiles, as the driver `xe` tells it, or what Intel's own builds of `i915` tell.
fn own_memory(device: &Path) -> Option<Bytes> {
    let of_tile = |tile: u32| {
        let folder = device.join(format!("tile{tile}"));
        number(&folder.join("physical_vram_size_bytes"))
    };
    let tiles: u64 = minors(device, "tile").filter_map(of_tile).sum();
    let drm = device.join("drm");
    let of_card = |card: u32| number(&drm.join(format!("card{card}/lmem_total_bytes")));
    let bytes = if tiles > 0 { tiles } else { minors(&drm, "card").find_map(of_card).unwrap_or(0) };
    (bytes > 0).then_some(Bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::detect_gpus;
    use super::super::tests::{link, put};
    use super::*;
    use std::fs;

    /// A device on the bus with a render node.
    fn device(root: &Path, minor: u32, address: &str, files: &[(&str, &str)]) {
        for (name, text) in files {
            put(root, &format!("sys/bus/pci/devices/{address}/{name}"), text);
        }
        put(root, &format!("dev/dri/renderD{minor}"), "");
        let to = format!("../../../bus/pci/devices/{address}");
        link(root, &format!("sys/class/drm/renderD{minor}/device"), &to);
    }

    #[test]
    fn discrete_gpus_have_their_model_memory_and_place_on_the_bus() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        let vendor = ("vendor", "0x8086\n");
        let integrated = [vendor, ("class", "0x030000\n"), ("device", "0x46a6\n")];
        device(root, 128, "0000:00:02.0", &integrated);
        let max = [
            vendor,
            ("class", "0x038000\n"),
            ("device", "0x0bd5\n"),
            ("numa_node", "1\n"),
            ("local_cpulist", "8-15\n"),
            ("tile0/physical_vram_size_bytes", "68719476736\n"),
            ("tile1/physical_vram_size_bytes", "68719476736\n"),
        ];
        device(root, 129, "0000:3a:00.0", &max);
        // A card with a screen that has memory of its own, on a driver of Intel's own build.
        let arc = [
            vendor,
            ("class", "0x030000\n"),
            ("device", "0xffff\n"),
            ("drm/card1/lmem_total_bytes", "17179869184\n"),
        ];
        device(root, 130, "0000:4d:00.0", &arc);
        let other = [("vendor", "0x1234\n"), ("class", "0x038000\n")];
        device(root, 131, "0000:5d:00.0", &other);
        let gpus = detect_gpus(root);
        let seen: Vec<_> = gpus
            .iter()
            .map(|gpu| (gpu.gres_type(), gpu.files(), gpu.pci.clone(), gpu.memory))
            .collect();
        let expected = [
            ("intel_data_center_gpu_max_1550", "/dev/dri/renderD129", "0000:3a:00.0", 128),
            ("intel", "/dev/dri/renderD130", "0000:4d:00.0", 16),
        ];
        let expected = expected.map(|(kind, file, pci, gib)| {
            (kind.to_owned(), file.to_owned(), Some(pci.to_owned()), Some(Bytes::from_gib(gib)))
        });
        assert_eq!(seen, expected);
        assert_eq!((gpus[0].numa_node, gpus[0].cpus.as_deref()), (Some(1), Some("8-15")));
        fs::remove_file(root.join("dev/dri/renderD129")).expect("removed");
        assert_eq!(detect_gpus(root).len(), 1, "no device file, no GPU");
    }
}
