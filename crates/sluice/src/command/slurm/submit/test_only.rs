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

/// One line for each component. `sbatch` prints one line for all, without partitions. No nodes are told to those to whom they are
/// private.
fn tested_lines(command: Command, parts: &[SubmitForecast]) -> Vec<String> {
    let begin = |part: &SubmitForecast, cpus: u32| {
        let job = part.job.map_or_else(|| "?".to_owned(), |job| job.to_string());
        let start = model::time::format_iso(part.start, &timezone::local());
        format!("Job {job} to start at {start} using {cpus} processors")
    };
    if let ([first, _, ..], Command::Sbatch) = (parts, command) {
        let cpus = parts.iter().map(|part| part.cpus).sum();
        let nodes = hostlist::compress_sorted(parts.iter().flat_map(|part| &part.nodes));
        let place = if nodes.is_empty() { nodes } else { format!(" on {nodes}") };
        return vec![format!("{}{place}", begin(first, cpus))];
    }
    let line = |part: &SubmitForecast| {
        let nodes = hostlist::compress(&part.nodes);
        let place = if nodes.is_empty() { nodes } else { format!(" on nodes {nodes}") };
        format!("{}{place} in partition {}", begin(part, part.cpus), part.partition)
    };
    parts.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::JobId;
    use model::time::Timestamp;

    #[test]
    fn line_without_nodes_ends_with_what_is_told() {
        let part = |nodes: &[&str]| SubmitForecast {
            job: Some(JobId(7)),
            start: Timestamp(0),
            nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
            cpus: 2,
            partition: "gpu".into(),
        };
        let last = |command: Command, parts: &[SubmitForecast]| {
            let lines = tested_lines(command, parts);
            let line = lines.last().expect("a line");
            line.split_once("using ").expect("an amount").1.to_owned()
        };
        for (nodes, one, all) in
            [(&["n1", "n2"][..], " on nodes n[1-2]", " on n[1-2]"), (&[][..], "", "")]
        {
            let alone = format!("2 processors{one} in partition gpu");
            assert_eq!(last(Command::Sbatch, &[part(nodes)]), alone);
            assert_eq!(last(Command::Srun, &[part(nodes), part(nodes)]), alone);
            let sum = last(Command::Sbatch, &[part(nodes), part(&[])]);
            assert_eq!(sum, format!("4 processors{all}"));
        }
    }
}
