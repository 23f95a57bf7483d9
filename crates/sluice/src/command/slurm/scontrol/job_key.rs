//! The keys of `scontrol update JobId=…`: each with the grammar of its value.

use super::pair::{Pair, invalid, unsupported};
use super::{TimeContext, lookup};
use crate::command::slurm::query::CommandError;
use ::slurm::option::value;
use model::amount::Bytes;
use model::change::JobField;
use model::constraint::Constraint;
use model::dependency::Dependency;
use model::hostlist;
use model::range::{Range, parse_node_count};
use model::reason::Refusal;
use model::request::{DeviceMake, GresRequest, Per, Sharing, Switches};
use model::time::{TimeLimit, Timestamp, parse_time_limit};
use model::time_spec::parse_time_spec;

/// One change to a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    Field(JobField),
    /// `TimeLimit=+10`: relative to the current limit.
    AddMinutes(i64),
    /// A key of Slurm that is not supported.
    Refused(Refusal),
}

/// Reads a value; the error says what was expected.
type Grammar = fn(&str, TimeContext<'_>) -> Result<Update, String>;

/// The value of `Nice` without a number, as of `--nice`.
const NICE_DEFAULT: i32 = 100;

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const KEYS: &[(&str, Grammar)] = &[
    ("Account",           |v, _| text(v, JobField::Account)),
    ("AdminComment",      |v, _| text(v, JobField::AdminComment)),
    ("ArrayTaskThrottle", |v, _| number(v).map(|n: u32| JobField::ArrayThrottle((n > 0).then_some(n))).map(Update::Field)),
    ("BurstBuffer",       |_, _| refused("a burst buffer")),
    ("ClusterFeatures",   |_, _| refused("a federation")),
    ("Clusters",          |_, _| refused("a federation")),
    ("Comment",           |v, _| text(v, JobField::Comment)),
    ("Contiguous",        |v, _| flag(v).map(JobField::Contiguous).map(Update::Field)),
    ("CoreSpec",          |_, _| Ok(Update::Refused(Refusal::OperatorsOnly))),
    ("CPUsPerTask",       |v, _| positive(v).map(JobField::CpusPerTask).map(Update::Field)),
    ("Deadline",          |v, s| when(v, s).map(JobField::Deadline).map(Update::Field)),
    ("DelayBoot",         |v, _| without_effect("DelayBoot", v)),
    ("Dependency",        |v, _| dependency(v)),
    ("EligibleTime",      |v, s| when(v, s).map(JobField::Begin).map(Update::Field)),
    ("EndTime",           |v, s| when(v, s).map(JobField::EndTime).map(Update::Field)),
    ("ExcNodeList",       |v, _| hosts(v).map(JobField::Exclude).map(Update::Field)),
    ("Features",          |v, _| constraint(v).map(JobField::Features).map(Update::Field)),
    ("Gres",              |v, _| gres_per(v, Per::Node)),
    ("JobName",           |v, _| text(v, JobField::Name)),
    ("Licenses",          |v, _| licenses(v)),
    ("MailType",          |v, _| mail_types(v)),
    ("MailUser",          |v, _| text(v, JobField::MailUser)),
    ("MinCPUsNode",       |v, _| positive(v).map(JobField::CpusPerNode).map(Update::Field)),
    ("MinMemoryCPU",      |v, _| size(v).map(JobField::MemoryPerCpu).map(Update::Field)),
    ("MinMemoryNode",     |v, _| size(v).map(JobField::MemoryPerNode).map(Update::Field)),
    ("MinTmpDiskNode",    |v, _| size(v).map(JobField::Disk).map(Update::Field)),
    ("Name",              |v, _| text(v, JobField::Name)),
    ("Nice",              |v, _| nice(v)),
    ("NodeList",          |v, _| hosts(v).map(JobField::NodeList).map(Update::Field)),
    ("NumCPUs",           |v, _| cpus(v)),
    ("NumNodes",          |v, _| nodes(v)),
    ("NumTasks",          |v, _| number(v).map(JobField::Tasks).map(Update::Field)),
    ("OverSubscribe",     |v, _| shared(v)),
    ("Partition",         |v, _| Ok(Update::Field(JobField::Partition(value::list(v))))),
    ("Prefer",            |v, _| constraint(v).map(JobField::Prefer).map(Update::Field)),
    ("Priority",          |v, _| number(v).map(JobField::Priority).map(Update::Field)),
    ("QOS",               |v, _| text(v, JobField::Qos)),
    ("Reboot",            |v, _| if flag(v)? { refused("a reboot for a job") } else { without_effect("Reboot", v) }),
    ("ReqCores",          |v, _| positive(v).map(JobField::CoresPerSocket).map(Update::Field)),
    ("ReqNodeList",       |v, _| hosts(v).map(JobField::NodeList).map(Update::Field)),
    ("ReqNodes",          |v, _| nodes(v)),
    ("ReqProcs",          |v, _| number(v).map(JobField::Tasks).map(Update::Field)),
    ("ReqSockets",        |v, _| positive(v).map(JobField::SocketsPerNode).map(Update::Field)),
    ("ReqThreads",        |v, _| positive(v).map(JobField::ThreadsPerCore).map(Update::Field)),
    ("Requeue",           |v, _| flag(v).map(JobField::Requeue).map(Update::Field)),
    ("ReservationName",   |v, _| Ok(Update::Field(JobField::Reservation((!v.is_empty()).then(|| v.to_owned()))))),
    ("ResetAccrueTime",   |_, _| Ok(Update::Field(JobField::ResetAccrueTime))),
    ("Shared",            |v, _| shared(v)),
    ("SiteFactor",        |v, _| number(v).map(JobField::SiteFactor).map(Update::Field)),
    ("StartTime",         |v, s| when(v, s).map(JobField::Begin).map(Update::Field)),
    ("StdErr",            |v, _| text(v, JobField::Stderr)),
    ("StdIn",             |v, _| text(v, JobField::Stdin)),
    ("StdOut",            |v, _| text(v, JobField::Stdout)),
    ("Switches",          |v, _| switches(v)),
    ("TasksPerNode",      |v, _| positive(v).map(JobField::TasksPerNode).map(Update::Field)),
    ("ThreadSpec",        |_, _| Ok(Update::Refused(Refusal::OperatorsOnly))),
    ("TimeLimit",         |v, _| time_limit(v)),
    ("TimeMin",           |v, _| parse_time_limit(v).map(JobField::TimeMin).map(Update::Field).map_err(|e| e.to_string())),
    ("TresPerJob",        |v, _| gres_per(v, Per::Job)),
    ("TresPerNode",       |v, _| gres_per(v, Per::Node)),
    ("TresPerSocket",     |v, _| gres_per(v, Per::Socket)),
    ("TresPerTask",       |v, _| gres_per(v, Per::Task)),
    ("wait-for-switch",   |v, _| number(v).map(JobField::SwitchWait).map(Update::Field)),
    ("WCKey",             |v, _| text(v, JobField::Wckey)),
    ("WorkDir",           |v, _| text(v, JobField::WorkDir)),
];

/// The change that a pair asks for. A key may be abbreviated if no other key begins the same.
pub fn parse(pair: &Pair, context: TimeContext<'_>) -> Result<Update, CommandError> {
    let rows = KEYS.iter().map(|(name, _)| (*name, *name)).collect::<Vec<_>>();
    let found = lookup(&rows, &pair.key).map(|(name, _)| *name);
    let row = KEYS.iter().find(|(name, _)| Some(*name) == found);
    let (_, grammar) = row.ok_or_else(|| unsupported(pair))?;
    grammar(&pair.value, context).map_err(|expected| invalid(pair, expected))
}

fn text(value: &str, field: fn(String) -> JobField) -> Result<Update, String> {
    Ok(Update::Field(field(value.to_owned())))
}

fn number<T: std::str::FromStr>(value: &str) -> Result<T, String> {
    value.trim().parse().map_err(|_| "expected a whole number".to_owned())
}

fn positive(value: &str) -> Result<u32, String> {
    let number: u32 = number(value)?;
    if number == 0 { Err("expected at least 1".to_owned()) } else { Ok(number) }
}

fn flag(value: &str) -> Result<bool, String> {
    match value {
        "1" => Ok(true),
        "0" => Ok(false),
        word if word.eq_ignore_ascii_case("yes") => Ok(true),
        word if word.eq_ignore_ascii_case("no") => Ok(false),
        _ => Err("expected 0 or 1".to_owned()),
    }
}

/// Accepted without effect: nodes are never booted for a job.
fn without_effect(key: &str, value: &str) -> Result<Update, String> {
    Ok(Update::Field(JobField::WithoutEffect(format!("{key}={value}"))))
}

/// `YES` or `NO`: whether other jobs may use the same cores.
fn shared(value: &str) -> Result<Update, String> {
    let sharing = if flag(value).map_err(|_| "expected YES or NO".to_owned())? {
        Sharing::Oversubscribe
    } else {
        Sharing::Node
    };
    Ok(Update::Field(JobField::Sharing(sharing)))
}

/// `2` or `2-4`, of which the lower number is used.
fn cpus(value: &str) -> Result<Update, String> {
    positive(value.split('-').next().unwrap_or(value)).map(JobField::Cpus).map(Update::Field)
}

/// `BEGIN,END`
fn mail_types(text: &str) -> Result<Update, String> {
    let types = value::mail_types(text).map_err(|error| error.to_string())?;
    Ok(Update::Field(JobField::MailTypes(types)))
}

/// `matlab:2,abaqus`
fn licenses(text: &str) -> Result<Update, String> {
    let one = |word: String| -> Result<(String, u32), String> {
        match word.split_once([':', '*']) {
            Some((name, count)) => Ok((name.to_owned(), positive(count)?)),
            None => Ok((word, 1)),
        }
    };
    let licenses: Result<Vec<_>, String> = value::list(text).into_iter().map(one).collect();
    licenses.map(JobField::Licenses).map(Update::Field)
}

/// `2@10:00`; zero removes the request.
fn switches(text: &str) -> Result<Update, String> {
    let (count, wait) = match text.split_once('@') {
        Some((count, wait)) => (count, Some(parse_time_limit(wait).map_err(|e| e.to_string())?)),
        None => (text, None),
    };
    let count: u32 = number(count)?;
    let wait_s = wait.and_then(TimeLimit::secs).map(|s| s.min(u64::from(u32::MAX)) as u32);
    let switches = (count > 0).then_some(Switches { count, wait_s });
    Ok(Update::Field(JobField::Switches(switches)))
}

/// An empty list removes the request.
fn hosts(value: &str) -> Result<Vec<String>, String> {
    if value.is_empty() {
        return Ok(Vec::new());
    }
    hostlist::expand(value).map_err(|error| error.to_string())
}

fn when(value: &str, context: TimeContext<'_>) -> Result<Timestamp, String> {
    parse_time_spec(value, context.now, context.tz).map_err(|error| error.to_string())
}

fn size(value: &str) -> Result<Bytes, String> {
    Bytes::parse_slurm(value).map_err(|error| error.to_string())
}

fn nice(value: &str) -> Result<Update, String> {
    let nice = if value.is_empty() { NICE_DEFAULT } else { number(value)? };
    Ok(Update::Field(JobField::Nice(nice)))
}

fn nodes(value: &str) -> Result<Update, String> {
    let count: Range<u32> = parse_node_count(value).map_err(|error| error.to_string())?;
    Ok(Update::Field(JobField::Nodes(count)))
}

fn dependency(value: &str) -> Result<Update, String> {
    let parsed = (!value.is_empty()).then(|| Dependency::parse(value)).transpose();
    parsed.map(JobField::Dependency).map(Update::Field).map_err(|error| error.to_string())
}

fn constraint(value: &str) -> Result<Option<Constraint>, String> {
    let parsed = (!value.is_empty()).then(|| Constraint::parse(value)).transpose();
    parsed.map_err(|error| error.to_string())
}

fn refused(what: &str) -> Result<Update, String> {
    Ok(Update::Refused(Refusal::NotSupported(what.to_owned())))
}

/// Counts as in `--gres`; an empty text removes the request.
fn gres_per(value: &str, per: Per) -> Result<Update, String> {
    if value.is_empty() {
        return Ok(Update::Field(JobField::Gres(Vec::new())));
    }
    let counts = value::gres(value).map_err(|error| error.to_string())?;
    let request = |gres: model::gres::GresCount| GresRequest {
        per,
        name: gres.name,
        kinds: gres.kind.into_iter().collect(),
        count: Range::exactly(gres.count),
        by_model: false,
        make: DeviceMake::default(),
        device_memory: None,
        total_memory: None,
    };
    Ok(Update::Field(JobField::Gres(counts.into_iter().map(request).collect())))
}

fn time_limit(value: &str) -> Result<Update, String> {
    let limit = |text| parse_time_limit(text).map_err(|error| error.to_string());
    let (sign, rest) = match value.split_at_checked(1) {
        Some(("+", rest)) => (1, rest),
        Some(("-", rest)) => (-1, rest),
        _ => {
            let limit = limit(value)?.zero_is_unlimited();
            return Ok(Update::Field(JobField::TimeLimit(limit)));
        }
    };
    match limit(rest)? {
        TimeLimit::Minutes(minutes) => Ok(Update::AddMinutes(sign * i64::from(minutes))),
        TimeLimit::Unlimited => Err("expected a time after the sign".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;

    fn read(key: &str, value: &str) -> Result<Update, CommandError> {
        let typed = format!("{key}={value}");
        let pair = Pair { key: key.to_owned(), value: value.to_owned(), typed };
        parse(&pair, TimeContext { now: Timestamp::from_secs(1_000), tz: &TimeZone::UTC })
    }

    #[test]
    fn job_keys_are_parsed() {
        let gpu = GresRequest {
            per: Per::Node,
            name: "gpu".into(),
            kinds: vec!["h100".into()],
            count: Range::exactly(2),
            by_model: false,
            make: DeviceMake::default(),
            device_memory: None,
            total_memory: None,
        };
        let hosts = vec!["n1".to_owned(), "n2".to_owned()];
        let table = [
            ("timelimit", "2-0", JobField::TimeLimit(TimeLimit::Minutes(2_880))),
            ("TimeLimit", "0", JobField::TimeLimit(TimeLimit::Unlimited)),
            ("TIMEL", "10", JobField::TimeLimit(TimeLimit::Minutes(10))),
            ("arraytaskthrottle", "1", JobField::ArrayThrottle(Some(1))),
            ("ArrayTaskThrottle", "0", JobField::ArrayThrottle(None)),
            ("JobName", "new name", JobField::Name("new name".into())),
            ("Partition", "a,b", JobField::Partition(vec!["a".into(), "b".into()])),
            ("Nice", "", JobField::Nice(100)),
            ("Nice", "-5", JobField::Nice(-5)),
            ("SiteFactor", "-7", JobField::SiteFactor(-7)),
            ("Priority", "0", JobField::Priority(0)),
            ("Gres", "gpu:h100:2", JobField::Gres(vec![gpu])),
            ("ReqNodeList", "n[1-2]", JobField::NodeList(hosts)),
            ("ExcNodeList", "", JobField::Exclude(Vec::new())),
            ("NumNodes", "2-4", JobField::Nodes(Range::between(2, 4))),
            ("MinMemoryNode", "4G", JobField::MemoryPerNode(Bytes::from_gib(4))),
            ("Requeue", "0", JobField::Requeue(false)),
            ("Partition", "", JobField::Partition(Vec::new())),
            ("Licenses", "a:2,b", JobField::Licenses(vec![("a".into(), 2), ("b".into(), 1)])),
            ("Shared", "no", JobField::Sharing(Sharing::Node)),
            ("Switches", "2@5", JobField::Switches(Some(Switches { count: 2, wait_s: Some(300) }))),
            ("Switches", "0", JobField::Switches(None)),
            ("NumCPUs", "2-4", JobField::Cpus(2)),
            ("ResetAccrueTime", "", JobField::ResetAccrueTime),
            ("Dependency", "", JobField::Dependency(None)),
            ("StartTime", "now+10", JobField::Begin(Timestamp::from_secs(1_010))),
        ];
        for (key, value, field) in table {
            assert_eq!(read(key, value).expect(key), Update::Field(field), "{key}={value}");
        }
    }

    #[test]
    fn a_time_limit_may_be_relative() {
        assert_eq!(read("TimeLimit", "+1:00:00").expect("right"), Update::AddMinutes(60));
        assert_eq!(read("TimeLimit", "-5").expect("right"), Update::AddMinutes(-5));
    }

    #[test]
    fn bad_values_are_refused_with_what_was_expected() {
        let bad = [
            ("TimeLimit", "soon"),
            ("NumNodes", "0"),
            ("Nice", "x"),
            ("Gres", "gpu:x:y"),
            ("Requeue", "2"),
            ("Dependency", "afterok"),
            ("StartTime", "never"),
            ("OverSubscribe", "maybe"),
        ];
        for (key, value) in bad {
            let text = read(key, value).expect_err(key).to_string();
            let expected = format!("Invalid input: {key}={value}: ");
            assert!(text.starts_with(&expected) && text.ends_with("\nRequest aborted"), "{text}");
        }
        // Several keys begin with `Re`.
        assert!(
            read("Re", "1").expect_err("ambiguous").to_string().contains("not supported: Re=1")
        );
    }
}
