//! The servers of the cluster, as the database had them last. A server alone has none here.

use crate::shared::store_contact::StoreContact;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};
use store::postgres::{SeenServer, ServerAddress};
use tokio::sync::watch;
use wire::client::{SERVER_SILENCE_MS, ServerView};

pub struct ServerList {
    seen: RwLock<Seen>,
    /// Who leads, where that is known.
    leader: watch::Sender<Option<ServerAddress>>,
    /// When the database was heard of.
    pub contact: StoreContact,
}

struct Seen {
    servers: Vec<SeenServer>,
    /// When they were read.
    at: Instant,
}

impl Default for ServerList {
    fn default() -> Self {
        let seen = Seen { servers: Vec::new(), at: Instant::now() };
        let (seen, leader) = (RwLock::new(seen), watch::channel(None).0);
        Self { seen, leader, contact: StoreContact::default() }
    }
}

impl ServerList {
    fn seen(&self) -> RwLockReadGuard<'_, Seen> {
        self.seen.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, servers: Vec<SeenServer>) {
        let leader = servers.iter().find(|server| server.is_leader);
        let leader = leader.map(|server| server.address.clone());
        let seen = Seen { servers, at: Instant::now() };
        *self.seen.write().unwrap_or_else(PoisonError::into_inner) = seen;
        self.leader.send_if_modified(|known| {
            let is_news = *known != leader;
            *known = leader;
            is_news
        });
    }

    /// Whether this server is alone, and has no database.
    pub fn is_empty(&self) -> bool {
        self.seen().servers.is_empty()
    }

    /// Whether this server is one of several.
    pub fn has_others(&self) -> bool {
        self.seen().servers.len() > 1
    }

    /// Who leads, where that is known.
    pub fn leader(&self) -> Option<ServerAddress> {
        self.leader.borrow().clone()
    }

    /// Returns when another server than this one leads.
    pub async fn succeeded(&self, former: &ServerAddress) {
        let is_other =
            |leader: &Option<ServerAddress>| leader.as_ref().is_some_and(|l| l != former);
        // The sender is `self`.
        let _ = self.leader.subscribe().wait_for(is_other).await;
    }

    /// The servers as they are known to be now: what was read grows old where the database is not heard of, and with it who leads.
    pub fn views(&self) -> Vec<ServerView> {
        let seen = self.seen();
        let age = seen.at.elapsed();
        let is_known = age < Duration::from_millis(SERVER_SILENCE_MS);
        let view = |server: &SeenServer| ServerView {
            name: server.address.name.clone(),
            addresses: server.address.clients.clone(),
            version: server.address.version.clone(),
            is_leader: server.is_leader && is_known,
            seen_ms: u64::try_from((server.seen_ago + age).as_millis()).unwrap_or(u64::MAX),
            events_behind: server.events_behind,
            term: server.term,
        };
        seen.servers.iter().map(view).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(name: &str) -> ServerAddress {
        let (clients, agents) = (Vec::new(), Vec::new());
        ServerAddress { name: name.into(), clients, agents, version: "1.0".into() }
    }

    fn seen(leader: &str) -> Vec<SeenServer> {
        let server = |name: &str| SeenServer {
            address: address(name),
            is_leader: name == leader,
            seen_ago: Duration::from_millis(300),
            events_behind: 0,
            term: 2,
        };
        ["a", "b"].map(server).into()
    }

    #[test]
    fn list_that_is_not_read_anew_grows_old_and_shows_nobody_as_up() {
        let list = ServerList::default();
        list.set(seen("a"));
        assert!(list.views().iter().all(ServerView::is_up));
        assert!(list.views()[0].is_leader);
        let long_ago = Instant::now().checked_sub(Duration::from_secs(60));
        list.seen.write().expect("no panic").at = long_ago.expect("the machine is up for longer");
        let views = list.views();
        assert!(!views.iter().any(|server| server.is_leader || server.is_up()), "{views:?}");
        assert!(views[1].seen_ms >= 60_300, "{views:?}");
        list.set(seen("a"));
        assert!(list.views().iter().all(ServerView::is_up));
    }

    #[tokio::test]
    async fn succession_is_told_and_a_time_without_a_leader_is_none() {
        let list = ServerList::default();
        list.set(seen("a"));
        let is_over = async || {
            tokio::time::timeout(Duration::ZERO, list.succeeded(&address("a"))).await.is_ok()
        };
        assert!(!is_over().await);
        list.set(seen("nobody"));
        assert!(!is_over().await, "it may lead on");
        list.set(seen("b"));
        assert!(is_over().await);
    }
}
