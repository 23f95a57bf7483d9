//! What a step's tasks used, as `sacct` and `sstat` print it: each figure over all tasks, and the task with most and least.

use super::push;
use model::amount::{self, KIB, Unit};
use model::time::format_elapsed_full;
use model::usage::{TaskUsage, UsageSpread};
use std::fmt::Write;

/// The unit in which amounts of memory are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Units {
    /// The largest unit that loses nothing.
    #[default]
    Exact,
    /// `--noconvert`: the unit in which the amount is counted.
    Own,
    /// `--units=M`
    In(Unit),
}

/// The usage of one step with the names and units to print it.
#[derive(Debug, Clone, Copy)]
pub struct UsageRow<'a> {
    pub tasks: &'a TaskUsage,
    /// The step's nodes; `max_node` and `min_node` of a [`UsageSpread`] are indices into it.
    pub nodes: &'a [String],
    pub units: Units,
}

/// A quantity that is measured for every task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    Cpu,
    Memory,
    VirtualMemory,
    Pages,
    Read,
    Written,
    GpuBusy,
    GpuMemory,
    Energy,
    CpuFrequency,
}

/// The figure that a column shows of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    Max,
    MaxNode,
    MaxTask,
    Min,
    MinNode,
    MinTask,
    Mean,
    Total,
}

use Statistic::{Max, MaxNode, MaxTask, Mean, Min, MinNode, MinTask, Total};

/// The entries of `TRESUsageIn…` in Slurm's order. Energy goes out and not in; those of GPUs are left out of steps whose
/// nodes read none.
const TRES_IN: [(&str, Option<Metric>); 8] = [
    ("cpu", Some(Metric::Cpu)),
    ("energy", None),
    ("fs/disk", Some(Metric::Read)),
    ("gres/gpumem", Some(Metric::GpuMemory)),
    ("gres/gpuutil", Some(Metric::GpuBusy)),
    ("mem", Some(Metric::Memory)),
    ("pages", Some(Metric::Pages)),
    ("vmem", Some(Metric::VirtualMemory)),
];
/// The entries of `TRESUsageOut…`.
const TRES_OUT: [(&str, Option<Metric>); 2] =
    [("energy", Some(Metric::Energy)), ("fs/disk", Some(Metric::Written))];

/// Writes one statistic of one metric as its own column shows it.
pub fn push_statistic(
    usage: UsageRow<'_>,
    metric: Metric,
    statistic: Statistic,
    cell: &mut String,
) {
    match figure(usage, metric, statistic) {
        Figure::Amount(bytes) if matches!(metric, Metric::Read | Metric::Written) => {
            push_disk(usage.units, bytes, cell);
        }
        figure => push_figure(usage.units, metric, figure, cell),
    }
}

/// `cpu=00:00:01,energy=0,fs/disk=11087,mem=3108K,pages=0,vmem=5512K`.
pub fn push_tres_in(usage: UsageRow<'_>, statistic: Statistic, cell: &mut String) {
    push_tres(usage, &TRES_IN, statistic, cell);
}

/// `energy=0,fs/disk=2054`.
pub fn push_tres_out(usage: UsageRow<'_>, statistic: Statistic, cell: &mut String) {
    push_tres(usage, &TRES_OUT, statistic, cell);
}

fn push_tres(
    usage: UsageRow<'_>,
    entries: &[(&str, Option<Metric>)],
    statistic: Statistic,
    cell: &mut String,
) {
    let mut first = true;
    for (name, metric) in entries {
        let is_measured = |metric: &Metric| *metric != Metric::Energy || usage.tasks.has_energy();
        let metric = metric.filter(is_measured);
        let is_left_out = match metric {
            None => matches!(statistic, MaxTask | MinTask),
            Some(Metric::GpuBusy | Metric::GpuMemory) => !usage.tasks.has_gpus(),
            Some(_) => false,
        };
        if is_left_out {
            continue;
        }
        if !first {
            cell.push(',');
        }
        first = false;
        push!(cell, "{name}=");
        match metric {
            Some(metric) => {
                push_figure(usage.units, metric, figure(usage, metric, statistic), cell);
            }
            // Slurm prints zero for energy that is not measured, and the first node as the place of it.
            None if matches!(statistic, MaxNode | MinNode) => {
                cell.push_str(node_name(usage, 0));
            }
            None => cell.push('0'),
        }
    }
}

/// The value of a statistic.
enum Figure<'a> {
    Node(&'a str),
    Task(u32),
    Amount(u64),
}

fn figure<'a>(usage: UsageRow<'a>, metric: Metric, statistic: Statistic) -> Figure<'a> {
    let spread = spread(usage.tasks, metric);
    match statistic {
        MaxNode => Figure::Node(node_name(usage, spread.max_node)),
        MinNode => Figure::Node(node_name(usage, spread.min_node)),
        MaxTask => Figure::Task(spread.max_task),
        MinTask => Figure::Task(spread.min_task),
        Max => Figure::Amount(spread.max),
        Min => Figure::Amount(spread.min),
        Mean => Figure::Amount(spread.mean(usage.tasks.tasks)),
        Total => Figure::Amount(spread.total),
    }
}

fn push_figure(units: Units, metric: Metric, figure: Figure<'_>, cell: &mut String) {
    match figure {
        Figure::Node(name) => cell.push_str(name),
        Figure::Task(task) => push!(cell, "{task}"),
        Figure::Amount(amount) => push_amount(units, metric, amount, cell),
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
        Metric::GpuBusy => &used.gpu_busy,
        Metric::GpuMemory => &used.gpu_memory,
        Metric::Energy => &used.energy_mj,
        Metric::CpuFrequency => &used.cpu_khz,
    }
}

fn node_name<'a>(usage: UsageRow<'a>, index: u32) -> &'a str {
    usage.nodes.get(index as usize).map_or("", String::as_str)
}

fn push_amount(units: Units, metric: Metric, value: u64, cell: &mut String) {
    match metric {
        Metric::Cpu => cell.push_str(&format_elapsed_full(value / 1000)),
        Metric::Memory | Metric::VirtualMemory | Metric::GpuMemory => {
            cell.push_str(&memory_text(units, value));
        }
        Metric::Pages | Metric::Read | Metric::Written | Metric::GpuBusy => push!(cell, "{value}"),
        Metric::Energy => push!(cell, "{}", value / 1000),
        Metric::CpuFrequency => cell.push_str(&amount::format_decimal(value.saturating_mul(1000))),
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
fn push_disk(units: Units, bytes: u64, cell: &mut String) {
    match (units, bytes) {
        (_, 0) => cell.push('0'),
        (Units::Own, bytes) => push!(cell, "{bytes}"),
        (_, bytes) => push!(cell, "{:.2}M", bytes as f64 / (KIB * KIB) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::usage::{GpuUsage, TaskSample};

    #[test]
    fn statistics_are_printed_as_slurm_prints_them() {
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
        let usage = UsageRow { tasks: &used, nodes: &nodes, units: Units::Exact };
        let show = |metric, statistic| {
            let mut text = String::new();
            push_statistic(usage, metric, statistic, &mut text);
            text
        };
        assert_eq!(show(Metric::Memory, Statistic::Max), "4712K");
        assert_eq!(show(Metric::Memory, Statistic::MaxNode), "node1");
        assert_eq!(show(Metric::Memory, Statistic::Mean), "3930K");
        assert_eq!(show(Metric::Cpu, Statistic::Min), "00:00:01");
        assert_eq!(
            (show(Metric::Cpu, Statistic::MaxNode), show(Metric::Cpu, Statistic::MaxTask)),
            ("node2".into(), "1".into())
        );
        assert_eq!(
            (show(Metric::Read, Statistic::Max), show(Metric::Read, Statistic::Mean)),
            ("0.04M".into(), "0.02M".into())
        );
        assert_eq!(show(Metric::Written, Statistic::Max), "0");
        let mut text = String::new();
        push_tres_in(usage, Statistic::Max, &mut text);
        assert_eq!(text, "cpu=00:01:01,energy=0,fs/disk=40811,mem=4712K,pages=0,vmem=143008K");
        text.clear();
        push_tres_in(usage, Statistic::MaxNode, &mut text);
        let nodes = "cpu=node2,energy=node1,fs/disk=node1,mem=node1,pages=node1,vmem=node1";
        assert_eq!(text, nodes);
        text.clear();
        push_tres_out(usage, Statistic::MaxTask, &mut text);
        assert_eq!(text, "fs/disk=0");
        let gpus = |busy_percent, memory| GpuUsage {
            busy_percent,
            busy_percent_max: 2 * busy_percent,
            memory,
            memory_peak: memory,
        };
        let mut with_gpus = TaskUsage::default();
        for (node, busy, memory) in [(0, 40, 3 << 30), (1, 10, 1 << 30)] {
            let mut part = TaskUsage::of(node, node, &measure(0, 0, 0), false);
            part.set_gpus(&gpus(busy, memory));
            with_gpus.absorb(&part);
        }
        for (statistic, figures) in [
            (Statistic::Max, "gres/gpumem=3G,gres/gpuutil=80"),
            (Statistic::Mean, "gres/gpumem=2G,gres/gpuutil=25"),
            (Statistic::MaxNode, "gres/gpumem=node1,gres/gpuutil=node1"),
            (Statistic::MinTask, "gres/gpumem=1,gres/gpuutil=1"),
        ] {
            let mut text = String::new();
            push_tres_in(UsageRow { tasks: &with_gpus, ..usage }, statistic, &mut text);
            assert!(text.contains(figures), "{statistic:?}: {text}");
        }
    }
}
