//! The QOS, associations and users whose limits apply to a job.

use crate::gate;
use crate::view::{PendingJob, RunningJob, View};
use model::time::{TimeLimit, Timestamp};

/// The minutes that an unlimited job is taken to need: a year.
const UNLIMITED_MIN: u64 = 365 * 24 * 60;

/// A job that runs or would start, with the QOS and the association whose limits apply to it.
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    pub uid: u32,
    pub account: &'a str,
    pub qos: &'a str,
    pub partition: u32,
    pub partition_qos: Option<&'a str>,
    /// Index into the associations of the view.
    pub association: Option<u32>,
    pub time: TimeLimit,
    pub licenses: &'a [(String, u32)],
}

impl<'a> Claimant<'a> {
    pub fn pending(view: &'a View, waiting: &'a PendingJob, partition: u32) -> Self {
        let info = view.partitions.get(partition as usize);
        let time = info.map(|info| gate::time_limit(waiting.spec.request(), &info.partition));
        Self {
            uid: waiting.spec.owner.uid,
            account: &waiting.account,
            qos: &waiting.qos,
            partition,
            partition_qos: partition_qos(view, partition),
            association: waiting.association,
            time: time.unwrap_or(TimeLimit::Unlimited),
            licenses: &waiting.spec.request().licenses,
        }
    }

    /// The time of a running job is what its limit still allows.
    pub fn running(view: &'a View, running: &'a RunningJob, now: Timestamp) -> Self {
        let left_s = running.end.map(|end| (end.secs() - now.secs()).max(0) as u64);
        let left = left_s.map(|s| TimeLimit::Minutes((s / 60).min(UNLIMITED_MIN) as u32));
        Self {
            uid: running.uid,
            account: &running.account,
            qos: &running.qos,
            partition: running.partition,
            partition_qos: partition_qos(view, running.partition),
            association: running.association,
            time: left.unwrap_or(TimeLimit::Unlimited),
            licenses: &running.licenses,
        }
    }

    /// The QOS that count the job: that of its partition and its own, each once.
    pub fn qos_names(self) -> impl Iterator<Item = &'a str> {
        let own = Some(self.qos).filter(|own| self.partition_qos != Some(own));
        [self.partition_qos, own].into_iter().flatten()
    }
}

fn partition_qos(view: &View, partition: u32) -> Option<&str> {
    view.partitions.get(partition as usize)?.partition.qos.as_deref()
}

/// The minutes that a time limit counts for.
pub fn minutes(time: TimeLimit) -> u64 {
    time.minutes().map_or(UNLIMITED_MIN, u64::from)
}
