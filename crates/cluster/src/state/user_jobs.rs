//! The jobs in memory of each user: a list of one user's jobs (`squeue -u`) does not look at all of a long queue.

use super::job::Job;
use foldhash::fast::RandomState;
use model::id::JobId;
use std::collections::{BTreeSet, HashMap};

/// By the owner's name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UserJobs(HashMap<Box<str>, BTreeSet<JobId>, RandomState>);

impl UserJobs {
    pub(crate) fn add(&mut self, job: &Job) {
        let owner = job.spec.owner.name.as_str();
        if let Some(jobs) = self.0.get_mut(owner) {
            jobs.insert(job.id);
        } else {
            self.0.insert(owner.into(), BTreeSet::from([job.id]));
        }
    }

    pub(crate) fn remove(&mut self, job: &Job) {
        let owner = job.spec.owner.name.as_str();
        if let Some(jobs) = self.0.get_mut(owner) {
            jobs.remove(&job.id);
            if jobs.is_empty() {
                self.0.remove(owner);
            }
        }
    }

    /// The users who have jobs in memory.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name)
    }

    /// The jobs of these users, each once, in the order of their ids.
    pub fn of<'n>(&self, users: impl IntoIterator<Item = &'n str>) -> Vec<JobId> {
        let jobs = users.into_iter().filter_map(|user| self.0.get(user)).flatten();
        let mut jobs: Vec<JobId> = jobs.copied().collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs
    }
}
