//! The keys of `scontrol create` and `update reservation`: each with the grammar of its value.

use super::{TimeContext, lookup};
use ::slurm::option::value;
use ::slurm::words::reservation as words;
use model::hostlist;
use model::reservation::ReservationFlag;
use model::reservation_request::{
    DurationEdit, EditMode, FlagsEdit, NamesEdit, NodesChoice, ReservationRequest,
};
use model::time::{TimeLimit, Timestamp, parse_time_limit};
use model::time_spec::parse_time_spec;
use model::tres::TresKind;

/// Why a word is invalid, in Slurm's words.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyError {
    /// A sentence, after which Slurm says what was not done.
    Sentence(String),
    /// A line, and then such a sentence.
    After(String, String),
    /// The whole message.
    Whole(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReservationKey {
    Name,
    Accounts,
    CoreCount,
    Duration,
    EndTime,
    Features,
    Flags,
    Groups,
    Licenses,
    MaxStartDelay,
    NodeCount,
    Nodes,
    Partition,
    Skip,
    StartTime,
    Tres,
    Users,
    /// Slurm has it, Sluice does not.
    Unsupported,
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const KEYS: &[(&str, ReservationKey)] = &[
    ("Accounts",        ReservationKey::Accounts),
    ("BurstBuffer",     ReservationKey::Unsupported),
    ("CoreCnt",         ReservationKey::CoreCount),
    ("Duration",        ReservationKey::Duration),
    ("EndTime",         ReservationKey::EndTime),
    ("Features",        ReservationKey::Features),
    ("Flags",           ReservationKey::Flags),
    ("Groups",          ReservationKey::Groups),
    ("Licenses",        ReservationKey::Licenses),
    ("MaxStartDelay",   ReservationKey::MaxStartDelay),
    ("NodeCnt",         ReservationKey::NodeCount),
    ("Nodes",           ReservationKey::Nodes),
    ("PartitionName",   ReservationKey::Partition),
    ("Reservation",     ReservationKey::Name),
    ("ReservationName", ReservationKey::Name),
    ("Skip",            ReservationKey::Skip),
    ("StartTime",       ReservationKey::StartTime),
    ("TRES",            ReservationKey::Tres),
    ("Users",           ReservationKey::Users),
    ("Watts",           ReservationKey::Unsupported),
];

/// Whether a word is the key that names a reservation.
pub fn names_one(word: &str) -> bool {
    let key = word.split_once('=').map_or(word, |(key, _)| key);
    key.len() >= "res".len()
        && lookup(KEYS, key).is_some_and(|(_, key)| *key == ReservationKey::Name)
}

/// Applies one word to the request.
pub fn read(
    ask: &mut ReservationRequest,
    word: &str,
    context: TimeContext<'_>,
) -> Result<(), KeyError> {
    let (key, text) = match word.split_once('=') {
        Some(pair) => pair,
        None if lookup(KEYS, word).is_some_and(|(_, key)| *key == ReservationKey::Skip) => {
            (word, "")
        }
        None => {
            return Err(sentence(format!(
                "Misformatted parameter '{word}', most options have a parameter after '='"
            )));
        }
    };
    let (bare, edit) = match (key.strip_suffix('+'), key.strip_suffix('-')) {
        (Some(bare), _) => (bare, EditMode::Add),
        (None, Some(bare)) => (bare, EditMode::Remove),
        (None, None) => (key, EditMode::Set),
    };
    let unknown = || sentence(format!("Unknown parameter {word}"));
    let (name, key) = lookup(KEYS, bare).ok_or_else(unknown)?;
    let names = || Some(NamesEdit { edit, names: value::list(text) });
    let edited = matches!(
        key,
        ReservationKey::Accounts
            | ReservationKey::Users
            | ReservationKey::Groups
            | ReservationKey::Flags
            | ReservationKey::Duration
    );
    if edit != EditMode::Set && !edited {
        return Err(unknown());
    }
    match key {
        ReservationKey::Name => ask.name = Some(text.to_owned()).filter(|name| !name.is_empty()),
        ReservationKey::Accounts => ask.accounts = names(),
        ReservationKey::Users => ask.users = names(),
        ReservationKey::Groups => ask.groups = names(),
        ReservationKey::Features => ask.features = Some(text.to_owned()),
        ReservationKey::Partition => ask.partition = Some(text.to_owned()),
        ReservationKey::Skip => ask.skip = true,
        ReservationKey::StartTime => ask.start = Some(when(word, text, "start", context)?),
        ReservationKey::EndTime => ask.end = Some(when(word, text, "end", context)?),
        ReservationKey::Duration => ask.duration = Some(duration(word, text, edit)?),
        ReservationKey::MaxStartDelay => {
            let delay = parse_time_limit(text).ok().and_then(TimeLimit::minutes);
            let delay = delay.ok_or_else(|| sentence(format!("Invalid duration {word}")))?;
            ask.max_start_delay_s = Some(delay.saturating_mul(60));
        }
        ReservationKey::NodeCount => {
            let wrong = || KeyError::Whole(format!("Invalid node count {text}"));
            ask.node_count = Some(count(text).ok_or_else(wrong)?);
        }
        ReservationKey::CoreCount => {
            let wrong = || KeyError::Whole(format!("Invalid core count {text}"));
            let counts = text.split(',').map(count).collect::<Option<Vec<u32>>>();
            ask.cores = Some(counts.ok_or_else(wrong)?);
        }
        ReservationKey::Nodes => ask.nodes = Some(nodes(text)?),
        ReservationKey::Licenses => ask.licenses = Some(licenses(text)?),
        ReservationKey::Flags => flags(ask, text, edit)?,
        ReservationKey::Tres => tres(ask, text)?,
        ReservationKey::Unsupported => {
            return Err(sentence(format!("{name} is not supported here: {word}")));
        }
    }
    Ok(())
}

fn sentence(text: String) -> KeyError {
    KeyError::Sentence(text)
}

fn when(
    word: &str,
    text: &str,
    which: &str,
    context: TimeContext<'_>,
) -> Result<Timestamp, KeyError> {
    parse_time_spec(text, context.now, context.tz).map_err(|_| {
        let line = format!("Invalid time specification (pos=0): {text}");
        KeyError::After(line, format!("Invalid {which} time {word}"))
    })
}

fn duration(word: &str, text: &str, edit: EditMode) -> Result<DurationEdit, KeyError> {
    let wrong = || sentence(format!("Invalid duration {word}"));
    let limit = parse_time_limit(text).map_err(|_| wrong())?;
    match (edit, limit) {
        (EditMode::Set, limit) => Ok(DurationEdit::Set(limit)),
        (EditMode::Add, TimeLimit::Minutes(minutes)) => Ok(DurationEdit::AddMin(minutes)),
        (EditMode::Remove, TimeLimit::Minutes(minutes)) => Ok(DurationEdit::SubtractMin(minutes)),
        (_, TimeLimit::Unlimited) => Err(wrong()),
    }
}

/// A number, with `k` for a thousand and twenty-four.
fn count(text: &str) -> Option<u32> {
    match text.trim().strip_suffix(['k', 'K']) {
        Some(thousands) => thousands.parse::<u32>().ok()?.checked_mul(1_024),
        None => text.trim().parse().ok(),
    }
}

fn nodes(text: &str) -> Result<NodesChoice, KeyError> {
    if text.eq_ignore_ascii_case("ALL") {
        return Ok(NodesChoice::All);
    }
    if text.is_empty() {
        return Ok(NodesChoice::Named(Vec::new()));
    }
    let names = hostlist::expand(text).map_err(|error| KeyError::Whole(error.to_string()))?;
    Ok(NodesChoice::Named(names))
}

fn licenses(text: &str) -> Result<Vec<(String, u32)>, KeyError> {
    let wrong = || KeyError::Whole(format!("Invalid license specification: {text}"));
    let read = value::licenses(text).map_err(|_| wrong())?;
    let pair = |one: ::slurm::option::job_options::LicenseCount| {
        u32::try_from(one.count).ok().map(|count| (one.name, count))
    };
    read.into_iter().map(pair).collect::<Option<_>>().ok_or_else(wrong)
}

fn flags(ask: &mut ReservationRequest, text: &str, edit: EditMode) -> Result<(), KeyError> {
    let sign = match edit {
        EditMode::Set => "",
        EditMode::Add => "+",
        EditMode::Remove => "-",
    };
    let wrong = || sentence(format!("Error parsing flags {sign}{text}"));
    let mut asked = FlagsEdit { edit, ..FlagsEdit::default() };
    for word in value::list(text) {
        let (name, given) = match word.split_once('=') {
            Some((name, given)) => (name, Some(given)),
            None => (word.as_str(), None),
        };
        let flag = words::flag(name).ok_or_else(wrong)?;
        if let Some(given) = given {
            let limit = parse_time_limit(given).ok().and_then(TimeLimit::minutes);
            let after = limit.filter(|_| flag == ReservationFlag::PurgeComp).ok_or_else(wrong)?;
            ask.purge_after_s = Some(after.saturating_mul(60));
        }
        asked.flags.insert(flag);
    }
    ask.flags = Some(asked);
    Ok(())
}

/// `cpu=5,node=2,license/matlab=1`. Further core counts, one for each node, follow `cpu=` after commas.
fn tres(ask: &mut ReservationRequest, text: &str) -> Result<(), KeyError> {
    let mut licenses = Vec::new();
    let mut of_cpus = false;
    for part in value::list(text) {
        let Some((name, amount)) = part.split_once('=') else {
            let more = count(&part).filter(|_| of_cpus);
            let more =
                more.ok_or_else(|| KeyError::Whole(format!("invalid TRES cpu value '{part}'")))?;
            ask.cores.get_or_insert_default().push(more);
            continue;
        };
        let unknown = || KeyError::Whole(format!("couldn't identify configured TRES '{name}'"));
        let kind: TresKind = name.parse().map_err(|_| unknown())?;
        let wrong = || KeyError::Whole(format!("invalid TRES {name} value '{amount}'"));
        let amount = count(amount).ok_or_else(wrong)?;
        of_cpus = kind == TresKind::Cpu;
        match kind {
            TresKind::Cpu => ask.cores = Some(vec![amount]),
            TresKind::Node => ask.node_count = Some(amount),
            TresKind::License(name) => licenses.push((name, amount)),
            TresKind::Gres { name, kind: None } => {
                ask.gres.get_or_insert_default().push((name, u64::from(amount)));
            }
            _ => {
                let text = format!("TRES type '{name}' not supported with reservations");
                return Err(KeyError::Whole(text));
            }
        }
    }
    if !licenses.is_empty() {
        ask.licenses = Some(licenses);
    }
    Ok(())
}

#[cfg(test)]
#[path = "reservation_key_tests.rs"]
mod tests;
