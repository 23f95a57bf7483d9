//! The formats of `squeue`, `sinfo` and `sprio`: `-o "%.18i %9P|%t"` by letter, `-O JobID:10,State` by name.

use super::cell::{self, Align, Cut};

/// A column that a format may name.
pub trait Column: 'static {
    /// The letter after `%`; `None` for a column that only `-O` has.
    fn letter(&self) -> Option<char>;
    /// The name for `-O`.
    fn name(&self) -> &'static str;
    fn header(&self) -> &'static str;
}

/// `column!(JobField)`: the column that a struct with the fields `letter`, `name` and `header` is.
macro_rules! column {
    ($field:ty) => {
        impl $crate::output::table::format::Column for $field {
            fn letter(&self) -> Option<char> {
                self.letter
            }
            fn name(&self) -> &'static str {
                self.name
            }
            fn header(&self) -> &'static str {
                self.header
            }
        }
    };
}
pub(in crate::output) use column;

/// The default width of a column of `-O`.
const LONG_WIDTH: usize = 20;

/// `%all` means all columns.
const ALL: &str = "all";

/// Bounds on the number of columns and on the width of one.
const COLUMNS_MAX: usize = 1_000;
const WIDTH_MAX: usize = 4_096;

/// One column of a format, with the text that follows it.
#[derive(Debug)]
pub struct FormatCell<C: 'static> {
    /// `None` for an unknown column: only the suffix is printed.
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
    /// `%9#N`: as wide as the widest text of the column, and at least this wide.
    Widest(usize),
}

/// A parsed format, with the warnings about unknown columns.
#[derive(Debug)]
pub struct Format<C: 'static> {
    pub prefix: String,
    pub cells: Vec<FormatCell<C>>,
    pub warnings: Vec<String>,
}

impl<C: Column> Format<C> {
    /// `-o`: `%[.][width]letter`, with any text between. `what` is in the warning about an unknown letter:
    /// `Invalid job format specification: ?`.
    pub fn by_letter(columns: &'static [C], text: &str, what: &str) -> Self {
        let mut parts = text.split('%');
        let prefix = parts.next().unwrap_or_default().to_owned();
        let mut format = Self { prefix, cells: Vec::new(), warnings: Vec::new() };
        // A `%` with nothing after it is dropped.
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
            if let Some(suffix) = rest.strip_prefix(ALL).filter(|_| width == 0 && !grows)
                && !suffix.starts_with(char::is_alphanumeric)
            {
                format.push_all(columns, suffix);
                continue;
            }
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
            format.cells.push(FormatCell { column, width, align, suffix });
        }
        format
    }

    /// `-O`: `name[:[.][width][suffix]]` with commas between. Without a colon the width is 20; with a colon and no width
    /// the column is as wide as its text.
    pub fn by_name(columns: &'static [C], text: &str) -> Self {
        let mut format = Self { prefix: String::new(), cells: Vec::new(), warnings: Vec::new() };
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
            format.cells.push(FormatCell {
                column: Some(column),
                width,
                align,
                suffix: suffix.to_owned(),
            });
        }
        format
    }

    /// All columns with a letter, with a bar between them.
    fn push_all(&mut self, columns: &'static [C], suffix: &str) {
        if self.cells.len() > COLUMNS_MAX {
            return;
        }
        let lettered = columns.iter().filter(|column| column.letter().is_some());
        self.cells.extend(lettered.map(|column| FormatCell {
            column: Some(column),
            width: Width::Text,
            align: Align::Left,
            suffix: "|".to_owned(),
        }));
        if let Some(last) = self.cells.last_mut() {
            suffix.clone_into(&mut last.suffix);
        }
    }

    pub fn columns(&self) -> impl Iterator<Item = &'static C> + '_ {
        self.cells.iter().filter_map(|cell_format| cell_format.column)
    }

    /// Widens the columns of [`Width::Widest`] to what `widest` returns for them.
    pub fn fit(&mut self, widest: impl Fn(&'static C) -> usize) {
        for cell_format in &mut self.cells {
            if let (Some(column), Width::Widest(least)) = (cell_format.column, cell_format.width) {
                cell_format.width = Width::Widest(least.max(widest(column)).min(WIDTH_MAX));
            }
        }
    }

    pub fn push_header(&self, out: &mut String) {
        self.push_header_within(usize::MAX, out);
    }

    /// The same, as far as [`push_within`](Self::push_within) writes it.
    pub fn push_header_within(&self, most: usize, out: &mut String) {
        let write = |column: &'static C, cell: &mut String| cell.push_str(column.header());
        self.push_within(most, out, &mut String::new(), write);
    }

    /// One line; `write` fills the cell of a column.
    pub fn push_line(
        &self,
        out: &mut String,
        cell: &mut String,
        write: impl Fn(&'static C, &mut String),
    ) {
        self.push_within(usize::MAX, out, cell, write);
    }

    /// The same, which breaks off once all is longer than `most`: a thousand columns of one job may be a hundred megabytes.
    pub fn push_within(
        &self,
        most: usize,
        out: &mut String,
        cell: &mut String,
        write: impl Fn(&'static C, &mut String),
    ) {
        out.push_str(&self.prefix);
        for cell_format in &self.cells {
            if out.len() > most {
                return;
            }
            if let Some(column) = cell_format.column {
                cell.clear();
                write(column, cell);
                let width = match cell_format.width {
                    Width::Text => 0,
                    Width::Chars(width) | Width::Widest(width) => width,
                };
                cell::push(out, cell, width, cell_format.align, Cut::Silent);
            }
            out.push_str(&cell_format.suffix);
        }
        out.push('\n');
    }
}

/// The number at the front, or zero, and the rest of the text.
fn leading_number(text: &str) -> (usize, &str) {
    let digits_len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(digits_len);
    let number = if digits.is_empty() { 0 } else { digits.parse().unwrap_or(WIDTH_MAX) };
    (number.min(WIDTH_MAX), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestColumn(Option<char>, &'static str, &'static str);

    impl Column for TestColumn {
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

    static TEST_COLUMNS: [TestColumn; 3] = [
        TestColumn(Some('a'), "Apple", "APPLE"),
        TestColumn(None, "Pear", "PEAR"),
        TestColumn(Some('p'), "Plum", "PLUM"),
    ];

    fn header(format: &Format<TestColumn>) -> String {
        let mut out = String::new();
        format.push_header(&mut out);
        out
    }

    #[test]
    fn a_letter_may_have_an_alignment_a_width_and_text_around_it() {
        let table = [
            ("%a", "APPLE\n"),
            ("%.7a|", "  APPLE|\n"),
            ("<%7a>", "<APPLE  >\n"),
            ("%-7a", "APPLE  \n"),
            ("%3a%a", "APPAPPLE\n"),
            ("%a%%a%", "APPLEAPPLE\n"),
            ("%all", "APPLE|PLUM\n"),
            ("<%all>", "<APPLE|PLUM>\n"),
            ("%allo", "APPLEllo\n"),
            ("no column", "no column\n"),
            ("", "\n"),
        ];
        for (text, expected) in table {
            let format = Format::by_letter(&TEST_COLUMNS, text, "job");
            assert_eq!(header(&format), expected);
            assert!(format.warnings.is_empty());
        }
    }

    #[test]
    fn an_unknown_letter_is_printed_unchanged_with_a_warning() {
        let format = Format::by_letter(&TEST_COLUMNS, "%a|%.3i|", "node");
        assert_eq!(header(&format), "APPLE|%.3i|\n");
        assert_eq!(format.warnings, ["Invalid node format specification: i"]);
    }

    #[test]
    fn names_have_twenty_characters_or_their_own_width() {
        let format = Format::by_name(&TEST_COLUMNS, "apple,PEAR:.6,bogus");
        assert_eq!(header(&format), "APPLE                 PEAR\n");
        assert_eq!(format.warnings, ["Invalid job format specification: bogus"]);
        let format = Format::by_name(&TEST_COLUMNS, "apple:|,pear:.,apple:0x,pear:6.");
        assert_eq!(header(&format), "APPLE|PEARAPPLExPEAR  .\n");
    }
}
