//! Requests to services: counted by the proxy, shown by `/metrics`. Lost with the process.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The upper bounds of the buckets of the histogram, in seconds. Answers that took longer are in the sum and the count alone.
pub const BUCKETS_S: [f64; 12] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0];

/// The classes of status codes.
pub const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The address of a service: its project, and its run's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceName {
    pub project: String,
    pub run: String,
}

/// The services that are active.
#[derive(Default)]
pub struct ServiceCounts(Mutex<BTreeMap<ServiceName, Arc<ServiceCount>>>);

/// The requests of one service.
#[derive(Default)]
pub struct ServiceCount {
    by_class: [AtomicU64; CLASSES.len()],
    buckets: [AtomicU64; BUCKETS_S.len()],
    total_us: AtomicU64,
    /// Requests that no replica answered.
    errors: AtomicU64,
    replicas: AtomicU64,
    websockets: AtomicU64,
}

/// What was counted so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceValues {
    pub by_class: [u64; CLASSES.len()],
    pub buckets: [u64; BUCKETS_S.len()],
    pub total_us: u64,
    pub errors: u64,
    pub replicas: u64,
    pub websockets: u64,
}

impl ServiceValues {
    pub fn requests(&self) -> u64 {
        self.by_class.iter().sum()
    }
}

impl ServiceCounts {
    fn held(&self) -> MutexGuard<'_, BTreeMap<ServiceName, Arc<ServiceCount>>> {
        self.0.lock().expect("no panic with the counts held")
    }

    pub fn of(&self, name: &ServiceName) -> Arc<ServiceCount> {
        self.held().entry(name.clone()).or_default().clone()
    }

    /// Forgets the services that are no longer there.
    pub fn keep(&self, is_there: impl Fn(&ServiceName) -> bool) {
        self.held().retain(|name, _| is_there(name));
    }

    pub fn values(&self) -> Vec<(ServiceName, ServiceValues)> {
        self.held().iter().map(|(name, count)| (name.clone(), count.values())).collect()
    }
}

impl ServiceCount {
    /// Counts a request by the status of its answer, and by the time until the answer's head.
    pub fn answered(&self, status: u16, took: Duration) {
        let class = usize::from(status / 100).clamp(1, CLASSES.len()) - 1;
        self.by_class[class].fetch_add(1, Relaxed);
        let seconds = took.as_secs_f64();
        if let Some(bucket) = BUCKETS_S.iter().position(|bound| seconds <= *bound) {
            self.buckets[bucket].fetch_add(1, Relaxed);
        }
        self.total_us.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Counts a request that no replica answered.
    pub fn failed(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    pub fn set_replicas(&self, replicas: usize) {
        self.replicas.store(replicas as u64, Relaxed);
    }

    pub fn set_websockets(&self, websockets: usize) {
        self.websockets.store(websockets as u64, Relaxed);
    }

    pub fn values(&self) -> ServiceValues {
        let read = |count: &AtomicU64| count.load(Relaxed);
        ServiceValues {
            by_class: self.by_class.each_ref().map(read),
            buckets: self.buckets.each_ref().map(read),
            total_us: read(&self.total_us),
            errors: read(&self.errors),
            replicas: read(&self.replicas),
            websockets: read(&self.websockets),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_class_and_time() {
        let counts = ServiceCounts::default();
        let name = ServiceName { project: "main".into(), run: "web".into() };
        let count = counts.of(&name);
        count.answered(200, Duration::from_millis(7));
        count.answered(404, Duration::from_millis(10));
        count.answered(503, Duration::from_secs(1000));
        count.failed();
        count.set_replicas(2);
        let [(found, values)] = &counts.values()[..] else { panic!("one service") };
        assert_eq!(*found, name);
        assert_eq!(values.by_class, [0, 1, 0, 1, 1]);
        assert_eq!((values.buckets[1], values.buckets.iter().sum::<u64>()), (2, 2));
        assert_eq!((values.requests(), values.errors, values.replicas), (3, 1, 2));
        assert_eq!(values.total_us, 1_000_017_000);
        counts.keep(|_| false);
        assert!(counts.values().is_empty());
    }
}
