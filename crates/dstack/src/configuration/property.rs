//! What a row of the tables in `tables/` says of a property: the form of its value, its default, and what it does here.
//!
//! `tests/property_table.rs` holds the tables against what the translation really does.

use super::fault::{Fault, Problem};
use super::field::Field;
use super::reading::Reading;
use super::value::Value;

/// The properties of a mapping, in the order in which dstack writes them.
#[derive(Debug)]
pub struct Table {
    /// The kind of thing that has these properties: `task`, `resources`.
    pub of: &'static str,
    pub sections: &'static [&'static [Property]],
}

impl Table {
    pub fn properties(&self) -> impl Iterator<Item = &'static Property> + use<> {
        self.sections.iter().copied().flatten()
    }

    pub fn find(&self, name: &str) -> Option<&'static Property> {
        self.properties().find(|property| property.name == name)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Property {
    pub name: &'static str,
    pub form: Form,
    pub default: Default,
    pub support: PropertySupport,
}

/// The form of a value.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    Text,
    Bool,
    /// A whole number within bounds, both inclusive.
    Integer(i64, i64),
    /// A number above the first and not above the second.
    Number(f64, f64),
    Words(&'static [&'static str]),
    Duration,
    /// A duration, or `off`.
    DurationOrOff,
    /// A duration, or `off`, which dstack writes as -1.
    IdleDuration,
    Size,
    SizeRange,
    CountRange,
    /// A list of such values, and the word for them.
    List(&'static Form, &'static str),
    Map(&'static Table),
    /// Whatever it is, kept as it is.
    Anything,
    /// A form with short forms and rules of its own.
    Shape(fn(&Field<'_>, &mut Reading) -> Result<Value, Fault>),
}

/// The value of a property that a configuration does not have.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    /// It must be there; the text says what is expected.
    Required(&'static str),
    Null,
    /// It is left out as well. For properties of ours, which dstack does not know.
    Absent,
    /// As if this had been written.
    Written(&'static str),
    /// As [`Default::Written`]; a null that is written stays one.
    WrittenOrNull(&'static str),
    /// As if an empty list or mapping had been written.
    Empty,
}

/// How far a property is supported here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertySupport {
    /// It does what it does in dstack.
    Acts,
    /// Some of its values do what they do in dstack. Its reader refuses the others, or gives a notice for them.
    ActsInPart,
    /// It changes nothing. The user is told so with its position, when the file is read.
    Notice(&'static str),
    /// Leaving it out would run something else than was asked for: it is read and checked, and refused at apply.
    Refused(&'static str),
}

impl Property {
    const fn new(name: &'static str, form: Form, support: PropertySupport) -> Self {
        Self { name, form, default: Default::Null, support }
    }

    /// The same, with a default.
    pub const fn or(self, default: Default) -> Self {
        Self { default, ..self }
    }
}

pub const fn acts(name: &'static str, form: Form) -> Property {
    Property::new(name, form, PropertySupport::Acts)
}

pub const fn acts_in_part(name: &'static str, form: Form) -> Property {
    Property::new(name, form, PropertySupport::ActsInPart)
}

pub const fn notice(name: &'static str, form: Form, why: &'static str) -> Property {
    Property::new(name, form, PropertySupport::Notice(why))
}

pub const fn refused(name: &'static str, form: Form, why: &'static str) -> Property {
    Property::new(name, form, PropertySupport::Refused(why))
}

/// Properties that a user may carry over from a configuration of another type.
const OF_ANOTHER_TYPE: &[(&str, &str)] = &[
    ("ide", "dev-environment"),
    ("version", "dev-environment"),
    ("init", "dev-environment"),
    ("inactivity_duration", "dev-environment"),
    ("port", "service"),
    ("gateway", "service"),
    ("strip_prefix", "service"),
    ("model", "service"),
    ("https", "service"),
    ("auth", "service"),
    ("scaling", "service"),
    ("rate_limits", "service"),
    ("probes", "service"),
    ("replicas", "service"),
    ("placement", "fleet"),
    ("blocks", "fleet"),
    ("ssh_config", "fleet"),
];

/// The problem with a key that is not in the table.
pub fn unknown(table: &'static Table, key: &str, full_name: &str) -> Problem {
    let property = full_name.to_owned();
    let owner = OF_ANOTHER_TYPE.iter().find(|(name, _)| *name == key);
    match owner {
        Some((_, owner)) if full_name == key && *owner != table.of => {
            Problem::OfAnotherType { property, owner, of: table.of }
        }
        _ => Problem::Unknown { property, nearest: nearest(table, key) },
    }
}

/// The name that the key was probably meant to be: the nearest, if few edits lead to it.
fn nearest(table: &'static Table, key: &str) -> Option<&'static str> {
    let key: Vec<char> = key.to_lowercase().replace('-', "_").chars().take(64).collect();
    let by_distance = table.properties().map(|p| (distance(&key, p.name), p.name));
    let (slips, name) = by_distance.min()?;
    let tolerated = (name.len() / 3).clamp(1, 3);
    (slips <= tolerated).then_some(name)
}

/// Insertions, deletions, substitutions and swaps of neighbours between the two.
fn distance(a: &[char], b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let substituted = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = substituted.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[i - 2][j - 2] + 1);
            }
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}
