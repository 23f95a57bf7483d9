//! Ports, addresses, and the hosts of a fleet.

use crate::configuration::fault::Fault;
use crate::configuration::field::Field;
use crate::configuration::property::{Default, Form, Table, acts};
use crate::configuration::reader::mapping;
use crate::configuration::reading::Reading;
use crate::configuration::value::Value;
use model::ip_network::IpNetwork;
use std::net::IpAddr;

pub const PORT: Form = Form::Integer(1, 65_535);

static PORTS: Table = Table {
    of: "port",
    sections: &[&[
        acts("local_port", PORT),
        acts("container_port", PORT).or(Default::Required("a port")),
    ]],
};

/// `8080`, `80:8080`, `*:8080`, or a mapping.
pub fn port(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    port_with(field, reading, |port| port)
}

/// A service's port: a number alone is reached at port 80.
pub fn service_port(field: &Field<'_>, reading: &mut Reading) -> Result<Value, Fault> {
    port_with(field, reading, |_| 80)
}

fn port_with(
    field: &Field<'_>,
    reading: &mut Reading,
    local_of: fn(u16) -> u16,
) -> Result<Value, Fault> {
    if field.is_map() {
        return mapping(field, &PORTS, reading);
    }
    let expected = "a port such as 8080, 80:8080 or *:8080";
    let number = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
    let text = field.text(expected)?;
    let ports = match text.split_once(':') {
        None => number(text).map(|port| (Some(local_of(port)), port)),
        Some(("*", port)) => number(port).map(|port| (None, port)),
        Some((local, port)) => number(local).zip(number(port)).map(|(l, port)| (Some(l), port)),
    };
    let (local, port) = ports.ok_or_else(|| field.invalid(expected))?;
    let value = |port: u16| Value::Integer(i64::from(port));
    Ok(Value::map([
        ("local_port", local.map_or(Value::Null, value)),
        ("container_port", value(port)),
    ]))
}

/// An address inside the cluster.
pub fn internal_ip(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "a private IP address such as 10.0.0.1";
    let text = field.text(expected)?;
    let private = text.parse().is_ok_and(is_private);
    if private { Ok(Value::text(text)) } else { Err(field.invalid(expected)) }
}

/// Whether dstack takes the address for a private one. It does so for those of benchmarks and of documentation too.
fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let for_benchmarks = matches!(ip.octets(), [198, 18 | 19, ..]);
            let of_machine = ip.is_loopback() || ip.is_link_local();
            ip.is_private() || of_machine || ip.is_documentation() || for_benchmarks
        }
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_loopback() || ip.is_unicast_link_local(),
    }
}

/// `10.0.0.0/24`, or an address alone.
pub fn network(field: &Field<'_>, _: &mut Reading) -> Result<Value, Fault> {
    let expected = "a private network such as 10.0.0.0/24";
    let text = field.text(expected)?;
    let good = text.parse().is_ok_and(|network: IpNetwork| is_private(network.first()));
    if good { Ok(Value::text(text)) } else { Err(field.invalid(expected)) }
}
