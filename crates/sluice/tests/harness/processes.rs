//! The processes of one cluster, found in `/proc`. Those of other clusters are not included.

use std::path::Path;

/// Supervisors whose attempt lies in this state folder.
pub fn supervisors(state: &Path) -> Vec<i32> {
    let state = state.canonicalize().unwrap_or_else(|_| state.to_path_buf());
    let named = pids().into_iter().filter(|pid| command_name(*pid).starts_with("sluice:"));
    named.filter(|pid| holds_open(*pid, &state)).collect()
}

/// The launcher that this agent forked.
pub fn launcher_of(agent: i32) -> Option<i32> {
    let launchers = pids().into_iter().filter(|pid| command_name(*pid) == "sluice-launcher");
    let mut ours = launchers.filter(|pid| parent(*pid) == Some(agent));
    ours.next()
}

/// Memory that a process has in use.
pub fn resident_kb(pid: i32) -> Option<u64> {
    kb(pid, "status", "VmRSS")
}

/// Memory that only this process has, and wrote to: not what a fork shares with its parent.
pub fn own_kb(pid: i32) -> Option<u64> {
    kb(pid, "smaps_rollup", "Private_Dirty")
}

fn kb(pid: i32, file: &str, line: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let value = text.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':'))?;
    value.trim().trim_end_matches(" kB").trim().parse().ok()
}

/// User and system time of a process, in clock ticks.
pub fn cpu_ticks(pid: i32) -> Option<u64> {
    let fields = stat(pid)?;
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

fn pids() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

fn command_name(pid: i32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    text.trim_end().to_string()
}

/// The fields after the name in parentheses.
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = text.rsplit(')').next()?;
    Some(rest.split_whitespace().map(str::to_string).collect())
}

fn parent(pid: i32) -> Option<i32> {
    stat(pid)?.get(1)?.parse().ok()
}

fn holds_open(pid: i32, below: &Path) -> bool {
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|path| path.starts_with(below))
}
