//! The series that exporters on nodes publish, as their agents sent them last.

use model::gpu_series::GpuSeries;
use model::time::Timestamp;
use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// Series that were not sent again for this long are not shown: agents send theirs every quarter of a minute.
const SHOWN_MAX: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct RelayedSeries {
    by_node: RwLock<HashMap<String, (Timestamp, Arc<GpuSeries>)>>,
}

impl RelayedSeries {
    /// Replaces what was known of these nodes.
    pub fn put(&self, nodes: Vec<String>, series: GpuSeries, now: Timestamp) {
        let series = Arc::new(series);
        let mut known = self.by_node.write().expect("no panic while writing series");
        known.retain(|_, (since, _)| now.since(*since) < SHOWN_MAX);
        known.extend(nodes.into_iter().map(|node| (node, (now, series.clone()))));
    }

    /// The series of each node.
    pub fn shown(&self, now: Timestamp) -> HashMap<String, Arc<GpuSeries>> {
        let known = self.by_node.read().expect("no panic while writing series");
        let fresh = known.iter().filter(|(_, (since, _))| now.since(*since) < SHOWN_MAX);
        fresh.map(|(node, (_, series))| (node.clone(), series.clone())).collect()
    }
}
