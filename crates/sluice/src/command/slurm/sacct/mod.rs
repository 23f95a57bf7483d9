//! `sacct`: the accounting records of jobs, ended and running.

use super::query::job_names::{self, NamedJob};
use super::query::{self, CommandError, Server};
use ::slurm::openapi::accounting::{self, Setting};
use ::slurm::option::table::{self, Verdict};
use ::slurm::option::{Command, OptionError, OptionKey as K, Parsed, value};
use ::slurm::output::sacct::{self, Options, SacctError, Units};
use ::slurm::output::table::field_table::Layout;
use jiff::tz::TimeZone;
use model::amount::Unit;
use model::change::JobRef;
use model::hostlist;
use model::id::{JobId, StepId};
use model::os_text;
use model::record::JobRecord;
use model::time::{TimeLimit, Timestamp, parse_time_limit};
use model::time_spec::parse_past_time_spec;
use std::io;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use wire::byte_text::ByteText;
use wire::client::{Answer, Call, HistoryFilter, KeptText};

const REQUEST: &str = "sacct: error: slurm_get_jobs";

pub fn run(args: &[String]) -> ExitCode {
    query::finish(Command::Sacct, list(args))
}

/// The line about the first option that is refused.
fn refused_option(parsed: &Parsed) -> Option<String> {
    table::options(Command::Sacct).filter(|spec| parsed.has(spec.key)).find_map(|spec| {
        match table::verdict(Command::Sacct, spec.key) {
            Verdict::Refused(why) => {
                Some(format!("sacct: error: --{} is not supported: {why}", spec.long))
            }
            _ => None,
        }
    })
}

fn list(args: &[String]) -> Result<ExitCode, CommandError> {
    let Some(parsed) = query::options(Command::Sacct, args)? else { return Ok(ExitCode::SUCCESS) };
    if parsed.has(K::HelpFormat) {
        query::print(&sacct::help_format())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(line) = refused_option(&parsed) {
        return Err(CommandError::message(line));
    }
    let tz = timezone::local();
    let now = ::server::clock::now();
    let me = || (!query::is_root()).then(query::own_user_name);
    let mut question = HistoryQuery::new(&parsed, now, &tz, me)?;
    let mut options = output_options(&parsed)?;
    let mut server = Server::find(REQUEST)?;
    for (key, of) in [(K::BatchScript, KeptText::Script), (K::EnvVars, KeptText::Environment)] {
        if parsed.has(key) {
            return kept_text(&mut server, &question, of);
        }
    }
    if parsed.has(K::Users) {
        refuse_unknown_users(&mut server, &question.filter.users)?;
    }
    let mut records = history(&mut server, &question.filter)?;
    if parsed.has(K::WholeHetjob) && parsed.text(K::WholeHetjob) != Some("no") {
        question.name_whole(&records);
        records = history(&mut server, &question.filter)?;
    }
    let records = question.narrow(records);
    options.jobs_without_line = question.jobs_without_line(&records);
    let moment = query::moment(now, &tz);
    if parsed.has(K::Json) {
        let (cluster, gres) = (query::cluster_name(&mut server)?, query::gres_names(&mut server)?);
        let with_steps = !options.allocations_only;
        let setting = Setting { cluster: &cluster, gres: &gres, with_steps, moment };
        accounting::jobs(&mut io::stdout().lock(), setting, &records)?;
        return Ok(ExitCode::SUCCESS);
    }
    let cluster = shown_cluster(&mut server, &parsed)?;
    let mut out = io::stdout().lock();
    match sacct::render(&mut out, &options, &cluster, &records, moment) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(SacctError::UnknownField(error)) => {
            Err(CommandError::message(format!("sacct: error: {error}")))
        }
        Err(SacctError::Write(error)) => Err(error.into()),
    }
}

/// Refuses a user whom neither this machine nor the books know. Users of tokens are known by the books alone, of whom the
/// caller sees what he may: another's name that this machine does not know is refused too.
fn refuse_unknown_users(server: &mut Server, users: &[String]) -> Result<(), CommandError> {
    // A number need not have a name here.
    let is_name = |user: &&String| user.parse::<u32>().is_err();
    for user in users.iter().filter(is_name).filter(|user| !query::is_known(user)) {
        let of_user =
            HistoryFilter { users: vec![user.clone()], limit: Some(1), ..HistoryFilter::default() };
        if history(server, &of_user)?.is_empty() {
            return Err(CommandError::message(format!("sacct: error: Invalid user id: {user}")));
        }
    }
    Ok(())
}

/// The cluster's name, which is asked for only if a column shows it.
fn shown_cluster(server: &mut Server, parsed: &Parsed) -> Result<String, CommandError> {
    let is_shown =
        |format: &str| format.to_ascii_lowercase().contains("cluster") || sacct::names_all(format);
    if !parsed.text(K::Format).is_some_and(is_shown) {
        return Ok(String::new());
    }
    query::cluster_name(server)
}

/// `--batch-script` and `--env-vars`: prints the script or environment of each named job, where it is kept.
fn kept_text(
    server: &mut Server,
    question: &HistoryQuery,
    of: KeptText,
) -> Result<ExitCode, CommandError> {
    if question.filter.jobs.is_empty() {
        let option = if of == KeptText::Script { "-B" } else { "--env-vars" };
        return Err(CommandError::message(format!("sacct: fatal: {option} requires --jobs=ID")));
    }
    for job in &question.filter.jobs {
        let text = match server.ask(Call::KeptText { job: job.clone(), of })? {
            Answer::KeptText { text } => text,
            other => return Err(CommandError::unexpected(&other)),
        };
        let (title, text) = match of {
            KeptText::Script => {
                (format!("Batch Script for {}", job.shown_id()), text.map(Vec::from))
            }
            KeptText::Environment => {
                let title =
                    format!("Environment used for {} (must be batch to display)", job.shown_id());
                (title, text.as_ref().map(environment_lines))
            }
        };
        let mut text = text.unwrap_or_else(|| b"NONE".to_vec());
        text.push(b'\n');
        query::print(&format!("{title}\n{}\n", "-".repeat(80)))?;
        query::print_bytes(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The variables of an environment that is kept, a line each.
fn environment_lines(kept: &ByteText) -> Vec<u8> {
    let mut lines = os_text::to_bytes(&kept.shown()).into_owned();
    lines.iter_mut().filter(|byte| **byte == 0).for_each(|end| *end = b'\n');
    lines
}

fn output_options(parsed: &Parsed) -> Result<Options, CommandError> {
    let separator = parsed.text(K::Delimiter).unwrap_or(Layout::SEPARATOR).to_owned();
    let kind = parsed.values.iter().rev().find(|s| matches!(s.key, K::Parsable | K::Parsable2));
    let layout = match kind.map(|setting| setting.key) {
        Some(K::Parsable) => Layout::Ended(separator),
        Some(_) => Layout::Separated(separator),
        None => Layout::Aligned,
    };
    let units = match parsed.text(K::Units) {
        Some(letter) => match Unit::from_suffix(letter) {
            Some(unit) => Units::In(unit),
            None => {
                let text = format!("sacct: fatal: Invalid option --units: {letter}");
                return Err(CommandError::message(text));
            }
        },
        None if parsed.has(K::Noconvert) => Units::Own,
        None => Units::default(),
    };
    Ok(Options {
        format: parsed.text(K::Format).map(str::to_owned),
        brief: parsed.has(K::Brief),
        long: parsed.has(K::Long),
        allocations_only: parsed.has(K::AllocationsOnly),
        no_header: parsed.has(K::Noheader),
        layout,
        units,
        ..Options::default()
    })
}

fn history(server: &mut Server, filter: &HistoryFilter) -> Result<Vec<JobRecord>, CommandError> {
    match server.ask(Call::History(filter.clone()))? {
        Answer::History(records) => Ok(records),
        other => Err(CommandError::unexpected(&other)),
    }
}

/// What the server is asked for, and the filters that are applied to its answer here.
#[derive(Debug)]
struct HistoryQuery {
    filter: HistoryFilter,
    jobs: Vec<NamedJob>,
    cpus: Option<RangeInclusive<u32>>,
    nodes: Option<RangeInclusive<u32>>,
    minutes: Option<RangeInclusive<u32>>,
    groups: Vec<String>,
    wckeys: Vec<String>,
    reasons: Vec<String>,
    constraints: Vec<String>,
    truncate: bool,
    /// `--whole-hetjob=no`: the leader does not stand for all components.
    components_apart: bool,
}

impl HistoryQuery {
    /// `me` looks up the user whose jobs are shown by default; `None` shows everybody's. It may ask a directory in the network, and
    /// is not called where jobs or users are named.
    fn new(
        parsed: &Parsed,
        now: Timestamp,
        tz: &TimeZone,
        me: impl FnOnce() -> Option<String>,
    ) -> Result<Self, CommandError> {
        let list = |key| value::list(&parsed.joined(key).unwrap_or_default());
        let jobs = parsed.joined(K::Jobs).unwrap_or_default();
        let jobs = job_names::parse_jobs(&jobs).map_err(|word| {
            CommandError::message(format!("sacct: fatal: Bad job/step specified: {word}"))
        })?;
        let states = parsed.joined(K::States);
        let states = states.map_or(Ok(Some(Vec::new())), |states| job_names::parse_states(&states));
        let states = states.map_err(|word| {
            CommandError::message(format!("sacct: fatal: unrecognized job state value '{word}'"))
        })?;
        let users = match parsed.joined(K::Users) {
            _ if parsed.has(K::AllUsers) => Vec::new(),
            Some(text) => job_names::parse_users(&text, query::user_name),
            None if jobs.is_empty() => me().into_iter().collect(),
            None => Vec::new(),
        };
        let (from, until) = window(parsed, now, tz)?;
        let nodes = match parsed.text(K::Nodelist) {
            Some(text) => hostlist::expand(text)
                .map_err(|error| CommandError::message(format!("sacct: error: {error}")))?,
            None => Vec::new(),
        };
        let filter = HistoryFilter {
            jobs: jobs.iter().map(|named| named.job.clone()).collect(),
            users,
            accounts: list(K::Account),
            partitions: list(K::Partition),
            names: list(K::Name),
            qos: list(K::Qos),
            nodes,
            states: states.unwrap_or_default(),
            from,
            until,
            duplicates: parsed.has(K::Duplicates),
            limit: None,
            ..HistoryFilter::default()
        };
        let jobs_are_empty = jobs.is_empty();
        Ok(Self {
            filter,
            jobs,
            cpus: parsed.text(K::Ncpus).map(|text| count_range(text, "ncpus")).transpose()?,
            nodes: parsed.text(K::Nnodes).map(|text| count_range(text, "nnodes")).transpose()?,
            minutes: minutes_range(parsed)?,
            groups: list(K::Groups),
            wckeys: list(K::Wckey),
            reasons: list(K::Reason),
            constraints: list(K::Constraint),
            components_apart: !jobs_are_empty && parsed.text(K::WholeHetjob) == Some("no"),
            truncate: parsed.has(K::Truncate),
        })
    }

    /// `--whole-hetjob`: naming one component selects all of its job.
    fn name_whole(&mut self, records: &[JobRecord]) {
        if self.jobs.is_empty() {
            return;
        }
        for first in records.iter().filter_map(|record| record.het).map(|of| of.first) {
            let job = JobRef::whole(first);
            if !self.filter.jobs.contains(&job) {
                self.filter.jobs.push(job.clone());
                self.jobs.push(NamedJob { job, step: None });
            }
        }
    }

    /// Applies the filters that the server does not.
    fn narrow(&self, mut records: Vec<JobRecord>) -> Vec<JobRecord> {
        records.retain(|record| self.admits(record));
        for record in &mut records {
            if self.jobs.iter().any(|named| named.step.is_some()) {
                record.steps = std::mem::take(&mut record.steps)
                    .into_iter()
                    .filter(|step| self.names_step(record.job, group_leader(record), step.id))
                    .collect();
            }
            if self.truncate {
                record.start = record.start.map(|t| self.filter.from.map_or(t, |from| t.max(from)));
                record.end = record.end.map(|t| self.filter.until.map_or(t, |until| t.min(until)));
            }
        }
        records
    }

    /// The jobs of which only steps were named.
    fn jobs_without_line(&self, records: &[JobRecord]) -> Vec<JobId> {
        let whole = |record: &&JobRecord| {
            self.jobs.iter().any(|named| {
                let id = named.job.id;
                named.step.is_none() && (id == record.job || Some(id) == group_leader(record))
            })
        };
        let named = records.iter().filter(|_| !self.jobs.is_empty());
        named.filter(|record| !whole(record)).map(|record| record.job).collect()
    }

    fn names_step(&self, job: JobId, array: Option<JobId>, step: StepId) -> bool {
        self.jobs.iter().any(|named| {
            (named.job.id == job || Some(named.job.id) == array)
                && named.step.is_none_or(|wanted| wanted == step)
        })
    }

    fn admits(&self, record: &JobRecord) -> bool {
        let is_named = |named: &NamedJob| named.job.id == record.job;
        if self.components_apart && record.het.is_some() && !self.jobs.iter().any(is_named) {
            return false;
        }
        let within = |range: &Option<RangeInclusive<u32>>, amount: u32| {
            range.as_ref().is_none_or(|range| range.contains(&amount))
        };
        let among = |list: &[String], text: &str| {
            list.is_empty() || list.iter().any(|wanted| wanted.eq_ignore_ascii_case(text))
        };
        let minutes = record.time_limit.minutes().unwrap_or(u32::MAX);
        within(&self.cpus, record.cpus)
            && within(&self.nodes, record.node_count)
            && within(&self.minutes, minutes)
            && (among(&self.groups, &record.group) || among(&self.groups, &record.gid.to_string()))
            && among(&self.wckeys, record.wckey.as_deref().unwrap_or_default())
            && among(&self.reasons, &::slurm::words::reason::text(&record.reason))
            && among(&self.constraints, record.constraint.as_deref().unwrap_or_default())
    }
}

/// The id that selects this job together with others: its array job, or the leader of its het job.
fn group_leader(record: &JobRecord) -> Option<JobId> {
    record.array_job.or(record.het.map(|of| of.first))
}

/// The period that jobs must overlap. The defaults are those of sacct(1): with `-j` all time, with `-s` this moment, with
/// neither the time since midnight.
fn window(
    parsed: &Parsed,
    now: Timestamp,
    tz: &TimeZone,
) -> Result<(Option<Timestamp>, Option<Timestamp>), CommandError> {
    let read = |key, option: &'static str| {
        let wrong = |text: &str| OptionError::Time { option, value: text.to_owned() };
        let time = |text| parse_past_time_spec(text, now, tz).map_err(|_| wrong(text));
        parsed.text(key).map(time).transpose()
    };
    let from = read(K::StartTime, "starttime")?;
    let until = read(K::EndTime, "endtime")?;
    let by_job = parsed.has(K::Jobs);
    let by_state = parsed.has(K::States);
    let midnight = || parse_past_time_spec("midnight", now, tz).ok();
    let default_from = match (by_job, by_state) {
        (true, _) => None,
        (false, true) => Some(now),
        (false, false) => midnight(),
    };
    // With states, a start without an end is a moment: jobs that were in the state then.
    let default_until = if by_state { from.unwrap_or(now) } else { now };
    Ok((from.or(default_from), Some(until.unwrap_or(default_until))))
}

/// `4`, or `2-8`.
fn count_range(text: &str, option: &'static str) -> Result<RangeInclusive<u32>, OptionError> {
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    match (min.trim().parse(), max.trim().parse()) {
        (Ok(min), Ok(max)) if min <= max => Ok(min..=max),
        _ => Err(OptionError::Specification(option)),
    }
}

/// `-k` alone is an exact limit; with `-K` it is the lower end of a range.
fn minutes_range(parsed: &Parsed) -> Result<Option<RangeInclusive<u32>>, OptionError> {
    let read = |key, option| {
        let limit = |text| parse_time_limit(text).map_err(|_| OptionError::Specification(option));
        let minutes = |limit: TimeLimit| limit.minutes().unwrap_or(u32::MAX);
        parsed.text(key).map(|text| limit(text).map(minutes)).transpose()
    };
    let min = read(K::TimelimitMin, "timelimit-min")?;
    match (min, read(K::TimelimitMax, "timelimit-max")?) {
        (Some(min), Some(max)) if min <= max => Ok(Some(min..=max)),
        (Some(min), None) => Ok(Some(min..=min)),
        (None, None) => Ok(None),
        _ => Err(OptionError::Failure(vec![
            "timelimit-max needs a smaller timelimit-min".to_owned(),
        ])),
    }
}

#[cfg(test)]
mod tests;
