//! The values of `sacctmgr`'s keys: counts, limits, lists.

use super::command_line::{Operator, Term};
use crate::command::slurm::query::CommandError;
use ::slurm::option::value;
use model::account::{QosFlag, Shares};
use model::qos::Factor;
use model::time::{TimeLimit, parse_time_limit};
use model::tres::{Tres, TresKind, parse_limits};

/// The value that removes a limit.
const NONE: &str = "-1";

/// Why a value is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is not a number.
    Number,
    /// It is not a time.
    Time,
    /// A line of its own for standard error.
    Line(String),
    /// Lines for standard output.
    Listing(String),
}

impl Fault {
    /// The lines that Slurm prints about the value.
    pub fn lines(&self, term: &Term, name: &str) -> String {
        match self {
            Fault::Number => format!("sacctmgr: error: Invalid value for {name} ({})", term.value),
            Fault::Time => format!(" Bad {name} time format: {}", term.typed),
            Fault::Line(line) | Fault::Listing(line) => line.clone(),
        }
    }
}

/// A whole number; `-1` for none.
pub fn count(term: &Term) -> Result<Option<u32>, Fault> {
    match term.value.as_str() {
        NONE | "" => Ok(None),
        text => number(text).map(Some),
    }
}

pub fn number(text: &str) -> Result<u32, Fault> {
    text.parse().map_err(|_| Fault::Number)
}

/// A count of shares, or those of the parent; `-1` for one.
pub fn shares(term: &Term) -> Result<Shares, Fault> {
    if term.value.eq_ignore_ascii_case("parent") {
        return Ok(Shares::PARENT);
    }
    Ok(count(term)?.map_or(Shares::default(), Shares::Count))
}

/// A factor such as `0.5`; `-1` for none.
pub fn factor(term: &Term) -> Result<Option<Factor>, Fault> {
    match term.value.as_str() {
        NONE | "" => Ok(None),
        text => Factor::parse(text).map(Some).ok_or(Fault::Number),
    }
}

/// The limit of one resource that has a key of its own; `-1` removes it.
pub fn one_tres(limits: &mut Tres, kind: TresKind, term: &Term) -> Result<(), Fault> {
    match count(term)? {
        Some(amount) => limits.set(kind, u64::from(amount)),
        None => {
            limits.remove(&kind);
        }
    }
    Ok(())
}

fn unknown_flag(text: &str) -> Fault {
    Fault::Listing(format!(
        " Unknown QOS flag used in:\n  '{text}'\n Valid QOS flags are\n  '{}'\n",
        "DenyOnLimit,EnforceUsageThreshold,NoReserve,PartitionMaxNodes,PartitionMinNodes,\
         OverPartQOS,PartitionTimeLimit,RequiresReservation,NoDecay,UsageFactorSafe"
    ))
}

/// Replaces, adds or removes flags.
pub fn flags(flags: &mut Vec<QosFlag>, term: &Term) -> Result<(), Fault> {
    let parse = |word: &String| word.parse::<QosFlag>().map_err(|_| unknown_flag(&term.value));
    let given = match term.value.as_str() {
        NONE => Vec::new(),
        text => value::list(text).iter().map(parse).collect::<Result<Vec<_>, _>>()?,
    };
    match term.operator {
        Operator::Set => *flags = given,
        Operator::Add => flags.extend(given),
        Operator::Remove => flags.retain(|flag| !given.contains(flag)),
    }
    flags.sort_unstable();
    flags.dedup();
    Ok(())
}

/// Removes `RawUsage=0` from the terms; returns whether it was there. Other values are an error.
pub fn take_raw_usage(terms: &mut Vec<Term>) -> Result<bool, CommandError> {
    let Some(at) = terms.iter().position(|term| term.is(&["RawUsage"])) else { return Ok(false) };
    let term = terms.remove(at);
    if term.value != "0" {
        return Err(CommandError::message(format!(
            " Unknown option: {}\n RawUsage can be set to 0 and to nothing else",
            term.typed
        )));
    }
    Ok(true)
}

/// A time limit; `-1` for none.
pub fn wall(term: &Term) -> Result<Option<TimeLimit>, Fault> {
    match term.value.as_str() {
        NONE | "" => Ok(None),
        text => parse_time_limit(text).map(Some).map_err(|_| Fault::Time),
    }
}

/// A time in Slurm's grammar, in seconds; `-1` for none.
pub fn seconds(term: &Term) -> Result<Option<u32>, Fault> {
    let minutes = wall(term)?.and_then(TimeLimit::minutes);
    Ok(minutes.map(|minutes| minutes.saturating_mul(60)))
}

/// `cpu=4,gres/gpu=-1`: sets and removes single limits; the others stay.
pub fn tres(limits: &mut Tres, term: &Term) -> Result<(), Fault> {
    if matches!(term.value.as_str(), NONE | "") {
        *limits = Tres::new();
        return Ok(());
    }
    for (kind, amount) in parse_limits(&term.value).map_err(|_| tres_fault(&term.value))? {
        match amount {
            Some(amount) => limits.set(kind, amount),
            None => {
                limits.remove(&kind);
            }
        }
    }
    Ok(())
}

/// The error in a list of TRES, in Slurm's words where it has some.
fn tres_fault(text: &str) -> Fault {
    let said =
        |what: String| Fault::Line(format!("sacctmgr: error: slurmdb_format_tres_str: {what}"));
    for entry in text.split(',') {
        match entry.split_once('=') {
            None => return said(format!("no TRES id found for {entry}")),
            Some((name, _)) if name.parse::<TresKind>().is_err() => {
                return said(format!("no TRES known by type {name}"));
            }
            Some(_) => {}
        }
    }
    said(format!("the amounts of {text} cannot be read, or a TRES is there twice"))
}

/// Replaces, adds or removes names. The list stays sorted and without duplicates.
pub fn list(names: &mut Vec<String>, term: &Term) {
    let given = value::list(&term.value);
    match term.operator {
        Operator::Set if term.value == NONE => names.clear(),
        Operator::Set => *names = given,
        Operator::Add => names.extend(given),
        Operator::Remove => names.retain(|name| !given.contains(name)),
    }
    names.sort();
    names.dedup();
}

#[cfg(test)]
pub fn term(word: &str) -> Term {
    let (key, value) = word.split_once('=').expect("a pair");
    let (key, operator) = match (key.strip_suffix('+'), key.strip_suffix('-')) {
        (Some(key), _) => (key, Operator::Add),
        (_, Some(key)) => (key, Operator::Remove),
        _ => (key, Operator::Set),
    };
    Term { key: key.into(), operator, value: value.into(), typed: word.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_limits_are_set_and_removed() {
        let mut limits = Tres::new();
        let table = [
            ("X=cpu=4,gres/gpu=2", "cpu=4,gres/gpu=2"),
            ("X=gres/gpu=8", "cpu=4,gres/gpu=8"),
            ("X=cpu=-1", "gres/gpu=8"),
            ("X=-1", ""),
        ];
        for (word, left) in table {
            tres(&mut limits, &term(word)).expect(word);
            assert_eq!(limits.to_string(), left, "{word}");
        }
        assert!(tres(&mut limits, &term("X=4")).is_err());
        assert_eq!(count(&term("X=-1")), Ok(None));
        assert_eq!(count(&term("X=7")), Ok(Some(7)));
        assert!(count(&term("X=many")).is_err());
    }

    #[test]
    fn names_are_added_to_and_removed_from_lists() {
        let mut names = vec!["normal".to_owned()];
        let table = [
            ("Q+=low,high", "high,low,normal"),
            ("Q+=low", "high,low,normal"),
            ("Q-=normal,other", "high,low"),
            ("Q=a", "a"),
            ("Q=-1", ""),
        ];
        for (word, left) in table {
            list(&mut names, &term(word));
            assert_eq!(names.join(","), left, "{word}");
        }
    }
}
