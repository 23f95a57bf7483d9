//! Requests to services.

use super::exposition::{Exposition, Kind, seconds};
use crate::shared::service_counts::{BUCKETS_S, CLASSES, ServiceName, ServiceValues};

pub fn write(text: &mut Exposition, services: &[(ServiceName, ServiceValues)]) {
    if services.is_empty() {
        return;
    }
    let mut requests =
        text.counter("sluice_service_requests_total", "Requests to services, by class of status.");
    for (name, values) in services {
        for (class, count) in CLASSES.into_iter().zip(values.by_class) {
            let labels = [("project", &*name.project), ("run", &*name.run), ("class", class)];
            requests.sample(&labels, count);
        }
    }
    let mut errors = text
        .counter("sluice_service_errors_total", "Requests to services that no replica answered.");
    for (name, values) in services {
        errors.sample(&[("project", &*name.project), ("run", &*name.run)], values.errors);
    }
    let help = "The time until the head of an answer of a service.";
    let mut times = text.family("sluice_service_request_duration_seconds", Kind::Histogram, help);
    for (name, values) in services {
        let labels = [("project", &*name.project), ("run", &*name.run)];
        let buckets = BUCKETS_S.into_iter().zip(values.buckets);
        times.distribution(&labels, buckets, values.requests(), seconds(values.total_us));
    }
    let mut replicas =
        text.gauge("sluice_service_replicas", "Replicas of services that take requests.");
    for (name, values) in services {
        replicas.sample(&[("project", &*name.project), ("run", &*name.run)], values.replicas);
    }
    let mut websockets =
        text.gauge("sluice_service_websockets", "WebSockets that are open to services.");
    for (name, values) in services {
        websockets.sample(&[("project", &*name.project), ("run", &*name.run)], values.websockets);
    }
}
