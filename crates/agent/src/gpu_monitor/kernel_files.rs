//! GPUs of AMD and Intel and accelerators, read by the files of their drivers in `/sys` (`amdgpu`, `xe`, `i915`,
//! `habanalabs`, `tenstorrent`), Gaudi's use by its vendor's tool. The vendors' libraries (ROCm SMI, Level Zero's Sysman) read the same files, so that none of
//! them is loaded.

use super::gaudi_tool::GaudiTool;
use crate::detect::Vendor;
use crate::detect::gpu::{FileGpu, readable_by_files};
use model::gpu_health::GpuReading;
use std::cell::Cell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Entries read of a folder of a device.
const ENTRIES_MAX: usize = 256;

/// Rounds in which a heartbeat may stand still: half a minute.
const STILL_ROUNDS_MAX: u32 = 6;
/// What Gaudi's driver says of a card that takes no work until somebody does something. One that is being reset comes back.
const GAUDI_FAILURES: [&str; 3] = ["malfunction", "disabled", "needs reset"];

/// The GPUs that were there at the start. One that vanishes afterwards is lost.
pub(super) struct KernelFiles {
    gpus: Vec<ReadGpu>,
    /// There if there are Gaudi cards.
    gaudi_tool: Option<GaudiTool>,
}

struct ReadGpu {
    files: FileGpu,
    /// The counter that its firmware counts up while it lives, and in how many rounds it has stood still.
    heartbeat: Cell<(Option<u64>, u32)>,
    /// What tells it from the others of the machine in all readings.
    identity: String,
    /// One of several partitions of a device, whose figures are those of all.
    is_partition: bool,
}

impl KernelFiles {
    pub fn find(root: &Path) -> KernelFiles {
        let found = readable_by_files(root);
        let mut devices: HashMap<PathBuf, usize> = HashMap::new();
        for files in &found {
            *devices.entry(files.device.clone()).or_default() += 1;
        }
        let gpus = found.into_iter().map(|files| {
            let (gpu, is_partition) = (&files.gpu, devices[&files.device] > 1);
            let known = gpu.unique_id.clone().or_else(|| gpu.pci.clone()).unwrap_or_default();
            let identity = if is_partition || known.is_empty() {
                let file = gpu.path.rsplit('/').next().unwrap_or_default();
                format!("{known}/{file}")
            } else {
                known
            };
            ReadGpu { identity, is_partition, heartbeat: Cell::default(), files }
        });
        let gpus: Vec<ReadGpu> = gpus.collect();
        let has_gaudi = gpus.iter().any(|one| one.files.gpu.vendor == Vendor::Habana);
        KernelFiles { gaudi_tool: has_gaudi.then(|| GaudiTool::find(root)), gpus }
    }

    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }

    pub fn readings(&mut self) -> Vec<GpuReading> {
        let mut readings: Vec<GpuReading> = self.gpus.iter().map(ReadGpu::reading).collect();
        if let Some(tool) = &mut self.gaudi_tool {
            tool.refresh();
            let gaudi = self.gpus.iter().map(|one| one.files.gpu.vendor == Vendor::Habana);
            for (reading, _) in readings.iter_mut().zip(gaudi).filter(|(_, is_one)| *is_one) {
                tool.add_to(reading);
            }
        }
        readings
    }
}

impl ReadGpu {
    fn reading(&self) -> GpuReading {
        let (gpu, folder) = (&self.files.gpu, &self.files.device);
        let known = GpuReading {
            index: gpu.index,
            minor: Some(gpu.minor),
            uuid: self.identity.clone(),
            model: gpu.model.clone(),
            pci: gpu.pci.clone().unwrap_or_default(),
            // The memory of an accelerator is told where its use is.
            memory: gpu.memory.filter(|_| self.files.class.is_none()).unwrap_or_default(),
            ..GpuReading::default()
        };
        let lost = match text(&folder.join("vendor")) {
            None => Some("its driver does not show it any more".to_owned()),
            Some(_) => self.illness(),
        };
        if lost.is_some() {
            return GpuReading { lost, ..known };
        }
        let of_device = |file: &str| number(&folder.join(file));
        let own = |file: &str| (!self.is_partition).then(|| of_device(file)).flatten();
        let (corrected, uncorrected) = self.memory_errors().unzip();
        // The power of a device would be counted once for each of its partitions.
        let own_sensor =
            |files: &[&str]| (!self.is_partition).then(|| self.sensor(files)).flatten();
        let power = own_sensor(&["power1_average", "power1_input"]);
        let energy = own_sensor(&["energy1_input"]);
        GpuReading {
            busy_percent: own("gpu_busy_percent").map(|busy| busy.min(100)),
            memory_used: own("mem_info_vram_used").map(model::amount::Bytes).unwrap_or_default(),
            temperature_c: self.sensor(&["temp1_input", "temp2_input"]).map(|milli| milli / 1000),
            power_mw: power.map(|micro| micro / 1000),
            energy_mj: energy.map(|micro| micro / 1000),
            ecc_corrected: corrected,
            ecc_uncorrected: uncorrected,
            pcie_replays: of_device("pcie_replay_count"),
            thermal_trips: self.of_class("tt_therm_trip_count").and_then(|text| text.parse().ok()),
            ..known
        }
    }

    /// A file of the driver's class.
    fn of_class(&self, file: &str) -> Option<String> {
        let read = text(&self.files.class.as_ref()?.join(file))?;
        Some(read.trim().to_owned())
    }

    /// What the driver or the firmware of an accelerator says of itself, if that is an illness.
    fn illness(&self) -> Option<String> {
        let status = self.of_class("device/status").or_else(|| self.of_class("status"));
        let status = status.unwrap_or_default().to_ascii_lowercase();
        if GAUDI_FAILURES.contains(&status.as_str()) {
            return Some(format!("its driver says: {status}"));
        }
        let beat = self.of_class("tt_heartbeat").and_then(|text| text.parse().ok());
        let (before, still) = self.heartbeat.get();
        let still = if beat.is_some() && beat == before { still + 1 } else { 0 };
        self.heartbeat.set((beat, still.min(STILL_ROUNDS_MAX)));
        (still >= STILL_ROUNDS_MAX).then(|| "the heartbeat of its firmware stands still".to_owned())
    }

    /// The first of these files that one of the device's sensors has.
    fn sensor(&self, files: &[&str]) -> Option<u64> {
        let sensors = entries(&self.files.device.join("hwmon"));
        let paths = sensors.iter().flat_map(|sensor| files.iter().map(|file| sensor.join(file)));
        paths.into_iter().find_map(|path| number(&path))
    }

    /// Corrected and uncorrected errors of all parts of the GPU (RAS): a file for each, with `ue: N` and `ce: N`.
    fn memory_errors(&self) -> Option<(u64, u64)> {
        let files = entries(&self.files.device.join("ras")).into_iter().filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|n| n.ends_with("_err_count"))
        });
        let counts = files.filter_map(|path| {
            let text = text(&path)?;
            let value = |key: &str| -> Option<u64> {
                text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
            };
            Some((value("ce:")?, value("ue:")?))
        });
        counts.reduce(|sum, one| (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1)))
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES_MAX);
    let mut paths: Vec<PathBuf> = found.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::amount::Bytes;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("folder");
        fs::write(path, text).expect("write");
    }

    /// A GPU of AMD's without a topology: its render node says it all.
    fn amd(root: &Path) -> String {
        put(root, "dev/kfd", "");
        put(root, "dev/dri/renderD128", "");
        let device = "sys/class/drm/renderD128/device";
        for (file, text) in [
            ("vendor", "0x1002\n"),
            ("uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:05:00.0\n"),
            ("product_name", "AMD Instinct MI210\n"),
            ("mem_info_vram_total", "68719476736\n"),
        ] {
            put(root, &format!("{device}/{file}"), text);
        }
        let bus = "sys/bus/pci/devices/0000:05:00.0";
        for (file, text) in [
            ("vendor", "0x1002\n"),
            ("gpu_busy_percent", "73\n"),
            ("mem_info_vram_used", "1073741824\n"),
            ("pcie_replay_count", "4\n"),
            ("hwmon/hwmon3/temp1_input", "41000\n"),
            ("hwmon/hwmon3/power1_average", "92000000\n"),
            ("ras/umc_err_count", "ue: 1\nce: 5\n"),
            ("ras/gfx_err_count", "ue: 1\nce: 0\n"),
            ("ras/features", "feature mask: 0x1\n"),
        ] {
            put(root, &format!("{bus}/{file}"), text);
        }
        bus.to_owned()
    }

    #[test]
    fn amd_gpu_is_read_by_its_drivers_files_and_is_lost_without_them() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        let bus = amd(root);
        let mut files = KernelFiles::find(root);
        let known = GpuReading {
            index: 0,
            minor: Some(128),
            uuid: "0000:05:00.0".into(),
            model: "AMD Instinct MI210".into(),
            pci: "0000:05:00.0".into(),
            memory: Bytes::from_gib(64),
            ..GpuReading::default()
        };
        let expected = GpuReading {
            memory_used: Bytes::from_gib(1),
            busy_percent: Some(73),
            power_mw: Some(92_000),
            temperature_c: Some(41),
            ecc_corrected: Some(5),
            ecc_uncorrected: Some(2),
            pcie_replays: Some(4),
            ..known.clone()
        };
        assert_eq!(files.readings(), [expected]);
        fs::remove_dir_all(root.join(bus)).expect("removed");
        let lost = Some("its driver does not show it any more".to_owned());
        assert_eq!(files.readings(), [GpuReading { lost, ..known }]);
    }

    #[test]
    fn intel_gpu_has_its_energy_counter() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        put(root, "dev/dri/renderD128", "");
        let device = "sys/class/drm/renderD128/device";
        put(root, &format!("{device}/vendor"), "0x8086\n");
        put(root, &format!("{device}/class"), "0x038000\n");
        put(root, &format!("{device}/hwmon/hwmon1/energy1_input"), "5000000\n");
        let read = KernelFiles::find(root).readings();
        assert_eq!(
            (read[0].energy_mj, read[0].busy_percent, read[0].uuid.as_str()),
            (Some(5_000), None, "/renderD128")
        );
        assert!(KernelFiles::find(&root.join("dev")).is_empty());
    }

    #[test]
    fn gaudi_has_its_sensors_and_what_its_driver_says_of_it() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        let device = "sys/class/accel/accel0/device";
        for (file, text) in [
            ("vendor", "0x1da3\n"),
            ("device_type", "GAUDI2\n"),
            ("status", "Operational\n"),
            ("uevent", "PCI_SLOT_NAME=0000:4d:00.0\n"),
            ("hwmon/hwmon4/temp1_input", "47000\n"),
            ("hwmon/hwmon4/power1_input", "101000000\n"),
        ] {
            put(root, &format!("{device}/{file}"), text);
        }
        // NVIDIA's are counted before them, and their numbers are others.
        put(root, "dev/nvidia0", "");
        let mut files = KernelFiles::find(root);
        let read = files.readings();
        let seen = |gpu: &GpuReading| (gpu.index, gpu.temperature_c, gpu.power_mw);
        assert_eq!(read.iter().map(seen).collect::<Vec<_>>(), [(1, Some(47), Some(101_000))]);
        assert_eq!((read[0].uuid.as_str(), read[0].model.as_str()), ("0000:4d:00.0", "GAUDI2"));
        assert!(read[0].minor.is_some_and(|minor| minor > 1024));
        assert_eq!(read[0].findings(), []);
        assert_eq!((read[0].busy_percent, read[0].memory), (None, Bytes(0)), "no file says it");
        put(root, &format!("{device}/status"), "in reset\n");
        assert_eq!(files.readings()[0].lost, None, "it comes back");
        put(root, &format!("{device}/status"), "needs reset\n");
        let lost = Some("its driver says: needs reset".to_owned());
        assert_eq!(files.readings()[0].lost, lost);
    }

    #[test]
    fn use_of_gaudi_is_what_its_vendors_tool_says() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        for (card, address) in [(0, "0000:4d:00.0"), (1, "0000:4e:00.0")] {
            let device = format!("sys/class/accel/accel{card}/device");
            put(root, &format!("{device}/vendor"), "0x1da3\n");
            put(root, &format!("{device}/uevent"), &format!("PCI_SLOT_NAME={address}\n"));
        }
        let tool = root.join("usr/bin/hl-smi");
        let play = |text: &str| {
            put(
                root,
                "usr/bin/hl-smi",
                &format!("#!/bin/sh\necho $1 >> {0}/asked\n{text}\n", root.display()),
            );
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(&tool, mode).expect("chmod");
        };
        play("echo 0000:4D:00.0, 37, 768, 98304");
        let mut files = KernelFiles::find(root);
        let seen = |files: &mut KernelFiles| -> Vec<(Option<u64>, Bytes, Bytes)> {
            let read = files.readings().into_iter();
            read.map(|gpu| (gpu.busy_percent, gpu.memory_used, gpu.memory)).collect()
        };
        let unknown = (None, Bytes(0), Bytes(0));
        let used = (Some(37), Bytes(768 << 20), Bytes::from_gib(96));
        assert_eq!(seen(&mut files), [used, unknown]);
        // In the rounds between, what it said last stands.
        play("exit 1");
        for _ in 0..5 {
            assert_eq!(seen(&mut files), [used, unknown]);
        }
        assert_eq!(seen(&mut files), [unknown, unknown], "it fails");
        for _ in 0..12 {
            seen(&mut files);
        }
        let asked = fs::read_to_string(root.join("asked")).expect("it was asked");
        assert_eq!(asked, "-Q\n-Q\n", "it is not asked again");
    }

    #[test]
    fn tenstorrent_has_its_sensors_and_is_lost_when_its_firmware_stands_still() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        put(root, "dev/tenstorrent/0", "");
        let class = "sys/class/tenstorrent/tenstorrent!0";
        for (file, text) in [
            ("device/vendor", "0x1e52\n"),
            ("device/hwmon/hwmon2/temp1_input", "91000\n"),
            ("device/hwmon/hwmon2/power1_input", "60000000\n"),
            ("tt_card_type", "p150a\n"),
            ("tt_asic_id", "0x1234\n"),
            ("tt_heartbeat", "41\n"),
            ("tt_therm_trip_count", "2\n"),
        ] {
            put(root, &format!("{class}/{file}"), text);
        }
        let mut files = KernelFiles::find(root);
        let read = files.readings();
        let seen = (read[0].temperature_c, read[0].power_mw, read[0].uuid.as_str());
        assert_eq!(seen, (Some(91), Some(60_000), "0x1234"));
        let found: Vec<String> = read[0].findings().into_iter().map(|found| found.text).collect();
        assert_eq!(found, ["GPU 0: too hot", "GPU 0: 2 shutdowns because of its temperature"]);
        for _ in 1..STILL_ROUNDS_MAX {
            assert_eq!(files.readings()[0].lost, None, "a reading may come between two beats");
        }
        assert!(files.readings()[0].lost.is_some(), "it has stood still for long enough");
        put(root, &format!("{class}/tt_heartbeat"), "43\n");
        assert_eq!(files.readings()[0].lost, None);
    }

    #[test]
    fn partitions_have_no_figures_of_the_whole_device() {
        let scratch = tempfile::tempdir().expect("scratch folder");
        let root = scratch.path();
        amd(root);
        for part in 0..2_u32 {
            let node = format!("sys/class/kfd/kfd/topology/nodes/{}", part + 1);
            put(root, &format!("{node}/gpu_id"), "7\n");
            let text =
                format!("location_id {}\ndrm_render_minor {}\n", 0x500 | part << 28, 128 + part);
            put(root, &format!("{node}/properties"), &text);
            put(root, &format!("dev/dri/renderD{}", 128 + part), "");
        }
        let read = KernelFiles::find(root).readings();
        let seen: Vec<_> = read
            .iter()
            .map(|gpu| (gpu.uuid.as_str(), gpu.busy_percent, gpu.ecc_uncorrected))
            .collect();
        assert_eq!(
            seen,
            [
                ("0000:05:00.0/renderD128", None, Some(2)),
                ("0000:05:00.0/renderD129", None, Some(2))
            ]
        );
    }
}
