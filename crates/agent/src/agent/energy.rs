//! The energy that this machine uses, by the counters of its processors (RAPL) and of its GPUs, and each attempt's part
//! of it: all of what its GPUs used, and of the processors as much as its share of the CPUs.

use model::gpu_health::GpuReading;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Where the kernel shows the counters. A package is `intel-rapl:0`, AMD's too; its parts are in it already.
const FOLDER: &str = "sys/class/powercap";
const PACKAGE: &str = "intel-rapl:";
const PACKAGES_MAX: usize = 64;

/// The counters, which the kernel starts anew at `range_uj`.
struct Package {
    counter: PathBuf,
    range_uj: u64,
    last_uj: u64,
}

pub(super) struct EnergyMeter {
    packages: Vec<Package>,
    packages_uj: u64,
    /// What each GPU has used since the meter began, and its counter's last value, by the number of its device file.
    gpus: BTreeMap<u32, GpuCounter>,
    /// The numbers of device files by UUID. A GPU that is lost has none in its reading, and keeps its number.
    numbers: HashMap<String, u32>,
    last: Option<(Instant, u64)>,
    packages_w: u64,
    gpus_w: u64,
}

/// In millijoules.
#[derive(Debug, Clone, Copy)]
struct GpuCounter {
    used: u64,
    last: u64,
}

/// What the counters showed when an attempt began.
pub(super) struct EnergyMark {
    packages_uj: u64,
    gpus_mj: Vec<(u32, u64)>,
}

impl EnergyMeter {
    pub fn new() -> EnergyMeter {
        Self::below(Path::new("/"))
    }

    fn below(root: &Path) -> EnergyMeter {
        let entries = fs::read_dir(root.join(FOLDER)).into_iter().flatten().flatten();
        let is_package = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.strip_prefix(PACKAGE).is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let packages = entries.map(|entry| entry.path()).filter(is_package).filter_map(|path| {
            let counter = path.join("energy_uj");
            let range_uj = read_number(&path.join("max_energy_range_uj"))?;
            let last_uj = read_number(&counter)?;
            Some(Package { counter, range_uj, last_uj })
        });
        EnergyMeter {
            packages: packages.take(PACKAGES_MAX).collect(),
            packages_uj: 0,
            gpus: BTreeMap::new(),
            numbers: HashMap::new(),
            last: None,
            packages_w: 0,
            gpus_w: 0,
        }
    }

    /// Reads the processors' counters. Between two readings a counter may start anew once.
    pub fn read_packages(&mut self, now: Instant) {
        for package in &mut self.packages {
            let Some(value) = read_number(&package.counter) else { continue };
            let used = match value.checked_sub(package.last_uj) {
                Some(used) => used,
                None => value.saturating_add(package.range_uj.saturating_sub(package.last_uj)),
            };
            package.last_uj = value;
            self.packages_uj = self.packages_uj.saturating_add(used);
        }
        if let Some((at, before_uj)) = self.last
            && let elapsed_us = now.saturating_duration_since(at).as_micros() as u64
            && elapsed_us > 0
        {
            self.packages_w = (self.packages_uj - before_uj) / elapsed_us;
        }
        self.last = Some((now, self.packages_uj));
    }

    /// Takes a round of the GPUs' readings in. A counter that is lower than before was set back by its driver.
    pub fn read_gpus(&mut self, round: &[GpuReading]) {
        self.numbers.retain(|uuid, _| round.iter().any(|gpu| gpu.uuid == *uuid));
        let numbered = |gpu: &GpuReading| Some((gpu.uuid.clone(), gpu.minor?));
        self.numbers.extend(round.iter().filter_map(numbered));
        for reading in round {
            let number = self.numbers.get(&reading.uuid).copied();
            let (Some(number), Some(now)) = (number, reading.energy_mj) else { continue };
            let counter = self.gpus.entry(number).or_insert(GpuCounter { used: 0, last: now });
            let used = now.checked_sub(counter.last).unwrap_or(now);
            *counter = GpuCounter { used: counter.used.saturating_add(used), last: now };
        }
        self.gpus_w = round.iter().filter_map(|gpu| gpu.power_mw).sum::<u64>() / 1000;
    }

    /// The readings of a round by the numbers of their GPUs.
    pub fn by_number<'a>(&self, round: &'a [GpuReading]) -> HashMap<u32, &'a GpuReading> {
        let numbered = |read: &'a GpuReading| Some((*self.numbers.get(&read.uuid)?, read));
        round.iter().filter(|read| read.lost.is_none()).filter_map(numbered).collect()
    }

    /// The present power in watts; `None` where nothing counts.
    pub fn power_w(&self) -> Option<u64> {
        let has_counter = !self.packages.is_empty() || !self.gpus.is_empty();
        has_counter.then_some(self.packages_w + self.gpus_w)
    }

    pub fn mark(&mut self, gpus: &[u32]) -> EnergyMark {
        self.read_packages(Instant::now());
        // A GPU that was never read counts from its first reading.
        let used = |gpu: u32| self.gpus.get(&gpu).map_or(0, |counter| counter.used);
        let gpus_mj = gpus.iter().map(|gpu| (*gpu, used(*gpu))).collect();
        EnergyMark { packages_uj: self.packages_uj, gpus_mj }
    }

    /// Millijoules since the mark, of an attempt that had so many of the machine's CPUs.
    pub fn used_since(&mut self, mark: &EnergyMark, cpus: u32, cpus_of_machine: u32) -> u64 {
        self.read_packages(Instant::now());
        let of_gpu = |(gpu, before): &(u32, u64)| {
            self.gpus.get(gpu).map_or(0, |counter| counter.used.saturating_sub(*before))
        };
        let gpus_mj: u64 = mark.gpus_mj.iter().map(of_gpu).sum();
        let packages_uj = u128::from(self.packages_uj.saturating_sub(mark.packages_uj));
        let all = u128::from(cpus_of_machine.max(1));
        let own_uj = packages_uj * u128::from(cpus).min(all) / all;
        gpus_mj.saturating_add(u64::try_from(own_uj / 1000).unwrap_or(u64::MAX))
    }
}

fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_attempt_has_its_part_of_the_packages_and_all_of_its_gpus() {
        let root = tempfile::tempdir().expect("scratch folder");
        let write = |package: &str, file: &str, value: u64| {
            let folder = root.path().join(FOLDER).join(package);
            fs::create_dir_all(&folder).expect("made");
            fs::write(folder.join(file), format!("{value}\n")).expect("written");
        };
        for package in ["intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0", "intel-rapl"] {
            write(package, "energy_uj", 900_000);
            write(package, "max_energy_range_uj", 1_000_000);
        }
        let gpu = |minor: u32, energy_mj: u64| GpuReading {
            index: 5 - minor,
            minor: Some(minor),
            uuid: format!("GPU-{minor}"),
            energy_mj: Some(energy_mj),
            power_mw: Some(70_000),
            ..GpuReading::default()
        };
        let mut meter = EnergyMeter::below(root.path());
        // The agent reads two of the machine's GPUs, 2 and 5.
        let early = meter.mark(&[2]);
        assert_eq!(meter.packages.len(), 2, "parts of a package are not counted again");
        meter.read_gpus(&[gpu(2, 5_000), gpu(5, 9_000)]);
        let mark = meter.mark(&[5]);
        write("intel-rapl:0", "energy_uj", 980_000);
        // This one has started anew.
        write("intel-rapl:1", "energy_uj", 20_000);
        meter.read_gpus(&[gpu(2, 6_000), gpu(5, 9_300)]);
        // 80 and 120 millijoules of the packages, a quarter of the CPUs.
        assert_eq!(meter.used_since(&mark, 2, 8), 300 + 50);
        assert_eq!(meter.used_since(&early, 0, 8), 1_000, "marked before the first reading");
        let lost = GpuReading {
            uuid: "GPU-2".into(),
            lost: Some("it does not answer".into()),
            ..GpuReading::default()
        };
        meter.read_gpus(&[lost, gpu(5, 9_300)]);
        assert_eq!(meter.used_since(&mark, 0, 8), 300, "the other keeps its number");
        // The driver was loaded anew.
        meter.read_gpus(&[gpu(2, 10), gpu(5, 40)]);
        assert_eq!(meter.used_since(&mark, 0, 8), 340);
        assert_eq!(meter.used_since(&mark, 99, 8), 340 + 200, "no more than there is");
        let (at, _) = meter.last.expect("read");
        write("intel-rapl:0", "energy_uj", 981_000);
        meter.read_packages(at + Duration::from_micros(100));
        assert_eq!(meter.power_w(), Some(10 + 140));
    }

    #[test]
    fn a_machine_without_counters_has_no_power() {
        let root = tempfile::tempdir().expect("scratch folder");
        let mut meter = EnergyMeter::below(root.path());
        let mark = meter.mark(&[0]);
        assert_eq!(meter.used_since(&mark, 4, 4), 0);
        assert_eq!(meter.power_w(), None);
    }
}
