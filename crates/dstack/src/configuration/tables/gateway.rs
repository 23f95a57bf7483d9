//! Gateways.

use crate::configuration::fault::Fault;
use crate::configuration::field::Field;
use crate::configuration::property::{Default, Form, Table, acts};
use crate::configuration::reader::mapping;
use crate::configuration::reading::Reading;
use crate::configuration::shape::{policy, run};
use crate::configuration::value::Value;

static LETS_ENCRYPT: Table = Table {
    of: "certificate",
    sections: &[&[
        acts("type", Form::Words(&["lets-encrypt"])).or(Default::Written("lets-encrypt"))
    ]],
};

static ACM: Table = Table {
    of: "certificate",
    sections: &[&[
        acts("type", Form::Words(&["acm"])),
        acts("arn", Form::Text).or(Default::Required("the certificate's ARN")),
    ]],
};

static GCP_CM: Table = Table {
    of: "certificate",
    sections: &[&[
        acts("type", Form::Words(&["gcp-cm"])),
        acts("name", Form::Text).or(Default::Required("the certificate's full name")),
    ]],
};

const CERTIFICATES: &[&str] = &["lets-encrypt", "acm", "gcp-cm"];

/// Refused at apply as a type, so that its own properties say nothing of their own.
pub static GATEWAY: Table = Table {
    of: "gateway",
    sections: &[&[
        acts("type", Form::Text),
        acts("name", Form::Shape(run::run_name)),
        acts("default", Form::Bool).or(Default::Absent),
        acts("backend", Form::Words(policy::BACKENDS)).or(Default::Required("the backend's name")),
        acts("region", Form::Text).or(Default::Required("the gateway's region")),
        acts("instance_type", Form::Text),
        acts("domain", Form::Text),
        acts("public_ip", Form::Bool).or(Default::Written("true")),
        acts("load_balancer", Form::Anything).or(Default::Absent),
        acts("certificate", Form::Shape(certificate)).or(Default::WrittenOrNull("lets-encrypt")),
        acts("replicas", Form::Integer(1, u32::MAX as i64)),
        acts("tags", Form::Shape(policy::tags)),
    ]],
};

/// A mapping with `type`.
fn certificate(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    let expected = "a mapping with the type lets-encrypt, acm or gcp-cm";
    if !field.is_map() {
        let kind = field.word(&CERTIFICATES[..1]).map_err(|_| field.invalid(expected))?;
        return Ok(Value::map([("type", Value::text(kind))]));
    }
    let entries = field.entries(expected)?;
    let Some((_, _, kind)) = entries.into_iter().find(|(key, ..)| *key == "type") else {
        return Err(field.invalid(expected));
    };
    let table = match kind.word(CERTIFICATES)? {
        "acm" => &ACM,
        "gcp-cm" => &GCP_CM,
        _ => &LETS_ENCRYPT,
    };
    mapping(field, table, reading)
}
