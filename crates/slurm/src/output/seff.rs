//! `seff`: used beside allocated, in the lines that people know.

use crate::words::job as state;
use model::record::{JobRecord, RecordState};
use model::run::{JobState, Outcome};
use model::time::format_elapsed_full;
use model::tres::TresKind;

const MIB: f64 = (1_u64 << 20) as f64;

pub fn render(record: &JobRecord, cluster: &str) -> String {
    let mut lines = vec![format!("Job ID: {}", record.job)];
    if let (Some(array), Some(task)) = (record.array_job, record.array_task) {
        lines.push(format!("Array Job ID: {array}_{task}"));
    }
    lines.push(format!("Cluster: {cluster}"));
    lines.push(format!("User/Group: {}/{}", record.user, record.group));
    lines.push(match record.state {
        RecordState::Ended(_) => {
            format!("State: {} (exit code {})", word(record), record.exit.code)
        }
        _ => format!("State: {}", word(record)),
    });
    let nodes = record.node_count.max(1);
    if nodes == 1 {
        lines.push(format!("Cores: {}", record.cpus));
    } else {
        lines.push(format!("Nodes: {nodes}"));
        lines.push(format!("Cores per node: {}", record.cpus / nodes));
    }
    if !matches!(record.state, RecordState::Ended(_)) {
        lines.push("Efficiency is not known before the job has ended; `sstat` shows what a running job uses.".into());
        return lines.join("\n") + "\n";
    }
    let wall = wall_s(record);
    let cpu = (record.usage.cpu_user_us + record.usage.cpu_system_us) / 1_000_000;
    let core_wall = wall * u64::from(record.cpus);
    lines.push(format!("CPU Utilized: {}", format_elapsed_full(cpu)));
    lines.push(format!(
        "CPU Efficiency: {:.2}% of {} core-walltime",
        percent(cpu as f64, core_wall as f64),
        format_elapsed_full(core_wall)
    ));
    lines.push(format!("Job Wall-clock time: {}", format_elapsed_full(wall)));
    let peak = record.usage.memory_peak_bytes as f64 / MIB;
    let given = record.alloc_tres.amount(&TresKind::Mem) as f64 / f64::from(nodes);
    let each = if nodes == 1 { "" } else { " (the fullest node)" };
    lines.push(format!("Memory Utilized: {}{each}", memory(peak)));
    if given > 0.0 {
        let each = if nodes == 1 { "" } else { "/node" };
        lines.push(format!(
            "Memory Efficiency: {:.2}% of {}{each}",
            percent(peak, given),
            memory(given)
        ));
    }
    lines.join("\n") + "\n"
}

fn word(record: &JobRecord) -> &'static str {
    match record.state {
        RecordState::Pending => state::long(JobState::Pending),
        RecordState::Running => state::long(JobState::Running),
        RecordState::Suspended => state::long(JobState::Suspended),
        RecordState::Ended(Outcome::Requeued) => "REQUEUED",
        RecordState::Ended(outcome) => state::long(outcome.state()),
    }
}

fn wall_s(record: &JobRecord) -> u64 {
    let (Some(start), Some(end)) = (record.start, record.end) else { return 0 };
    ((end.secs() - start.secs()).max(0) as u64).saturating_sub(record.suspended_s)
}

fn percent(used: f64, given: f64) -> f64 {
    if given > 0.0 { used / given * 100.0 } else { 0.0 }
}

/// `1.50 GB`, from mebibytes.
fn memory(mib: f64) -> String {
    let units = ["MB", "GB", "TB", "PB"];
    let (mut amount, mut unit) = (mib, 0);
    while amount >= 1024.0 && unit + 1 < units.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.2} {}", units[unit])
}
