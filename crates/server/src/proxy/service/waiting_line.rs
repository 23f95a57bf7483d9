//! The requests to one service that wait because its replicas have as many as they may: the first that came goes first. One of them at
//! a time, which is in front, is told of each request that was answered; the others wait for it to go.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Notify, OwnedMutexGuard};
use tokio::time::{timeout, timeout_at};

/// How soon the one in front looks again without being told: a replica more may be there, or a gateway have had an answer.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Default)]
pub struct WaitingLine {
    /// Held by the one in front. It is fair: those who wait get it in the order in which they came.
    front: Arc<Mutex<()>>,
    waiting: Arc<AtomicUsize>,
    /// Told at the end of each request. It keeps one word for who comes next, so that none is lost between a look and the wait for a word.
    ended: Arc<Notify>,
}

/// The place in front, until this is dropped.
pub struct Front {
    ended: Arc<Notify>,
    _front: OwnedMutexGuard<()>,
    _waits: Waits,
}

/// One request that waits, until this is dropped.
struct Waits(Arc<AtomicUsize>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl WaitingLine {
    /// Whether somebody waits: who comes now waits behind them, also where there is room.
    pub fn is_any(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// Told at the end of each request.
    pub fn ended(&self) -> &Arc<Notify> {
        &self.ended
    }

    /// Waits until all who came before have gone; `None` when that takes too long.
    pub async fn join(&self, until: Instant) -> Option<Front> {
        self.waiting.fetch_add(1, Relaxed);
        let waits = Waits(self.waiting.clone());
        let front = timeout_at(until.into(), self.front.clone().lock_owned()).await.ok()?;
        Some(Front { ended: self.ended.clone(), _front: front, _waits: waits })
    }
}

impl Front {
    /// Waits until a request was answered, or a moment is over.
    pub async fn one_ended(&self) {
        let _ = timeout(LOOK, self.ended.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn places_are_given_in_the_order_in_which_requests_came() {
        const PLACES: usize = 2;
        let (line, order) = (Arc::new(WaitingLine::default()), Arc::<Mutex<Vec<usize>>>::default());
        let used = Arc::new(AtomicUsize::new(PLACES));
        let until = Instant::now() + Duration::from_secs(60);
        let mut all = Vec::new();
        for number in 0..50 {
            let (line, order, used) = (line.clone(), order.clone(), used.clone());
            all.push(tokio::spawn(async move {
                let front = line.join(until).await.expect("in time");
                while used.load(Relaxed) == PLACES {
                    front.ended.notified().await;
                }
                used.fetch_add(1, Relaxed);
                order.lock().await.push(number);
                drop(front);
                tokio::task::yield_now().await;
                used.fetch_sub(1, Relaxed);
                line.ended().notify_one();
            }));
            // It is in the line before the next one comes.
            tokio::task::yield_now().await;
        }
        assert!(line.is_any());
        // Both end before anybody looks: one word is kept, and the second waiter looks by itself.
        for _ in 0..PLACES {
            used.fetch_sub(1, Relaxed);
            line.ended().notify_one();
        }
        for one in all {
            one.await.expect("no panic");
        }
        assert!(order.lock().await.iter().copied().eq(0..50));
        assert!(!line.is_any());
    }

    #[tokio::test]
    async fn who_gives_up_leaves_the_line_to_the_next() {
        let line = WaitingLine::default();
        let until = Instant::now() + Duration::from_secs(60);
        let first = line.join(until).await.expect("in front");
        assert!(line.join(Instant::now()).await.is_none());
        assert!(line.is_any());
        drop(first);
        assert!(!line.is_any());
        assert!(line.join(until).await.is_some());
    }
}
