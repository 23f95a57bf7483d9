//! Updates of services in place: a newer deployment of a service runs beside the one before it until its replicas are ready. Then those
//! of the one before get no more requests, and are ended when they have answered what they have.

use super::replica::Replica;
use super::scaler::DRAIN_MAX;
use super::table::LiveService;
use crate::shared::Shared;
use cluster::Command;
use cluster::command::CancelJobs;
use model::change::{JobFilter, JobRef};
use std::sync::Arc;
use std::time::Instant;

pub fn roll(shared: &Shared, live: &LiveService, now: Instant) {
    if live.outdated.is_empty() {
        // The newer deployment that this one was to give way to is gone.
        if live.service.scaling.is_none() {
            live.replicas.iter().for_each(|replica| replica.drain(None));
        }
        return;
    }
    let is_up = |replica: &&Arc<Replica>| replica.is_open() && replica.is_reached();
    let new = live.newest().filter(is_up).count();
    let needed = match live.service.scaling {
        Some(_) => live.wanted(),
        None => live.service.replicas,
    };
    if new < needed as usize {
        return;
    }
    let mut is_done = true;
    for replica in live.replicas.iter().filter(|one| one.deployment != live.service.deployment) {
        let since = replica.drained_since().unwrap_or(now);
        replica.drain(Some(since));
        let is_late = now.saturating_duration_since(since) >= DRAIN_MAX;
        // A request that was on its way to it when it was closed has arrived by the next look.
        is_done &= since < now && replica.outstanding() == 0 || is_late;
    }
    if is_done {
        let jobs = live.outdated.iter().copied().map(JobRef::whole).collect();
        let filter = JobFilter { jobs, ..JobFilter::default() };
        let cancel = CancelJobs { filter, step: None, signal: None, batch_only: false, full: true };
        shared.writer.enqueue_or_drop(Command::Cancel(Box::new(cancel)));
    }
}
