//! `sluice explain JOB…`: why a job waits and when it is expected to start, or why it ended as it did.

#[cfg(test)]
mod ended_tests;
mod last_lines;
#[cfg(test)]
mod testing;
mod text;

use super::slurm::query::job_names;
use super::verb::{ServerLocationArgs, VerbError, VerbResult, ask, unexpected};
use crate::client::{Client, ServerLocation};
use ::server::explanation::lost_nodes::LostNodes;
use ::slurm::output::Moment;
use clap::Args;
use model::change::JobRef;
use model::id::JobId;
use model::reason::Refusal;
use model::record::{HistoryFilter, JobRecord, RecordState};
use model::run::LaunchKind;
use serde::Serialize;
use std::collections::HashSet;
use std::io::Write;
use std::process::ExitCode;
use wire::client::{Answer, Call};
use wire::explain::{ExplainQuery, ExplainedJob};

#[derive(Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// Jobs by number (12, 12_3, 12_[4-7]), or runs by name
    #[arg(required = true)]
    jobs: Vec<String>,
    /// As data
    #[arg(long)]
    json: bool,
}

/// A job, by what the server knows of it and by what the books have of its attempts.
#[derive(Default, Serialize)]
struct Subject {
    /// `None` for a job that has left the server's memory.
    #[serde(flatten)]
    explained: Option<ExplainedJob>,
    /// The last one is the present one; empty for a job that has not ended and was never requeued.
    attempts: Vec<JobRecord>,
    #[serde(skip_serializing_if = "LostNodes::is_empty")]
    lost_nodes: LostNodes,
}

pub fn run(args: ExplainArgs) -> VerbResult {
    let mut client = args.server.client()?;
    let mut subjects = Vec::new();
    let mut seen = HashSet::new();
    for word in &args.jobs {
        let found = subjects_of(&mut client, word)?;
        subjects.extend(found.into_iter().filter(|one| seen.insert(one.id())));
    }
    let text = if args.json {
        let json = serde_json::to_string_pretty(&subjects);
        json.map_err(|e| VerbError::Message(e.to_string()))? + "\n"
    } else {
        text_of_all(&client, &subjects)
    };
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has gone is no error.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(VerbError::file("standard output")(error))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// The explanation of what one word names, as `sluice explain` prints it.
pub fn text_of(client: &mut Client, word: &str) -> Result<String, VerbError> {
    subjects_of(client, word).map(|subjects| text_of_all(client, &subjects))
}

fn text_of_all(client: &Client, subjects: &[Subject]) -> String {
    let tz = timezone::local();
    let moment = Moment::at(::server::clock::now(), &tz);
    let each = subjects.iter().map(|one| {
        let told = one.told_lines(client);
        text::explained(one, told.as_deref(), moment)
    });
    each.collect::<Vec<_>>().join("\n")
}

impl Subject {
    fn new(
        client: &mut Client,
        explained: Option<ExplainedJob>,
        attempts: Vec<JobRecord>,
    ) -> Result<Self, VerbError> {
        let lost_nodes = lost_nodes(client, &attempts)?;
        Ok(Self { explained, attempts, lost_nodes })
    }

    /// The last lines of a job that has ended, where they are the server's to tell: of a run, whose log it keeps, and of a
    /// batch job where the server is on another machine, whose files the caller need not have. `None`: its files are here.
    fn told_lines(&self, client: &Client) -> Option<Vec<String>> {
        if self.explained.as_ref().is_some_and(|one| !one.job.state.is_ended()) {
            return None;
        }
        let last = self.attempts.last()?;
        let is_server_here = matches!(client.location(), ServerLocation::Socket(_));
        let is_told = match last.kind {
            LaunchKind::Task => true,
            LaunchKind::Batch => !is_server_here,
            LaunchKind::Interactive => false,
        };
        let has_ended = matches!(last.state, RecordState::Ended(_));
        (is_told && has_ended).then(|| last_lines::told(client, last.job))
    }

    fn id(&self) -> String {
        let recorded = || self.attempts.last().map(|record| record.job.to_string());
        self.explained.as_ref().map(|one| one.shown.clone()).or_else(recorded).unwrap_or_default()
    }
}

/// What one word names: jobs in the server's memory, else a job or the last run of that name in the books.
fn subjects_of(client: &mut Client, word: &str) -> Result<Vec<Subject>, VerbError> {
    let query = read_query(word)?;
    let mut filter = HistoryFilter { jobs: query.jobs.clone(), ..HistoryFilter::default() };
    filter.names = query.names.clone();
    match client.call(Call::Explain(query))? {
        Answer::Explained(explained) => {
            let with_attempts = |one: ExplainedJob| {
                let told = one.job.state.is_ended() || one.job.restarts > 0;
                let attempts = if told { attempts_of(client, one.job.id)? } else { Vec::new() };
                Subject::new(client, Some(one), attempts)
            };
            explained.into_iter().map(with_attempts).collect()
        }
        Answer::Refused(Refusal::UnknownJob(what)) => {
            let records = history(client, filter)?;
            let last = records.into_iter().max_by_key(|record| (record.submit, record.job));
            let last = last.ok_or(Refusal::UnknownJob(what))?;
            let attempts = attempts_of(client, last.job)?;
            Ok(vec![Subject::new(client, None, attempts)?])
        }
        Answer::Refused(why) => Err(why.into()),
        other => Err(unexpected(&other)),
    }
}

/// The recorded attempts of one job, in their order.
fn attempts_of(client: &mut Client, job: JobId) -> Result<Vec<JobRecord>, VerbError> {
    let jobs = vec![JobRef::whole(job)];
    let filter = HistoryFilter { jobs, duplicates: true, ..HistoryFilter::default() };
    let mut records = history(client, filter)?;
    // The number of an array names its tasks as well.
    records.retain(|record| record.job == job);
    records.sort_by_key(|record| record.attempt);
    Ok(records)
}

/// Which nodes of these attempts were lost, as far as the caller is shown what became of nodes.
fn lost_nodes(client: &mut Client, attempts: &[JobRecord]) -> Result<LostNodes, VerbError> {
    let mut found = LostNodes::default();
    for (record, question) in LostNodes::questions(attempts) {
        match client.call(Call::ActivityHistory(question))? {
            Answer::Activities(activities) => found.note(record, &activities),
            Answer::Refused(_) => break,
            other => return Err(unexpected(&other)),
        }
    }
    Ok(found)
}

fn history(client: &mut Client, filter: HistoryFilter) -> Result<Vec<JobRecord>, VerbError> {
    match ask(client, Call::History(filter))? {
        Answer::History(records) => Ok(records),
        other => Err(unexpected(&other)),
    }
}

/// A word that begins with a digit is a job id; the name of a run begins with a letter.
fn read_query(word: &str) -> Result<ExplainQuery, VerbError> {
    if !word.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(ExplainQuery { names: vec![word.to_owned()], ..ExplainQuery::default() });
    }
    match job_names::parse_job(word) {
        // A step waits with its job.
        Some(named) => Ok(ExplainQuery { jobs: vec![named.job], ..ExplainQuery::default() }),
        _ => {
            let right = "right is 12, 12_3, 12_[4-7] or a run's name";
            Err(VerbError::Message(format!("{word:?} names no job: {right}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_words_are_jobs_and_others_are_runs() {
        for (word, jobs, names) in [("12", 1, 0), ("hello", 0, 1), ("13_3", 1, 0), ("12.0", 1, 0)] {
            let query = read_query(word).unwrap();
            assert_eq!((query.jobs.len(), query.names.len()), (jobs, names), "{word}");
        }
        for bad in ["0", "12.x", "12_", "12x", "12_[5-"] {
            let why = read_query(bad).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(why.starts_with(&format!("{bad:?} names no job")), "{bad}: {why}");
        }
    }
}
