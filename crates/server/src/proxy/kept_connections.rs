//! Connections to replicas that are kept for later requests count as their owner's, who may have so many in all jobs: a burst of requests to
//! some replicas would leave none for others until they are closed by themselves. Those that nobody uses give way to new ones.

use super::pool::ConnectionPool;
use crate::per_user::UserCounts;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// So many below the bound room is made: a connection by a step is counted for a moment after it was closed.
const ROOM: usize = 64;

/// Whether one more connection of this owner's, of which there may be `most`, takes no other's place.
pub fn has_room(counts: &UserCounts, owner: u32, most: usize) -> bool {
    counts.count(&owner) + ROOM < most
}

/// By the owner of the replicas that the connections are to.
#[derive(Default)]
pub struct KeptConnections(Mutex<HashMap<u32, Vec<Weak<ConnectionPool>>>>);

impl KeptConnections {
    fn pools(&self) -> MutexGuard<'_, HashMap<u32, Vec<Weak<ConnectionPool>>>> {
        self.0.lock().expect("no panic with the pools held")
    }

    /// Takes note of the connections to one more replica of this owner's, and forgets those of replicas that are gone.
    pub fn note(&self, owner: u32, pool: &Arc<ConnectionPool>) {
        let mut pools = self.pools();
        pools.retain(|_, known| {
            known.retain(|pool| pool.strong_count() > 0);
            !known.is_empty()
        });
        pools.entry(owner).or_default().push(Arc::downgrade(pool));
    }

    /// To be called before a connection of this owner's is made, of which there may be `most`: where they are about to be all taken, the
    /// one that has waited longest for a request is closed.
    pub fn make_room(&self, counts: &UserCounts, owner: u32, most: usize) {
        if has_room(counts, owner, most) {
            return;
        }
        let known = self.pools().get(&owner).cloned().unwrap_or_default();
        let pools: Vec<Arc<ConnectionPool>> = known.iter().filter_map(Weak::upgrade).collect();
        let waiting = pools.iter().filter_map(|pool| Some((pool.idle_since()?, pool)));
        if let Some((_, pool)) = waiting.min_by_key(|(since, _)| *since) {
            pool.close_oldest();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::open_connection::OpenConnection;
    use axum::body::Body;
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    /// A replica of this owner's with one connection that is kept, and the replica's end of it.
    async fn replica(
        kept: &KeptConnections,
        counts: &UserCounts,
        owner: u32,
    ) -> (Arc<ConnectionPool>, DuplexStream) {
        let pool = Arc::<ConnectionPool>::default();
        kept.note(owner, &pool);
        let counted = counts.enter(owner, usize::MAX).expect("room");
        let (ours, mut theirs) = tokio::io::duplex(4096);
        let connection = OpenConnection::handshake(ours, counted).await.expect("a connection");
        let answer = async {
            assert!(theirs.read(&mut [0; 1024]).await.expect("a request") > 0);
            let text = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
            theirs.write_all(text).await.expect("an answer");
        };
        let request = hyper::Request::new(Body::empty());
        let sent = pool.send(|| async { Some(connection) }, request, false);
        let (sent, ()) = tokio::join!(sent, answer);
        let Ok(answered) = sent else { panic!("no answer") };
        answered.into_body().collect().await.expect("a body");
        assert!(pool.idle_since().is_some(), "it is kept");
        (pool, theirs)
    }

    #[tokio::test]
    async fn connections_that_nobody_uses_give_way_to_new_ones_of_their_owner() {
        let (kept, counts) = (KeptConnections::default(), UserCounts::default());
        let (first, mut first_end) = replica(&kept, &counts, 1000).await;
        let (second, _second_end) = replica(&kept, &counts, 1000).await;
        let (other, _other_end) = replica(&kept, &counts, 1001).await;
        kept.make_room(&counts, 1000, ROOM + 3);
        assert_eq!(counts.count(&1000), 2, "there is room");
        kept.make_room(&counts, 1000, ROOM + 2);
        assert_eq!(counts.count(&1000), 1);
        assert!(first.idle_since().is_none() && second.idle_since().is_some(), "the oldest goes");
        assert_eq!(first_end.read(&mut [0]).await.expect("the end"), 0, "it is closed");
        for _ in 0..2 {
            kept.make_room(&counts, 1000, ROOM);
        }
        assert_eq!((counts.count(&1000), counts.count(&1001)), (0, 1));
        assert!(other.idle_since().is_some(), "that of another user stays");
        drop(second);
        let (_third, _third_end) = replica(&kept, &counts, 1002).await;
        assert_eq!(kept.pools().get(&1000).map(Vec::len), Some(1), "what is gone is forgotten");
    }
}
