//! What a replica has to answer, and the connections to it: counted until each is over.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::Notify;

/// One more of what is counted, until this is dropped.
pub(super) struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub fn of(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A request that is not answered yet, until this is dropped.
pub struct Outstanding {
    counted: Option<Counted>,
    /// Told when it was answered and is not counted any more.
    ended: Option<Arc<Notify>>,
}

impl Outstanding {
    pub(super) fn of(count: &Arc<AtomicUsize>) -> Self {
        Self { counted: Some(Counted::of(count)), ended: None }
    }

    /// Has the end of it told.
    pub fn told_to(mut self, ended: &Arc<Notify>) -> Self {
        self.ended = Some(ended.clone());
        self
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.counted = None;
        if let Some(ended) = &self.ended {
            ended.notify_one();
        }
    }
}
