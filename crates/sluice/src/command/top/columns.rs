//! The columns of nodes and of jobs.

use super::snapshot::{gpu_busy_percent, gpus_used};
use super::table::Column;
use ::slurm::output::Moment;
use ::slurm::output::text::job_text;
use ::slurm::words;
use ::slurm::words::node::{NodeState, reason_text};
use model::gres::GPU;
use model::time::{Timestamp, format_elapsed, format_limit};
use model::tres::TresKind;
use wire::view::{JobView, NodeView};

pub const NODES: [Column<NodeView>; 9] = [
    Column { title: "NODE", width: 10, rank: 0, grows: true, cell: |n, _| n.config.name.clone() },
    Column {
        title: "STATE",
        width: 7,
        rank: 0,
        grows: false,
        cell: |n, _| NodeState::of(n).compact(),
    },
    Column {
        title: "CPUS",
        width: 17,
        rank: 1,
        grows: false,
        cell: |n, _| used(u64::from(n.cpus_allocated), u64::from(n.config.usable_cpus().len())),
    },
    Column {
        title: "GPUS",
        width: 15,
        rank: 2,
        grows: false,
        cell: |n, _| match n.config.gres_total(GPU) {
            0 => "-".to_owned(),
            total => used(gpus_used(n), total),
        },
    },
    Column {
        title: "BUSY",
        width: 4,
        rank: 3,
        grows: false,
        cell: |n, _| {
            gpu_busy_percent(n).map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"))
        },
    },
    Column { title: "MEMORY GiB", width: 11, rank: 4, grows: false, cell: |n, _| memory(n) },
    Column {
        title: "LOAD",
        width: 6,
        rank: 5,
        grows: false,
        cell: |n, _| format!("{:.2}", f64::from(n.facts.cpu_load) / 100.0),
    },
    Column { title: "JOBS", width: 4, rank: 6, grows: false, cell: |n, _| n.job_count.to_string() },
    Column {
        title: "PARTITIONS, REASON",
        width: 18,
        rank: 7,
        grows: true,
        cell: |n, _| {
            let mut text = n.partitions.join(",");
            if let Some(reason) = &n.reason {
                text += &format!(" ({})", reason_text(reason));
            }
            text
        },
    },
];

pub const JOBS: [Column<JobView>; 10] = [
    Column { title: "JOB", width: 10, rank: 0, grows: false, cell: |job, _| shown_id(job) },
    Column {
        title: "ST",
        width: 2,
        rank: 0,
        grows: false,
        cell: |job, _| words::job::compact(job.state).to_owned(),
    },
    Column {
        title: "USER",
        width: 8,
        rank: 1,
        grows: false,
        cell: |job, _| job.spec.owner.name.to_string(),
    },
    Column { title: "NAME", width: 10, rank: 1, grows: true, cell: |job, _| job.name.to_string() },
    Column {
        title: "PARTITION",
        width: 9,
        rank: 6,
        grows: false,
        cell: |job, _| job.partition.to_string(),
    },
    Column {
        title: "TIME",
        width: 8,
        rank: 3,
        grows: false,
        cell: |job, at| {
            if job.state.is_waiting() {
                "-".to_owned()
            } else {
                format_elapsed(job.elapsed_s(at.now))
            }
        },
    },
    Column {
        title: "LIMIT",
        width: 10,
        rank: 7,
        grows: false,
        cell: |job, _| format_limit(job.time_limit),
    },
    Column { title: "START", width: 11, rank: 4, grows: false, cell: |job, at| start(job, at) },
    Column {
        title: "GPUS",
        width: 4,
        rank: 5,
        grows: false,
        cell: |job, _| match job.tres.amount(&TresKind::gpu()) {
            0 => "-".to_owned(),
            count => count.to_string(),
        },
    },
    Column {
        title: "NODES (REASON)",
        width: 14,
        rank: 2,
        grows: true,
        cell: |job, _| {
            if job.state.is_waiting() {
                format!("({})", words::reason::text(&job.reason))
            } else {
                job_text::node_list(job)
            }
        },
    },
];

/// `12`, `14_3`, `14_[16-23%2]`.
pub fn shown_id(job: &JobView) -> String {
    let mut id = String::new();
    job_text::push_id(&mut id, job, None);
    id
}

/// The cells of a bar.
const BAR: u64 = 6;

/// `[###...] 12/32`
fn used(used: u64, total: u64) -> String {
    // What is used at all fills a cell, and only what is full fills the last.
    let filled = match used * BAR {
        0 => 0,
        part => (part / total.max(1)).clamp(1, BAR) as usize,
    };
    let bar = "#".repeat(filled) + &".".repeat(BAR as usize - filled);
    format!("[{bar}] {used}/{total}")
}

fn memory(node: &NodeView) -> String {
    let gib = |bytes: u64| bytes.div_ceil(1 << 30);
    format!("{}/{}", gib(node.memory_allocated.0), gib(node.config.usable_memory().0))
}

/// When it started, or is expected to (`~`): the time on the same day, else the date too.
fn start(job: &JobView, at: Moment<'_>) -> String {
    let Some(start) = job.start else { return "-".to_owned() };
    let local = |time: Timestamp| {
        let time = jiff::Timestamp::from_second(time.secs()).ok()?;
        Some(at.tz.to_datetime(time))
    };
    let (Some(then), Some(now)) = (local(start), local(at.now)) else { return "-".to_owned() };
    let about = if job.state.is_waiting() { "~" } else { "" };
    let form = if then.date() == now.date() { "%H:%M" } else { "%m-%d %H:%M" };
    let text = format!("{about}{}", then.strftime(form));
    // A year on is nothing that a date says.
    if then.date().year() > now.date().year() + 1 {
        format!("{about}{}", then.year())
    } else {
        text
    }
}
