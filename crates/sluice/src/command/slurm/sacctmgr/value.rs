//! How the values of `sacctmgr` are put into a thing: counts, limits, lists.

use super::line::{Operator, Term};
use ::slurm::option::value;
use model::time::{TimeLimit, parse_time_limit};
use model::tres::{Tres, parse_limits};

/// Takes a limit away.
const NONE: &str = "-1";

/// What would have been right.
pub type Expected = String;

/// A whole number; `-1` for none.
pub fn count(term: &Term) -> Result<Option<u32>, Expected> {
    match term.value.as_str() {
        NONE | "" => Ok(None),
        text => number(text).map(Some),
    }
}

pub fn number(text: &str) -> Result<u32, Expected> {
    text.parse().map_err(|_| "expected a whole number, or -1 for none".to_owned())
}

/// A time limit; `-1` for none.
pub fn wall(term: &Term) -> Result<Option<TimeLimit>, Expected> {
    match term.value.as_str() {
        NONE | "" => Ok(None),
        text => parse_time_limit(text).map(Some).map_err(|error| error.to_string()),
    }
}

/// `cpu=4,gres/gpu=-1`: sets and takes away single limits; the others stay.
pub fn tres(limits: &mut Tres, term: &Term) -> Result<(), Expected> {
    if matches!(term.value.as_str(), NONE | "") {
        *limits = Tres::new();
        return Ok(());
    }
    for (kind, amount) in parse_limits(&term.value).map_err(|error| error.to_string())? {
        match amount {
            Some(amount) => limits.set(kind, amount),
            None => {
                limits.remove(&kind);
            }
        }
    }
    Ok(())
}

/// A list of names, replaced, added to or taken from; without doubles, in the order of the alphabet.
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
    fn limits_are_set_one_by_one_and_taken_away() {
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
    fn lists_grow_and_shrink() {
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
