//! The end of a log as lines for a screen.

/// The characters of a line that are kept.
const LINE_CHARS: usize = 500;

/// Whole lines without what a terminal would obey: sequences that begin with an escape are left out, and of a line that was
/// written over (a progress bar) the last text is kept.
pub fn of(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(line).collect()
}

fn line(line: &str) -> String {
    let shown = line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
    let mut text = String::new();
    let mut chars = shown.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_sequence(&mut chars),
            '\t' => text.push_str("    "),
            c if c.is_control() => {}
            c => text.push(c),
        }
        if text.len() > LINE_CHARS {
            break;
        }
    }
    text
}

/// Leaves out what follows an escape: `[31m`, or one character.
fn skip_sequence(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    if chars.next() == Some('[') {
        // A control sequence ends with the first of these.
        while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_without_escapes_and_with_the_last_text_of_a_progress_bar() {
        let log = b"one\n\x1b[1;31mred\x1b[0m end\n10 %\r20 %\r30 %\ntab\there\x07\r\n\xff";
        assert_eq!(of(log), ["one", "red end", "30 %", "tab    here", "\u{fffd}"]);
    }
}
