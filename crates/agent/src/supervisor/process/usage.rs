//! The usage of processes, read from `/proc`: sampled while tasks run, and once more at their end.

use crate::{cpu_frequency, kernel_file};
use model::usage::TaskSample;
use std::collections::{HashMap, HashSet};
use std::fs::File;

/// Processes of one job that are sampled; further ones are counted when they end.
const PROCESSES_MAX: usize = 16_384;
/// Bytes read of one file in `/proc/PID`: far more than the kernel writes.
const PROCESS_BYTES_MAX: u64 = 64 << 10;

/// A living process, with what its ended children used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub pid: i32,
    parent: i32,
    used: TaskSample,
}

/// Samples each of these processes. Those that end meanwhile are left out.
pub(crate) fn sample(pids: &[i32]) -> Vec<Process> {
    let tick_ms = 1000 / clock_ticks();
    let page = page_bytes();
    pids.iter().take(PROCESSES_MAX).filter_map(|pid| sample_one(*pid, tick_ms, page)).collect()
}

fn sample_one(pid: i32, tick_ms: u64, page: u64) -> Option<Process> {
    let stat = of_process(pid, "stat")?;
    let (parent, cpu, mut used) = parse_stat(&stat, tick_ms, page)?;
    if let Some(khz) = cpu.and_then(cpu_frequency::khz_of) {
        (used.khz_sum, used.khz_count) = (khz, 1);
    }
    (used.read_bytes, used.written_bytes) = bytes_of(pid).unwrap_or_default();
    Some(Process { pid, parent, used })
}

/// Bytes that a process, its ended threads and its ended children have read and written. Works also for a process that
/// has ended and is not reaped yet.
pub(crate) fn bytes_of(pid: i32) -> Option<(u64, u64)> {
    let text = of_process(pid, "io")?;
    let number = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    Some((number("rchar:")?, number("wchar:")?))
}

/// The CPU time of these processes and of their ended children, in milliseconds.
pub(crate) fn cpu_ms(pids: &[i32]) -> u64 {
    sample(pids).iter().map(|process| process.used.cpu_ms).sum()
}

/// Whether a process has a handler of its own for a signal.
pub(crate) fn handles(pid: i32, signal: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Reads one file of a process in `/proc`.
fn of_process(pid: i32, file: &str) -> Option<String> {
    let file = File::open(format!("/proc/{pid}/{file}")).ok()?;
    kernel_file::read(file, PROCESS_BYTES_MAX).ok()
}

/// Parses the fields after the name, which may hold anything. proc(5) counts the state as field 3. Returns the parent, and
/// the CPU that the process ran on last.
fn parse_stat(stat: &str, tick_ms: u64, page: u64) -> Option<(i32, Option<u32>, TaskSample)> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let parent = fields.get(1)?.parse().ok()?;
    let ticks = [14, 15, 16, 17].into_iter().map(number).sum::<Option<u64>>()?;
    let (memory, virtual_memory) = (number(24)? * page, number(23)?);
    let used = TaskSample {
        cpu_ms: ticks * tick_ms,
        memory_now: memory,
        memory_peak: memory,
        virtual_now: virtual_memory,
        virtual_peak: virtual_memory,
        pages: number(12)? + number(13)?,
        ..TaskSample::default()
    };
    let cpu = number(39).and_then(|cpu| cpu.try_into().ok());
    Some((parent, cpu, used))
}

/// Sums processes by the root that each descends from. An orphan that descends from none of them counts for
/// `orphans_of`.
pub(crate) fn by_root(
    processes: &[Process],
    roots: &[i32],
    orphans_of: Option<i32>,
) -> HashMap<i32, (TaskSample, Vec<i32>)> {
    let parents: HashMap<i32, i32> = processes.iter().map(|p| (p.pid, p.parent)).collect();
    let roots: HashSet<i32> = roots.iter().copied().collect();
    let mut sums: HashMap<i32, (TaskSample, Vec<i32>)> = HashMap::new();
    for process in processes {
        let mut at = Some(process.pid);
        // The bound is needed because the table was read while parents changed, and may show a circle.
        for _ in 0..processes.len() {
            match at {
                Some(pid) if !roots.contains(&pid) => at = parents.get(&pid).copied(),
                _ => break,
            }
        }
        if let Some(root) = at.filter(|pid| roots.contains(pid)).or(orphans_of) {
            let (sum, pids) = sums.entry(root).or_default();
            add(sum, &process.used);
            pids.push(process.pid);
        }
    }
    sums
}

fn add(sum: &mut TaskSample, more: &TaskSample) {
    sum.cpu_ms += more.cpu_ms;
    sum.memory_now += more.memory_now;
    sum.memory_peak += more.memory_peak;
    sum.virtual_now += more.virtual_now;
    sum.virtual_peak += more.virtual_peak;
    sum.pages += more.pages;
    sum.read_bytes += more.read_bytes;
    sum.written_bytes += more.written_bytes;
    sum.khz_sum += more.khz_sum;
    sum.khz_count += more.khz_count;
}

fn clock_ticks() -> u64 {
    // SAFETY: takes and returns a number.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).unwrap_or(100).clamp(1, 1000)
}

fn page_bytes() -> u64 {
    // SAFETY: takes and returns a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parentheses_in_a_process_name_do_not_confuse_the_fields() {
        let stat = "77 (a) b (c)) S 12 77 77 0 -1 4194304 300 5 2 1 10 20 30 40 20 0 1 0 5 8192 3 \
                    18446744073709551615";
        let (parent, cpu, used) = parse_stat(stat, 10, 4096).expect("a line of the kernel's");
        assert_eq!((parent, cpu, used.cpu_ms, used.pages), (12, None, 1000, 3));
        assert_eq!((used.memory_now, used.virtual_now), (3 * 4096, 8192));
    }

    #[test]
    fn descendants_count_for_their_task_and_orphans_for_the_script() {
        let process = |pid, parent, cpu_ms| Process {
            pid,
            parent,
            used: TaskSample { cpu_ms, ..TaskSample::default() },
        };
        let all = [
            process(10, 1, 1),
            process(11, 10, 2),
            process(12, 11, 4),
            process(20, 1, 8),
            process(30, 1, 16),
        ];
        let sums = by_root(&all, &[10, 20], Some(20));
        assert_eq!((sums[&10].0.cpu_ms, sums[&10].1.clone()), (7, vec![10, 11, 12]));
        assert_eq!(sums[&20].0.cpu_ms, 24);
        assert_eq!(by_root(&all, &[10], None).len(), 1);
    }

    #[test]
    fn handled_signals_are_read_from_proc_status() {
        let own = std::process::id() as i32;
        // Rust's runtime handles SIGSEGV to report stack overflows; nothing here handles SIGXCPU.
        assert!(handles(own, libc::SIGSEGV) && !handles(own, libc::SIGXCPU));
        assert!(!handles(i32::MAX, libc::SIGSEGV), "nobody");
    }

    #[test]
    fn sampling_this_process_shows_memory() {
        let own = std::process::id() as i32;
        let seen = sample(&[own, i32::MAX]);
        assert!(matches!(seen.as_slice(), [one] if one.pid == own && one.used.memory_now > 0));
    }
}
