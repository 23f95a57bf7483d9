//! Text of users as it is shown in a terminal or a log: nothing in it ends the line, moves the cursor or turns the
//! direction of writing.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether the character would do more than show itself.
pub fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with its unprintable characters escaped, as Rust writes them: `\n`, `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    // Most texts are printable ASCII, which is quickly seen.
    let plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if plain || !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unprintable(c) {
            // A String takes everything.
            let _ = write!(shown, "{}", c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_move_the_cursor_is_escaped_and_all_else_is_left() {
        for plain in ["", "train", "Größe 漢字 🦀", r"a\nb"] {
            assert!(matches!(printable(plain), Cow::Borrowed(text) if text == plain));
        }
        for (text, shown) in [
            ("a\nb\r\tc", r"a\nb\r\tc"),
            ("\u{1b}[2J", r"\u{1b}[2J"),
            ("\u{7f}\u{9b}1A", r"\u{7f}\u{9b}1A"),
            ("\u{202e}cod", r"\u{202e}cod"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }
}
