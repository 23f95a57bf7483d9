//! The tables of `sacct`, `sacctmgr`, `sshare` and `sstat`: a header, a line of dashes, and a `+` in cells that were cut.

use super::cell::{self, Align, Cut};
use model::printable::printable;

/// One column: its name for `format=`, its header, and its default width (negative: text on the left).
pub trait NamedColumn: 'static {
    fn name(&self) -> &'static str;
    fn header(&self) -> &'static str;
    fn width(&self) -> i16;
}

/// `named_column!(StatField)`: the column that a struct with the fields `name` and `width` is. Its header is its name.
macro_rules! named_column {
    ($field:ty) => {
        impl $crate::output::table::field_table::NamedColumn for $field {
            fn name(&self) -> &'static str {
                self.name
            }
            fn header(&self) -> &'static str {
                self.name
            }
            fn width(&self) -> i16 {
                self.width
            }
        }
    };
}
pub(in crate::output) use named_column;

/// How the cells of a line are put together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Layout {
    /// Columns with spaces.
    #[default]
    Aligned,
    /// `-p`: the separator after every cell.
    Ended(String),
    /// `-P`: the separator between cells.
    Separated(String),
}

impl Layout {
    pub const SEPARATOR: &str = "|";

    /// Adds the cell `at` of a line; a negative width has its text on the left.
    pub fn push_cell(&self, out: &mut String, at: usize, text: &str, width: i16) {
        match self {
            Self::Aligned => {
                let align = if width < 0 { Align::Left } else { Align::Right };
                cell::push(out, text, usize::from(width.unsigned_abs()), align, Cut::Plus);
                out.push(' ');
            }
            Self::Ended(separator) => {
                out.push_str(&printable(text));
                out.push_str(separator);
            }
            Self::Separated(separator) => {
                if at > 0 {
                    out.push_str(separator);
                }
                out.push_str(&printable(text));
            }
        }
    }

    /// Adds the line of dashes below a header, where columns are aligned.
    pub fn push_rule(&self, out: &mut String, widths: impl Iterator<Item = i16>) {
        if *self == Self::Aligned {
            for width in widths {
                (0..width.unsigned_abs()).for_each(|_| out.push('-'));
                out.push(' ');
            }
            out.push('\n');
        }
    }
}

/// A column with the width that was asked for.
#[derive(Debug, Clone, Copy)]
pub struct ChosenColumn<C: 'static> {
    pub column: &'static C,
    /// Negative: text on the left.
    pub width: i16,
}

/// A name that no column has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Invalid field requested: \"{0}\"")]
pub struct UnknownField(pub String);

/// `JobID,State%20,…`: names in any case, or their beginnings, each with an optional width.
pub fn parse<C: NamedColumn>(
    columns: &'static [C],
    text: &str,
) -> Result<Vec<ChosenColumn<C>>, UnknownField> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| parse_one(columns, part)).collect()
}

fn parse_one<C: NamedColumn>(
    columns: &'static [C],
    part: &str,
) -> Result<ChosenColumn<C>, UnknownField> {
    let (name, width) = match part.split_once('%') {
        Some((name, width)) => (name, width.parse::<i16>().ok()),
        None => (part, None),
    };
    let exact = columns.iter().find(|column| column.name().eq_ignore_ascii_case(name));
    let by_prefix = || {
        let begins = |column: &&C| {
            column.name().get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name))
        };
        columns.iter().find(begins).filter(|_| !name.is_empty())
    };
    let column = exact.or_else(by_prefix).ok_or_else(|| UnknownField(name.to_owned()))?;
    let width = width.filter(|width| *width != 0).unwrap_or_else(|| column.width());
    Ok(ChosenColumn { column, width })
}

/// The columns of these names, at their default widths.
pub fn default_columns<C: NamedColumn>(
    columns: &'static [C],
    names: &[&str],
) -> Vec<ChosenColumn<C>> {
    let find = |name: &&str| columns.iter().find(|column| column.name() == *name);
    let chosen = names.iter().filter_map(find);
    chosen.map(|column| ChosenColumn { column, width: column.width() }).collect()
}

/// A table being written.
pub struct Table<'a, C: 'static> {
    pub columns: &'a [ChosenColumn<C>],
    pub layout: &'a Layout,
}

impl<C: NamedColumn> Table<'_, C> {
    pub fn push_header(&self, out: &mut String) {
        self.push_line(out, |column, cell| cell.push_str(column.header()));
        self.layout.push_rule(out, self.columns.iter().map(|chosen| chosen.width));
    }

    pub fn push_line(&self, out: &mut String, write: impl Fn(&'static C, &mut String)) {
        let mut text = String::new();
        for (at, chosen) in self.columns.iter().enumerate() {
            text.clear();
            write(chosen.column, &mut text);
            self.layout.push_cell(out, at, &text, chosen.width);
        }
        out.push('\n');
    }
}

/// The names of all columns, four on a line, as `--helpformat` lists them.
pub fn help<C: NamedColumn>(columns: &'static [C]) -> String {
    let mut out = String::new();
    for (at, column) in columns.iter().enumerate() {
        if at > 0 {
            out.push(if at % 4 == 0 { '\n' } else { ' ' });
        }
        cell::push(&mut out, column.name(), 19, Align::Left, Cut::Silent);
    }
    out.push('\n');
    out
}
