//! `squeue`: the jobs in the queue.

use super::query::job_names::{self, NamedJob};
use super::query::{self, CommandError, Server, unknown_names};
use crate::client::ListingReply;
use ::slurm::openapi;
use ::slurm::option::{Command, OptionError, OptionKey as K, Parsed, value};
use ::slurm::output::squeue::{Listing, Options};
use ::slurm::output::time_format::TimeFormat;
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

/// How long a listing may wait for estimates of start times.
const ESTIMATES_MS: u64 = 10_000;

const REQUEST: &str = "slurm_load_jobs error";

pub fn run(args: &[String]) -> ExitCode {
    query::finish(Command::Squeue, list(args))
}

fn list(args: &[String]) -> Result<ExitCode, CommandError> {
    let Some(parsed) = query::options(Command::Squeue, args)? else { return Ok(ExitCode::SUCCESS) };
    let mut question = SqueueQuery::new(&parsed, query::own_user_name, query::user_name)?;
    let every = iterate(&parsed)?;
    if parsed.has(K::Yaml) {
        return Err(CommandError::message("squeue: error: --yaml is not supported; --json is"));
    }
    let listing = Listing::new(output_options(&parsed))
        .map_err(|error| CommandError::message(format!("squeue: error: {error}")))?;
    for warning in listing.warnings() {
        eprintln!("squeue: error: {warning}");
    }
    if !parsed.has(K::Json) {
        question.wanted.detail = listing.detail();
    }
    if parsed.has(K::Json) || listing.wants_estimates() {
        question.wanted.estimates_ms = ESTIMATES_MS;
    }
    let tz = timezone::local();
    // The server writes times in the standard format alone.
    let is_standard = query::time_format() == TimeFormat::Standard;
    if !parsed.has(K::Json) && !question.narrows() && is_standard {
        let lines = |zone| Box::new(ListingQuery { options: listing.options().clone(), zone });
        question.wanted.lines = query::zone_name(&tz).map(lines);
    }
    let mut server = Server::find(REQUEST)?;
    let users = if question.names_users { &question.wanted.filter.users[..] } else { &[] };
    // One user of whom jobs are listed is known, which saves a call.
    let is_listing_asked_first = users.len() == 1 && !parsed.has(K::Json);
    let none: &[String] = &[];
    let (users, late_users) = if is_listing_asked_first { (none, users) } else { (users, none) };
    report_unknown_users(&mut server, users)?;
    let mut is_first = true;
    loop {
        let mut out = io::stdout().lock();
        match server.ask_for_lines(Call::Jobs(question.wanted.clone()))? {
            ListingReply::Lines(text) => {
                let lines = text.iter().filter(|byte| **byte == b'\n').count();
                if is_first && lines <= listing.header_lines() {
                    report_unknown_names(&mut server, late_users, &question.wanted.filter)?;
                }
                out.write_all(&text)?;
            }
            ListingReply::Answer(answer) => {
                let Answer::Jobs { now, jobs: JobList(mut jobs) } = *answer else {
                    return Err(CommandError::unexpected(&answer));
                };
                question.narrow(&mut jobs);
                if parsed.has(K::Json) {
                    openapi::jobs(&mut out, &query::cluster_name(&mut server)?, &jobs)?;
                    return Ok(ExitCode::SUCCESS);
                }
                if is_first && jobs.is_empty() {
                    report_unknown_names(&mut server, late_users, &question.wanted.filter)?;
                }
                listing.render(&mut out, &jobs, query::moment(now, &tz))?;
            }
        }
        is_first = false;
        let Some(every) = every else { return Ok(ExitCode::SUCCESS) };
        out.write_all(b"\n")?;
        out.flush()?;
        std::thread::sleep(every);
    }
}

/// Says which names nobody has, before a listing without jobs: Slurm's line about a user comes before the names of the columns.
fn report_unknown_names(
    server: &mut Server,
    users: &[String],
    filter: &JobFilter,
) -> Result<(), CommandError> {
    report_unknown_users(server, users)?;
    report_unknown_places(server, filter)
}

/// Says of each user whom neither this machine nor the queue knows that there is none: a typing error more often than not.
/// Users of tokens are known by the queue alone.
fn report_unknown_users(server: &mut Server, users: &[String]) -> Result<(), CommandError> {
    for user in users.iter().filter(|user| !query::is_known(user)) {
        let filter =
            JobFilter { users: vec![user.clone()], all_states: true, ..JobFilter::default() };
        let wanted = JobsQuery { filter, ..JobsQuery::default() };
        if let Answer::Jobs { jobs: JobList(jobs), .. } = server.ask(Call::Jobs(wanted))?
            && jobs.is_empty()
        {
            eprintln!("squeue: error: Invalid user: {user}");
        }
    }
    Ok(())
}

/// Says of the partitions and nodes that were named, and that nobody has, that there are none. It is a call more, and made only
/// where no job is listed: names with jobs are right.
fn report_unknown_places(server: &mut Server, filter: &JobFilter) -> Result<(), CommandError> {
    if filter.partitions.is_empty() && filter.nodes.is_empty() {
        return Ok(());
    }
    let Answer::Cluster(cluster) = server.ask(Call::Cluster)? else { return Ok(()) };
    let unknown = unknown_names::places(&cluster, &filter.partitions, &filter.nodes);
    unknown_names::note(Command::Squeue, unknown);
    Ok(())
}

/// `-i`: the pause between two listings.
fn iterate(parsed: &Parsed) -> Result<Option<Duration>, CommandError> {
    let Some(text) = parsed.text(K::Iterate) else { return Ok(None) };
    let seconds = value::number_from(1, text, "--iterate")?;
    Ok(Some(Duration::from_secs(u64::from(seconds))))
}

/// The format options. If both `-o` and `-O` are given, the later one counts.
fn output_options(parsed: &Parsed) -> Options {
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

/// What the server is asked for, and the filters that are applied to its answer here.
#[derive(Debug, Default, PartialEq)]
struct SqueueQuery {
    wanted: JobsQuery,
    /// Whether its users are those of `-u`, and may be mistyped.
    names_users: bool,
    steps: Vec<NamedJob>,
    licenses: Vec<String>,
}

impl SqueueQuery {
    /// `me` looks up the caller's name, which may ask a directory in the network: it is called for `--me` alone.
    fn new(
        parsed: &Parsed,
        me: impl FnOnce() -> String,
        name_of: impl Fn(u32) -> Option<String>,
    ) -> Result<Self, CommandError> {
        let list = |key| value::list(parsed.text(key).unwrap_or_default());
        let jobs = named(parsed, K::Jobs)?;
        let steps = named(parsed, K::Steps)?;
        // The later one of `-u` and `--me` counts.
        let who = parsed.values.iter().rev().find(|s| matches!(s.key, K::Users | K::Me));
        let users = match who {
            Some(setting) if setting.key == K::Me => vec![me()],
            Some(setting) => job_names::parse_users(setting.text(), name_of),
            None => Vec::new(),
        };
        let states = parsed.text(K::States).map_or(Ok(Some(Vec::new())), job_names::parse_states);
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
            // As in Slurm, the JSON document includes jobs that have ended, unless states are named.
            all_states: states.is_none() || (parsed.has(K::Json) && !parsed.has(K::States)),
            states: states.unwrap_or_default(),
            without_deleted: false,
        };
        Ok(Self {
            names_users: who.is_some_and(|setting| setting.key == K::Users),
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

    /// Applies the filters that the server does not.
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

fn named(parsed: &Parsed, key: K) -> Result<Vec<NamedJob>, CommandError> {
    job_names::parse_jobs(parsed.text(key).unwrap_or_default())
        .map_err(|word| CommandError::message(format!("squeue: error: Invalid job id: {word}")))
}

fn hosts(text: Option<&str>) -> Result<Vec<String>, CommandError> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let refused = |error| OptionError::Value(vec![format!("{error}")]);
    Ok(hostlist::expand(text).map_err(refused)?)
}

fn bad_state(word: &str) -> CommandError {
    let valid: Vec<&str> = words::job::all_long().collect();
    CommandError::message(format!(
        "squeue: error: Invalid job state specified: {word}\n\
         squeue: error: Valid job states include: {}",
        valid.join(",")
    ))
}

#[cfg(test)]
mod tests;
