//! Reads a tree by the tables into dstack's own form.

use super::fault::{Fault, Position, Problem};
use super::field::{Ends, Field};
use super::property::{Default, Form, Property, PropertySupport, Table, unknown};
use super::reading::{Reading, Source};
use super::tree::{self, Node};
use super::value::Value;
use model::amount::{Bytes, GIB};
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

/// Reads one value of this form.
pub fn value(form: &Form, field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    match form {
        Form::Text => field.text("text").map(Value::text),
        Form::Bool => field.require_boolean().map(Value::Bool),
        Form::Integer(min, max) => field.integer(*min, *max).map(Value::Integer),
        Form::Number(above, max) => number(field, *above, *max),
        Form::Words(words) => field.word(words).map(Value::text),
        Form::Duration => seconds(field),
        Form::DurationOrOff => match (field.boolean(), field.says_off()) {
            (Some(true), _) => Ok(Value::Null),
            (_, true) => Ok(Value::text("off")),
            _ => seconds(field),
        },
        Form::IdleDuration => match (field.boolean(), field.says_off()) {
            (Some(true), _) => Ok(Value::Null),
            (_, true) => Ok(Value::Integer(-1)),
            _ if field.text("") == Ok("-1") => Ok(Value::Integer(-1)),
            _ => seconds(field),
        },
        Form::Size => field.bytes().map(gigabytes),
        Form::SizeRange => field.bytes_range().map(|ends| ends_value(ends, gigabytes)),
        Form::CountRange => field.count_range().map(count_ends),
        Form::List(form, what) => {
            let items = field.list(&format!("a list of {what}"))?;
            let faults = reading.fault_count();
            let mut each = Vec::with_capacity(items.len());
            for item in &items {
                match value(form, item, reading) {
                    Ok(value) => each.push(value),
                    Err(fault) => reading.fault(fault),
                }
            }
            without_faults(Value::List(each), faults, field, reading)
        }
        Form::Map(table) => mapping(field, table, reading),
        Form::Anything => Ok(field.as_it_is()),
        Form::Shape(read) => read(field, reading),
    }
}

/// The value, unless faults were noted since there were so many.
fn without_faults(
    value: Value,
    before: usize,
    field: &Field<'_>,
    reading: &Reading,
) -> Result<Value, Fault> {
    match reading.fault_count() {
        count if count == before => Ok(value),
        _ => Err(field.fault(Problem::OfParts)),
    }
}

/// Reads a mapping by its table: every property of the table is in the result, in the table's order.
pub fn mapping(
    field: &Field<'_>,
    table: &'static Table,
    reading: &mut Reading,
) -> Result<Value, Fault> {
    let faults = reading.fault_count();
    let value = partial_mapping(field, table, reading)?;
    without_faults(value, faults, field, reading)
}

/// As [`mapping`], with null for each property that is wrong, which is noted.
pub fn partial_mapping(
    field: &Field<'_>,
    table: &'static Table,
    reading: &mut Reading,
) -> Result<Value, Fault> {
    if !field.is_map() {
        return Err(field.invalid(expected(table)));
    }
    let mut found: Vec<(&str, Value)> = Vec::new();
    for (key, position, field) in field.entries("")? {
        let Some(property) = table.find(key) else {
            match reading.source {
                Source::Yaml => {
                    reading.fault(Fault::new(position, unknown(table, key, &field.name)));
                }
                Source::Json if field.is_off() => {}
                Source::Json => reading.notice(&field, "is not known here and has no effect"),
            }
            continue;
        };
        if field.is_nothing() {
            if let Default::WrittenOrNull(_) = property.default {
                found.push((property.name, Value::Null));
            }
            continue;
        }
        let value = self::property(property, &field, reading).unwrap_or_else(|fault| {
            reading.fault(fault);
            Value::Null
        });
        found.push((property.name, value));
    }
    let defaults = defaults(table);
    let mut entries = Vec::with_capacity(defaults.len());
    for (property, unsaid) in table.properties().zip(defaults) {
        let said = found.iter().position(|(name, _)| *name == property.name);
        let value = match (said, property.default) {
            (Some(at), _) => found.swap_remove(at).1,
            (None, Default::Absent) => continue,
            (None, Default::Required(expected)) => {
                let property = field.child_name(property.name);
                if !reading.is_faulty(&property) {
                    reading.fault(field.fault(Problem::Missing { property, expected }));
                }
                Value::Null
            }
            (None, _) => unsaid.clone().unwrap_or(Value::Null),
        };
        entries.push((property.name.into(), value));
    }
    Ok(Value::Map(entries))
}

/// Reads the value of a property, and tells of what has no effect or is not available.
pub fn property(
    property: &Property,
    field: &Field<'_>,
    reading: &mut Reading,
) -> Result<Value, Fault> {
    let value = value(&property.form, field, reading)?;
    judge(property, field, &value, reading);
    Ok(value)
}

/// Tells of a property that has no effect or is not available, unless its value asks for nothing.
fn judge(property: &Property, field: &Field<'_>, value: &Value, reading: &mut Reading) {
    // A `false` in quotes is off once it is read.
    let is_off = || field.is_off() || *value == Value::Bool(false);
    let says_nothing = || is_off() || Some(value) == default(property).as_ref();
    match property.support {
        PropertySupport::Notice(why) if !says_nothing() => reading.notice(field, why),
        PropertySupport::Refused(why) if !says_nothing() => reading.refuse(field, why),
        _ => {}
    }
}

/// `a mapping of min_gpu_utilization and time_window`
fn expected(table: &Table) -> String {
    const NAMED_MAX: usize = 6;
    let names: Vec<&str> = table.properties().map(|property| property.name).collect();
    match names.split_last() {
        Some((last, [])) => format!("a mapping with {last}"),
        Some((last, others)) if names.len() <= NAMED_MAX => {
            format!("a mapping of {} and {last}", others.join(", "))
        }
        _ => format!("properties of a {}", table.of),
    }
}

/// The values that the properties of a table have where nothing is written, in the table's order. They are read once for each
/// table: a run says a few of its seventy properties, and thousands of runs come a second.
fn defaults(table: &'static Table) -> &'static [Option<Value>] {
    static OF_TABLES: RwLock<BTreeMap<usize, &'static [Option<Value>]>> =
        RwLock::new(BTreeMap::new());
    let place = std::ptr::from_ref(table).addr();
    let known = OF_TABLES.read().unwrap_or_else(PoisonError::into_inner).get(&place).copied();
    known.unwrap_or_else(|| {
        // The map is not held meanwhile: a default may be a mapping, whose table has defaults of its own.
        let read: Vec<Option<Value>> = table.properties().map(default).collect();
        let mut of_tables = OF_TABLES.write().unwrap_or_else(PoisonError::into_inner);
        *of_tables.entry(place).or_insert_with(|| &*read.leak())
    })
}

/// The value that the property has where nothing is written.
pub fn default(property: &Property) -> Option<Value> {
    let scalar = |text: &str| tree::Value::Scalar { text: text.to_owned(), plain: true };
    let written = match (property.default, property.form) {
        (Default::Required(_) | Default::Absent, _) => return None,
        (Default::Null, _) => return Some(Value::Null),
        (Default::Written(text) | Default::WrittenOrNull(text), _) => scalar(text),
        (Default::Empty, Form::List(..)) => tree::Value::List(Vec::new()),
        (Default::Empty, _) => tree::Value::Map(Vec::new()),
    };
    let node = Node { position: Position::NONE, value: written };
    value(&property.form, &Field::top(&node), &mut Reading::new(Source::Yaml)).ok()
}

fn seconds(field: &Field<'_>) -> Result<Value, Fault> {
    let secs = field.duration()?.as_secs();
    i64::try_from(secs).map(Value::Integer).map_err(|_| field.invalid("a shorter duration"))
}

fn number(field: &Field<'_>, above: f64, max: f64) -> Result<Value, Fault> {
    let expected = match max {
        f64::MAX => format!("a number above {above}"),
        _ => format!("a number above {above}, at most {max}"),
    };
    let number: Option<f64> = field.text(&expected)?.trim().parse().ok();
    let good = number.filter(|n| n.is_finite() && *n > above && *n <= max);
    good.map(Value::Number).ok_or_else(|| field.invalid(expected))
}

/// dstack's unit of memory.
pub fn gigabytes(bytes: Bytes) -> Value {
    Value::Number(bytes.0 as f64 / GIB as f64)
}

/// `{min, max}`; an open end is null.
pub fn ends_value<T>(ends: Ends<T>, value: impl Fn(T) -> Value) -> Value {
    let end = |end: Option<T>| end.map_or(Value::Null, &value);
    Value::map([("min", end(ends.min)), ("max", end(ends.max))])
}

pub fn count_ends(ends: Ends<u32>) -> Value {
    ends_value(ends, |count| Value::Integer(i64::from(count)))
}
