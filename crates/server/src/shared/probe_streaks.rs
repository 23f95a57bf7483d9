//! How often the probes of each replica of a service have succeeded in a row, as dstack's client shows it. Lost with the process.

use model::id::JobId;
use std::collections::HashMap;
use std::sync::Mutex;

#[derive(Default)]
pub struct ProbeStreaks(Mutex<HashMap<JobId, Vec<u32>>>);

impl ProbeStreaks {
    pub fn set(&self, streaks: HashMap<JobId, Vec<u32>>) {
        *self.0.lock().expect("no panic with the streaks held") = streaks;
    }

    /// One number for each probe; none for a job that has no probes, or does not run.
    pub fn of(&self, job: JobId) -> Vec<u32> {
        self.0
            .lock()
            .expect("no panic with the streaks held")
            .get(&job)
            .cloned()
            .unwrap_or_default()
    }
}
