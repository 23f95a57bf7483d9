//! Which logs are removed when all together have reached their bound: those of whoever has most. A user who writes without
//! end loses logs of his own, and nobody loses any while another has more.

use crate::disk::Entry;
use model::id::{AttemptId, JobId};
use std::collections::{BTreeMap, VecDeque};

/// How much is made free beyond the bound, as a part of it: so that not every append makes room.
const ROOM_PART: u64 = 16;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Log {
    /// Whether it is still written to: such logs come last.
    pub is_written: bool,
    pub attempt: AttemptId,
    /// `None` for a log of a build that did not say.
    pub owner: Option<u32>,
    pub name: String,
    pub bytes: u64,
}

impl Log {
    pub fn of(entry: &Entry, is_written: impl Fn(&str) -> bool) -> Option<Log> {
        let stem = entry.name.strip_suffix(".log")?;
        let mut parts = stem.splitn(3, '-');
        let job = JobId(parts.next()?.parse().ok()?);
        let number = parts.next()?.parse().ok()?;
        let node = parts.next()?;
        let owner = node.rsplit_once('.').and_then(|(_, owner)| owner.parse().ok());
        let (name, bytes) = (entry.name.clone(), entry.len);
        let attempt = AttemptId { job, number };
        Some(Log { is_written: is_written(&name), attempt, owner, name, bytes })
    }
}

/// What is to be removed so that the rest is within the bound, and has some room; nothing if it is within it.
pub fn choose(mut logs: Vec<Log>, bytes_max: u64) -> Vec<Log> {
    let mut total: u64 = logs.iter().map(|log| log.bytes).sum();
    if total <= bytes_max {
        return Vec::new();
    }
    logs.sort();
    let mut by_owner: BTreeMap<Option<u32>, (u64, VecDeque<Log>)> = BTreeMap::new();
    for log in logs {
        let (bytes, logs) = by_owner.entry(log.owner).or_default();
        *bytes += log.bytes;
        logs.push_back(log);
    }
    let mut chosen = Vec::new();
    while total > bytes_max - bytes_max / ROOM_PART {
        let most = by_owner.values_mut().max_by_key(|(bytes, _)| *bytes);
        let Some((bytes, log)) = most.and_then(|(bytes, logs)| Some((bytes, logs.pop_front()?)))
        else {
            break;
        };
        *bytes -= log.bytes;
        total -= log.bytes;
        chosen.push(log);
    }
    chosen
}
