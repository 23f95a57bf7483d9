//! The log of one node of a job, or the output file of a batch job, as far as it is there.

use super::log_output::LogOutput;
use super::unexpected;
use crate::client::Client;
use crate::command::verb::VerbError;
use ::slurm::output::text::job_text;
use model::id::JobId;
use model::reason::Refusal;
use model::record::JobRecord;
use model::time::Timestamp;
use std::fs::File;
use std::io::Read;
use wire::client::Answer;
use wire::view::JobView;

const READ_BYTES: usize = 64 << 10;

/// The log of one node of a job, from a time on.
pub struct Log {
    pub job: JobId,
    pub node: usize,
    pub since: Option<Timestamp>,
}

/// Prints the log of a run that has started, as far as it is there.
pub fn kept(client: &Client, log: &Log, output: &mut LogOutput) -> Result<(), VerbError> {
    let Log { job, node, since } = log;
    let since = since.map(|since| format!("&since_ms={}", since.millis())).unwrap_or_default();
    let path = format!("/api/v1/logs?job={job}&node={node}{since}");
    let mut written = Ok(());
    let answer = client.stream(&path, |bytes| {
        written = output.write(bytes);
        written.is_ok()
    })?;
    let written = written.and_then(|()| output.finish());
    written.map_err(VerbError::file("standard output"))?;
    match answer {
        None => Ok(()),
        Some(Answer::Refused(why)) => Err(why.into()),
        Some(other) => Err(unexpected(&other)),
    }
}

/// Prints the output file of a batch job, read on its node; where the node does not answer, as far as it can be read here.
pub fn file(
    client: &Client,
    job: &JobView,
    log: Log,
    output: &mut LogOutput,
) -> Result<(), VerbError> {
    let Some(streams) = job_text::streams(job) else { return Ok(()) };
    if job.allocation.is_none() {
        let text = format!("job {} has not started: it is to write to {}", job.id, streams.stdout);
        return Err(VerbError::Message(text));
    }
    let fallback = job_text::in_fallback(job, &streams.stdout);
    read_there_or_here(client, &log, &streams.stdout, fallback, output)
}

/// The same of a batch job that has left the server's memory.
pub fn booked_file(
    client: &Client,
    record: &JobRecord,
    log: &Log,
    output: &mut LogOutput,
) -> Result<(), VerbError> {
    let Some(streams) = &record.streams else {
        let text = format!("job {} has ended: what it wrote is in its output file", record.job);
        return Err(VerbError::Message(text));
    };
    read_there_or_here(client, log, &streams.stdout, None, output)
}

/// Prints a file as its node has it, or if that cannot be as this machine has it: under its name, or under another.
fn read_there_or_here(
    client: &Client,
    log: &Log,
    path: &str,
    fallback: Option<String>,
    output: &mut LogOutput,
) -> Result<(), VerbError> {
    match kept(client, log, output) {
        Err(VerbError::Refused(Refusal::Other(why))) if log.since.is_none() => {
            let opened = File::open(path)
                .or_else(|error| fallback.and_then(|path| File::open(path).ok()).ok_or(error));
            let mut file =
                opened.map_err(|error| VerbError::Message(format!("{why}; {path}: {error}")))?;
            copy(&mut file, output).map_err(VerbError::file(path))
        }
        other => other,
    }
}

fn copy(file: &mut File, output: &mut LogOutput) -> std::io::Result<()> {
    let mut piece = vec![0; READ_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return output.finish(),
            length => output.write(&piece[..length])?,
        }
    }
}
