//! `--test-only` and `-M`, which `sbatch`, `salloc` and `srun` answer alike.

use super::messages::{
    failure, note_choices, note_refused, print_error, print_line, refused, unexpected,
};
use crate::client::{Client, ClientError};
use ::slurm::option::{Command, JobOptions};
use ::slurm::words::refusal;
use model::hostlist;
use model::reason::Refusal;
use std::process::ExitCode;
use wire::client::{Answer, Call, Submission, SubmitForecast};

/// Refuses `-M` with another cluster than this one.
pub fn check_clusters(
    command: Command,
    client: &mut Client,
    options: &JobOptions,
) -> Result<Option<ExitCode>, ClientError> {
    if options.clusters.is_empty() {
        return Ok(None);
    }
    let name = match client.call(Call::Cluster)? {
        Answer::Cluster(cluster) => cluster.name,
        other => return Ok(Some(unexpected(command, &other))),
    };
    let Some(unknown) = options.clusters.iter().find(|asked| **asked != name) else {
        return Ok(None);
    };
    print_error(command, &format!("No cluster '{unknown}' known by database."));
    print_error(
        command,
        &format!(
            "'{unknown}' can't be reached now, or it is an invalid entry for --cluster.  \
             Use 'sacctmgr list clusters' to see available clusters."
        ),
    );
    Ok(Some(failure()))
}

/// `--test-only`: prints when and where the job would start, or why it never will.
pub fn tested(
    command: Command,
    client: &mut Client,
    submission: Box<Submission>,
) -> Result<ExitCode, ClientError> {
    let code = match client.call(Call::TestSubmit(submission))? {
        Answer::Tested(parts) => {
            tested_lines(command, &parts).iter().for_each(|line| print_line(command, line));
            ExitCode::SUCCESS
        }
        Answer::Refused(refusal @ Refusal::UnknownGres(_)) => refused(command, &refusal),
        Answer::Refused(refusal) => {
            if let Some(hint) = refusal::hint(&refusal) {
                print_error(command, &hint);
            }
            eprintln!("allocation failure: {}", refusal::text(&refusal));
            note_refused(command, &refusal);
            note_choices(command, client, &refusal);
            failure()
        }
        other => unexpected(command, &other),
    };
    Ok(code)
}

/// One line for each component. `sbatch` prints one line for all, without partitions.
fn tested_lines(command: Command, parts: &[SubmitForecast]) -> Vec<String> {
    let begin = |part: &SubmitForecast, cpus: u32| {
        let job = part.job.map_or_else(|| "?".to_owned(), |job| job.to_string());
        let start = model::time::format_iso(part.start, &timezone::local());
        format!("Job {job} to start at {start} using {cpus} processors on")
    };
    if let ([first, _, ..], Command::Sbatch) = (parts, command) {
        let cpus = parts.iter().map(|part| part.cpus).sum();
        let nodes = hostlist::compress_sorted(parts.iter().flat_map(|part| &part.nodes));
        return vec![format!("{} {nodes}", begin(first, cpus))];
    }
    let line = |part: &SubmitForecast| {
        let nodes = hostlist::compress(&part.nodes);
        format!("{} nodes {nodes} in partition {}", begin(part, part.cpus), part.partition)
    };
    parts.iter().map(line).collect()
}
