//! The key that let a connection in, looked up anew for as long as the connection lasts: a key that was removed or renewed,
//! a user who was shut out and a token that has ended leave nobody in.

use super::access::{self, Access, upstream_id};
use crate::shared::Shared;
use russh::keys::PublicKey;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How often it is looked whether a connection may stay.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Who came in, where, and by which key.
#[derive(Clone)]
pub struct Entry {
    pub access: Access,
    pub key: PublicKey,
}

impl Entry {
    /// Who is in by this key now; `None` where it opens the job no more.
    pub fn access_now(&self, shared: &Shared) -> Option<Access> {
        let login = upstream_id(self.access.job, self.access.rank);
        access::find(shared, &login, &self.key)
    }

    /// Whether the job has ended: then nothing can be opened in it, and its last lines may still be read.
    pub fn is_job_over(&self, shared: &Shared) -> bool {
        shared.read().jobs.get(&self.access.job).is_none_or(|job| job.has_ended())
    }

    /// Waits until the key opens the job no more.
    pub async fn shut_out(&self, shared: Arc<Shared>) {
        while self.is_job_over(&shared) || self.access_now(&shared).is_some() {
            sleep(LOOK_INTERVAL).await;
        }
    }
}
