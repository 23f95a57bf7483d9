//! `type: service` as a type: a task whose replicas answer requests.

use super::reading::Reading;
use super::task::Task;
use super::value::Value;
use model::service::Service;

/// The run of a service. Its replicas are the tasks of an array, each placed, limited and retried by itself.
pub(super) fn task(value: &Value, reading: &Reading) -> Task {
    let service = service(value);
    let array = (service.replicas > 1).then(|| format!("0-{}", service.replicas - 1));
    Task { array, service: Some(service), ..Task::of(value, reading) }
}

fn service(value: &Value) -> Service {
    let port = value.get("port").get("container_port").as_integer();
    let replicas = value.get("replicas").get("min").as_count();
    Service {
        port: port.and_then(|port| u16::try_from(port).ok()).unwrap_or_default(),
        replicas: replicas.unwrap_or(1),
        auth: value.get("auth").as_bool().unwrap_or(true),
        strip_prefix: value.get("strip_prefix").as_bool().unwrap_or(true),
    }
}
