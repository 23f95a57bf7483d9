//! Accelerators that are found by their device files alone: Gaudi and Tenstorrent.

use std::path::Path;

use super::{GpuDevice, Vendor, is, minors, model_in, plain, sorted, trimmed};

const HABANA_PCI_VENDOR: &str = "0x1da3";

pub(super) fn detect(root: &Path) -> Vec<GpuDevice> {
    let mut found = gaudi(root);
    found.extend(tenstorrent(root));
    found
}

/// Gaudi's driver makes an accelerator device, with a second file to control it.
fn gaudi(root: &Path) -> Vec<GpuDevice> {
    let is_one = |device: &Path| is(device, "vendor", HABANA_PCI_VENDOR);
    sorted(minors(&root.join("sys/class/accel"), "accel").filter_map(|minor| {
        let device = root.join(format!("sys/class/accel/accel{minor}/device"));
        let model = model_in(&device.join("device_type"));
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

#[cfg(test)]
mod tests {
    use super::super::detect_gpus;
    use super::super::tests::put;

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
}
