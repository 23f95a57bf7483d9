//! Fields of Slurm's objects. Each kind of object has one table of fields, from which every version of the API is written: a row has
//! a field's name, its form in v0.0.38, its form since v0.0.40, and where its value comes from.

use super::Version;
use model::bounds::{CUT_MARK, cut_end};
use model::time::{TimeLimit, Timestamp};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};
use std::borrow::Cow;

/// What an object is written for, and what the object itself does not say.
#[derive(Debug, Clone)]
pub struct Context {
    pub version: Version,
    pub cluster: String,
    /// The names of the cluster's generic resources, in order: they have numbers as resources that are counted.
    pub gres: Vec<String>,
    pub now: Timestamp,
}

impl Context {
    /// A number inside an object of its own: as the version writes numbers that may be missing.
    pub fn number(&self, number: impl Into<Number>) -> Value {
        let number = number.into();
        if self.version.is_typed() { number.with_flags() } else { number.plain() }
    }
}

/// A number that may be missing, or without a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    Unset,
    Infinite,
    Of(u64),
}

impl Number {
    /// `{"set": true, "infinite": false, "number": 4}`
    pub fn with_flags(self) -> Value {
        let is_set = matches!(self, Self::Of(_));
        json!({"set": is_set, "infinite": self.is_infinite(), "number": self.or_zero()})
    }

    fn is_infinite(self) -> bool {
        self == Self::Infinite
    }

    fn or_zero(self) -> u64 {
        if let Self::Of(number) = self { number } else { 0 }
    }

    pub fn plain(self) -> Value {
        if let Self::Of(number) = self { number.into() } else { Value::Null }
    }
}

impl<N: Into<u64>> From<Option<N>> for Number {
    fn from(number: Option<N>) -> Self {
        number.map_or(Self::Unset, |number| Self::Of(number.into()))
    }
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Of(number)
    }
}

impl From<u32> for Number {
    fn from(number: u32) -> Self {
        Self::Of(number.into())
    }
}

/// In minutes.
impl From<TimeLimit> for Number {
    fn from(limit: TimeLimit) -> Self {
        limit.minutes().map_or(Self::Infinite, |minutes| Self::Of(minutes.into()))
    }
}

/// A time that is not known is zero, in every version.
impl From<Timestamp> for Number {
    fn from(time: Timestamp) -> Self {
        Self::Of(u64::try_from(time.secs()).unwrap_or(0))
    }
}

/// The value of a field, before a version gives it its form.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell<'a> {
    Null,
    Text(Cow<'a, str>),
    Bool(bool),
    Int(i64),
    Float(f64),
    Number(Number),
    Words(Vec<Cow<'a, str>>),
    Value(Value),
}

impl Cell<'_> {
    /// The value in a form, for objects that are put together by hand.
    pub fn value(self, form: Form) -> Value {
        serde_json::to_value(Written { form, cell: self }).unwrap_or_default()
    }
}

pub fn text<'a>(text: impl Into<Cow<'a, str>>) -> Cell<'a> {
    Cell::Text(text.into())
}

/// Empty where there is none.
pub fn optional_text(text: Option<&str>) -> Cell<'_> {
    Cell::Text(Cow::Borrowed(text.unwrap_or("")))
}

pub fn number<'a>(number: impl Into<Number>) -> Cell<'a> {
    Cell::Number(number.into())
}

/// A job's priority as Slurm's documents have it, in 32 bits: clients that are made from its description read no more. That of a
/// run with dstack's `priority` may be higher.
pub fn in_32_bits(priority: u64) -> u64 {
    priority.min(u64::from(u32::MAX))
}

/// Seconds since the epoch; zero for a time that is not known.
pub fn time<'a>(time: Option<Timestamp>) -> Cell<'a> {
    Cell::Number(time.map_or(Number::Of(0), Number::from))
}

/// The form that a version gives a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The version has no such field.
    Absent,
    /// As it is; a number that is missing is null.
    Plain,
    /// A number with its flags: `{"set": true, "infinite": false, "number": 4}`.
    Set,
    /// A number that is missing is zero.
    Zero,
    /// A text becomes the one word of an array, and no text an empty one.
    List,
}

pub type ValueOf<T> = for<'a> fn(&'a Context, &'a T) -> Cell<'a>;

/// A row of an object's table.
pub struct Field<T> {
    pub name: &'static str,
    /// In v0.0.38.
    plain: Form,
    /// Since v0.0.40.
    typed: Form,
    /// The versions that have it, of those for which there is a form.
    first: Version,
    last: Version,
    /// No bound of a list cuts it.
    is_whole: bool,
    value: ValueOf<T>,
}

pub const fn field<T>(name: &'static str, plain: Form, typed: Form, value: ValueOf<T>) -> Field<T> {
    let (first, last) = (Version::V38, Version::V42);
    Field { name, plain, typed, first, last, is_whole: false, value }
}

impl<T> Field<T> {
    /// Versions before this one do not have it.
    pub const fn since(self, first: Version) -> Self {
        Self { first, ..self }
    }

    /// Versions after this one do not have it.
    pub const fn until(self, last: Version) -> Self {
        Self { last, ..self }
    }

    /// Lists have it whole, whatever room there is: what the server itself has written, and clients take apart.
    pub const fn whole(self) -> Self {
        Self { is_whole: true, ..self }
    }

    fn form(&self, version: Version) -> Form {
        if version < self.first || version > self.last {
            return Form::Absent;
        }
        if version.is_typed() { self.typed } else { self.plain }
    }
}

/// A longer text counts in a list, and is cut to this length where there is no room for it.
const SHORT_TEXT_BYTES: usize = 512;

/// What is left of the bytes that a list has for long texts. Jobs of one array have them in common, and an answer repeats them for each.
pub struct TextRoom(std::cell::Cell<usize>);

impl TextRoom {
    pub fn new(bytes: usize) -> Self {
        Self(std::cell::Cell::new(bytes))
    }

    /// The value, cut where it is a long text for which there is no room.
    fn fit<'a>(&self, cell: Cell<'a>) -> Cell<'a> {
        match cell {
            Cell::Text(word) if word.len() > SHORT_TEXT_BYTES => {
                // JSON writes most of these as six bytes.
                let controls = word.bytes().filter(u8::is_ascii_control).count();
                match self.0.get().checked_sub(word.len() + 5 * controls) {
                    Some(left) => {
                        self.0.set(left);
                        Cell::Text(word)
                    }
                    None => Cell::Text(Cow::Owned(cut(&word))),
                }
            }
            other => other,
        }
    }
}

fn cut(text: &str) -> String {
    format!("{}{CUT_MARK}", &text[..cut_end(text, SHORT_TEXT_BYTES)])
}

/// One object, written straight from its table.
pub struct Object<'a, T> {
    pub context: &'a Context,
    pub fields: &'a [Field<T>],
    pub item: &'a T,
}

impl<T> Serialize for Object<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.write(serializer, None)
    }
}

/// One object of a list whose long texts have a bound.
pub struct Listed<'a, T> {
    pub object: Object<'a, T>,
    pub room: Option<&'a TextRoom>,
}

impl<T> Serialize for Listed<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object.write(serializer, self.room)
    }
}

impl<T> Object<'_, T> {
    fn write<S: Serializer>(
        &self,
        serializer: S,
        room: Option<&TextRoom>,
    ) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for field in self.fields {
            let form = field.form(self.context.version);
            if form != Form::Absent {
                let cell = (field.value)(self.context, self.item);
                let cell = match room {
                    Some(room) if !field.is_whole => room.fit(cell),
                    _ => cell,
                };
                map.serialize_entry(field.name, &Written { form, cell })?;
            }
        }
        map.end()
    }

    /// The object as a value, for documents that are put together by hand.
    pub fn value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Objects of one table, as values.
pub fn values<T>(context: &Context, fields: &[Field<T>], items: &[T]) -> Vec<Value> {
    items.iter().map(|item| Object { context, fields, item }.value()).collect()
}

/// A long list has many of these: they are written without a value between.
fn with_flags<S: Serializer>(
    serializer: S,
    is_set: bool,
    is_infinite: bool,
    number: &impl Serialize,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(3))?;
    map.serialize_entry("set", &is_set)?;
    map.serialize_entry("infinite", &is_infinite)?;
    map.serialize_entry("number", number)?;
    map.end()
}

struct Written<'a> {
    form: Form,
    cell: Cell<'a>,
}

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.form, &self.cell) {
            (Form::Set, Cell::Number(number)) => {
                let (is_set, is_infinite) = (matches!(number, Number::Of(_)), number.is_infinite());
                with_flags(serializer, is_set, is_infinite, &number.or_zero())
            }
            (Form::Set, Cell::Float(number)) => with_flags(serializer, true, false, number),
            (Form::Zero, Cell::Number(Number::Of(number))) => serializer.serialize_u64(*number),
            (Form::Zero, Cell::Number(_)) => serializer.serialize_u64(0),
            (_, Cell::Number(Number::Of(number))) => serializer.serialize_u64(*number),
            (_, Cell::Number(_) | Cell::Null) => serializer.serialize_unit(),
            (Form::List, Cell::Text(word)) if word.is_empty() => {
                serializer.collect_seq(std::iter::empty::<&str>())
            }
            (Form::List, Cell::Text(word)) => serializer.collect_seq([word]),
            (_, Cell::Text(word)) => serializer.serialize_str(word),
            (_, Cell::Bool(flag)) => serializer.serialize_bool(*flag),
            (_, Cell::Int(number)) => serializer.serialize_i64(*number),
            (_, Cell::Float(number)) => serializer.serialize_f64(*number),
            (_, Cell::Words(words)) => serializer.collect_seq(words),
            (_, Cell::Value(value)) => value.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sample {
        limit: TimeLimit,
        state: &'static str,
    }

    #[rustfmt::skip]
    static SAMPLE: &[Field<Sample>] = &[
        field("limit",   Form::Plain,  Form::Set,    |_, s| number(s.limit)),
        field("state",   Form::Plain,  Form::List,   |_, s| text(s.state)),
        field("missing", Form::Zero,   Form::Set,    |_, _| number(None::<u32>)),
        field("late",    Form::Absent, Form::Plain,  |_, _| Cell::Bool(true)),
    ];

    fn written(version: Version, item: &Sample) -> Value {
        let context =
            Context { version, cluster: String::new(), gres: Vec::new(), now: Timestamp(0) };
        Object { context: &context, fields: SAMPLE, item }.value()
    }

    #[test]
    fn one_table_gives_every_version_its_own_form() {
        let item = Sample { limit: TimeLimit::Minutes(5), state: "RUNNING" };
        assert_eq!(
            written(Version::V38, &item),
            json!({"limit": 5, "state": "RUNNING", "missing": 0})
        );
        let set = |number: u64| json!({"set": true, "infinite": false, "number": number});
        let unset = json!({"set": false, "infinite": false, "number": 0});
        assert_eq!(
            written(Version::V42, &item),
            json!({"limit": set(5), "state": ["RUNNING"], "missing": unset, "late": true})
        );
        let item = Sample { limit: TimeLimit::Unlimited, state: "" };
        assert_eq!(written(Version::V38, &item)["limit"], Value::Null);
        let late = written(Version::V40, &item);
        assert_eq!((&late["limit"]["infinite"], &late["state"]), (&json!(true), &json!([])));
    }
}
