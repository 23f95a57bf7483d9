//! Nodes and partitions with nothing on them, for what is checked at submit.

use crate::state::State;
use crate::view;
use model::reason::Refusal;
use model::request::Request;
use model::run::JobSpec;
use sched::view::{Availability, NodeInfo, NodeUse, View};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

/// Requests that are known to fit; with more the set is begun anew.
const KNOWN_MAX: usize = 1_024;

/// Worked out again when the configuration or a partition changes.
#[derive(Debug)]
pub struct Hardware {
    pub view: View,
    /// Long queues are of few kinds: one that has been found to fit is not placed again.
    fitting: Mutex<HashSet<(Request, Vec<u32>)>>,
}

impl State {
    pub(crate) fn hardware(&self) -> Arc<Hardware> {
        self.hardware.get(|| {
            let emptied = self.nodes.values().map(|node| NodeInfo {
                config: node.config.clone(),
                availability: Availability::Available,
                used: NodeUse::default(),
            });
            let view = View {
                nodes: emptied.map(Arc::new).collect(),
                partitions: view::partitions(self),
                policy: view::policy(self),
                ..View::default()
            };
            Hardware { view, fitting: Mutex::default() }
        })
    }
}

impl Hardware {
    /// Whether the job can start one day in at least one of the partitions.
    pub fn check(&self, spec: &JobSpec, partitions: &[u32]) -> Result<(), Refusal> {
        let key = (spec.request().without_times(), partitions.to_vec());
        let is_single = spec.components.len() == 1;
        if is_single && self.fitting.lock().is_ok_and(|known| known.contains(&key)) {
            return Ok(());
        }
        sched::query::feasible::check(&self.view, spec, partitions)?;
        if is_single && let Ok(mut known) = self.fitting.lock() {
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(key);
        }
        Ok(())
    }
}
