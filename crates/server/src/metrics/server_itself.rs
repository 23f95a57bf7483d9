//! The server itself: plans, commits, calls, agents, and its process.

use super::exposition::{Exposition, seconds};
use super::snapshot::Snapshot;
use crate::allocator;
use slurm::words;
use std::fs;

/// The pages and ticks of this process's `stat`, in bytes and seconds.
struct Process {
    cpu_s: f64,
    resident_bytes: u64,
    open_files: u64,
}

pub fn write(text: &mut Exposition, snapshot: &Snapshot) {
    let (version, name) = (env!("CARGO_PKG_VERSION"), snapshot.cluster.name.as_str());
    text.gauge("sluice_info", "The cluster and the version of its server.")
        .sample(&[("cluster", name), ("version", version)], 1);
    text.gauge("sluice_term", "The number of the server's start.").sample(&[], snapshot.term);
    let totals = &snapshot.totals;
    text.summary("sluice_plan_duration_seconds", "Plans of the scheduler, and their time.").summed(
        &[],
        totals.plans.0,
        totals.plans.1,
    );
    let last = seconds(snapshot.counters.plans.last_us);
    text.gauge("sluice_plan_last_duration_seconds", "The time of the last plan.").sample(&[], last);
    text.summary("sluice_commit_duration_seconds", "Commits to the journal, and their time.")
        .summed(&[], totals.commits.0, totals.commits.1);
    text.counter("sluice_events_total", "Events that were journalled since the server's start.")
        .sample(&[], totals.events);
    text.gauge("sluice_journal_bytes", "The size of the journal's files.")
        .sample(&[], totals.journal_bytes);
    text.gauge("sluice_agents_connected", "Agents that are connected.")
        .sample(&[], snapshot.agents);
    text.gauge("sluice_orders_queued", "Messages that wait to be sent to agents.")
        .sample(&[], snapshot.orders_queued);
    text.gauge("sluice_calls_open", "Calls that are being answered.")
        .sample(&[], snapshot.counters.calls_open);
    let mut calls: Vec<_> = snapshot.counters.calls.iter().collect();
    calls.sort_unstable_by_key(|call| call.kind);
    let mut family =
        text.summary("sluice_rpc_duration_seconds", "Calls that were answered, and their time.");
    for call in calls {
        let verb = words::rpc::name(call.kind).0;
        family.summed(&[("verb", verb)], call.count, call.total_us);
    }
    write_process(text, snapshot);
}

fn write_process(text: &mut Exposition, snapshot: &Snapshot) {
    text.gauge("process_start_time_seconds", "When the server started.")
        .sample(&[], snapshot.started.secs());
    let Some(process) = Process::read() else { return };
    text.counter("process_cpu_seconds_total", "CPU time of the server.").sample(&[], process.cpu_s);
    text.gauge("process_resident_memory_bytes", "Memory of the server.")
        .sample(&[], process.resident_bytes);
    text.gauge("process_open_fds", "Open files of the server.").sample(&[], process.open_files);
}

impl Process {
    fn read() -> Option<Process> {
        let usage =
            nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).ok()?;
        let time = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
        Some(Process {
            cpu_s: time(usage.user_time()) + time(usage.system_time()),
            resident_bytes: allocator::resident_bytes()?,
            open_files: fs::read_dir("/proc/self/fd").ok()?.count() as u64,
        })
    }
}
