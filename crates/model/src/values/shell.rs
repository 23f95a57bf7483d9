//! Words of a shell's line.

/// The text as one word.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_within_end_and_begin_the_word_again() {
        for (text, expected) in [("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'")] {
            assert_eq!(quoted(text), expected);
        }
    }
}
