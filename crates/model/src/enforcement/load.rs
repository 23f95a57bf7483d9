//! How the load of a running attempt on a node came about: samples of its CPU time and memory, and readings of its GPUs.

use crate::time::Timestamp;
use crate::usage::LiveStep;
use serde::{Deserialize, Serialize};

/// How many samples of a running attempt a node keeps, of its CPUs and of each of its GPUs.
pub const SAMPLES_MAX: usize = 60;

/// What an attempt uses on one node, at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadSample {
    pub at: Timestamp,
    /// CPU time since its start, in microseconds.
    pub cpu_us: u64,
    /// Bytes that its control group counts, the page cache among them.
    pub memory: u64,
    /// Bytes of its processes alone.
    pub resident: u64,
}

/// One GPU of an attempt, the oldest reading first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GpuSeries {
    pub memory_total: u64,
    pub readings: Vec<GpuSample>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuSample {
    pub at: Timestamp,
    pub busy_percent: u32,
    pub memory_used: u64,
}

impl GpuSeries {
    /// The last reading by then, or the first of all.
    pub fn at(&self, time: Timestamp) -> Option<&GpuSample> {
        self.readings.iter().rev().find(|read| read.at <= time).or(self.readings.first())
    }
}

/// An attempt as one of its nodes sees it: what its steps use now, and its load until now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LiveUsage {
    pub steps: Vec<LiveStep>,
    #[serde(flatten)]
    pub load: Load,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Load {
    /// The oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<LoadSample>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuSeries>,
}

/// A sample with the CPU time since the one before it; 100 is one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadPoint {
    pub now: LoadSample,
    pub cpu_percent: u64,
}

impl Load {
    /// The newest first.
    pub fn points(&self) -> impl Iterator<Item = LoadPoint> {
        self.samples.windows(2).rev().map(|pair| {
            let (before, now) = (pair[0], pair[1]);
            let elapsed_us = now.at.since(before.at).as_micros().max(1);
            let used_us = u128::from(now.cpu_us.saturating_sub(before.cpu_us));
            let cpu_percent = u64::try_from(used_us * 100 / elapsed_us).unwrap_or(u64::MAX);
            LoadPoint { now, cpu_percent }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_the_newest_first_with_the_cpu_time_between_samples() {
        let sample = |seconds: i64, cpu_s: u64| LoadSample {
            at: Timestamp::from_millis(seconds * 1000),
            cpu_us: cpu_s * 1_000_000,
            memory: 0,
            resident: 0,
        };
        // A clock that was set back, and a counter that starts anew, are no reason to fail.
        let samples = vec![sample(0, 0), sample(30, 15), sample(40, 35), sample(39, 34)];
        let load = Load { samples, gpus: Vec::new() };
        let percent: Vec<u64> = load.points().map(|point| point.cpu_percent).collect();
        assert_eq!(percent, [0, 200, 50]);
    }

    #[test]
    fn reading_of_a_gpu_is_the_last_one_by_then() {
        let read = |seconds: i64| GpuSample {
            at: Timestamp::from_millis(seconds * 1000),
            busy_percent: seconds as u32,
            memory_used: 0,
        };
        let gpu = GpuSeries { memory_total: 1, readings: vec![read(5), read(35)] };
        for (time, found) in [(0, 5), (5, 5), (34, 5), (35, 35), (99, 35)] {
            let read = gpu.at(Timestamp::from_millis(time * 1000)).expect("a reading");
            assert_eq!(read.busy_percent, found, "{time}");
        }
        assert_eq!(GpuSeries::default().at(Timestamp::from_millis(0)), None);
    }
}
