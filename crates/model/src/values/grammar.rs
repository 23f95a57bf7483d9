//! The one error of every grammar: which text was wrong, and what would have been right.

use thiserror::Error;

/// How much of a refused text is repeated to its author.
const VALUE_CHARS_MAX: usize = 120;

/// A text that its grammar refuses. Displays as one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid {what} \"{value}\": expected {expected}")]
pub struct GrammarError {
    /// The name of the grammar: `host list`, `time limit`, …
    pub what: &'static str,
    /// The text itself, on one line, shortened where it is very long.
    pub value: String,
    /// A description of accepted texts.
    pub expected: String,
}

impl GrammarError {
    pub fn new(what: &'static str, value: &str, expected: impl Into<String>) -> Self {
        let mut shown: String = value
            .chars()
            .take(VALUE_CHARS_MAX)
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        if value.chars().nth(VALUE_CHARS_MAX).is_some() {
            shown.push('…');
        }
        Self { what, value: shown, expected: expected.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_however_bad_the_text() {
        let error = GrammarError::new("time limit", "1\n2", "minutes");
        assert_eq!(error.to_string(), "invalid time limit \"1?2\": expected minutes");
        let long = GrammarError::new("time limit", &"x".repeat(5_000), "minutes").to_string();
        assert!(long.chars().count() < 200 && long.contains('…'), "{long}");
    }
}
