//! The servers of the cluster, as the database had them last. A server alone has none here.

use std::sync::{PoisonError, RwLock};
use store::postgres::{SeenServer, ServerAddress};
use wire::client::ServerView;

#[derive(Default)]
pub struct ServerList(RwLock<Vec<SeenServer>>);

impl ServerList {
    pub fn set(&self, servers: Vec<SeenServer>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = servers;
    }

    /// Whether this server is alone, and has no database.
    pub fn is_empty(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whether this server is one of several.
    pub fn has_others(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len() > 1
    }

    /// Who leads, where that is known.
    pub fn leader(&self) -> Option<ServerAddress> {
        let servers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        servers.iter().find(|server| server.is_leader).map(|server| server.address.clone())
    }

    pub fn views(&self) -> Vec<ServerView> {
        let servers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let view = |server: &SeenServer| ServerView {
            name: server.address.name.clone(),
            addresses: server.address.clients.clone(),
            version: server.address.version.clone(),
            is_leader: server.is_leader,
            seen_ms: u64::try_from(server.seen_ago.as_millis()).unwrap_or(u64::MAX),
            events_behind: server.events_behind,
            term: server.term,
        };
        servers.iter().map(view).collect()
    }
}
