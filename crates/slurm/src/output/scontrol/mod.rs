//! What `scontrol` prints: the records of `show`, host lists, `ping`, and the lines about names that do not exist.

pub mod assoc_mgr;
pub mod config;
mod config_keys;
pub mod job;
pub mod license;
pub mod node;
pub mod partition;
mod record;
pub mod reservation;
pub mod step;
pub mod topology;

use model::grammar::GrammarError;
use model::hostlist;
use wire::client::ServerView;

/// How `show` prints a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// `-d`
    pub details: bool,
    /// `-o`: a record on one line.
    pub oneliner: bool,
}

/// `scontrol show hostnames`: one name a line.
pub fn hostnames(list: &str) -> Result<String, GrammarError> {
    let mut out = String::new();
    for name in hostlist::expand(list)? {
        out.push_str(&name);
        out.push('\n');
    }
    Ok(out)
}

/// `scontrol show hostlist`: the short form, in the order given.
pub fn host_list(names: &str) -> Result<String, GrammarError> {
    Ok(format!("{}\n", hostlist::compress(hostlist::expand(names)?)))
}

/// `scontrol show hostlistsorted`
pub fn host_list_sorted(names: &str) -> Result<String, GrammarError> {
    Ok(format!("{}\n", hostlist::compress_sorted(hostlist::expand(names)?)))
}

/// `scontrol ping`: one line for the server.
pub fn ping(hostname: &str, up: bool) -> String {
    format!("Slurmctld(primary) at {hostname} is {}\n", if up { "UP" } else { "DOWN" })
}

/// `scontrol ping` of several servers: the leader first.
pub fn ping_servers(servers: &[ServerView]) -> String {
    let (leaders, others): (Vec<_>, Vec<_>) = servers.iter().partition(|server| server.is_leader);
    let mut out: String =
        leaders.iter().map(|leader| ping(&leader.shown_among(servers), true)).collect();
    for (number, server) in others.iter().enumerate() {
        let state = if server.is_up() { "UP" } else { "DOWN" };
        let lag = match server.events_behind {
            0 => String::new(),
            events => format!(", {events} events behind"),
        };
        let name = server.shown_among(servers);
        out += &format!("Slurmctld(backup{}) at {name} is {state}{lag}\n", number + 1);
    }
    out
}

/// Standard output of `show node` for an unknown name; the exit code is 1.
pub fn no_node(name: &str) -> String {
    format!("Node {name} not found\n")
}

/// Standard output of `show partition` for an unknown name; the exit code is 1.
pub fn no_partition(name: &str) -> String {
    format!("Partition {name} not found\n")
}

/// Standard error of `show job` for an unknown id; the exit code is 1.
pub const NO_JOB: &str = "slurm_load_jobs error: Invalid job id specified";
/// Standard output of `show job` without jobs.
pub const NO_JOBS: &str = "No jobs in the system\n";
/// Standard output of `show step` without steps.
pub const NO_STEPS: &str = "No job steps in the system\n";

#[cfg(test)]
mod tests;
