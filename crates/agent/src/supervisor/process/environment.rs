//! The environment of a job's process: its variables, and the names of its output files.

use crate::error::AgentError;
use crate::spool::LaunchRecord;
use crate::supervisor::process::spawn::Stream;
use model::binding::NodeBindings;
use model::filename::{FilenameContext, expand};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use wire::order::{Output, ProcessVariable};

/// Identifies one process of the job, for variables and file names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessIdentity<'a> {
    pub node: &'a str,
    pub node_index: u32,
    /// `None` for the batch script.
    pub step: Option<&'a str>,
    pub rank: u32,
    pub local_rank: u32,
    /// All ranks of the step on this node.
    pub ranks_here: &'a [u32],
    /// The path of the job's scratch folder.
    pub scratch: Option<&'a str>,
}

/// Merges two environments: `over` replaces `base`, and the last value of a name wins.
pub(crate) fn merge_environment<'a>(
    base: impl Iterator<Item = &'a str>,
    over: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    let all: Vec<&str> = base.chain(over).filter(|entry| entry.contains('=')).collect();
    let name = |entry: &'a str| entry.split('=').next().unwrap_or(entry);
    let mut known = HashSet::new();
    let mut kept: Vec<&str> =
        all.into_iter().rev().filter(|entry| known.insert(name(entry))).collect();
    kept.reverse();
    kept.into_iter().map(str::to_owned).collect()
}

/// The values of variables that only the node knows, and the names of those that hold the process's pid.
pub(crate) fn process_variables<'a>(
    wanted: &'a [(String, ProcessVariable)],
    identity: &ProcessIdentity,
    bound: Option<&NodeBindings>,
) -> (Vec<String>, Vec<&'a str>) {
    let mut entries = Vec::new();
    let mut of_pid = Vec::new();
    for (name, variable) in wanted {
        let value = match variable {
            ProcessVariable::Rank => identity.rank.to_string(),
            ProcessVariable::LocalRank => identity.local_rank.to_string(),
            ProcessVariable::RanksHere => {
                let ranks: Vec<String> = identity.ranks_here.iter().map(u32::to_string).collect();
                ranks.join(",")
            }
            ProcessVariable::CpuBind
            | ProcessVariable::CpuBindVerbose
            | ProcessVariable::CpuBindType
            | ProcessVariable::CpuBindList => match bound {
                Some(bound) => bound_text(bound, *variable),
                None => continue,
            },
            ProcessVariable::Scratch => match identity.scratch {
                Some(path) => path.to_owned(),
                None => continue,
            },
            ProcessVariable::Pid => {
                of_pid.push(name.as_str());
                continue;
            }
        };
        entries.push(format!("{name}={value}"));
    }
    (entries, of_pid)
}

fn bound_text(bound: &NodeBindings, part: ProcessVariable) -> String {
    match part {
        ProcessVariable::CpuBindVerbose => bound.verbosity().to_owned(),
        ProcessVariable::CpuBindType => bound.kind().to_owned(),
        ProcessVariable::CpuBindList => bound.list().to_owned(),
        _ => bound.whole_text(),
    }
}

pub(crate) fn file_name(
    pattern: &str,
    record: &LaunchRecord,
    identity: &ProcessIdentity,
) -> String {
    let names = &record.launch.names;
    let context = FilenameContext {
        job_id: names.job_id,
        array_job_id: names.array_job_id.unwrap_or(names.job_id),
        array_task_id: names.array_task_id,
        step: identity.step,
        node_name: identity.node,
        node_index: identity.node_index,
        task: identity.rank,
        user: &names.user,
        job_name: &names.job_name,
    };
    expand(pattern, &context)
}

/// The standard streams of the job's script; `log` is where it writes a log.
pub(crate) fn script_streams(
    record: &LaunchRecord,
    identity: &ProcessIdentity,
    log: Option<&OwnedFd>,
) -> Result<[Stream; 3], AgentError> {
    let launch = &record.launch;
    let stream = |output: &Output| -> Result<Stream, AgentError> {
        Ok(match output {
            Output::File { pattern, append } => {
                Stream::Write { path: file_name(pattern, record, identity), append: *append }
            }
            Output::SameAsStdout => Stream::SameAsStdout,
            Output::Log => match log {
                Some(log) => Stream::Fd(
                    log.try_clone().map_err(|e| AgentError::file("open", "the job's log", e))?,
                ),
                None => Stream::Null,
            },
            Output::Discard => Stream::Null,
        })
    };
    let stdin = match launch.stdin.as_str() {
        "" | "/dev/null" => Stream::Null,
        pattern => Stream::Read { path: file_name(pattern, record, identity) },
    };
    let stdout = stream(&launch.stdout)?;
    let stderr = match (stream(&launch.stderr)?, &stdout) {
        // A file opened twice would be overwritten by either stream.
        (Stream::Write { path, .. }, Stream::Write { path: of_stdout, .. })
            if path == *of_stdout =>
        {
            Stream::SameAsStdout
        }
        (stderr, _) => stderr,
    };
    Ok([stdin, stdout, stderr])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_value_of_a_variable_wins() {
        let merged = merge_environment(
            ["A=1", "B=2", "no_value", "A=3"].into_iter(),
            ["B=x=y", "C="].into_iter(),
        );
        assert_eq!(merged, ["A=3", "B=x=y", "C="]);
    }

    #[test]
    fn process_variables_hold_ranks_and_pid() {
        let identity = ProcessIdentity {
            node: "n1",
            node_index: 1,
            step: Some("0"),
            rank: 5,
            local_rank: 1,
            ranks_here: &[4, 5],
            scratch: None,
        };
        let wanted = [
            ("R".to_owned(), ProcessVariable::Rank),
            ("L".to_owned(), ProcessVariable::LocalRank),
            ("P".to_owned(), ProcessVariable::Pid),
            ("G".to_owned(), ProcessVariable::RanksHere),
        ];
        let (entries, of_pid) = process_variables(&wanted, &identity, None);
        assert_eq!(entries, ["R=5", "L=1", "G=4,5"]);
        assert_eq!(of_pid, ["P"]);
    }
}
