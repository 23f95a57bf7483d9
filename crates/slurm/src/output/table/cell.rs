//! A cell: a text cut and padded to the width of its column.

use model::printable::printable;

/// The side of the column that the text is put on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// How a text that does not fit is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The rest is left out (`squeue`, `sinfo`).
    Silent,
    /// The last character is a `+` (`sacct`, `sacctmgr`).
    Plus,
}

/// Writes `text` into a column of `width` characters; width zero fits the text.
pub fn push(out: &mut String, text: &str, width: usize, align: Align, cut: Cut) {
    let text = &*printable(text);
    if width == 0 {
        out.push_str(text);
        return;
    }
    // Most cells are ASCII, where bytes are characters.
    let length = if text.is_ascii() { text.len() } else { text.chars().count() };
    if length > width {
        let kept = if cut == Cut::Plus { width - 1 } else { width };
        let end = text.char_indices().nth(kept).map_or(text.len(), |(at, _)| at);
        out.push_str(&text[..end]);
        if cut == Cut::Plus {
            out.push('+');
        }
        return;
    }
    if align == Align::Right {
        pad(out, width - length);
    }
    out.push_str(text);
    if align == Align::Left {
        pad(out, width - length);
    }
}

fn pad(out: &mut String, count: usize) {
    const SPACES: &str = "                                ";
    let mut left = count;
    while left > 0 {
        let now = left.min(SPACES.len());
        out.push_str(&SPACES[..now]);
        left -= now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_padded_to_the_width() {
        let table = [
            ("abc", 0, Align::Left, Cut::Silent, "abc"),
            ("a\nb\u{1b}[2J", 0, Align::Left, Cut::Silent, r"a\nb\u{1b}[2J"),
            ("a\nb", 5, Align::Left, Cut::Silent, r"a\nb "),
            ("abc", 5, Align::Left, Cut::Silent, "abc  "),
            ("abc", 5, Align::Right, Cut::Silent, "  abc"),
            ("abcdef", 5, Align::Right, Cut::Silent, "abcde"),
            ("CANCELLED by 0", 10, Align::Right, Cut::Plus, "CANCELLED+"),
            ("übergroß", 4, Align::Left, Cut::Silent, "über"),
            ("ü", 3, Align::Right, Cut::Silent, "  ü"),
            ("a", 40, Align::Right, Cut::Plus, "                                       a"),
        ];
        for (text, width, align, cut, expected) in table {
            let mut out = String::new();
            push(&mut out, text, width, align, cut);
            assert_eq!(out, expected);
        }
    }
}
