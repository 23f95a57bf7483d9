//! Accelerators that are found by their device files alone: Gaudi, Tenstorrent and Google's TPUs.

use std::fs;
use std::path::{Path, PathBuf};

use super::{
    GpuDevice, Vendor, is, minors, model_in, names_in, pci_device, plain, sorted, trimmed,
};
use model::amount::Bytes;

const HABANA_PCI_VENDOR: &str = "0x1da3";
const GOOGLE_PCI_VENDOR: &str = "0x1ae0";
/// Google's numbers of TPUs on the PCI bus, and their names.
const TPUS: [(&str, &str); 6] = [
    ("0x0027", "TPU v3"),
    ("0x005e", "TPU v4"),
    ("0x0062", "TPU v5p"),
    ("0x0063", "TPU v5e"),
    ("0x006f", "TPU v6e"),
    ("0x0076", "TPU 7x"),
];
/// How the names of accelerators begin, and the memory that these have, in GiB, as their vendors say.
const MEMORY_GIB: [(&str, u64); 8] = [
    ("GAUDI3", 128),
    ("GAUDI2", 96),
    ("GAUDI", 32),
    ("tenstorrent n150", 12),
    ("tenstorrent n300", 24),
    ("tenstorrent p100", 28),
    ("tenstorrent p150", 32),
    ("tenstorrent e", 8),
];
/// What every process that has a device by VFIO opens beside it.
const VFIO_CONTROL: &str = "/dev/vfio/vfio";

/// The first number of each vendor's devices among those that are read, which meet neither NVIDIA's nor those of render
/// nodes.
const FIRST_GAUDI: u32 = 1 << 16;
const FIRST_TENSTORRENT: u32 = 2 << 16;
const FIRST_TPU: u32 = 3 << 16;

pub(super) fn detect(root: &Path) -> Vec<GpuDevice> {
    let mut found = readable(root);
    found.extend(tpus(root));
    found
}

/// The accelerators whose drivers show temperature, power or health: Gaudi and Tenstorrent.
pub(super) fn readable(root: &Path) -> Vec<GpuDevice> {
    let mut found = gaudi(root);
    found.extend(tenstorrent(root));
    found
}

/// The folder of an accelerator in its driver's class; `None` for other vendors' devices.
pub(super) fn class_folder(root: &Path, gpu: &GpuDevice) -> Option<PathBuf> {
    match gpu.vendor {
        Vendor::Habana => Some(gaudi_class(root, gpu.minor - FIRST_GAUDI)),
        Vendor::Tenstorrent => Some(tenstorrent_class(root, gpu.minor - FIRST_TENSTORRENT)),
        _ => None,
    }
}

fn gaudi_class(root: &Path, number: u32) -> PathBuf {
    root.join(format!("sys/class/accel/accel{number}"))
}

fn tenstorrent_class(root: &Path, number: u32) -> PathBuf {
    root.join(format!("sys/class/tenstorrent/tenstorrent!{number}"))
}

fn memory_of(model: &str) -> Option<Bytes> {
    let listed = MEMORY_GIB.iter().find(|(name, _)| model.starts_with(name));
    listed.map(|(_, gib)| Bytes::from_gib(*gib))
}

/// Gaudi's driver makes an accelerator device, with a second file to control it.
fn gaudi(root: &Path) -> Vec<GpuDevice> {
    let is_one = |device: &Path| is(device, "vendor", HABANA_PCI_VENDOR);
    sorted(minors(&root.join("sys/class/accel"), "accel").filter_map(|number| {
        let device = gaudi_class(root, number).join("device");
        let model = model_in(&device.join("device_type"));
        let control = format!("/dev/accel/accel_controlD{number}");
        let has_control = root.join(&control[1..]).exists();
        let (path, minor) = (format!("/dev/accel/accel{number}"), FIRST_GAUDI + number);
        is_one(&device).then(|| GpuDevice {
            capabilities: has_control.then_some(control).into_iter().collect(),
            memory: model.as_deref().and_then(memory_of),
            ..plain(Vendor::Habana, model, path, minor, &device)
        })
    }))
}

/// Tenstorrent's driver numbers the files in a folder of its own.
fn tenstorrent(root: &Path) -> Vec<GpuDevice> {
    sorted(minors(&root.join("dev/tenstorrent"), "").map(|number| {
        let class = tenstorrent_class(root, number);
        let model = trimmed(&class.join("tt_card_type")).map(|card| format!("tenstorrent {card}"));
        let (path, minor) = (format!("/dev/tenstorrent/{number}"), FIRST_TENSTORRENT + number);
        GpuDevice {
            unique_id: trimmed(&class.join("tt_asic_id")).filter(|id| !id.is_empty()),
            memory: model.as_deref().and_then(memory_of),
            ..plain(Vendor::Tenstorrent, model, path, minor, &class.join("device"))
        }
    }))
}

/// TPUs are on the PCI bus. Google's own driver makes `/dev/accelN`; newer ones are opened by VFIO, by the number of their
/// IOMMU group. One that has neither file is not for jobs.
fn tpus(root: &Path) -> Vec<GpuDevice> {
    let mut addresses = names_in(&root.join("sys/bus/pci/devices"));
    addresses.sort_unstable();
    let found = addresses.iter().filter_map(|address| {
        let device = pci_device(root, address);
        let model = TPUS.iter().find(|(number, _)| is(&device, "device", number))?.1;
        is(&device, "vendor", GOOGLE_PCI_VENDOR).then_some(())?;
        let by_driver = device.join("accel");
        let own = minors(&by_driver, "accel").map(|n| format!("/dev/accel{n}"));
        let group = fs::read_link(device.join("iommu_group")).ok();
        let group = group.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        let by_group = group.map(|group| format!("/dev/vfio/{group}"));
        let path = own.chain(by_group).find(|path| root.join(&path[1..]).exists())?;
        let control = path.starts_with("/dev/vfio/").then(|| VFIO_CONTROL.to_owned());
        Some(GpuDevice {
            capabilities: control.into_iter().collect(),
            pci: Some(address.clone()),
            ..plain(Vendor::Google, Some(model.to_owned()), path, FIRST_TPU, &device)
        })
    });
    (FIRST_TPU..).zip(found).map(|(minor, tpu)| GpuDevice { minor, ..tpu }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::detect_gpus;
    use super::super::tests::{link, put};
    use super::{Bytes, GpuDevice};

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
        assert_ne!(found[0].minor, found[1].minor, "their readings are told apart");
        let memory = |gpus: &[GpuDevice]| gpus.iter().map(|gpu| gpu.memory).collect::<Vec<_>>();
        assert_eq!(memory(&found), [None, Some(Bytes::from_gib(24))], "by the model's name");
        put(root, "sys/class/accel/accel0/device/device_type", "GAUDI2\n");
        assert_eq!(memory(&detect_gpus(root))[0], Some(Bytes::from_gib(96)));
    }

    #[test]
    fn tpus_are_found_on_the_bus_by_the_file_that_opens_them() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        for (address, vendor, device) in [
            ("0000:00:04.0", "0x1ae0", "0x005e"),
            ("0000:00:05.0", "0x1ae0", "0x0063"),
            ("0000:00:06.0", "0x1ae0", "0x0063"),
            ("0000:00:07.0", "0x1ae0", "0x0042"),
            ("0000:00:08.0", "0x8086", "0x0063"),
        ] {
            put(root, &format!("sys/bus/pci/devices/{address}/vendor"), &format!("{vendor}\n"));
            put(root, &format!("sys/bus/pci/devices/{address}/device"), &format!("{device}\n"));
        }
        put(root, "sys/bus/pci/devices/0000:00:04.0/accel/accel0/dev", "");
        put(root, "dev/accel0", "");
        put(root, "dev/vfio/vfio", "");
        put(root, "dev/vfio/11", "");
        let group = |address: &str, number: u32| {
            let to = format!("../../../../kernel/iommu_groups/{number}");
            link(root, &format!("sys/bus/pci/devices/{address}/iommu_group"), &to);
        };
        group("0000:00:05.0", 11);
        // Its group has no file: another driver has it.
        group("0000:00:06.0", 12);
        let found = detect_gpus(root);
        let seen: Vec<_> = found.iter().map(|gpu| (gpu.gres_type(), gpu.files())).collect();
        let expected = [("tpu_v4", "/dev/accel0"), ("tpu_v5e", "/dev/vfio/11,/dev/vfio/vfio")];
        assert_eq!(seen, expected.map(|(kind, files)| (kind.to_owned(), files.to_owned())));
        assert_eq!(found[1].pci.as_deref(), Some("0000:00:05.0"));
    }
}
