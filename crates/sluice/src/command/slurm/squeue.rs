//! `squeue`: the jobs that wait and run.

use super::ask::{self, Server, ShowError};
use super::job_list::{self, NamedJob};
use crate::connect::Told;
use ::slurm::option::{Command, OptionError, OptionKey as K, Parsed, value};
use ::slurm::output::squeue::{Listing, Options};
use ::slurm::output::{Moment, json};
use ::slurm::words;
use model::change::JobFilter;
use model::hostlist;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;
use wire::client::{Answer, Call, JobsQuery};
use wire::job_list::JobList;
use wire::listing::ListingQuery;
use wire::view::JobView;

/// How long a listing may wait for when jobs are expected to start.
const ESTIMATES_MS: u64 = 10_000;

const DOING: &str = "slurm_load_jobs error";

pub fn run(args: &[String]) -> ExitCode {
    ask::finish(Command::Squeue, list(args))
}

fn list(args: &[String]) -> Result<ExitCode, ShowError> {
    let Some(parsed) = ask::options(Command::Squeue, args)? else { return Ok(ExitCode::SUCCESS) };
    let mut question = Question::new(&parsed, &ask::me(), ask::user_name)?;
    let every = iterate(&parsed)?;
    if parsed.has(K::Yaml) {
        return Err(ShowError::said("squeue: error: --yaml is not supported; --json is"));
    }
    let listing = Listing::new(shown(&parsed))
        .map_err(|error| ShowError::said(format!("squeue: error: {error}")))?;
    for warning in listing.warnings() {
        eprintln!("squeue: error: {warning}");
    }
    if !parsed.has(K::Json) {
        question.wanted.detail = listing.detail();
    }
    if parsed.has(K::Json) || listing.wants_estimates() {
        question.wanted.estimates_ms = ESTIMATES_MS;
    }
    let tz = ask::time_zone();
    if !parsed.has(K::Json) && !question.narrows() {
        let lines = |zone| Box::new(ListingQuery { options: listing.options().clone(), zone });
        question.wanted.lines = ask::zone_name(&tz).map(lines);
    }
    let mut server = Server::find(DOING)?;
    loop {
        let mut out = io::stdout().lock();
        match server.ask_for_lines(Call::Jobs(question.wanted.clone()))? {
            Told::Lines(text) => out.write_all(&text)?,
            Told::Answer(answer) => {
                let Answer::Jobs { now, jobs: JobList(mut jobs) } = *answer else {
                    return Err(ShowError::unexpected(&answer));
                };
                question.narrow(&mut jobs);
                if parsed.has(K::Json) {
                    json::jobs(&mut out, &ask::cluster_name(&mut server)?, &jobs)?;
                    return Ok(ExitCode::SUCCESS);
                }
                listing.render(&mut out, &jobs, Moment { now, tz: &tz })?;
            }
        }
        let Some(every) = every else { return Ok(ExitCode::SUCCESS) };
        out.write_all(b"\n")?;
        out.flush()?;
        std::thread::sleep(every);
    }
}

/// `-i`: how long to wait between two listings.
fn iterate(parsed: &Parsed) -> Result<Option<Duration>, ShowError> {
    let Some(text) = parsed.text(K::Iterate) else { return Ok(None) };
    let seconds = value::number_from(1, text, "--iterate")?;
    Ok(Some(Duration::from_secs(u64::from(seconds))))
}

/// How the lines look. Of two formats, one by letters and one by names, the later counts.
fn shown(parsed: &Parsed) -> Options {
    let format = parsed.values.iter().rev().find(|s| matches!(s.key, K::Format | K::LongFormat));
    let of = |key| format.filter(|s| s.key == key).map(|s| s.text().to_owned());
    Options {
        format: of(K::Format),
        long_format: of(K::LongFormat),
        sort: parsed.text(K::Sort).map(str::to_owned),
        no_header: parsed.has(K::Noheader),
        long: parsed.has(K::Long),
        steps: parsed.has(K::Steps),
        start: parsed.has(K::Start),
        expand_arrays: parsed.has(K::ArrayExpanded),
        by_priority: parsed.has(K::ByPriority),
        repeated: parsed.has(K::Iterate),
    }
}

/// What the server is asked for, and what of its answer is kept.
#[derive(Debug, Default, PartialEq)]
struct Question {
    wanted: JobsQuery,
    steps: Vec<NamedJob>,
    licenses: Vec<String>,
}

impl Question {
    fn new(
        parsed: &Parsed,
        me: &str,
        name_of: impl Fn(u32) -> Option<String>,
    ) -> Result<Self, ShowError> {
        let list = |key| value::list(parsed.text(key).unwrap_or_default());
        let jobs = named(parsed, K::Jobs)?;
        let steps = named(parsed, K::Steps)?;
        // `-u`, `--me`: whichever was said last.
        let who = parsed.values.iter().rev().find(|s| matches!(s.key, K::Users | K::Me));
        let users = match who {
            Some(setting) if setting.key == K::Me => vec![me.to_owned()],
            Some(setting) => job_list::parse_users(setting.text(), name_of),
            None => Vec::new(),
        };
        let states = parsed.text(K::States).map_or(Ok(Some(Vec::new())), job_list::parse_states);
        let states = states.map_err(|word| bad_state(&word))?;
        let filter = JobFilter {
            reservations: list(K::Reservation),
            jobs: jobs.into_iter().chain(steps.iter().cloned()).map(|named| named.job).collect(),
            users,
            accounts: list(K::Account),
            partitions: list(K::Partition),
            names: list(K::Name),
            qos: list(K::Qos),
            nodes: hosts(parsed.text(K::Nodelist))?,
            // As Slurm's, the JSON document has the jobs that have ended too, unless states are named.
            all_states: states.is_none() || (parsed.has(K::Json) && !parsed.has(K::States)),
            states: states.unwrap_or_default(),
        };
        Ok(Self {
            wanted: JobsQuery {
                filter,
                // The listing expands arrays itself, from one record.
                expand_arrays: false,
                steps: parsed.has(K::Steps),
                ..JobsQuery::default()
            },
            steps,
            licenses: list(K::Licenses),
        })
    }

    fn narrows(&self) -> bool {
        !self.licenses.is_empty() || self.steps.iter().any(|named| named.step.is_some())
    }

    /// What the server does not filter by.
    fn narrow(&self, jobs: &mut Vec<JobView>) {
        jobs.retain(|job| {
            let request = job.spec.request();
            let licensed = |name: &String| request.licenses.iter().any(|(own, _)| own == name);
            self.licenses.is_empty() || self.licenses.iter().any(licensed)
        });
        if self.steps.iter().any(|named| named.step.is_some()) {
            for job in jobs {
                let id = job.array.as_ref().map_or(job.id, |array| array.array);
                job.steps.retain(|step| {
                    self.steps.iter().any(|named| {
                        (named.job.id == id || named.job.id == job.id)
                            && named.step.is_none_or(|wanted| wanted == step.id)
                    })
                });
            }
        }
    }
}

fn named(parsed: &Parsed, key: K) -> Result<Vec<NamedJob>, ShowError> {
    job_list::parse_jobs(parsed.text(key).unwrap_or_default())
        .map_err(|word| ShowError::said(format!("squeue: error: Invalid job id: {word}")))
}

fn hosts(text: Option<&str>) -> Result<Vec<String>, ShowError> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let refused = |error| OptionError::Value(vec![format!("{error}")]);
    Ok(hostlist::expand(text).map_err(refused)?)
}

fn bad_state(word: &str) -> ShowError {
    let valid: Vec<&str> = words::job::all_long().collect();
    ShowError::said(format!(
        "squeue: error: Invalid job state specified: {word}\n\
         squeue: error: Valid job states include: {}",
        valid.join(",")
    ))
}

#[cfg(test)]
#[path = "squeue_tests.rs"]
mod tests;
