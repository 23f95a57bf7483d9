//! What the GPUs of an attempt did, by the machine's readings: of the attempt, and of each step on its own GPUs.

use model::gpu_health::GpuReading;
use model::id::StepId;
use model::load::{GpuSample, GpuSeries, SAMPLES_MAX};
use model::time::Timestamp;
use model::usage::GpuUsage;
use std::collections::HashMap;
use std::time::Duration;

/// Between two readings that are kept one by one; the means and peaks have all of them.
const KEPT_EVERY: Duration = Duration::from_secs(30);

/// GPUs are numbers among the machine's.
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
            if series.readings.last().is_some_and(|last| now < last.at + KEPT_EVERY) {
                continue;
            }
            if series.readings.len() == SAMPLES_MAX {
                series.readings.remove(0);
            }
            let busy_percent = read.busy_percent.unwrap_or(0) as u32;
            let memory_used = read.memory_used.0;
            series.readings.push(GpuSample { at: now, busy_percent, memory_used });
        }
    }

    /// `None` without a GPU that was read.
    pub fn whole(&self) -> Option<GpuUsage> {
        (self.whole.last != GpuUsage::default()).then_some(self.whole.last)
    }

    /// A step that nothing is known of has all that its job has.
    pub fn of_step(&self, step: StepId) -> Option<GpuUsage> {
        let meter = self.steps.get(&step).map_or(&self.whole, |(_, meter)| meter);
        (meter.last != GpuUsage::default()).then_some(meter.last)
    }

    pub fn series(&self) -> Vec<GpuSeries> {
        self.series.iter().filter(|gpu| !gpu.readings.is_empty()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn an_attempt_without_gpus_has_no_use_of_them() {
        let mut gpus = AttemptGpus::new(Vec::new());
        gpus.start_step(StepId::Number(0), Vec::new());
        gpus.add(&HashMap::from([(0, &gpu(50, 1))]), Timestamp::from_millis(0));
        assert_eq!((gpus.whole(), gpus.end_step(StepId::Number(0))), (None, None));
        assert!(gpus.series().is_empty() && gpus.steps.is_empty());
    }
}
