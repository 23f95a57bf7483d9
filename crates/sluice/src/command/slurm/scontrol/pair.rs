//! `Key=Value` pairs of `scontrol update`.

use crate::command::slurm::query::CommandError;

/// `Key=Value` as it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    pub key: String,
    pub value: String,
    pub typed: String,
}

/// The words as pairs. A word without `=` is a key whose value is the next word (`update job 5 nice=3`), or empty.
pub fn pairs(words: &[String]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let pair = match word.split_once('=') {
            // `TimeLimit+=30`: the sign belongs to the value.
            Some((key, value)) => match key.strip_suffix(['+', '-']) {
                Some(bare) => {
                    let sign = &key[bare.len()..];
                    (bare.to_owned(), format!("{sign}{value}"), word.clone())
                }
                None => (key.to_owned(), value.to_owned(), word.clone()),
            },
            None => {
                let value = words.next_if(|next| !next.contains('=')).cloned().unwrap_or_default();
                (word.clone(), value, word.clone())
            }
        };
        pairs.push(Pair { key: pair.0, value: pair.1, typed: pair.2 });
    }
    pairs
}

pub fn unsupported(pair: &Pair) -> CommandError {
    CommandError::message(format!(
        "Update of this parameter is not supported: {}\nRequest aborted",
        pair.typed
    ))
}

pub fn invalid(pair: &Pair, expected: impl std::fmt::Display) -> CommandError {
    CommandError::message(format!("Invalid input: {}: {expected}\nRequest aborted", pair.typed))
}

/// Removes the first pair with one of these keys.
pub fn take(pairs: &mut Vec<Pair>, keys: &[&str]) -> Option<Pair> {
    let at = pairs.iter().position(|p| keys.iter().any(|key| p.key.eq_ignore_ascii_case(key)))?;
    Some(pairs.remove(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &[&str]) -> Vec<String> {
        text.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn pairs_may_be_written_with_or_without_an_equals_sign() {
        let pairs =
            pairs(&words(&["job", "5", "Nice", "TimeLimit=1-0", "TimeMin+=5", "Reason=bad gpu 3"]));
        let shown: Vec<_> = pairs.iter().map(|p| (p.key.as_str(), p.value.as_str())).collect();
        let expected = [
            ("job", "5"),
            ("Nice", ""),
            ("TimeLimit", "1-0"),
            ("TimeMin", "+5"),
            ("Reason", "bad gpu 3"),
        ];
        assert_eq!(shown, expected);
    }
}
