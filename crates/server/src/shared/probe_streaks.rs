//! How often the probes of each replica of a service have succeeded in a row, as dstack's client shows it. Lost with the process.

use model::id::JobId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// One number for each probe of a replica; none for a job that has no probes, or does not run.
pub type Streaks = HashMap<JobId, Vec<u32>>;

#[derive(Default)]
pub struct ProbeStreaks(Mutex<Arc<Streaks>>);

impl ProbeStreaks {
    pub fn set(&self, streaks: Streaks) {
        *self.0.lock().expect("no panic with the streaks held") = Arc::new(streaks);
    }

    pub fn all(&self) -> Arc<Streaks> {
        self.0.lock().expect("no panic with the streaks held").clone()
    }

    pub fn of(&self, job: JobId) -> Vec<u32> {
        self.all().get(&job).cloned().unwrap_or_default()
    }
}
