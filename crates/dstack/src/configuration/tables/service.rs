//! Services.

use super::profile::{PROFILE, SPOT_POLICIES};
use super::resources::RESOURCES;
use super::run::{COMMANDS, OURS, RUN, SETUP_IGNORED};
use crate::configuration::fault::Fault;
use crate::configuration::field::Field;
use crate::configuration::property::{Default, Form, Table, acts, acts_in_part, refused};
use crate::configuration::reader::mapping;
use crate::configuration::reading::Reading;
use crate::configuration::shape::{network, policy, run};
use crate::configuration::value::Value;

static SCALING: Table = Table {
    of: "scaling",
    sections: &[&[
        acts("metric", Form::Words(&["rps"])).or(Default::Required("rps")),
        acts("target", Form::Number(0.0, f64::MAX)).or(Default::Required("a number above 0")),
        acts("window", Form::Shape(scaling_window)),
        acts("scale_up_delay", Form::Duration).or(Default::Written("300")),
        acts("scale_down_delay", Form::Duration).or(Default::Written("600")),
    ]],
};

static KEY: Table = Table {
    of: "key",
    sections: &[&[
        acts("type", Form::Words(&["ip_address", "header"]))
            .or(Default::Required("ip_address or header")),
        acts("header", Form::Text).or(Default::Absent),
    ]],
};

static RATE_LIMIT: Table = Table {
    of: "rate limit",
    sections: &[&[
        acts("prefix", Form::Shape(prefix)).or(Default::Written("/")),
        acts("key", Form::Shape(rate_key)).or(Default::Empty),
        acts("rps", Form::Number(0.016_666, 1_000_000.0))
            .or(Default::Required("the requests of a second")),
        acts("burst", Form::Integer(0, i64::MAX)).or(Default::Written("0")),
    ]],
};

static HEADER: Table = Table {
    of: "header",
    sections: &[&[
        acts("name", Form::Shape(some_text)).or(Default::Required("the header's name")),
        acts("value", Form::Shape(some_text)).or(Default::Required("the header's value")),
    ]],
};

static PROBE: Table = Table {
    of: "probe",
    sections: &[&[
        acts("type", Form::Words(&["http"])).or(Default::Required("http")),
        acts("url", Form::Shape(probe_url)),
        acts("method", Form::Words(&["get", "post", "put", "delete", "patch", "head"])),
        acts("headers", Form::List(&Form::Map(&HEADER), "headers")).or(Default::Empty),
        acts("body", Form::Shape(some_text)),
        acts("timeout", Form::Shape(second_or_more)),
        acts("interval", Form::Shape(second_or_more)),
        acts("ready_after", Form::Integer(1, i64::MAX)),
        acts("until_ready", Form::Bool),
    ]],
};

static MODEL_OPENAI: Table = Table {
    of: "model",
    sections: &[&[
        acts("type", Form::Words(&["chat"])).or(Default::Written("chat")),
        acts("name", Form::Text).or(Default::Required("the model's name")),
        // A model of the format `tgi` has a table of its own.
        acts("format", Form::Words(&["openai", "tgi"])).or(Default::Required("openai or tgi")),
        acts("prefix", Form::Text).or(Default::Written("/v1")),
    ]],
};

/// A server of this format has OpenAI's API too, below `/v1`, and knows the template of its model. `eos_token` is one more `stop` of
/// each request.
static MODEL_TGI: Table = Table {
    of: "model",
    sections: &[&[
        acts("type", Form::Words(&["chat"])).or(Default::Written("chat")),
        acts("name", Form::Text).or(Default::Required("the model's name")),
        acts("format", Form::Words(&["tgi"])).or(Default::Required("openai or tgi")),
        refused("chat_template", Form::Text, NO_CHAT_TEMPLATE),
        acts("eos_token", Form::Text),
    ]],
};

static ROUTER: Table = Table {
    of: "router",
    sections: &[&[
        acts("type", Form::Words(&["smg", "sglang", "dynamo"])).or(Default::Written("smg"))
    ]],
};

static REPLICA_GROUP: Table = Table {
    of: "group",
    sections: &[&[
        acts("name", Form::Shape(run::group_name)),
        acts("replicas", Form::CountRange).or(Default::Required("a count or a range")),
        acts("scaling", Form::Map(&SCALING)),
        acts("resources", Form::Map(&RESOURCES)).or(Default::Empty),
        acts("spot_policy", SPOT_POLICIES),
        acts("reservation", Form::Text),
        acts("commands", COMMANDS).or(Default::Empty),
        acts("image", Form::Shape(run::image_name)),
        acts("python", Form::Shape(run::python)),
        acts("nvcc", Form::Bool),
        acts("docker", Form::Bool),
        acts("privileged", Form::Bool),
        acts("router", Form::Map(&ROUTER)),
    ]],
};

const NO_CHAT_TEMPLATE: &str =
    "is not applied here: TGI applies the model's own, or that of its `--tokenizer-config-path`";

pub static SERVICE: Table = Table {
    of: "service",
    sections: &[
        &[
            acts("port", Form::Shape(network::service_port))
                .or(Default::Required("the port that the service listens on")),
            acts("gateway", Form::Shape(gateway)),
            acts("strip_prefix", Form::Bool).or(Default::Written("true")),
            // Its reader refuses a template of the configuration's own.
            acts_in_part("model", Form::Shape(model)),
            acts("https", Form::Shape(https)),
            acts("auth", Form::Bool).or(Default::Written("true")),
            acts("scaling", Form::Map(&SCALING)),
            acts("rate_limits", Form::List(&Form::Map(&RATE_LIMIT), "rate limits"))
                .or(Default::Empty),
            acts("probes", Form::List(&Form::Shape(probe), "probes")),
            // `check` refuses a number beyond its bound, and a range without an end.
            acts_in_part("replicas", Form::CountRange),
            // `check` refuses what its groups cannot have beside each other.
            acts_in_part("groups", Form::List(&Form::Map(&REPLICA_GROUP), "groups")),
            acts("commands", COMMANDS).or(Default::Empty),
            acts("type", Form::Text),
        ],
        RUN,
        SETUP_IGNORED,
        PROFILE,
        OURS,
    ],
};

fn probe(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    let probe = mapping(field, &PROBE, reading)?;
    match probe.get("method").as_text() {
        Some(method @ ("get" | "head")) if !probe.get("body").is_null() => {
            Err(field.refused(format!("`{method}` takes no `body`: leave it out, or say `post`")))
        }
        _ => Ok(probe),
    }
}

/// The path begins as it is written: what a variable has is filled in behind that.
fn probe_url(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "a path such as /health";
    match field.text(expected)? {
        path if path.starts_with('/') && !path.contains(char::is_control) => Ok(Value::text(path)),
        _ => Err(field.invalid(expected)),
    }
}

fn some_text(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "text that is not empty";
    match field.text(expected)? {
        "" => Err(field.invalid(expected)),
        text => Ok(Value::text(text)),
    }
}

fn second_or_more(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let secs = field.duration()?.as_secs();
    let whole = i64::try_from(secs).ok().filter(|secs| *secs > 0);
    whole.map(Value::Integer).ok_or_else(|| field.invalid("1s or more"))
}

fn scaling_window(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    match field.duration()?.as_secs() {
        30 => Ok(Value::Integer(30)),
        60 => Ok(Value::Integer(60)),
        300 => Ok(Value::Integer(300)),
        _ => Err(field.invalid("one of 30s, 60s and 300s")),
    }
}

/// `true`, `false`, or the gateway's name.
pub fn gateway(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    match field.boolean() {
        Some(said) => Ok(Value::Bool(said)),
        None => policy::entity(field, reading),
    }
}

/// `true`, `false`, or `auto`.
fn https(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    match (field.lenient_boolean(), field.text("")) {
        (Some(said), _) => Ok(Value::Bool(said)),
        (None, Ok("auto")) => Ok(Value::text("auto")),
        _ => Err(field.invalid("true, false or auto")),
    }
}

/// The model's name alone, or a mapping.
fn model(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    let expected = "a model's name, or a mapping";
    if field.is_map() {
        let entries = field.entries(expected)?;
        let mut formats = entries.iter().filter(|(key, ..)| *key == "format");
        let is_tgi = formats.any(|(_, _, format)| format.text("") == Ok("tgi"));
        return mapping(field, if is_tgi { &MODEL_TGI } else { &MODEL_OPENAI }, reading);
    }
    Ok(Value::map([
        ("type", Value::text("chat")),
        ("name", Value::text(field.text(expected)?)),
        ("format", Value::text("openai")),
        ("prefix", Value::text("/v1")),
    ]))
}

/// A client's address, where a rate limit does not say what tells clients apart.
fn rate_key(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    if field.is_map() && field.is_off() {
        return Ok(Value::map([("type", Value::text("ip_address"))]));
    }
    mapping(field, &KEY, reading)
}

fn prefix(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "a path such as /api, without spaces, backslashes and braces";
    let text = field.text(expected)?;
    let bad = |c: char| c.is_whitespace() || matches!(c, '\\' | '{' | '}');
    if text.starts_with('/') && text.len() <= 4_094 && !text.contains(bad) {
        Ok(Value::text(text))
    } else {
        Err(field.invalid(expected))
    }
}
