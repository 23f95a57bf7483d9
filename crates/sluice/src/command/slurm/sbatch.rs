//! `sbatch`: a script to the server, and the number it got.

use super::caller::{
    self, FAILURE, Here, complain, failure, note_refused, refused, say, unexpected, unreachable,
};
use crate::connect::{Client, ClientError};
use ::slurm::option::invocation::{self, Batch, Invocation};
use ::slurm::option::{Command, JobOptions};
use ::slurm::request::{self, Draft};
use ::slurm::words::refusal;
use jiff::tz::TimeZone;
use model::hostlist;
use model::id::JobId;
use model::reason::Refusal;
use model::run::{ExitStatus, Outcome};
use std::process::ExitCode;
use wire::client::{Answer, Call, SubmitForecast};

const COMMAND: Command = Command::Sbatch;

/// How long one question for a job's end stays open before it is asked again.
const AWAIT_MS: u64 = 60_000;

pub fn run(args: &[String]) -> ExitCode {
    let here = Here::default();
    let batch = match invocation::batch(args, &caller::caller(&here)) {
        Ok(Invocation::Question(question)) => return caller::answer(COMMAND, question),
        Ok(Invocation::Submission(batch)) => batch,
        Err(error) => return caller::refuse_option(COMMAND, &error),
    };
    let Some(options) = batch.components.first() else { return failure() };
    let submitter = caller::submitter(COMMAND, args, options);
    let draft = match request::batch(&batch, &submitter) {
        Ok(draft) => draft,
        Err(error) => return caller::refuse_option(COMMAND, &error),
    };
    if !options.quiet {
        batch.notes.iter().chain(&draft.notes).for_each(|line| say(COMMAND, line));
    }
    submit(&batch, options, draft).unwrap_or_else(|error| unreachable(COMMAND, &error))
}

fn submit(batch: &Batch, options: &JobOptions, draft: Draft) -> Result<ExitCode, ClientError> {
    let mut client = Client::find()?;
    if let Some(code) = check_clusters(COMMAND, &mut client, options)? {
        return Ok(code);
    }
    let submission = Box::new(draft.submission);
    if options.test_only {
        let answer = client.call(Call::TestSubmit(submission))?;
        return Ok(tested(COMMAND, answer));
    }
    match client.call(Call::Submit(submission))? {
        Answer::Submitted { job, .. } => {
            if let Some(line) = submitted(job, options) {
                println!("{line}");
            }
            // Slurm's sbatch waits if any component says so.
            if batch.components.iter().any(|options| options.wait) {
                return wait(&mut client, job);
            }
            Ok(ExitCode::SUCCESS)
        }
        Answer::Refused(refusal) => Ok(refused(COMMAND, &refusal)),
        other => Ok(unexpected(COMMAND, &other)),
    }
}

/// The line for a job that was taken; none with `--quiet`, but for scripts that ask to parse it.
fn submitted(job: JobId, options: &JobOptions) -> Option<String> {
    let cluster = options.clusters.first();
    match (options.parsable, cluster) {
        (true, Some(cluster)) => Some(format!("{job};{cluster}")),
        (true, None) => Some(job.to_string()),
        (false, _) if options.quiet => None,
        (false, Some(cluster)) => Some(format!("Submitted batch job {job} on cluster {cluster}")),
        (false, None) => Some(format!("Submitted batch job {job}")),
    }
}

/// `-M` may name this cluster only.
pub(super) fn check_clusters(
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
    complain(command, &format!("No cluster '{unknown}' known by database."));
    complain(
        command,
        &format!(
            "'{unknown}' can't be reached now, or it is an invalid entry for --cluster.  \
             Use 'sacctmgr list clusters' to see available clusters."
        ),
    );
    Ok(Some(failure()))
}

/// `--test-only`: when and where it would start, or why it never will.
pub(super) fn tested(command: Command, answer: Answer) -> ExitCode {
    match answer {
        Answer::Tested(parts) => {
            tested_lines(command, &parts).iter().for_each(|line| say(command, line));
            ExitCode::SUCCESS
        }
        Answer::Refused(refusal @ Refusal::UnknownGres(_)) => refused(command, &refusal),
        Answer::Refused(refusal) => {
            if let Some(hint) = refusal::hint(&refusal) {
                complain(command, &hint);
            }
            eprintln!("allocation failure: {}", refusal::text(&refusal));
            note_refused(command, &refusal);
            failure()
        }
        other => unexpected(command, &other),
    }
}

/// A line for each component; `sbatch` has one for all of them, without their partitions.
fn tested_lines(command: Command, parts: &[SubmitForecast]) -> Vec<String> {
    let begin = |part: &SubmitForecast, cpus: u32| {
        let job = part.job.map_or_else(|| "?".to_owned(), |job| job.to_string());
        let start = model::time::format_iso(part.start, &TimeZone::system());
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

/// `--wait`: ends with the job, and as it did.
fn wait(client: &mut Client, job: JobId) -> Result<ExitCode, ClientError> {
    loop {
        match client.call_again(Call::AwaitEnd { job, timeout_ms: AWAIT_MS })? {
            Answer::End { ended: false, .. } => {}
            Answer::End { exit, outcome, .. } => {
                return Ok(ExitCode::from(wait_code(exit, outcome)));
            }
            Answer::Refused(refusal) => return Ok(refused(COMMAND, &refusal)),
            other => return Ok(unexpected(COMMAND, &other)),
        }
    }
}

/// The job's own code; 1 for a job that was ended otherwise.
fn wait_code(exit: ExitStatus, outcome: Option<Outcome>) -> u8 {
    match (exit, outcome) {
        (ExitStatus { code: 0, signal: 0 }, Some(Outcome::Completed)) => 0,
        (ExitStatus { code, signal: 0 }, _) if code != 0 => code as u8,
        _ => FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_told_as_it_was_asked_for() {
        let options = |parsable, quiet, cluster: Option<&str>| JobOptions {
            parsable,
            quiet,
            clusters: cluster.map(str::to_owned).into_iter().collect(),
            ..JobOptions::default()
        };
        let table = [
            (options(false, false, None), Some("Submitted batch job 61")),
            (options(false, false, Some("lab")), Some("Submitted batch job 61 on cluster lab")),
            (options(true, false, None), Some("61")),
            (options(true, true, Some("lab")), Some("61;lab")),
            (options(false, true, None), None),
        ];
        for (options, line) in table {
            assert_eq!(submitted(JobId(61), &options).as_deref(), line);
        }
    }

    #[test]
    fn waiting_ends_as_the_job_did() {
        let table = [
            (0, 0, Outcome::Completed, 0),
            (5, 0, Outcome::Failed, 5),
            (0, 9, Outcome::Failed, 1),
            (0, 0, Outcome::Cancelled { by: 0 }, 1),
            (0, 0, Outcome::Timeout, 1),
        ];
        for (code, signal, outcome, expected) in table {
            assert_eq!(wait_code(ExitStatus { code, signal }, Some(outcome)), expected);
        }
    }
}
