//! The end of a channel, as whoever serves it is told: also one who waits for a window that is never opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// How long what the client sent before it closed the channel may take to be delivered.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Kept for as long as the channel is open: dropping it is the end.
pub struct ChannelOpen {
    _ends_with_this: watch::Sender<()>,
}

pub struct ChannelEnd {
    receiver: watch::Receiver<()>,
    _counted: CountedChannel,
}

/// How many channels of a connection are served at this moment.
#[derive(Clone, Default)]
pub struct ServedChannels(Arc<AtomicUsize>);

impl ServedChannels {
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

struct CountedChannel(ServedChannels);

impl Drop for CountedChannel {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Both sides of a channel's end: `ChannelOpen` is held while the client has it open, `ChannelEnd` by who serves it.
pub fn channel_end(served: &ServedChannels) -> (ChannelOpen, ChannelEnd) {
    let (sender, receiver) = watch::channel(());
    served.0.fetch_add(1, Ordering::Relaxed);
    let counted = CountedChannel(served.clone());
    (ChannelOpen { _ends_with_this: sender }, ChannelEnd { receiver, _counted: counted })
}

impl ChannelEnd {
    /// Waits until the client has closed the channel, or is gone.
    pub async fn wait(&mut self) {
        while self.receiver.changed().await.is_ok() {}
    }

    /// The same, with the time in which queued input may still be delivered.
    pub async fn wait_and_deliver(&mut self) {
        self.wait().await;
        sleep(DELIVERY_TIMEOUT).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn end_comes_when_the_channel_is_dropped_and_stays() {
        let served = ServedChannels::default();
        let (open, mut end) = channel_end(&served);
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(end.wait()).poll(&mut context).is_pending());
        drop(open);
        for _ in 0..2 {
            assert!(pin!(end.wait()).poll(&mut context).is_ready());
        }
        assert!(!served.is_empty(), "it is served until whoever does is done");
        drop(end);
        assert!(served.is_empty());
    }
}
