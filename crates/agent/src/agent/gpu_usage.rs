//! What the GPUs of an attempt did, by the machine's readings: of the attempt, and of each step on its own GPUs.

use crate::detect::GpuDevice;
use model::allocation::NodeShare;
use model::gpu_health::GpuReading;
use model::gres::GPU;
use model::id::StepId;
use model::limits::{DeviceLine, DeviceUnit};
use model::load::{GpuSample, GpuSeries, SAMPLES_MAX};
use model::time::Timestamp;
use model::usage::GpuUsage;
use std::collections::HashMap;
use std::time::Duration;

/// Between two readings that are kept one by one; the means and peaks have all of them.
const KEPT_EVERY: Duration = Duration::from_secs(30);

/// The numbers of the device files of a share's GPUs, for those that are read one by one: a slice is not its GPU.
pub(super) fn device_numbers(
    share: &NodeShare,
    lines: &[DeviceLine],
    machine: &[GpuDevice],
) -> Vec<u32> {
    let number = |unit: DeviceUnit| {
        let mut read = machine.iter().filter(|gpu| gpu.vendor.is_read());
        let files = unit.files.join(",");
        let by_file = read.clone().find(|gpu| !gpu.is_slice() && gpu.files() == files);
        if let Some(gpu) = by_file {
            return Some(gpu.minor);
        }
        let [_] = &unit.files[..] else { return None };
        // A file of another name, a link for one, is taken by its place.
        read.nth(unit.index? as usize).map_or(unit.index, |gpu| Some(gpu.minor))
    };
    let units = DeviceUnit::granted(share, lines).into_iter();
    units.filter(|unit| unit.name == GPU && unit.index.is_some()).filter_map(number).collect()
}

/// GPUs are the numbers of their device files.
#[derive(Default)]
pub(super) struct AttemptGpus {
    gpus: Vec<u32>,
    whole: Meter,
    /// Steps that have a part of the GPUs only. Such a step of a former agent is not known any more.
    steps: HashMap<StepId, (Vec<u32>, Meter)>,
    series: Vec<GpuSeries>,
}

#[derive(Default)]
struct Meter {
    rounds: u64,
    busy_sum: u64,
    last: GpuUsage,
}

impl Meter {
    fn add(&mut self, round: &HashMap<u32, &GpuReading>, gpus: &[u32]) {
        let read: Vec<&GpuReading> =
            gpus.iter().filter_map(|gpu| round.get(gpu).copied()).collect();
        let busy: Vec<u64> = read.iter().filter_map(|gpu| gpu.busy_percent).collect();
        if !busy.is_empty() {
            let mean = busy.iter().sum::<u64>() / busy.len() as u64;
            self.rounds += 1;
            self.busy_sum = self.busy_sum.saturating_add(mean);
            self.last.busy_percent = (self.busy_sum / self.rounds) as u32;
            self.last.busy_percent_max = self.last.busy_percent_max.max(mean as u32);
        }
        if !read.is_empty() {
            self.last.memory = read.iter().map(|gpu| gpu.memory_used.0).sum();
            self.last.memory_peak = self.last.memory_peak.max(self.last.memory);
        }
    }
}

impl AttemptGpus {
    pub fn new(gpus: Vec<u32>) -> AttemptGpus {
        let series = gpus.iter().map(|_| GpuSeries::default()).collect();
        AttemptGpus { gpus, series, ..AttemptGpus::default() }
    }

    pub fn numbers(&self) -> &[u32] {
        &self.gpus
    }

    /// A step starts on some of the attempt's GPUs. Its order may come again.
    pub fn start_step(&mut self, step: StepId, gpus: Vec<u32>) {
        if !self.gpus.is_empty() {
            self.steps.entry(step).or_insert_with(|| (gpus, Meter::default()));
        }
    }

    pub fn end_step(&mut self, step: StepId) -> Option<GpuUsage> {
        let used = self.of_step(step);
        self.steps.remove(&step);
        used
    }

    pub fn add(&mut self, round: &HashMap<u32, &GpuReading>, now: Timestamp) {
        self.whole.add(round, &self.gpus);
        for (gpus, meter) in self.steps.values_mut() {
            meter.add(round, gpus);
        }
        for (gpu, series) in self.gpus.iter().zip(&mut self.series) {
            let Some(read) = round.get(gpu) else { continue };
            series.memory_total = read.memory.0;
            // A GPU that does not say how busy it is has not said that it is idle.
            let Some(busy_percent) = read.busy_percent else { continue };
            if series.readings.last().is_some_and(|last| now < last.at + KEPT_EVERY) {
                continue;
            }
            if series.readings.len() == SAMPLES_MAX {
                series.readings.remove(0);
            }
            let (busy_percent, memory_used) = (busy_percent as u32, read.memory_used.0);
            series.readings.push(GpuSample { at: now, busy_percent, memory_used });
        }
    }

    /// `None` if no GPU was read, or none did anything.
    pub fn whole(&self) -> Option<GpuUsage> {
        (self.whole.last != GpuUsage::default()).then_some(self.whole.last)
    }

    /// A step that nothing is known of has all that its job has.
    pub fn of_step(&self, step: StepId) -> Option<GpuUsage> {
        let meter = self.steps.get(&step).map_or(&self.whole, |(_, meter)| meter);
        (meter.last != GpuUsage::default()).then_some(meter.last)
    }

    /// One for each GPU; that of a GPU which is not read is empty.
    pub fn series(&self) -> Vec<GpuSeries> {
        self.series.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::Vendor;
    use model::allocation::GresShare;
    use model::amount::Bytes;

    fn gpu(busy_percent: u64, used: u64) -> GpuReading {
        GpuReading {
            busy_percent: Some(busy_percent),
            memory: Bytes(80),
            memory_used: Bytes(used),
            ..GpuReading::default()
        }
    }

    #[test]
    fn gpus_of_a_share_are_read_by_their_device_files() {
        let gpu = |minor: u32, capabilities: &[&str]| GpuDevice {
            index: 0,
            vendor: Vendor::Nvidia,
            model: "NVIDIA H200".into(),
            path: format!("/dev/nvidia{minor}"),
            capabilities: capabilities.iter().map(|file| (*file).to_owned()).collect(),
            uuid: None,
            unique_id: None,
            pci: None,
            minor,
            numa_node: None,
            cpus: None,
            memory: None,
            compute_capability: None,
            links: Vec::new(),
        };
        let machine = [gpu(2, &[]), gpu(5, &[]), gpu(7, &["/dev/c1", "/dev/c2"])];
        let line = |first_index, files: &[&str]| DeviceLine {
            name: GPU.into(),
            first_index,
            count: files.len() as u64,
            files: files.iter().map(|file| (*file).to_owned()).collect(),
        };
        // As a gres.conf of the site may count them.
        let lines = [
            line(0, &["/dev/nvidia5", "/dev/nvidia2"]),
            line(2, &["/dev/nvidia7,/dev/c1,/dev/c2"]),
        ];
        let numbers = |indices: &[u32]| {
            let count = indices.len() as u64;
            let indices = indices.to_vec();
            let gres = vec![GresShare { name: GPU.into(), kind: None, count, indices }];
            let share = NodeShare {
                node: "n".into(),
                cpus: "0".parse().expect("CPUs"),
                memory: Bytes(0),
                gres,
                tasks: 1,
                sharers: 1,
                disk: Bytes(0),
                price: None,
            };
            device_numbers(&share, &lines, &machine)
        };
        assert_eq!(numbers(&[0]), [5]);
        assert_eq!(numbers(&[1, 2]), [2], "a slice is not its GPU");
    }

    #[test]
    fn each_step_has_the_use_of_its_own_gpus() {
        let mut gpus = AttemptGpus::new(vec![1, 3]);
        gpus.start_step(StepId::Number(0), vec![3]);
        let rounds = [[gpu(100, 9), gpu(20, 4), gpu(60, 5)], [gpu(100, 9), gpu(40, 2), gpu(0, 1)]];
        for (second, [other, first, last]) in rounds.iter().enumerate() {
            let round = HashMap::from([(0, other), (1, first), (3, last)]);
            gpus.add(&round, Timestamp::from_millis(second as i64 * 40_000));
            gpus.start_step(StepId::Number(0), vec![3]);
        }
        let whole = GpuUsage { busy_percent: 30, busy_percent_max: 40, memory: 3, memory_peak: 9 };
        assert_eq!(gpus.whole(), Some(whole));
        assert_eq!(gpus.of_step(StepId::Batch), Some(whole));
        let step = GpuUsage { busy_percent: 30, busy_percent_max: 60, memory: 1, memory_peak: 5 };
        assert_eq!(gpus.end_step(StepId::Number(0)), Some(step));
        let series = gpus.series();
        assert_eq!(series.len(), 2);
        let seen = |gpu: &GpuSeries| -> Vec<_> {
            gpu.readings.iter().map(|read| (read.busy_percent, read.memory_used)).collect()
        };
        assert_eq!(seen(&series[0]), [(20, 4), (40, 2)]);
        assert_eq!(seen(&series[1]), [(60, 5), (0, 1)]);
        assert_eq!(series[0].memory_total, 80);
    }

    #[test]
    fn readings_that_follow_closely_are_not_kept_one_by_one_and_old_ones_go() {
        let mut gpus = AttemptGpus::new(vec![0]);
        let read = gpu(50, 1);
        for second in 0..5_000 {
            gpus.add(&HashMap::from([(0, &read)]), Timestamp::from_millis(second * 1000));
        }
        let series = gpus.series();
        let times: Vec<i64> = series[0].readings.iter().map(|read| read.at.millis()).collect();
        assert_eq!(times.len(), SAMPLES_MAX);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 30_000));
        assert_eq!(gpus.whole().map(|used| used.busy_percent), Some(50));
    }

    #[test]
    fn gpu_that_does_not_say_how_busy_it_is_has_an_empty_series() {
        let mut gpus = AttemptGpus::new(vec![0, 1, 2]);
        let (idle, silent) = (gpu(0, 1), GpuReading { busy_percent: None, ..gpu(0, 1) });
        gpus.add(&HashMap::from([(0, &silent), (1, &idle)]), Timestamp::from_millis(0));
        let counts: Vec<usize> = gpus.series().iter().map(|gpu| gpu.readings.len()).collect();
        assert_eq!(counts, [0, 1, 0]);
    }

    #[test]
    fn an_attempt_without_gpus_has_no_use_of_them() {
        let mut gpus = AttemptGpus::new(Vec::new());
        gpus.start_step(StepId::Number(0), Vec::new());
        gpus.add(&HashMap::from([(0, &gpu(50, 1))]), Timestamp::from_millis(0));
        assert_eq!((gpus.whole(), gpus.end_step(StepId::Number(0))), (None, None));
        assert!(gpus.series().is_empty() && gpus.steps.is_empty());
    }
}
