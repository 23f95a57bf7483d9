//! The cluster with nothing on it: whether a request can ever be placed, checked at submit.

use model::reason::Refusal;
use model::request::Request;
use model::run::JobSpec;
use sched::view::View;
use std::collections::HashSet;
use std::sync::Mutex;

/// The most requests that are remembered as fitting; with more the set is cleared.
const KNOWN_MAX: usize = 1_024;

/// Rebuilt when the configuration or a partition changes.
#[derive(Debug)]
pub struct Hardware {
    pub view: View,
    /// Long queues hold few distinct requests: one that was found to fit is not placed again.
    fitting: Mutex<HashSet<(Request, Vec<u32>)>>,
}

impl Hardware {
    pub fn new(view: View) -> Self {
        Self { view, fitting: Mutex::default() }
    }

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
