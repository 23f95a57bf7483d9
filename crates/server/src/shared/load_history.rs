//! How much of the cluster was in use over the last days, a sample for each minute, for the overview of the web page. The books keep
//! what was used for good.

use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// A week of minutes.
const SAMPLES_MAX: usize = 7 * 24 * 60;
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// What there was and what was in use, of the whole cluster at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterLoad {
    pub at: Timestamp,
    pub cpus: u64,
    pub cpus_used: u64,
    pub gpus: u64,
    pub gpus_used: u64,
    pub running: u64,
    pub waiting: u64,
}

#[derive(Default)]
pub struct LoadHistory(Mutex<VecDeque<ClusterLoad>>);

impl LoadHistory {
    pub fn add(&self, sample: ClusterLoad) {
        let mut samples = self.held();
        if samples.len() >= SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    pub fn all(&self) -> Vec<ClusterLoad> {
        self.held().iter().copied().collect()
    }

    /// Puts what a server before this one has seen before what there is: samples of the last week, in their order.
    pub fn restore(&self, mut former: Vec<ClusterLoad>, now: Timestamp) {
        let mut samples = self.held();
        let end = samples.front().map_or(now, |first| first.at);
        former.retain(|sample| sample.at < end && sample.at + WEEK > now);
        former.sort_by_key(|sample| sample.at);
        let room = SAMPLES_MAX - samples.len();
        for sample in former.into_iter().rev().take(room) {
            samples.push_front(sample);
        }
    }

    fn held(&self) -> MutexGuard<'_, VecDeque<ClusterLoad>> {
        self.0.lock().expect("no panic with the samples held")
    }

    /// At most so many points since then, the oldest first. Each is the mean of the samples that it stands for, at the time of
    /// the last of them.
    pub fn since(&self, from: Timestamp, points_max: usize) -> Vec<ClusterLoad> {
        let samples = self.held();
        let wanted: Vec<ClusterLoad> =
            samples.iter().filter(|sample| sample.at >= from).copied().collect();
        drop(samples);
        let width = wanted.len().div_ceil(points_max.max(1)).max(1);
        wanted.chunks(width).filter_map(mean).collect()
    }
}

fn mean(samples: &[ClusterLoad]) -> Option<ClusterLoad> {
    let last = samples.last()?;
    let of = |value: fn(&ClusterLoad) -> u64| {
        let sum: u64 = samples.iter().map(value).sum();
        sum / samples.len() as u64
    };
    Some(ClusterLoad {
        at: last.at,
        cpus: of(|sample| sample.cpus),
        cpus_used: of(|sample| sample.cpus_used),
        gpus: of(|sample| sample.gpus),
        gpus_used: of(|sample| sample.gpus_used),
        running: of(|sample| sample.running),
        waiting: of(|sample| sample.waiting),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(minute: i64, cpus_used: u64) -> ClusterLoad {
        ClusterLoad {
            at: Timestamp::from_secs(60 * minute),
            cpus: 10,
            cpus_used,
            gpus: 0,
            gpus_used: 0,
            running: 1,
            waiting: 0,
        }
    }

    #[test]
    fn points_are_means_and_no_more_than_asked_for() {
        let history = LoadHistory::default();
        assert!(history.since(Timestamp(0), 10).is_empty());
        for minute in 0..6 {
            history.add(sample(minute, u64::try_from(minute).expect("small")));
        }
        let all = history.since(Timestamp(0), 10);
        assert_eq!(all.len(), 6);
        let two: Vec<(Timestamp, u64)> =
            history.since(Timestamp(0), 2).iter().map(|one| (one.at, one.cpus_used)).collect();
        assert_eq!(two, [(Timestamp::from_secs(120), 1), (Timestamp::from_secs(300), 4)]);
        assert_eq!(history.since(Timestamp::from_secs(240), 10).len(), 2);
    }

    #[test]
    fn samples_of_before_stand_before_those_of_now_and_none_is_of_the_future() {
        let history = LoadHistory::default();
        let now = Timestamp::from_secs(60 * 20_000);
        history.add(sample(20_000, 1));
        let former = [19_999, 19_998, 20_005, 20_000, 1];
        history.restore(former.map(|minute| sample(minute, 0)).to_vec(), now);
        let kept: Vec<i64> = history.all().iter().map(|sample| sample.at.secs() / 60).collect();
        assert_eq!(kept, [19_998, 19_999, 20_000]);
    }

    #[test]
    fn a_week_is_kept_and_no_more() {
        let history = LoadHistory::default();
        for minute in 0..SAMPLES_MAX as i64 + 5 {
            history.add(sample(minute, 0));
        }
        let kept = history.since(Timestamp(0), usize::MAX);
        assert_eq!((kept.len(), kept[0].at), (SAMPLES_MAX, Timestamp::from_secs(300)));
    }
}
