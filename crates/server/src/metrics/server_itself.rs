//! The server itself: plans, commits, calls, agents, and its process.

use super::exposition::{Exposition, seconds};
use super::snapshot::Snapshot;
use crate::allocator;
use slurm::words;
use std::fs;
use std::time::Duration;
use wire::client::ServerView;

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
    write_servers(text, &snapshot.servers);
    write_store(text, snapshot.store_heard);
    write_process(text, snapshot);
}

fn labels(server: &ServerView) -> [(&str, &str); 2] {
    let address = server.addresses.first().map_or("", String::as_str);
    [("server", server.name.as_str()), ("address", address)]
}

/// The servers of a cluster with several of them; one without has no such series.
fn write_servers(text: &mut Exposition, servers: &[ServerView]) {
    if servers.is_empty() {
        return;
    }
    let mut family = text.gauge("sluice_server_leads", "Whether a server of the cluster leads.");
    for server in servers {
        family.sample(&labels(server), u8::from(server.is_leader));
    }
    let help = "The events that a server had not taken in when it was heard of last.";
    let mut family = text.gauge("sluice_server_events_behind", help);
    for server in servers {
        family.sample(&labels(server), server.events_behind);
    }
    let help = "How long ago a server of the cluster was heard of.";
    let mut family = text.gauge("sluice_server_seen_seconds", help);
    for server in servers {
        family.sample(&labels(server), server.seen_ms as f64 / 1e3);
    }
}

/// The database of a cluster with several servers.
fn write_store(text: &mut Exposition, heard: Option<Duration>) {
    if let Some(heard) = heard {
        let help = "How long ago this server's database did what it asked: a leader's lease was renewed, a standby was answered.";
        text.gauge("sluice_store_heard_seconds", help).sample(&[], heard.as_secs_f64());
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_servers_have_a_sample_each_and_one_alone_has_none() {
        let server = |name: &str, is_leader| ServerView {
            name: name.into(),
            addresses: vec![format!("{name}:6820")],
            version: "1.0".into(),
            is_leader,
            seen_ms: 1500,
            events_behind: 7,
            term: 2,
        };
        let mut text = Exposition::default();
        write_servers(&mut text, &[server("a", true), server("b", false)]);
        let text = text.into_text();
        for line in [
            r#"sluice_server_leads{server="a",address="a:6820"} 1"#,
            r#"sluice_server_leads{server="b",address="b:6820"} 0"#,
            r#"sluice_server_events_behind{server="b",address="b:6820"} 7"#,
            r#"sluice_server_seen_seconds{server="b",address="b:6820"} 1.5"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        let mut shared = Exposition::default();
        write_store(&mut shared, Some(Duration::from_millis(2500)));
        let shared = shared.into_text();
        assert!(shared.lines().any(|line| line == "sluice_store_heard_seconds 2.5"), "{shared}");
        let mut alone = Exposition::default();
        write_servers(&mut alone, &[]);
        write_store(&mut alone, None);
        assert_eq!(alone.into_text(), "");
    }
}
