//! The energy that this machine uses, by the counters of its processors (RAPL) and of its GPUs, and each attempt's and
//! step's part of it: all of what its GPUs used, and of each socket's processor as much as its share of the CPUs there. The
//! energy of a GPU that only tells its power is that power times the time between two readings.

use crate::detect::{Machine, gpu};
use model::cpuset::CpuSet;
use model::gpu_health::GpuReading;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the kernel shows the counters. A package is `intel-rapl:0`, AMD's too; its parts are in it already.
const FOLDER: &str = "sys/class/powercap";
const PACKAGE: &str = "intel-rapl:";
const PACKAGES_MAX: usize = 64;
/// Begins the name of a package, before the number of its socket: `package-0`, `package-0-die-1`.
const PACKAGE_NAME: &str = "package-";
/// The longest time for which one reading of power is taken for the whole of it.
const READING_HOLDS: Duration = Duration::from_secs(60);

/// A counter, which the kernel starts anew at `range_uj`.
struct Package {
    counter: PathBuf,
    range_uj: u64,
    last_uj: u64,
    /// What it has counted since the meter began.
    used_uj: u64,
    /// `None` if its name does not tell.
    socket: Option<u32>,
}

pub(super) struct EnergyMeter {
    packages: Vec<Package>,
    /// What each GPU has used since the meter began, by the number of its device file.
    gpus: BTreeMap<u32, GpuCounter>,
    /// The numbers of device files by UUID. A GPU that is lost has none in its reading, and keeps its number.
    numbers: HashMap<String, u32>,
    began: Instant,
    last: Option<(Instant, u64)>,
    packages_w: u64,
    gpus_w: u64,
}

#[derive(Debug, Clone, Copy)]
struct GpuCounter {
    used_mj: u64,
    /// Its counter's last value in millijoules, where it has one.
    last_mj: Option<u64>,
    read_at: Instant,
}

/// What the counters showed when an attempt or a step began.
#[derive(Debug, Clone, Default)]
pub(super) struct EnergyMark {
    packages_uj: Vec<u64>,
    gpus_mj: Vec<(u32, u64)>,
}

/// How many CPUs an attempt or a step has of the machine's, and of each socket's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CpuPart {
    own: u32,
    all: u32,
    sockets: BTreeMap<u32, (u32, u32)>,
}

impl CpuPart {
    /// `cpus` are counted by socket, core and thread as the machine's are. Of a node that has more than its machine, nobody
    /// knows which socket they are of.
    pub fn of(cpus: &CpuSet, machine: &Machine) -> CpuPart {
        let mut sockets: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for (id, cpu) in (0..).zip(&machine.cpu_list) {
            let (own, all) = sockets.entry(cpu.socket).or_default();
            (*own, *all) = (*own + u32::from(cpus.contains(id)), *all + 1);
        }
        let placed: u32 = sockets.values().map(|(own, _)| own).sum();
        if placed != cpus.len() {
            sockets.clear();
        }
        CpuPart { own: cpus.len(), all: machine.cpus, sockets }
    }

    pub fn count(&self) -> u32 {
        self.own
    }

    /// The CPUs of a socket that it has, and all of them.
    fn of_socket(&self, socket: Option<u32>) -> (u32, u32) {
        let known = socket.and_then(|socket| self.sockets.get(&socket));
        known.copied().unwrap_or((self.own, self.all))
    }
}

impl EnergyMeter {
    pub fn new() -> EnergyMeter {
        Self::below(&gpu::root())
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
            let name = fs::read_to_string(path.join("name")).unwrap_or_default();
            let number = name.trim().strip_prefix(PACKAGE_NAME).and_then(|n| n.split('-').next());
            let socket = number.and_then(|number| number.parse().ok());
            Some(Package { counter, range_uj, last_uj, used_uj: 0, socket })
        });
        EnergyMeter {
            packages: packages.take(PACKAGES_MAX).collect(),
            gpus: BTreeMap::new(),
            numbers: HashMap::new(),
            began: Instant::now(),
            last: None,
            packages_w: 0,
            gpus_w: 0,
        }
    }

    fn packages_uj(&self) -> u64 {
        self.packages.iter().fold(0, |sum, package| sum.saturating_add(package.used_uj))
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
            package.used_uj = package.used_uj.saturating_add(used);
        }
        let all_uj = self.packages_uj();
        if let Some((at, before_uj)) = self.last
            && let elapsed_us = now.saturating_duration_since(at).as_micros() as u64
            && elapsed_us > 0
        {
            self.packages_w = (all_uj - before_uj) / elapsed_us;
        }
        self.last = Some((now, all_uj));
    }

    /// Takes a round of the GPUs' readings in. A counter that is lower than before was set back by its driver.
    pub fn read_gpus(&mut self, round: &[GpuReading], at: Instant) {
        self.numbers.retain(|uuid, _| round.iter().any(|gpu| gpu.uuid == *uuid));
        let numbered = |gpu: &GpuReading| Some((gpu.uuid.clone(), gpu.minor?));
        self.numbers.extend(round.iter().filter_map(numbered));
        for reading in round {
            let Some(number) = self.numbers.get(&reading.uuid).copied() else { continue };
            if reading.energy_mj.is_none() && reading.power_mw.is_none() {
                continue;
            }
            let new = GpuCounter { used_mj: 0, last_mj: reading.energy_mj, read_at: at };
            let counter = self.gpus.entry(number).or_insert(new);
            let used = match (reading.energy_mj, counter.last_mj) {
                (Some(now), Some(last)) => now.checked_sub(last).unwrap_or(now),
                (Some(_), None) => 0,
                (None, _) => {
                    let passed = at.saturating_duration_since(counter.read_at).min(READING_HOLDS);
                    let milliseconds = passed.as_millis() as u64;
                    reading.power_mw.unwrap_or(0).saturating_mul(milliseconds) / 1000
                }
            };
            let used_mj = counter.used_mj.saturating_add(used);
            *counter = GpuCounter { used_mj, last_mj: reading.energy_mj, read_at: at };
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

    /// The mean power since the meter began.
    pub fn mean_power_w(&self, now: Instant) -> Option<u64> {
        let elapsed_ms = now.saturating_duration_since(self.began).as_millis() as u64;
        let gpus_mj: u64 = self.gpus.values().map(|counter| counter.used_mj).sum();
        let all_mj = gpus_mj.saturating_add(self.packages_uj() / 1000);
        self.power_w().map(|_| all_mj / elapsed_ms.max(1))
    }

    pub fn mark(&mut self, gpus: &[u32]) -> EnergyMark {
        self.read_packages(Instant::now());
        // A GPU that was never read counts from its first reading.
        let used = |gpu: u32| self.gpus.get(&gpu).map_or(0, |counter| counter.used_mj);
        let gpus_mj = gpus.iter().map(|gpu| (*gpu, used(*gpu))).collect();
        let packages_uj = self.packages.iter().map(|package| package.used_uj).collect();
        EnergyMark { packages_uj, gpus_mj }
    }

    /// Millijoules since the mark, of an attempt or a step that had this part of the machine's CPUs.
    pub fn used_since(&mut self, mark: &EnergyMark, cpus: &CpuPart) -> u64 {
        self.read_packages(Instant::now());
        let of_gpu = |(gpu, before): &(u32, u64)| {
            self.gpus.get(gpu).map_or(0, |counter| counter.used_mj.saturating_sub(*before))
        };
        let gpus_mj: u64 = mark.gpus_mj.iter().map(of_gpu).sum();
        let of_package = |(package, before_uj): (&Package, &u64)| {
            let used_uj = u128::from(package.used_uj.saturating_sub(*before_uj));
            let (own, all) = cpus.of_socket(package.socket);
            let all = u128::from(all.max(1));
            used_uj * u128::from(own).min(all) / all
        };
        let own_uj: u128 = self.packages.iter().zip(&mark.packages_uj).map(of_package).sum();
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
        let part = |own: u32| CpuPart { own, all: 8, sockets: BTreeMap::new() };
        let gpu = |minor: u32, energy_mj: u64| GpuReading {
            index: 5 - minor,
            minor: Some(minor),
            uuid: format!("GPU-{minor}"),
            energy_mj: Some(energy_mj),
            power_mw: Some(70_000),
            ..GpuReading::default()
        };
        let mut meter = EnergyMeter::below(root.path());
        let now = meter.began;
        // The agent reads two of the machine's GPUs, 2 and 5.
        let early = meter.mark(&[2]);
        assert_eq!(meter.packages.len(), 2, "parts of a package are not counted again");
        meter.read_gpus(&[gpu(2, 5_000), gpu(5, 9_000)], now);
        let mark = meter.mark(&[5]);
        write("intel-rapl:0", "energy_uj", 980_000);
        // This one has started anew.
        write("intel-rapl:1", "energy_uj", 20_000);
        meter.read_gpus(&[gpu(2, 6_000), gpu(5, 9_300)], now);
        // 80 and 120 millijoules of the packages, a quarter of the CPUs.
        assert_eq!(meter.used_since(&mark, &part(2)), 300 + 50);
        assert_eq!(meter.used_since(&early, &part(0)), 1_000, "marked before the first reading");
        let lost = GpuReading {
            uuid: "GPU-2".into(),
            lost: Some("it does not answer".into()),
            ..GpuReading::default()
        };
        meter.read_gpus(&[lost, gpu(5, 9_300)], now);
        assert_eq!(meter.used_since(&mark, &part(0)), 300, "the other keeps its number");
        // The driver was loaded anew.
        meter.read_gpus(&[gpu(2, 10), gpu(5, 40)], now);
        assert_eq!(meter.used_since(&mark, &part(0)), 340);
        assert_eq!(meter.used_since(&mark, &part(99)), 340 + 200, "no more than there is");
        let (at, _) = meter.last.expect("read");
        write("intel-rapl:0", "energy_uj", 981_000);
        meter.read_packages(at + Duration::from_micros(100));
        assert_eq!(meter.power_w(), Some(10 + 140));
    }

    #[test]
    fn a_part_of_one_socket_has_nothing_of_the_others() {
        let root = tempfile::tempdir().expect("scratch folder");
        let write = |number: u32, file: &str, text: &str| {
            let folder = root.path().join(FOLDER).join(format!("intel-rapl:{number}"));
            fs::create_dir_all(&folder).expect("made");
            fs::write(folder.join(file), format!("{text}\n")).expect("written");
        };
        for (number, name) in [(0, "package-1"), (1, "package-0-die-0"), (2, "psys")] {
            write(number, "name", name);
            write(number, "max_energy_range_uj", "1000000000");
            write(number, "energy_uj", "0");
        }
        let mut meter = EnergyMeter::below(root.path());
        let mark = meter.mark(&[]);
        for (number, used) in [(0, "8000000"), (1, "40000000"), (2, "16000")] {
            write(number, "energy_uj", used);
        }
        // Three of four CPUs of the first socket, of eight in all.
        let sockets = BTreeMap::from([(0, (3, 4)), (1, (0, 4))]);
        let part = CpuPart { own: 3, all: 8, sockets };
        assert_eq!(meter.used_since(&mark, &part), 30_000 + 6);
    }

    #[test]
    fn power_is_counted_over_time_where_a_gpu_has_no_counter() {
        let root = tempfile::tempdir().expect("scratch folder");
        let mut meter = EnergyMeter::below(root.path());
        let gpu = GpuReading {
            minor: Some(3),
            uuid: "GPU-3".into(),
            power_mw: Some(200_000),
            ..GpuReading::default()
        };
        let (start, second) = (meter.began, Duration::from_secs(1));
        meter.read_gpus(std::slice::from_ref(&gpu), start);
        let mark = meter.mark(&[3]);
        meter.read_gpus(std::slice::from_ref(&gpu), start + 5 * second);
        assert_eq!(meter.used_since(&mark, &CpuPart::default()), 1_000_000);
        assert_eq!(meter.mean_power_w(start + 10 * second), Some(100));
        // Nobody knows what it did in an hour without a reading.
        meter.read_gpus(std::slice::from_ref(&gpu), start + 3600 * second);
        assert_eq!(meter.used_since(&mark, &CpuPart::default()), 13_000_000);
    }

    #[test]
    fn a_machine_without_counters_has_no_power() {
        let root = tempfile::tempdir().expect("scratch folder");
        let mut meter = EnergyMeter::below(root.path());
        let mark = meter.mark(&[0]);
        let part = CpuPart { own: 4, all: 4, sockets: BTreeMap::new() };
        assert_eq!(meter.used_since(&mark, &part), 0);
        assert_eq!((meter.power_w(), meter.mean_power_w(Instant::now())), (None, None));
    }
}
