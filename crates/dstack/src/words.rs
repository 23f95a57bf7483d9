//! Words as a POSIX shell splits them, for `entrypoint`, and the quotes that keep a text one word.

/// The words of a text: separated by white space, with `'`, `"` and `\` as a shell has them. `None` if a quote has no end.
pub fn split(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    // `Some` inside a word, which may be empty as in `''`.
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            _ if letter.is_whitespace() => words.extend(word.take()),
            '\'' => loop {
                let word = word.get_or_insert_default();
                match letters.next()? {
                    '\'' => break,
                    inside => word.push(inside),
                }
            },
            '"' => loop {
                let word = word.get_or_insert_default();
                match letters.next()? {
                    '"' => break,
                    '\\' => {
                        let escaped = letters.next()?;
                        // Inside these quotes a backslash stands for itself, but before what ends or escapes.
                        if !matches!(escaped, '"' | '\\') {
                            word.push('\\');
                        }
                        word.push(escaped);
                    }
                    inside => word.push(inside),
                }
            },
            '\\' => word.get_or_insert_default().push(letters.next()?),
            plain => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::shell::quoted;

    #[test]
    fn words_are_those_of_a_shell() {
        let table: [(&str, Option<&[&str]>); 10] = [
            ("", Some(&[])),
            ("  python -m  app ", Some(&["python", "-m", "app"])),
            ("sh -c 'a \"b\" c'", Some(&["sh", "-c", "a \"b\" c"])),
            (r#"a "b \"c\" \d" e"#, Some(&["a", r#"b "c" \d"#, "e"])),
            (r"a\ b c\\", Some(&["a b", r"c\"])),
            ("x''y ''", Some(&["xy", ""])),
            ("a'b", None),
            ("a \"b", None),
            ("a\\", None),
            ("\"a\\", None),
        ];
        for (text, expected) in table {
            let expected = expected.map(|words| words.iter().map(|w| w.to_string()).collect());
            assert_eq!(split(text), expected, "{text}");
        }
    }

    #[test]
    fn quoted_text_is_one_word() {
        for text in ["", "a b", "it's", r#"\"$x"#] {
            assert_eq!(split(&quoted(text)), Some(vec![text.to_owned()]), "{text}");
        }
    }
}
