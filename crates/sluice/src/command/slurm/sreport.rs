//! `sreport`: what was used in a period, from the books.

use super::query::{self, CommandError, Server};
use ::slurm::option::{Command, OptionKey as K, Parsed, value};
use ::slurm::output::sreport::report::Report;
use ::slurm::output::sreport::time_format::TimeFormat;
use ::slurm::output::sreport::{self as output, Options};
use ::slurm::output::table::field_table::Layout;
use jiff::tz::TimeZone;
use model::change::JobRef;
use model::hostlist;
use model::time::Timestamp;
use model::time_spec::{parse_past_time_spec, start_of_yesterday};
use model::tres::TresKind;
use nix::unistd::User;
use std::collections::BTreeMap;
use std::process::ExitCode;
use wire::client::{Answer, Call, HistoryFilter, UsageQuery, UsageReport};
use wire::view::AccountsView;

const REQUEST: &str = "sreport: error: slurmdb_report";

pub fn run(args: &[String]) -> ExitCode {
    query::finish(Command::Sreport, print(args))
}

fn print(args: &[String]) -> Result<ExitCode, CommandError> {
    let Some(parsed) = query::options(Command::Sreport, args)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let tz = timezone::local();
    let question = Question::read(&parsed, ::server::clock::now(), &tz)?;
    let mut server = Server::find(REQUEST)?;
    let accounts = match server.ask(Call::Accounts)? {
        Answer::Accounts(view) => view,
        other => return Err(CommandError::unexpected(&other)),
    };
    let usage = match server.ask(Call::UsageReport(Box::new(question.call(&accounts))))? {
        Answer::UsageReport(usage) => usage,
        other => return Err(CommandError::unexpected(&other)),
    };
    if question.needs_cluster() && usage.whole.is_none() {
        let text = "sreport: error: what the nodes did is private here (PrivateData=nodes)";
        return Err(CommandError::message(text));
    }
    let mut options = question.options;
    if question.every_tres {
        options.tres = every_tres(&usage);
    }
    let answer = output::Answer {
        from: question.from,
        usage: &usage,
        accounts: &accounts,
        proper_names: &proper_names(&usage),
    };
    let text = output::render(question.report, &answer, &options, &tz)
        .map_err(|error| CommandError::message(format!("sreport: error: {error}")))?;
    query::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The kinds that anything was counted of.
fn every_tres(usage: &UsageReport) -> Vec<TresKind> {
    let whole = usage.whole.iter().flat_map(|whole| whole.reported.tres_s.keys());
    let used = usage.rows.iter().flat_map(|row| row.used.tres_s.keys());
    let mut kinds: Vec<TresKind> = whole.chain(used).cloned().collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

/// The full names that this machine has for users.
fn proper_names(usage: &UsageReport) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for row in &usage.rows {
        names.entry(row.user.clone()).or_insert_with(|| {
            let user = User::from_name(&row.user).ok().flatten();
            let gecos = user.map(|user| user.gecos.to_string_lossy().into_owned());
            gecos.and_then(|text| text.split(',').next().map(str::to_owned)).unwrap_or_default()
        });
    }
    names
}

/// A report as it was asked for.
#[derive(Debug)]
struct Question {
    report: Report,
    from: Timestamp,
    until: Timestamp,
    filter: HistoryFilter,
    options: Options,
    /// `-T ALL`
    every_tres: bool,
}

impl Question {
    fn read(parsed: &Parsed, now: Timestamp, tz: &TimeZone) -> Result<Self, CommandError> {
        let [kind, name, conditions @ ..] = &parsed.rest[..] else {
            let text = "sreport: error: no report given, as in: sreport cluster utilization start=2026-01-01";
            return Err(CommandError::message(text));
        };
        let report = Report::parse(kind, name)
            .map_err(|error| CommandError::message(format!("sreport: error: {error}")))?;
        let mut question = Self {
            report,
            from: Timestamp(0),
            until: Timestamp(0),
            filter: HistoryFilter::default(),
            options: output_options(parsed)?,
            every_tres: parsed.text(K::Tres).is_some_and(|text| text.eq_ignore_ascii_case("all")),
        };
        let (mut start, mut end) = (None, None);
        for condition in conditions {
            question.condition(condition, &mut start, &mut end)?;
        }
        (question.from, question.until) = period(start, end, now, tz)?;
        Ok(question)
    }

    /// One `Key=value`, or a word alone.
    fn condition<'a>(
        &mut self,
        word: &'a str,
        start: &mut Option<&'a str>,
        end: &mut Option<&'a str>,
    ) -> Result<(), CommandError> {
        let unknown =
            || CommandError::message(format!("sreport: error: Unknown condition: {word}"));
        let (key, text) = match word.split_once('=') {
            Some((key, text)) => (key.to_ascii_lowercase(), Some(text.trim_matches(['"', '\'']))),
            None => (word.to_ascii_lowercase(), None),
        };
        // Keys may be cut, as in Slurm.
        let is = |name: &str| key.len() > 1 && name.starts_with(&key);
        let list = || value::list(text.unwrap_or_default());
        let options = &mut self.options;
        match text {
            None if is("all_clusters") => {}
            None if is("tree") => options.tree = true,
            None if is("group") => options.group = true,
            None if is("flatview") => options.flat = true,
            None if is("acctasparent") => options.as_parents = true,
            None if is("printjobcount") => options.count_jobs = true,
            Some(text) if is("start") => *start = Some(text),
            Some(text) if is("end") => *end = Some(text),
            Some(text) if is("format") => options.format = Some(text.to_owned()),
            Some(_) if is("accounts") => options.accounts = list(),
            Some(_) if is("users") => self.filter.users = list(),
            Some(_) if is("partitions") => self.filter.partitions = list(),
            Some(_) if is("clusters") => {}
            Some(text) if is("nodes") => {
                let nodes = hostlist::expand(text);
                self.filter.nodes = nodes
                    .map_err(|error| CommandError::message(format!("sreport: error: {error}")))?;
            }
            Some(text) if is("jobs") => {
                let jobs = super::query::job_names::parse_jobs(text).map_err(|word| {
                    CommandError::message(format!("sreport: error: Bad job specified: {word}"))
                })?;
                self.filter.jobs = jobs.into_iter().map(|named| named.job).collect::<Vec<JobRef>>();
            }
            Some(text) if is("topcount") => {
                options.top =
                    Some(text.parse().ok().filter(|count| *count > 0).ok_or_else(|| {
                        CommandError::message(format!(
                            "sreport: error: Invalid TopCount={text}: expected a number above 0"
                        ))
                    })?);
            }
            Some(text) if is("grouping") => self.read_grouping(text)?,
            _ => return Err(unknown()),
        }
        Ok(())
    }

    fn read_grouping(&mut self, text: &str) -> Result<(), CommandError> {
        if text.eq_ignore_ascii_case("individual") {
            self.options.individual = true;
            return Ok(());
        }
        let numbers: Option<Vec<u32>> =
            text.split(',').map(|number| number.trim().parse().ok().filter(|n| *n > 0)).collect();
        let numbers = numbers.filter(|numbers| numbers.len() <= GROUPS_MAX).ok_or_else(|| {
            CommandError::message(format!(
                "sreport: error: Invalid Grouping={text}: expected individual, or up to {GROUPS_MAX} numbers as in 50,100,150"
            ))
        })?;
        self.options.grouping = numbers;
        Ok(())
    }

    fn needs_cluster(&self) -> bool {
        self.report == Report::ClusterUtilization || self.options.time_format.has_percent()
    }

    /// What the server is asked. An account stands for all below it.
    fn call(&self, accounts: &AccountsView) -> UsageQuery {
        let named = |name: &String| self.options.accounts.contains(name);
        let mut wanted = self.options.accounts.clone();
        for account in &accounts.accounts {
            let mut above = account.parent.as_ref();
            for _ in 0..accounts.accounts.len() {
                let Some(parent) = above else { break };
                if named(parent) && !wanted.contains(&account.name) {
                    wanted.push(account.name.clone());
                }
                let known = accounts.accounts.iter().find(|known| known.name == *parent);
                above = known.and_then(|known| known.parent.as_ref());
            }
        }
        let (from, until) = (Some(self.from), Some(self.until));
        UsageQuery {
            filter: HistoryFilter { accounts: wanted, from, until, ..self.filter.clone() },
            by_size: self.report.is_by_size(),
            cluster: self.needs_cluster() || self.every_tres,
        }
    }
}

/// The groups of sizes that one report may have.
const GROUPS_MAX: usize = 100;

fn output_options(parsed: &Parsed) -> Result<Options, CommandError> {
    let separator = Layout::SEPARATOR.to_owned();
    let kind = parsed.values.iter().rev().find(|s| matches!(s.key, K::Parsable | K::Parsable2));
    let time_format = parsed.text(K::TimeFormat).map_or(Ok(TimeFormat::default()), |text| {
        TimeFormat::parse(text).ok_or_else(|| {
            CommandError::message(format!(
                "sreport: error: Invalid time format -t {text}: expected Second, Minute, Hour, Percent, SecPer, MinPer or HourPer"
            ))
        })
    })?;
    let tres = match parsed.text(K::Tres) {
        Some(text) if !text.eq_ignore_ascii_case("all") => {
            let kinds: Result<Vec<TresKind>, _> =
                value::list(text).iter().map(|name| name.parse()).collect();
            kinds.map_err(|error| CommandError::message(format!("sreport: error: {error}")))?
        }
        _ => Vec::new(),
    };
    Ok(Options {
        no_header: parsed.has(K::Noheader),
        layout: match kind.map(|setting| setting.key) {
            Some(K::Parsable) => Layout::Ended(separator),
            Some(_) => Layout::Separated(separator),
            None => Layout::Aligned,
        },
        time_format,
        tres,
        ..Options::default()
    })
}

/// Yesterday, where neither is given; a start of today without an end is until now.
fn period(
    start: Option<&str>,
    end: Option<&str>,
    now: Timestamp,
    tz: &TimeZone,
) -> Result<(Timestamp, Timestamp), CommandError> {
    let read = |text: &str| {
        parse_past_time_spec(text, now, tz).map_err(|_| {
            CommandError::message(format!(
                "sreport: error: Invalid time specification {text}: expected a form such as 2026-01-31 or now-7days"
            ))
        })
    };
    let midnight = read("midnight")?;
    let from = match start {
        Some(text) => read(text)?,
        None => start_of_yesterday(now, tz).unwrap_or(midnight),
    };
    let until = match end {
        Some(text) => read(text)?,
        None if from >= midnight => now,
        None => midnight,
    };
    if from >= until {
        let text = "sreport: error: the period ends before it begins: give start= and end=";
        return Err(CommandError::message(text));
    }
    Ok((from, until))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_767_268_800_000; // 2026-01-01T12:00:00Z

    fn question(words: &str) -> Result<Question, String> {
        let args: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let parsed = ::slurm::option::parse::parse(Command::Sreport, &args).expect("options");
        Question::read(&parsed, Timestamp(NOON), &TimeZone::UTC).map_err(|e| e.to_string())
    }

    #[test]
    fn period_is_yesterday_unless_it_is_given() {
        let day = 86_400_000;
        let midnight = NOON - day / 2;
        for (words, from, until) in [
            ("cluster utilization", midnight - day, midnight),
            ("cluster utilization start=2025-12-01", midnight - 31 * day, midnight),
            ("cluster utilization start=midnight", midnight, NOON),
            ("user top start=now-2hours end=now-1hours", NOON - 7_200_000, NOON - 3_600_000),
        ] {
            let asked = question(words).expect(words);
            assert_eq!((asked.from, asked.until), (Timestamp(from), Timestamp(until)), "{words}");
        }
    }

    #[test]
    fn conditions_are_read_and_wrong_ones_named() {
        let asked = question("-t hourper -T cpu,mem job sizesbyaccount Users=ann,bob Grouping=2,8 PrintJobCount acc=lab")
            .expect("a report");
        assert_eq!(asked.filter.users, ["ann", "bob"]);
        assert_eq!((asked.options.grouping, asked.options.count_jobs), (vec![2, 8], true));
        assert_eq!(asked.options.accounts, ["lab"]);
        assert_eq!(asked.options.tres, [TresKind::Cpu, TresKind::Mem]);
        assert_eq!(asked.options.time_format, TimeFormat::HoursAndPercent);
        for words in [
            "",
            "cluster",
            "cluster nothing",
            "user top colour=red",
            "user top topcount=0",
            "job sizes grouping=a",
            "user top start=someday",
            "user top start=now end=now-1days",
            "-t days user top",
            "-T bananas user top",
        ] {
            assert!(question(words).is_err(), "{words}");
        }
    }
}
