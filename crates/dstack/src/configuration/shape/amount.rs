//! `cpu`, `gpu`, `disk`, and the counts of nodes: texts in dstack's grammar, or mappings.

use crate::configuration::fault::{Fault, Problem};
use crate::configuration::field::{Ends, Field};
use crate::configuration::property::{Default, Form, Table, acts};
use crate::configuration::reader::{count_ends, ends_value, gigabytes, mapping};
use crate::configuration::reading::Reading;
use crate::configuration::value::Value;
use model::amount::Bytes;
use model::gpu::{self, GpuSpec, GpuVendor};
use model::grammar::GrammarError;
use model::range::Range;

pub const ARCHITECTURES: &[&str] = &["x86", "arm"];

pub static CPU: Table = Table {
    of: "cpu",
    sections: &[&[
        acts("arch", Form::Words(ARCHITECTURES)),
        acts("count", Form::CountRange).or(Default::Written("2..")),
    ]],
};

pub static GPU: Table = Table {
    of: "gpu",
    sections: &[&[
        acts("vendor", Form::Shape(vendor)),
        acts("name", Form::Shape(gpu_names)),
        acts("count", Form::CountRange).or(Default::Written("1..")),
        acts("memory", Form::SizeRange),
        acts("total_memory", Form::SizeRange),
        acts("compute_capability", Form::Shape(capability)),
    ]],
};

const SIZE: &str = "a size such as 100GB..";

pub static DISK: Table = Table {
    of: "disk",
    sections: &[&[acts("size", Form::Shape(node_size)).or(Default::Required(SIZE))]],
};

/// What a node gives is booked in whole MB: a range that ends below has nothing that could be granted, though dstack's grammar
/// takes it.
const SIZE_MIN: Bytes = Bytes::from_mib(1);

/// `4..`, `x86`, `x86:4..`, or a mapping of `arch` and `count`, or of `min` and `max`.
pub fn cpu(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    let cpu = any_cpu(field, reading)?;
    if cpu.get("count").get("max").as_count() == Some(0) {
        return Err(field.invalid("1 or more, as in 4, 4.. or ..8"));
    }
    Ok(cpu)
}

fn any_cpu(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    let expected = "a count such as 4.., an architecture such as x86, or both as in x86:4..";
    if !field.is_map() {
        return cpu_text(field.text(expected)?).map_err(|e| field.grammar(e));
    }
    let is_bound = |name: &str| matches!(name, "min" | "max");
    if field.entries(expected)?.iter().any(|(key, ..)| is_bound(key)) {
        return Ok(cpu_value(None, field.count_range()?));
    }
    mapping(field, &CPU, reading)
}

fn cpu_value(arch: Option<&str>, count: Ends<u32>) -> Value {
    Value::map([("arch", Value::optional_text(arch)), ("count", count_ends(count))])
}

fn cpu_text(text: &str) -> Result<Value, GrammarError> {
    let refused = |expected: &str| GrammarError::new("CPU", text, expected);
    let (mut arch, mut count) = (None, None);
    for token in text.split(':').map(str::trim) {
        if token.is_empty() {
            return Err(refused("an architecture, a count, or both as in x86:4.."));
        }
        let known = ARCHITECTURES.iter().find(|known| known.eq_ignore_ascii_case(token));
        let is_count = token.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        if is_count {
            let range = Range::parse_count("CPU count", token)?;
            if count.replace(Ends::of(token, range)).is_some() {
                return Err(refused("one count"));
            }
        } else {
            let known = *known.ok_or_else(|| refused("the architecture x86 or arm"))?;
            if arch.replace(known).is_some() {
                return Err(refused("one architecture"));
            }
        }
    }
    Ok(cpu_value(arch, count.unwrap_or(Ends { min: Some(2), max: None })))
}

/// A count, a text such as `H100:80GB:2`, or a mapping.
pub fn gpu(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    let expected = "a count, a text such as H100:80GB:2, or a mapping";
    if field.is_map() {
        return mapping(field, &GPU, reading);
    }
    if field.boolean().is_some() {
        return Err(field.invalid(expected));
    }
    let text = field.text(expected)?;
    let spec = GpuSpec::parse(text).map_err(|e| field.grammar(e))?;
    // Which of the parts is open downwards: memory has a unit, a count has none.
    let open = |is_memory: bool| {
        let parts = text.split(':').map(str::trim).filter(|part| part.starts_with(".."));
        parts.map(|part| part.ends_with(|c: char| c.is_ascii_alphabetic())).any(|m| m == is_memory)
    };
    let ends = |open: bool| if open { ".." } else { "" };
    let names = match &spec.names[..] {
        [] => Value::Null,
        names => Value::List(names.iter().map(Value::text).collect()),
    };
    let memory = spec.memory.map(|range| Ends::of(ends(open(true)), range));
    Ok(Value::map([
        ("vendor", Value::optional_text(spec.vendor.map(GpuVendor::as_str))),
        ("name", names),
        ("count", count_ends(Ends::of(ends(open(false)), spec.count))),
        ("memory", memory.map_or(Value::Null, |ends| ends_value(ends, gigabytes))),
        ("total_memory", Value::Null),
        ("compute_capability", Value::Null),
    ]))
}

fn vendor(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let vendor = gpu::parse_vendor(field.text("a vendor such as nvidia")?);
    vendor.map(|vendor| Value::text(vendor.as_str())).map_err(|e| field.grammar(e))
}

/// `A100`, `A100,H100`, or a list.
fn gpu_names(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "a GPU's name such as H100, or a list of names";
    let names = if field.is_list() {
        field.texts(expected)?
    } else {
        let names = field.text(expected)?.split(',');
        names.map(|name| name.trim().to_owned()).collect()
    };
    if names.iter().any(|name| name.is_empty()) {
        return Err(field.invalid("no empty name"));
    }
    Ok(Value::List(names.into_iter().map(Value::Text).collect()))
}

/// `8.0`, or the two numbers as a list.
fn capability(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "a version such as 8.0";
    let number = |part: &str| part.parse::<u16>().ok().map(|n| Value::Integer(i64::from(n)));
    let parts = if field.is_list() {
        field.texts(expected)?
    } else {
        field.text(expected)?.split('.').map(str::to_owned).collect()
    };
    let numbers: Option<Vec<Value>> = parts.iter().map(|part| number(part)).collect();
    match numbers {
        Some(mut numbers) if numbers.len() <= 2 && !numbers.is_empty() => {
            numbers.resize(2, Value::Integer(0));
            Ok(Value::List(numbers))
        }
        _ => Err(field.invalid(expected)),
    }
}

/// The memory or the disk of a node: a size or a range, of which something can be granted.
pub fn node_size(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let ends = field.bytes_range()?;
    if ends.max.is_some_and(|most| most < SIZE_MIN) {
        return Err(field.invalid("1MB or more, as in 16GB, 16GB.. or ..32GB"));
    }
    Ok(ends_value(ends, gigabytes))
}

/// A size such as `100GB..`, or a mapping with `size`.
pub fn disk(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    if field.is_map() {
        return mapping(field, &DISK, reading);
    }
    Ok(Value::map([("size", node_size(field, reading)?)]))
}

/// A task's `nodes`: a number, or a range as `-N 2-4` has, which dstack does not: it stays text.
pub fn task_nodes(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "a whole number, 1 or more, or a range such as 2..4";
    let range = field.count_range().map_err(|_| field.invalid(expected))?;
    let (min, max) = (range.min.unwrap_or(1), range.max);
    if min == 0 {
        return Err(field.invalid(expected));
    }
    match max {
        Some(max) if max == min => Ok(Value::Integer(i64::from(min))),
        Some(max) => Ok(Value::Text(format!("{min}..{max}"))),
        None => Ok(Value::Text(format!("{min}.."))),
    }
}

/// A fleet's `nodes`: a number, a range, or a mapping of `min`, `target` and `max`.
pub fn fleet_nodes(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "a count, a range such as 0..4, or a mapping of min, target and max";
    let (min, target, max) = if field.is_map() {
        let (mut min, mut target, mut max) = (None, None, None);
        for (key, position, end) in field.entries(expected)? {
            let place = match key {
                "min" => &mut min,
                "target" => &mut target,
                "max" => &mut max,
                _ => {
                    let property = end.name.clone();
                    return Err(Fault::new(position, Problem::Unknown { property, nearest: None }));
                }
            };
            if !end.is_nothing() {
                *place = Some(end.integer(0, i64::from(u32::MAX))?);
            }
        }
        (min.unwrap_or(0), target, max)
    } else {
        let Ends { min, max } = field.count_range()?;
        (min.unwrap_or(0).into(), None, max.map(i64::from))
    };
    let target = target.unwrap_or(min);
    if target < min || max.is_some_and(|max| max < target) {
        return Err(field.invalid("`min` not above `target`, and neither above `max`"));
    }
    let mut nodes = vec![("min".into(), Value::Integer(min))];
    // dstack leaves out a target that is the minimum.
    if target != min {
        nodes.push(("target".into(), Value::Integer(target)));
    }
    nodes.push(("max".into(), max.map_or(Value::Null, Value::Integer)));
    Ok(Value::Map(nodes))
}

/// A fleet's `blocks`: a number, or `auto`.
pub fn blocks(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    match field.text("a number or auto")? {
        "auto" => Ok(Value::text("auto")),
        _ => match field.integer(1, i64::from(u32::MAX)) {
            Ok(number) => Ok(Value::Integer(number)),
            Err(_) => Err(field.invalid("a whole number, 1 or more, or auto")),
        },
    }
}
