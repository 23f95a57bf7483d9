//! Which jobs somebody is connected to by SSH, and since when nobody has been.

use model::id::JobId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

#[derive(Default, Clone)]
pub struct SshConnections(Arc<Mutex<HashMap<JobId, JobConnections>>>);

struct JobConnections {
    open: u32,
    /// When the last one was closed.
    closed: Instant,
}

impl SshConnections {
    /// Counts a connection until what is returned is dropped.
    pub fn opened(&self, job: JobId) -> SshConnection {
        let mut all = self.0.lock().expect("no panic with it held");
        let of_job = all.entry(job).or_insert(JobConnections { open: 0, closed: Instant::now() });
        of_job.open += 1;
        SshConnection { of: self.clone(), job }
    }

    /// `None` while somebody is connected to the job, else since when nobody is, and not before `from`.
    pub fn unconnected_since(&self, job: JobId, from: Instant) -> Option<Instant> {
        let all = self.0.lock().expect("no panic with it held");
        match all.get(&job) {
            Some(known) if known.open > 0 => None,
            Some(known) => Some(known.closed.max(from)),
            None => Some(from),
        }
    }

    /// Forgets jobs that nobody is connected to and that are none of these.
    pub fn keep(&self, is_wanted: impl Fn(JobId) -> bool) {
        let mut all = self.0.lock().expect("no panic with it held");
        all.retain(|job, known| known.open > 0 || is_wanted(*job));
    }
}

/// Since when nobody has been connected to each run with an `inactivity_duration`, as it was last looked at.
#[derive(Default)]
pub struct InactivityTimes(Mutex<HashMap<JobId, Option<Instant>>>);

impl InactivityTimes {
    /// All runs that are watched; `None` for one that somebody is connected to.
    pub fn set(&self, times: HashMap<JobId, Option<Instant>>) {
        *self.0.lock().expect("no panic with it held") = times;
    }

    /// For how many seconds nobody has been connected; `None` for a run that is not watched.
    pub fn seconds(&self, job: JobId, now: Instant) -> Option<u64> {
        let since = *self.0.lock().expect("no panic with it held").get(&job)?;
        Some(since.map_or(0, |since| now.saturating_duration_since(since).as_secs()))
    }
}

pub struct SshConnection {
    of: SshConnections,
    job: JobId,
}

impl Drop for SshConnection {
    fn drop(&mut self) {
        let mut all = self.of.0.lock().expect("no panic with it held");
        if let Some(known) = all.get_mut(&self.job) {
            known.open -= 1;
            known.closed = Instant::now();
        }
    }
}
