//! Policies of a run: retrying, fleets, instances, tags, schedules, backends.

use crate::configuration::fault::{Fault, Problem};
use crate::configuration::field::Field;
use crate::configuration::policy::RETRY_EVENTS;
use crate::configuration::property::{Default, Form, Table, acts};
use crate::configuration::reader::{self, mapping};
use crate::configuration::reading::Reading;
use crate::configuration::value::Value;
use model::cron::Cron;
pub use model::machine_choice::BACKENDS;

/// The bytes of a tag's value.
const TAG_BYTES_MAX: usize = 256;

pub const STARTUP_ORDERS: &[&str] = &["any", "master-first", "workers-first"];
pub static RETRY: Table = Table {
    of: "retry",
    sections: &[&[
        acts("on_events", Form::Shape(retry_events)),
        acts("duration", Form::Duration),
        // Ours: dstack has no bound on the number of attempts.
        acts("attempts", Form::Integer(1, u32::MAX as i64)).or(Default::Absent),
    ]],
};

static ENTITY: Table = Table {
    of: "reference",
    sections: &[&[
        acts("project", Form::Text),
        acts("name", Form::Text).or(Default::Required("a name")),
    ]],
};

static INSTANCE_NAME: Table = Table {
    of: "instance",
    sections: &[&[acts("name", Form::Text).or(Default::Required("an instance's name"))]],
};

static INSTANCE_HOST: Table = Table {
    of: "instance",
    sections: &[&[acts("hostname", Form::Text).or(Default::Required("a host's name"))]],
};

static INSTANCE_OF_FLEET: Table = Table {
    of: "instance",
    sections: &[&[
        acts("fleet", Form::Shape(entity)).or(Default::Required("a fleet")),
        acts("instance", Form::Integer(0, u32::MAX as i64))
            .or(Default::Required("the instance's number in its fleet")),
    ]],
};

/// dstack has options for Vast.ai alone, and its client cannot read a run that has others.
static BACKEND_OPTIONS: Table = Table {
    of: "backend_options",
    sections: &[&[
        acts("type", Form::Words(&["vastai"])).or(Default::Written("vastai")),
        acts("offer_order", Form::Words(&["score", "price"])),
        acts("min_reliability", Form::Shape(reliability)),
        acts("min_score", Form::Integer(0, i64::MAX)),
    ]],
};

/// `true`, `false`, or a mapping of `on_events`, `duration` and `attempts`.
pub fn retry(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    match field.lenient_boolean() {
        Some(said) => Ok(Value::Bool(said)),
        None if field.is_map() => mapping(field, &RETRY, reading),
        None => Err(field.invalid("true, false, or a mapping of on_events and duration")),
    }
}

fn retry_events(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let events = field.list("a list of no-capacity, interruption and error")?;
    if events.is_empty() {
        return Err(field.invalid("at least one of no-capacity, interruption and error"));
    }
    let each = events.iter().map(|event| event.word(&RETRY_EVENTS).map(Value::text));
    each.collect::<Result<_, _>>().map(Value::List)
}

/// `NAME`, `PROJECT/NAME`, or a mapping: a fleet or a gateway, of this project or of another.
pub fn entity(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    if field.is_map() {
        return mapping(field, &ENTITY, reading);
    }
    let expected = "NAME or PROJECT/NAME";
    let parts: Vec<&str> = field.text(expected)?.split('/').collect();
    let (project, name) = match parts[..] {
        [name] => (None, name),
        [project, name] if !project.is_empty() => (Some(project), name),
        _ => return Err(field.invalid(expected)),
    };
    if name.is_empty() {
        return Err(field.invalid(expected));
    }
    Ok(Value::map([("project", Value::optional_text(project)), ("name", Value::text(name))]))
}

/// An instance's name, or a mapping with `hostname`, or of `fleet` and `instance`.
pub fn instance(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    let expected = "a name, a mapping with hostname, or one of fleet and instance";
    if !field.is_map() {
        return Ok(Value::map([("name", Value::text(field.text(expected)?))]));
    }
    let entries = field.entries(expected)?;
    let has = |name: &str| entries.iter().any(|(key, ..)| *key == name);
    let table = match (has("hostname"), has("fleet") || has("instance")) {
        (true, _) => &INSTANCE_HOST,
        (_, true) => &INSTANCE_OF_FLEET,
        _ => &INSTANCE_NAME,
    };
    mapping(field, table, reading)
}

pub fn instances(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    let items = field.list("a list of instances")?;
    if items.is_empty() {
        return Err(field.invalid("at least one instance"));
    }
    let each = items.iter().map(|item| instance(item, reading));
    each.collect::<Result<_, _>>().map(Value::List)
}

/// A list of mappings, one at most for each backend.
pub fn backend_options(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    let items = field.list("a list of options")?;
    let each = items.iter().map(|item| mapping(item, &BACKEND_OPTIONS, reading));
    let options: Vec<Value> = each.collect::<Result<_, _>>()?;
    for (at, option) in options.iter().enumerate() {
        let backend = option.get("type");
        if options[..at].iter().any(|earlier| earlier.get("type") == backend) {
            return Err(items[at].invalid("one mapping for each backend"));
        }
    }
    Ok(Value::List(options))
}

/// A number from 0 to 1, both included.
fn reliability(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "a number from 0 to 1";
    let number: Option<f64> = field.text(expected)?.trim().parse().ok();
    let good = number.filter(|number| (0.0..=1.0).contains(number));
    good.map(Value::Number).ok_or_else(|| field.invalid(expected))
}

pub fn tags(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let mut tags = Vec::new();
    for (key, position, value) in field.entries("a mapping of tags to values")? {
        let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if !(1..=60).contains(&key.len()) || !key.bytes().all(letter) {
            let problem = Problem::Invalid {
                property: field.name.clone(),
                value: format!("{key:?}"),
                expected: "a tag of 1 to 60 letters, digits, _ and -".into(),
            };
            return Err(Fault::new(position, problem));
        }
        let expected = "a text of up to 256 letters, digits, spaces and characters of .:/=_-+@";
        let text = value.text(expected)?;
        let sign = |b: u8| b.is_ascii_alphanumeric() || b" .:/=_-+@".contains(&b);
        if text.len() > TAG_BYTES_MAX || !text.bytes().all(sign) {
            return Err(value.invalid(expected));
        }
        tags.push((key.to_owned().into(), Value::text(text)));
    }
    Ok(Value::Map(tags))
}

const CRON: &str = "a cron expression such as 0 3 * * *, or a list of them";

/// One cron expression, or a list of them.
pub fn cron(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    if !field.is_list() {
        return cron_expression(field, reading).map(|one| Value::List(vec![one]));
    }
    let items = field.list(CRON)?;
    if items.is_empty() {
        return Err(field.invalid("at least one cron expression"));
    }
    let each = items.iter().map(|item| cron_expression(item, reading));
    each.collect::<Result<_, _>>().map(Value::List)
}

fn cron_expression(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    let text = field.text(CRON)?;
    Cron::parse(text).map_err(|e| field.grammar(e))?;
    let weekdays = text.split_whitespace().next_back().unwrap_or_default();
    let ranges = weekdays.split(',').filter_map(|part| part.split('/').next());
    let begins_on_sunday =
        ranges.clone().any(|range| range.to_ascii_lowercase().starts_with("sun-"));
    let numbers = ranges.flat_map(|range| range.split('-')).filter_map(|day| day.parse().ok());
    let numbers: Vec<u8> = numbers.collect();
    // dstack's client could not read it.
    if numbers.contains(&7) || begins_on_sunday {
        return Err(field.invalid("days of the week from 0 to 6, or by name as in mon-fri"));
    }
    if !numbers.is_empty() {
        let why = "days of the week count from Sunday, which is 0, and in dstack from Monday: names as in mon-fri are the same in both";
        reading.notice(field, why);
    }
    Ok(Value::text(text))
}

/// A duration in which something can run, or `off`.
pub fn max_duration(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    match reader::value(&Form::DurationOrOff, field, reading)? {
        Value::Integer(0) => Err(field.invalid("a duration above 0 such as 2h, or off")),
        duration => Ok(duration),
    }
}

/// A duration, or `off`, which says nothing: dstack's client reads no number for it.
pub fn inactivity(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    // Clients of earlier builds send -1 for `off`.
    if field.boolean().is_some() || field.says_off() || matches!(field.text(""), Ok("-1")) {
        return Ok(Value::Null);
    }
    let secs = i64::try_from(field.duration()?.as_secs());
    secs.map(Value::Integer).map_err(|_| field.invalid("a shorter duration"))
}

pub fn time_window(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    const WINDOW_MIN_S: u64 = 300;
    match field.duration()?.as_secs() {
        secs if secs < WINDOW_MIN_S => Err(field.invalid("5m or more")),
        secs => Ok(Value::Integer(i64::try_from(secs).unwrap_or(i64::MAX))),
    }
}
