//! Presets, which dstack's own client searches for with an agent and keeps.

use super::service::gateway;
use crate::configuration::fault::Fault;
use crate::configuration::field::Field;
use crate::configuration::property::{Default, Form, Table, acts};
use crate::configuration::reader::mapping;
use crate::configuration::reading::Reading;
use crate::configuration::shape::env;
use crate::configuration::value::Value;

const ABOVE_0: Form = Form::Integer(1, i64::MAX);

static MODEL: Table =
    Table { of: "model", sections: &[&[acts("base", Form::Text), acts("repo", Form::Text)]] };

static PROMPT_FILE: Table = Table {
    of: "prompt",
    sections: &[&[acts("path", Form::Text).or(Default::Required("the path of a file"))]],
};

/// Refused at apply as a type, so that its own properties say nothing of their own.
pub static PRESET: Table = Table {
    of: "preset",
    sections: &[&[
        acts("type", Form::Text),
        acts("name", Form::Text),
        acts("model", Form::Map(&MODEL)),
        acts("base", Form::Text),
        acts("repo", Form::Text),
        acts("prompt", Form::Shape(prompt)),
        acts("min_context_length", ABOVE_0),
        acts("max_ttft", ABOVE_0),
        acts("trials", ABOVE_0),
        acts("previous", Form::List(&Form::Text, "ids of presets")),
        acts("concurrency", ABOVE_0),
        acts("input_tokens", ABOVE_0),
        acts("output_tokens", Form::Integer(0, i64::MAX)),
        acts("shared_prefix_tokens", Form::Integer(0, i64::MAX)),
        acts("dataset", Form::Text),
        acts("baseline", Form::Bool),
        acts("gateway", Form::Shape(gateway)),
        acts("agent", Form::Anything),
        acts("env", Form::Shape(env::env)).or(Default::Empty),
    ]],
};

/// The instructions themselves, or a mapping with the path of a file that has them.
fn prompt(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    if field.is_map() {
        return mapping(field, &PROMPT_FILE, reading);
    }
    Ok(Value::text(field.text("a text, or a mapping with the path of a file")?))
}
