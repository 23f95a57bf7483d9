//! NVIDIA's GPUs, by the driver's files in `/proc`.

use std::fs;
use std::path::Path;

use super::{GpuDevice, Vendor, mig, minors, names_in, pci_device, plain, sorted, value_of};

/// A GPU as the driver describes it.
struct Described {
    minor: u32,
    model: String,
    uuid: Option<String>,
    address: String,
}

/// A GPU counts only if its device file is there: a container may show the driver's list but not the device.
pub(super) fn detect(root: &Path) -> Vec<GpuDevice> {
    let described: Vec<Described> = names_in(&root.join("proc/driver/nvidia/gpus"))
        .into_iter()
        .filter_map(|address| {
            let path = root.join("proc/driver/nvidia/gpus").join(&address).join("information");
            let text = fs::read_to_string(path).ok()?;
            Some(Described {
                minor: value_of(&text, "Device Minor")?.parse().ok()?,
                model: value_of(&text, "Model").unwrap_or("nvidia").to_owned(),
                uuid: value_of(&text, "GPU UUID").map(str::to_owned),
                address: address.to_ascii_lowercase(),
            })
        })
        .collect();
    let whole = |minor: u32| {
        let path = format!("/dev/nvidia{minor}");
        let Some(known) = described.iter().find(|known| known.minor == minor) else {
            return plain(Vendor::Nvidia, None, path, minor, Path::new(""));
        };
        let device = pci_device(root, &known.address);
        GpuDevice {
            unique_id: known.uuid.clone(),
            pci: Some(known.address.clone()),
            ..plain(Vendor::Nvidia, Some(known.model.clone()), path, minor, &device)
        }
    };
    let wholes = sorted(minors(&root.join("dev"), "nvidia").map(whole));
    wholes.into_iter().flat_map(|whole| mig::split_into_slices(root, whole)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::detect_gpus;
    use super::super::tests::put;

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
}
