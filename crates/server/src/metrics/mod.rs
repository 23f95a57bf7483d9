//! `GET /metrics`: the cluster and the server itself as Prometheus reads them.
//!
//! `snapshot` takes what is shown under one lock of the state, `jobs`, `nodes`, `gpus` and `server_itself` write it as families
//! of samples (`exposition`) after the lock is gone.

mod exposition;
mod gpus;
mod jobs;
mod nodes;
mod server_itself;
mod snapshot;
#[cfg(test)]
mod tests;

use crate::shared::Shared;
use crate::shared::scrapes::Reader;
use exposition::Exposition;
use snapshot::Snapshot;

/// The text of a scrape with 1,000 nodes, about.
const USUAL_BYTES: usize = 1 << 20;

/// The text of one scrape.
pub fn scrape(shared: &Shared, reader: Reader) -> String {
    let snapshot = Snapshot::take(shared, reader);
    let mut text = Exposition::with_capacity(USUAL_BYTES);
    server_itself::write(&mut text, &snapshot);
    jobs::write(&mut text, &snapshot);
    nodes::write(&mut text, &snapshot);
    gpus::write(&mut text, &snapshot);
    text.into_text()
}
