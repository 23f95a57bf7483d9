//! Connections of a port that are finished in order when the server ends: what was asked is answered, and nothing more is taken.
//! What comes meanwhile waits at the listening socket for the next server, where a keeper or service manager holds that.

use std::future::pending;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Held by each connection until it is finished.
#[derive(Clone)]
pub struct Drain(watch::Receiver<bool>);

/// Tells the connections to finish.
pub struct Drainer(watch::Sender<bool>);

impl Drainer {
    pub fn new() -> (Self, Drain) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), Drain(receiver))
    }

    /// Returns when all connections are finished, or after so long.
    pub async fn drain(self, most: Duration) {
        self.0.send_replace(true);
        let _ = timeout(most, self.0.closed()).await;
    }
}

impl Drain {
    /// For connections that end with the server.
    pub fn never() -> Self {
        Drainer::new().1
    }

    /// Whether the connections may have been told to finish, without a lock that all of them share.
    pub fn may_be_told(&self) -> bool {
        self.0.has_changed().unwrap_or(false)
    }

    /// Returns when the connections are to finish.
    pub async fn told(&mut self) {
        if self.0.wait_for(|told| *told).await.is_err() {
            pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn drain_waits_for_connections_that_were_told() {
        let (drainer, drain) = Drainer::new();
        let mut connection = drain.clone();
        drop(drain);
        let same = connection.clone();
        assert!(!same.may_be_told());
        let finished = tokio::spawn(async move {
            connection.told().await;
            same.may_be_told()
        });
        drainer.drain(Duration::from_secs(60)).await;
        assert!(finished.await.expect("no panic"), "it may have been told");
        let mut never = Drain::never();
        assert!(timeout(Duration::from_millis(10), never.told()).await.is_err());
    }
}
