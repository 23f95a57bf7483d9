//! `sbatch`: submits a batch script and prints its job id.

use super::submit::caller::{self, ProcessSurroundings};
use super::submit::messages::{
    self, FAILURE, failure, note_beyond_partition, print_line, refused, refused_submit, unexpected,
    unreachable,
};
use super::submit::test_only::{check_clusters, tested};
use super::submit::{export_file, missing_folders, registry_auth};
use crate::client::{Client, ClientError};
use crate::command::verb::ServerLocationArgs;
use ::slurm::option::invocation::{self, Batch, Invocation};
use ::slurm::option::{Command, JobOptions};
use ::slurm::request::{self, Draft};
use model::id::JobId;
use model::run::{ExitStatus, Outcome};
use std::process::ExitCode;
use wire::client::{Answer, Call};

const COMMAND: Command = Command::Sbatch;

/// How long one request for a job's end may wait in the server before it is repeated.
const AWAIT_MS: u64 = 60_000;

pub fn run(args: &[String]) -> ExitCode {
    run_at(args, &ServerLocationArgs::default())
}

pub fn run_at(args: &[String], server: &ServerLocationArgs) -> ExitCode {
    let here = ProcessSurroundings::default();
    let batch = match invocation::batch(args, &caller::caller(&here)) {
        Ok(Invocation::Question(question)) => return messages::answer(COMMAND, question),
        Ok(Invocation::Submission(batch)) => batch,
        Err(error) => return messages::refuse_option(COMMAND, &error),
    };
    let Some(options) = batch.components.first() else { return failure() };
    let submitter = caller::submitter(COMMAND, args, options);
    batch.components.iter().for_each(|options| messages::print_defined(COMMAND, options));
    messages::print_propagated(COMMAND, options, &submitter);
    let mut draft = match request::batch(&batch, &submitter) {
        Ok(draft) => draft,
        Err(error) => return messages::refuse_option(COMMAND, &error),
    };
    if let Some(named) = &options.export_file {
        let environment = draft.submission.environment.get_or_insert_default();
        if let Err(line) = export_file::add(environment, named) {
            messages::print_error(COMMAND, &line);
            return failure();
        }
    }
    if !options.quiet {
        let missing = missing_folders::notes(&draft.submission.spec.launch);
        let notes = batch.notes.iter().chain(&draft.notes).chain(&missing);
        notes.for_each(|line| print_line(COMMAND, line));
    }
    let submitted = server.client().and_then(|client| submit(client, &batch, options, draft));
    submitted.unwrap_or_else(|error| unreachable(COMMAND, &error))
}

fn submit(
    mut client: Client,
    batch: &Batch,
    options: &JobOptions,
    draft: Draft,
) -> Result<ExitCode, ClientError> {
    if let Some(code) = check_clusters(COMMAND, &mut client, options)? {
        return Ok(code);
    }
    let mut submission = Box::new(draft.submission);
    submission.registry_auth = registry_auth::of_container(COMMAND, options.container.as_ref());
    if options.test_only {
        return tested(COMMAND, &mut client, submission);
    }
    match client.submit(submission)? {
        Answer::Submitted { job, beyond_partition, beyond_time, unknown_names, .. } => {
            let beyond = (beyond_partition.as_ref(), beyond_time.as_ref());
            note_beyond_partition(COMMAND, options.quiet, beyond.0, beyond.1);
            messages::note_unknown_names(COMMAND, options.quiet, &unknown_names);
            if let Some(line) = submitted(job, options) {
                println!("{line}");
            }
            // As in Slurm, it waits if any component says so.
            if batch.components.iter().any(|options| options.wait) {
                return wait(&mut client, job);
            }
            Ok(ExitCode::SUCCESS)
        }
        Answer::Refused(refusal) => Ok(refused_submit(COMMAND, &mut client, &refusal)),
        other => Ok(unexpected(COMMAND, &other)),
    }
}

/// The line for a submitted job; `None` with `--quiet`, unless `--parsable` is given.
pub fn submitted(job: JobId, options: &JobOptions) -> Option<String> {
    let cluster = options.clusters.first();
    match (options.parsable, cluster) {
        (true, Some(cluster)) => Some(format!("{job};{cluster}")),
        (true, None) => Some(job.to_string()),
        (false, _) if options.quiet => None,
        (false, Some(cluster)) => Some(format!("Submitted batch job {job} on cluster {cluster}")),
        (false, None) => Some(format!("Submitted batch job {job}")),
    }
}

/// `--wait`: waits for the end of the job, and exits as it did.
pub fn wait(client: &mut Client, job: JobId) -> Result<ExitCode, ClientError> {
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

/// The job's exit code; 1 for a job that did not exit by itself.
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
    fn the_job_id_is_printed_in_the_requested_form() {
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
    fn wait_exits_with_the_jobs_code() {
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
