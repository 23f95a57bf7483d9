//! The cluster with nothing on it: whether a request can ever be placed, checked at submit.

use foldhash::fast::RandomState;
use model::reason::Refusal;
use model::request::Request;
use model::run::JobSpec;
use sched::view::View;
use std::collections::HashSet;
use std::sync::Mutex;

/// The most requests that are remembered as fitting; with more the set is cleared.
const KNOWN_MAX: usize = 1_024;

/// A request, its partitions, and the project that it is of where that decides.
type Question = (Request, Vec<u32>, Option<String>);

/// Rebuilt when the configuration or a partition changes.
#[derive(Debug)]
pub struct Hardware {
    pub view: View,
    /// Long queues hold few distinct requests: one that was found to fit is not placed again.
    fitting: Mutex<HashSet<Question, RandomState>>,
    /// Some machine is for the jobs of one project alone.
    is_by_project: bool,
}

impl Hardware {
    pub fn new(view: View) -> Self {
        let mut machines = view.nodes.iter().filter_map(|node| node.config.machine.as_ref());
        let is_by_project = machines.any(|kind| kind.project.is_some());
        Self { view, fitting: Mutex::default(), is_by_project }
    }

    /// Whether the job, of this account, can start one day in at least one of the partitions.
    pub fn check(&self, spec: &JobSpec, account: &str, partitions: &[u32]) -> Result<(), Refusal> {
        let project = self.is_by_project.then(|| account.to_owned());
        let key = (spec.request().without_times(), partitions.to_vec(), project);
        let is_single = spec.components.len() == 1;
        if is_single && self.fitting.lock().is_ok_and(|known| known.contains(&key)) {
            return Ok(());
        }
        sched::query::feasible::check(&self.view, spec, account, partitions)?;
        if is_single && let Ok(mut known) = self.fitting.lock() {
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(key);
        }
        Ok(())
    }
}
