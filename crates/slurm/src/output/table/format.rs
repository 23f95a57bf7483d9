//! The formats of `squeue` and `sinfo`: `-o "%.18i %9P|%t"` by letter, `-O JobID:10,State` by name.

use super::cell::{self, Align, Cut};

/// A column that a format may name.
pub trait Column: 'static {
    /// Its letter after `%`; none for a column that only `-O` has.
    fn letter(&self) -> Option<char>;
    /// Its name for `-O`.
    fn name(&self) -> &'static str;
    fn header(&self) -> &'static str;
}

/// The width of a column of `-O` that says none.
const LONG_WIDTH: usize = 20;

/// No format has more columns than this, and no column is wider.
const COLUMNS_MAX: usize = 1_000;
const WIDTH_MAX: usize = 4_096;

/// One column as a format asks for it, with the text that follows.
#[derive(Debug)]
pub struct Piece<C: 'static> {
    /// None where the format names no column that there is: only the text is printed.
    pub column: Option<&'static C>,
    pub width: Width,
    pub align: Align,
    pub suffix: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// As wide as the text.
    Text,
    Chars(usize),
    /// `%9#N`: as wide as the widest text of the column, but at least this.
    Widest(usize),
}

/// A format that was read, and the lines to print about what it names in vain.
#[derive(Debug)]
pub struct Format<C: 'static> {
    pub prefix: String,
    pub pieces: Vec<Piece<C>>,
    pub warnings: Vec<String>,
}

impl<C: Column> Format<C> {
    /// `-o`: `%[.][width]letter`, with any text between. `what` is in the warning about an unknown letter:
    /// `Invalid job format specification: ?`.
    pub fn by_letter(columns: &'static [C], text: &str, what: &str) -> Self {
        let mut parts = text.split('%');
        let prefix = parts.next().unwrap_or_default().to_owned();
        let mut format = Self { prefix, pieces: Vec::new(), warnings: Vec::new() };
        // A `%` with nothing after it is nothing.
        for part in parts.filter(|part| !part.is_empty()).take(COLUMNS_MAX) {
            let (align, rest) = match part.as_bytes().first() {
                Some(b'.') => (Align::Right, &part[1..]),
                Some(b'-') => (Align::Left, &part[1..]),
                _ => (Align::Left, part),
            };
            let (width, rest) = leading_number(rest);
            let (grows, rest) = match rest.strip_prefix('#') {
                Some(rest) => (true, rest),
                None => (false, rest),
            };
            let letter = rest.chars().next();
            let column = columns.iter().find(|c| c.letter().is_some() && c.letter() == letter);
            let suffix = match (column, letter) {
                (Some(_), Some(letter)) => rest[letter.len_utf8()..].to_owned(),
                _ => {
                    let named = letter.map(String::from).unwrap_or_default();
                    format.warnings.push(format!("Invalid {what} format specification: {named}"));
                    format!("%{part}")
                }
            };
            let width = match width {
                _ if grows => Width::Widest(width),
                0 => Width::Text,
                width => Width::Chars(width),
            };
            format.pieces.push(Piece { column, width, align, suffix });
        }
        format
    }

    /// `-O`: `name[:[.][width][suffix]]`, commas between; 20 characters without the colon, and after a colon without
    /// a width as many as there are.
    pub fn by_name(columns: &'static [C], text: &str) -> Self {
        let mut format = Self { prefix: String::new(), pieces: Vec::new(), warnings: Vec::new() };
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        for part in parts.take(COLUMNS_MAX) {
            let (name, rest) = match part.split_once(':') {
                Some((name, rest)) => (name, Some(rest)),
                None => (part, None),
            };
            let Some(column) = columns.iter().find(|c| c.name().eq_ignore_ascii_case(name)) else {
                format.warnings.push(format!("Invalid job format specification: {part}"));
                continue;
            };
            let (align, rest) = match rest.and_then(|rest| rest.strip_prefix('.')) {
                Some(right) => (Align::Right, Some(right)),
                None => (Align::Left, rest),
            };
            let (width, suffix) = match rest.map(leading_number) {
                None => (Width::Chars(LONG_WIDTH), ""),
                Some((0, suffix)) => (Width::Text, suffix),
                Some((width, suffix)) => (Width::Chars(width), suffix),
            };
            format.pieces.push(Piece {
                column: Some(column),
                width,
                align,
                suffix: suffix.to_owned(),
            });
        }
        format
    }

    pub fn columns(&self) -> impl Iterator<Item = &'static C> + '_ {
        self.pieces.iter().filter_map(|piece| piece.column)
    }

    /// Gives each column that grows the width that `widest` finds for it.
    pub fn fit(&mut self, widest: impl Fn(&'static C) -> usize) {
        for piece in &mut self.pieces {
            if let (Some(column), Width::Widest(least)) = (piece.column, piece.width) {
                piece.width = Width::Widest(least.max(widest(column)).min(WIDTH_MAX));
            }
        }
    }

    pub fn push_header(&self, out: &mut String) {
        self.push_line(out, &mut String::new(), |column, cell| cell.push_str(column.header()));
    }

    /// One line; `write` fills the cell of a column.
    pub fn push_line(
        &self,
        out: &mut String,
        cell: &mut String,
        write: impl Fn(&'static C, &mut String),
    ) {
        out.push_str(&self.prefix);
        for piece in &self.pieces {
            if let Some(column) = piece.column {
                cell.clear();
                write(column, cell);
                let width = match piece.width {
                    Width::Text => 0,
                    Width::Chars(width) | Width::Widest(width) => width,
                };
                cell::push(out, cell, width, piece.align, Cut::Silent);
            }
            out.push_str(&piece.suffix);
        }
        out.push('\n');
    }
}

/// The number at the front, zero for none, and what follows it.
fn leading_number(text: &str) -> (usize, &str) {
    let digits_len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(digits_len);
    let number = if digits.is_empty() { 0 } else { digits.parse().unwrap_or(WIDTH_MAX) };
    (number.min(WIDTH_MAX), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fruit(Option<char>, &'static str, &'static str);

    impl Column for Fruit {
        fn letter(&self) -> Option<char> {
            self.0
        }
        fn name(&self) -> &'static str {
            self.1
        }
        fn header(&self) -> &'static str {
            self.2
        }
    }

    static FRUITS: [Fruit; 2] = [Fruit(Some('a'), "Apple", "APPLE"), Fruit(None, "Pear", "PEAR")];

    fn header(format: &Format<Fruit>) -> String {
        let mut out = String::new();
        format.push_header(&mut out);
        out
    }

    #[test]
    fn letters_take_a_side_a_width_and_text_around() {
        let table = [
            ("%a", "APPLE\n"),
            ("%.7a|", "  APPLE|\n"),
            ("<%7a>", "<APPLE  >\n"),
            ("%-7a", "APPLE  \n"),
            ("%3a%a", "APPAPPLE\n"),
            ("%a%%a%", "APPLEAPPLE\n"),
            ("no column", "no column\n"),
            ("", "\n"),
        ];
        for (text, expected) in table {
            let format = Format::by_letter(&FRUITS, text, "job");
            assert_eq!(header(&format), expected);
            assert!(format.warnings.is_empty());
        }
    }

    #[test]
    fn an_unknown_letter_is_printed_as_it_is_and_named() {
        let format = Format::by_letter(&FRUITS, "%a|%.3i|", "node");
        assert_eq!(header(&format), "APPLE|%.3i|\n");
        assert_eq!(format.warnings, ["Invalid node format specification: i"]);
    }

    #[test]
    fn names_have_twenty_characters_or_their_own_width() {
        let format = Format::by_name(&FRUITS, "apple,PEAR:.6,bogus");
        assert_eq!(header(&format), "APPLE                 PEAR\n");
        assert_eq!(format.warnings, ["Invalid job format specification: bogus"]);
        let format = Format::by_name(&FRUITS, "apple:|,pear:.,apple:0x,pear:6.");
        assert_eq!(header(&format), "APPLE|PEARAPPLExPEAR  .\n");
    }
}
