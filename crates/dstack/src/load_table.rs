//! The table that `sluice metrics` prints: for each job of a run and each of its GPUs, the load until now as a line of
//! bars, and the last value.

use crate::offer::size;
use crate::table::align;
use model::amount::{Bytes, MIB};
use model::load::Load;

/// Bars in a line; older points are left out.
const BARS: usize = 30;

/// A job of a run on its node.
#[derive(Debug, Clone)]
pub struct JobLoad<'a> {
    pub number: usize,
    pub cpus: u32,
    pub memory: Bytes,
    pub load: &'a Load,
}

pub fn metrics(jobs: &[JobLoad<'_>]) -> String {
    let mut lines = vec![["", "", "UTILIZATION", "MEMORY"].map(str::to_owned).to_vec()];
    for job in jobs {
        let mut points: Vec<_> = job.load.points().take(BARS).collect();
        points.reverse();
        let of_cpus = |percent: u64| percent / u64::from(job.cpus.max(1));
        let cpu = points.iter().map(|point| of_cpus(point.cpu_percent));
        let memory = points.iter().map(|point| point.now.memory);
        let name = format!("job={}", job.number);
        lines.push(line(&name, "cpu", cpu.collect(), memory.collect(), job.memory.0));
        for (number, gpu) in job.load.gpus.iter().enumerate() {
            let readings = || points.iter().filter_map(|point| gpu.at(point.now.at));
            let busy = readings().map(|read| u64::from(read.busy_percent)).collect();
            let memory = readings().map(|read| read.memory_used).collect();
            lines.push(line("", &format!("gpu={number}"), busy, memory, gpu.memory_total));
        }
    }
    align(&lines)
}

fn line(job: &str, what: &str, percent: Vec<u64>, memory: Vec<u64>, total: u64) -> Vec<String> {
    let busy = match percent.last() {
        Some(last) => format!("{} {last}%", bars(&percent, 100)),
        None => "-".to_owned(),
    };
    let memory = match memory.last() {
        Some(last) => format!("{} {}/{}", bars(&memory, total), amount(*last), amount(total)),
        None => "-".to_owned(),
    };
    vec![job.to_owned(), what.to_owned(), busy, memory]
}

fn bars(values: &[u64], full: u64) -> String {
    const BAR: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |value: &u64| {
        let eighths = u128::from(*value) * 8 / u128::from(full.max(1));
        BAR[usize::try_from(eighths).map_or(7, |eighths| eighths.min(7))]
    };
    values.iter().map(bar).collect()
}

/// Megabytes below a gigabyte.
fn amount(bytes: u64) -> String {
    match bytes / MIB {
        below @ 0..1024 => format!("{below}MB"),
        _ => size(Bytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::load::{GpuSample, GpuSeries, LoadSample};
    use model::time::Timestamp;

    #[test]
    fn jobs_and_gpus_have_a_line_each() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        let sample = |seconds: i64, cpu_s: u64, mib: u64| LoadSample {
            at: at(seconds),
            cpu_us: cpu_s * 1_000_000,
            memory: mib * MIB,
            resident: 0,
        };
        let read = |seconds, busy_percent, gib: u64| GpuSample {
            at: at(seconds),
            busy_percent,
            memory_used: gib << 30,
        };
        let load = Load {
            samples: vec![sample(0, 0, 0), sample(30, 60, 95), sample(60, 66, 2048)],
            gpus: vec![GpuSeries {
                memory_total: 80 << 30,
                readings: vec![read(20, 0, 0), read(50, 42, 7)],
            }],
        };
        let memory = Bytes::from_gib(4);
        let jobs = [
            JobLoad { number: 0, cpus: 2, memory, load: &load },
            JobLoad { number: 1, cpus: 2, memory, load: &Load::default() },
        ];
        let text = metrics(&jobs);
        let lines: Vec<String> = text.lines().map(|line| line.trim_end().to_owned()).collect();
        assert_eq!(
            lines,
            [
                "               UTILIZATION  MEMORY",
                " job=0  cpu    █▁ 10%       ▁▅ 2GB/4GB",
                "        gpu=0  ▁▄ 42%       ▁▁ 7GB/80GB",
                " job=1  cpu    -            -",
            ]
        );
    }
}
