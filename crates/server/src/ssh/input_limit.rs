//! How much a connection's client may have sent that nobody has taken yet.
//!
//! The SSH library gives a channel more window as soon as its bytes arrive, and holds up the whole connection where a
//! channel's reader does not read: a task that waits for its output to be taken would never get it taken. So bytes are
//! queued here at once, and past the mark the library is told of a window of two bytes: a client that may send two bytes
//! at a time waits, while its acknowledgements and the output go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The window of a channel, and the channels of a connection.
pub const WINDOW_BYTES: u32 = 512 << 10;
pub const CHANNELS_MAX: usize = 64;
/// The window of all channels of a connection past the mark: the smallest that the library opens again.
const TRICKLE_BYTES: u32 = 2;
/// From here on the client is slowed down.
const MARK_BYTES: usize = 4 << 20;
/// From here on every client is slowed down, for what those of all connections have sent.
const ALL_MARK_BYTES: usize = 256 << 20;
/// A client that keeps to its windows has no more: the mark, and each channel's window given once more.
const MOST_BYTES: usize = MARK_BYTES + CHANNELS_MAX * 2 * WINDOW_BYTES as usize;
/// Clients that keep to their windows have no more all together. From here on one that has more than a little is ended: changes of a
/// window's size, and clients that heed no window, are slowed down by none.
const ALL_MOST_BYTES: usize = 1 << 30;
const LITTLE_BYTES: usize = 64 << 10;
/// What an item counts for beside its bytes.
const ITEM_BYTES: usize = 64;
/// The pause after each packet of a client that was slowed down.
pub const TRICKLE_PAUSE: Duration = Duration::from_millis(2);

#[derive(Clone, Default)]
pub struct InputLimit {
    queued: Arc<AtomicUsize>,
    of_all: Arc<AtomicUsize>,
}

/// Bytes that are queued, until this is dropped.
pub struct Queued {
    bytes: usize,
    limit: InputLimit,
}

impl InputLimit {
    /// Another connection of the same endpoint.
    pub fn of_another(&self) -> Self {
        Self { queued: Arc::default(), of_all: self.of_all.clone() }
    }

    /// `None` for a client that does not keep to its windows.
    pub fn add(&self, bytes: usize) -> Option<Queued> {
        let bytes = bytes + ITEM_BYTES;
        let own = self.queued.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = self.of_all.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let queued = Queued { bytes, limit: self.clone() };
        let most = if all > ALL_MOST_BYTES { LITTLE_BYTES } else { MOST_BYTES };
        (own <= most).then_some(queued)
    }

    pub fn is_past_mark(&self) -> bool {
        self.queued.load(Ordering::Relaxed) > MARK_BYTES
            || self.of_all.load(Ordering::Relaxed) > ALL_MARK_BYTES
    }

    /// The window for what comes next.
    pub fn window(&self) -> u32 {
        if self.is_past_mark() { TRICKLE_BYTES } else { WINDOW_BYTES }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.limit.queued.fetch_sub(self.bytes, Ordering::Relaxed);
        self.limit.of_all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_shrinks_past_the_mark_and_grows_when_bytes_are_taken() {
        let limit = InputLimit::default();
        assert_eq!(limit.window(), WINDOW_BYTES);
        let first = limit.add(MARK_BYTES).expect("room");
        assert_eq!(limit.window(), TRICKLE_BYTES);
        drop(first);
        assert_eq!(limit.window(), WINDOW_BYTES);
    }

    #[test]
    fn clients_of_many_connections_have_a_bound_together_and_a_quiet_one_stays() {
        let (endpoint, connections) = (InputLimit::default(), 100);
        let fill = |_| {
            let own = endpoint.of_another();
            std::iter::from_fn(move || own.add(32 << 10)).collect::<Vec<Queued>>()
        };
        let held: Vec<Vec<Queued>> = (0..connections).map(fill).collect();
        let all = endpoint.of_all.load(Ordering::Relaxed);
        assert!(all <= ALL_MOST_BYTES + connections * LITTLE_BYTES, "{all}");
        assert!(endpoint.of_another().add(1000).is_some());
        drop(held);
        assert_eq!(endpoint.of_all.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn client_beyond_every_window_is_refused_and_nothing_stays_counted() {
        let limit = InputLimit::default();
        assert!(limit.add(MOST_BYTES).is_none());
        assert_eq!(limit.queued.load(Ordering::Relaxed), 0);
        let empty: Vec<_> = (0..=MOST_BYTES / ITEM_BYTES).map(|_| limit.add(0)).collect();
        assert!(empty.iter().any(Option::is_none), "items without bytes count too");
    }
}
