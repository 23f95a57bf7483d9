//! `GET /metrics`: the cluster and the server itself as Prometheus reads them.
//!
//! `live_load` asks the nodes what jobs use after a scrape, for the next. `snapshot` takes what is shown under one lock of the state, and `jobs`, `nodes`,
//! `gpus`, `services`, `machines`, `server_itself` and, under dstack's names, `dstack_names` write it as families of samples (`exposition`) after the
//! lock is gone.

mod dstack_names;
#[cfg(test)]
mod dstack_names_tests;
mod exposition;
mod gpus;
mod jobs;
pub mod live_load;
mod machines;
mod nodes;
mod server_itself;
mod services;
mod snapshot;
#[cfg(test)]
mod tests;

use crate::shared::Shared;
use crate::shared::live_loads::Loads;
use crate::shared::scrapes::Reader;
use crate::shared::service_counts::{ServiceName, ServiceValues};
use exposition::Exposition;
use snapshot::Snapshot;

/// The text of a scrape with 1,000 nodes, about.
const USUAL_BYTES: usize = 1 << 20;

/// The text of a scrape of a gateway, which knows nothing but its services.
pub fn scrape_services(services: &[(ServiceName, ServiceValues)]) -> String {
    let mut text = Exposition::default();
    services::write(&mut text, services);
    text.into_text()
}

/// The text of one scrape.
pub fn scrape(shared: &Shared, reader: Reader, loads: &Loads) -> String {
    let snapshot = Snapshot::take(shared, reader);
    let mut text = Exposition::with_capacity(USUAL_BYTES);
    server_itself::write(&mut text, &snapshot);
    jobs::write(&mut text, &snapshot);
    nodes::write(&mut text, &snapshot);
    gpus::write(&mut text, &snapshot);
    services::write(&mut text, &snapshot.services);
    machines::write(&mut text, &snapshot);
    dstack_names::write(&mut text, &snapshot, loads);
    text.into_text()
}
