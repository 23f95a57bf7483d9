//! Fleets: machines of a cloud, or hosts that are reached over SSH.

use super::profile::{NO_OPTIONS, SPOT_POLICIES};
use super::resources::RESOURCES;
use crate::configuration::fault::Fault;
use crate::configuration::field::Field;
use crate::configuration::property::{Default, Form, Table, acts, notice};
use crate::configuration::reader::mapping;
use crate::configuration::reading::Reading;
use crate::configuration::shape::{amount, env, network, policy, run};
use crate::configuration::value::Value;

const NAMES: Form = Form::List(&Form::Text, "names");

static SSH_KEY: Table = Table {
    of: "ssh_key",
    sections: &[&[
        acts("public", Form::Text).or(Default::Required("the public key")),
        acts("private", Form::Text),
    ]],
};

static PROXY_JUMP: Table = Table {
    of: "proxy_jump",
    sections: &[&[
        acts("hostname", Form::Text).or(Default::Required("the proxy's address")),
        acts("port", network::PORT),
        acts("user", Form::Text).or(Default::Required("the user to log in with")),
        acts("identity_file", Form::Text).or(Default::Required("the private key's file")),
        acts("ssh_key", Form::Map(&SSH_KEY)),
    ]],
};

static HOST: Table = Table {
    of: "host",
    sections: &[&[
        acts("hostname", Form::Text).or(Default::Required("the host's address")),
        acts("port", network::PORT),
        acts("user", Form::Text),
        acts("identity_file", Form::Text),
        acts("proxy_jump", Form::Map(&PROXY_JUMP)),
        acts("internal_ip", Form::Shape(network::internal_ip)),
        acts("ssh_key", Form::Map(&SSH_KEY)),
        acts("blocks", Form::Shape(amount::blocks)),
    ]],
};

static SSH_CONFIG: Table = Table {
    of: "ssh_config",
    sections: &[&[
        acts("user", Form::Text),
        acts("port", network::PORT),
        acts("identity_file", Form::Text),
        acts("ssh_key", Form::Map(&SSH_KEY)),
        acts("proxy_jump", Form::Map(&PROXY_JUMP)),
        acts("hosts", Form::List(&Form::Shape(host), "hosts"))
            .or(Default::Required("a list of hosts")),
        acts("network", Form::Shape(network::network)),
    ]],
};

/// Machines of a cloud are those of sources (docs/machines.md), or hosts are named by `ssh_config`.
pub static FLEET: Table = Table {
    of: "fleet",
    sections: &[&[
        acts("type", Form::Text),
        acts("name", Form::Shape(run::run_name)),
        acts("placement", Form::Words(&["any", "cluster"])),
        acts("blocks", Form::Shape(amount::blocks)).or(Default::Written("1")),
        acts("nodes", Form::Shape(amount::fleet_nodes)),
        acts("reservation", Form::Text),
        acts("resources", Form::Map(&RESOURCES)),
        acts("backends", Form::List(&Form::Words(policy::BACKENDS), "backends")),
        acts("regions", NAMES),
        acts("availability_zones", NAMES),
        acts("instance_types", NAMES),
        acts("spot_policy", SPOT_POLICIES),
        acts("retry", Form::Shape(policy::retry)),
        acts("max_price", Form::Number(0.0, f64::MAX)),
        acts("idle_duration", Form::IdleDuration),
        acts("tags", Form::Shape(policy::tags)),
        notice("backend_options", Form::Shape(policy::backend_options), NO_OPTIONS),
        acts("ssh_config", Form::Map(&SSH_CONFIG)),
        notice("env", Form::Shape(env::env), "has no effect: a job has its own `env`")
            .or(Default::Empty),
    ]],
};

/// A host's address alone, or a mapping. dstack keeps the short form.
fn host(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    if field.is_map() {
        return mapping(field, &HOST, reading);
    }
    field.text("a host's address, or a mapping with hostname").map(Value::text)
}
