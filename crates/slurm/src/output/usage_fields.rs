//! The cells that `sacct` and `sstat` share: what a step's tasks used, and who of them most and least.

use super::job_text::push;
use super::sacct_fields::Units;
use model::amount::{self, KIB, Unit};
use model::time::format_elapsed_full;
use model::usage::{TaskUsage, UsageSpread};
use std::fmt::Write;

/// A step's use, and what is needed to say it.
#[derive(Debug, Clone, Copy)]
pub struct Used<'a> {
    pub used: &'a TaskUsage,
    /// By which the parts are counted.
    pub nodes: &'a [String],
    pub units: Units,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    Cpu,
    Memory,
    VirtualMemory,
    Pages,
    Read,
    Written,
}

/// Which number of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Max,
    MaxNode,
    MaxTask,
    Min,
    MinNode,
    MinTask,
    Mean,
    Total,
}

/// What went into the tasks, and what came out: Slurm's words and order.
const IN: [(&str, Option<Metric>); 6] = [
    ("cpu", Some(Metric::Cpu)),
    ("energy", None),
    ("fs/disk", Some(Metric::Read)),
    ("mem", Some(Metric::Memory)),
    ("pages", Some(Metric::Pages)),
    ("vmem", Some(Metric::VirtualMemory)),
];
const OUT: [(&str, Option<Metric>); 2] = [("energy", None), ("fs/disk", Some(Metric::Written))];

/// One number of one metric as a column shows it.
pub fn cell(used: Used<'_>, metric: Metric, of: Of, cell: &mut String) {
    let spread = spread(used.used, metric);
    match of {
        Of::MaxNode => cell.push_str(node(used, spread.max_node)),
        Of::MinNode => cell.push_str(node(used, spread.min_node)),
        Of::MaxTask => push!(cell, "{}", spread.max_task),
        Of::MinTask => push!(cell, "{}", spread.min_task),
        _ => {
            let value = number(used, spread, of);
            match metric {
                Metric::Read | Metric::Written => disk(used.units, value, cell),
                _ => plain(used.units, metric, value, cell),
            }
        }
    }
}

/// `cpu=00:00:01,energy=0,fs/disk=11087,mem=3108K,pages=0,vmem=5512K`.
pub fn tres_in(used: Used<'_>, of: Of, cell: &mut String) {
    list(used, &IN, of, cell);
}

pub fn tres_out(used: Used<'_>, of: Of, cell: &mut String) {
    list(used, &OUT, of, cell);
}

fn list(used: Used<'_>, parts: &[(&str, Option<Metric>)], of: Of, cell: &mut String) {
    let mut first = true;
    for (name, metric) in parts {
        let of_task = matches!(of, Of::MaxTask | Of::MinTask);
        if of_task && metric.is_none() {
            continue;
        }
        if !first {
            cell.push(',');
        }
        first = false;
        push!(cell, "{name}=");
        let Some(metric) = *metric else {
            // Nobody here measures energy; Slurm says so with a nought and its first node.
            match of {
                Of::MaxNode | Of::MinNode => cell.push_str(node(used, 0)),
                _ => cell.push('0'),
            }
            continue;
        };
        let spread = spread(used.used, metric);
        match of {
            Of::MaxNode => cell.push_str(node(used, spread.max_node)),
            Of::MinNode => cell.push_str(node(used, spread.min_node)),
            Of::MaxTask => push!(cell, "{}", spread.max_task),
            Of::MinTask => push!(cell, "{}", spread.min_task),
            _ => plain(used.units, metric, number(used, spread, of), cell),
        }
    }
}

fn spread(used: &TaskUsage, metric: Metric) -> &UsageSpread {
    match metric {
        Metric::Cpu => &used.cpu_ms,
        Metric::Memory => &used.memory,
        Metric::VirtualMemory => &used.virtual_memory,
        Metric::Pages => &used.pages,
        Metric::Read => &used.read,
        Metric::Written => &used.written,
    }
}

fn number(used: Used<'_>, spread: &UsageSpread, of: Of) -> u64 {
    match of {
        Of::Max => spread.max,
        Of::Min => spread.min,
        Of::Mean => spread.mean(used.used.tasks),
        _ => spread.total,
    }
}

fn node<'a>(used: Used<'a>, index: u32) -> &'a str {
    used.nodes.get(index as usize).map_or("", String::as_str)
}

fn plain(units: Units, metric: Metric, value: u64, cell: &mut String) {
    match metric {
        Metric::Cpu => cell.push_str(&format_elapsed_full(value / 1000)),
        Metric::Memory | Metric::VirtualMemory => cell.push_str(&memory_text(units, value)),
        Metric::Pages | Metric::Read | Metric::Written => push!(cell, "{value}"),
    }
}

pub fn memory_text(units: Units, bytes: u64) -> String {
    let kib = bytes / KIB;
    match units {
        Units::Exact => amount::format_exact(kib, Unit::Kibi),
        Units::Own => format!("{kib}K"),
        Units::In(unit) => amount::format_in(kib, Unit::Kibi, unit),
    }
}

/// `0`, `0.04M`.
fn disk(units: Units, bytes: u64, cell: &mut String) {
    match (units, bytes) {
        (_, 0) => cell.push('0'),
        (Units::Own, bytes) => push!(cell, "{bytes}"),
        (_, bytes) => push!(cell, "{:.2}M", bytes as f64 / (KIB * KIB) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::usage::TaskSample;

    #[test]
    fn cells_are_slurms() {
        let measure = |cpu_ms, peak, read_bytes| TaskSample {
            cpu_ms,
            memory_peak: peak,
            virtual_peak: 143_008 << 10,
            read_bytes,
            ..TaskSample::default()
        };
        let mut used = TaskUsage::default();
        used.absorb(&TaskUsage::of(0, 0, &measure(1999, 4712 << 10, 40_811), false));
        used.absorb(&TaskUsage::of(1, 1, &measure(61_000, 3148 << 10, 0), false));
        let nodes = ["node1".to_owned(), "node2".to_owned()];
        let used = Used { used: &used, nodes: &nodes, units: Units::Exact };
        let show = |metric, of| {
            let mut text = String::new();
            cell(used, metric, of, &mut text);
            text
        };
        assert_eq!(show(Metric::Memory, Of::Max), "4712K");
        assert_eq!(show(Metric::Memory, Of::MaxNode), "node1");
        assert_eq!(show(Metric::Memory, Of::Mean), "3930K");
        assert_eq!(show(Metric::Cpu, Of::Min), "00:00:01");
        assert_eq!(
            (show(Metric::Cpu, Of::MaxNode), show(Metric::Cpu, Of::MaxTask)),
            ("node2".into(), "1".into())
        );
        assert_eq!(
            (show(Metric::Read, Of::Max), show(Metric::Read, Of::Mean)),
            ("0.04M".into(), "0.02M".into())
        );
        assert_eq!(show(Metric::Written, Of::Max), "0");
        let mut text = String::new();
        tres_in(used, Of::Max, &mut text);
        assert_eq!(text, "cpu=00:01:01,energy=0,fs/disk=40811,mem=4712K,pages=0,vmem=143008K");
        text.clear();
        tres_in(used, Of::MaxNode, &mut text);
        let nodes = "cpu=node2,energy=node1,fs/disk=node1,mem=node1,pages=node1,vmem=node1";
        assert_eq!(text, nodes);
        text.clear();
        tres_out(used, Of::MaxTask, &mut text);
        assert_eq!(text, "fs/disk=0");
    }
}
