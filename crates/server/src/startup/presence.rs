//! What one of several servers writes down of itself, and reads of the others: so each knows who leads, and shows who is there.

use crate::shared::server_list::ServerList;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::postgres::{Database, SeenServer, ServerAddress};

/// How often a server says that it is there.
const INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Presence {
    address: ServerAddress,
    database: Arc<Database>,
    servers: Arc<ServerList>,
    noted: Option<Instant>,
}

impl Presence {
    pub fn new(address: ServerAddress, database: Arc<Database>, servers: Arc<ServerList>) -> Self {
        Self { address, database, servers, noted: None }
    }

    pub fn servers(&self) -> &Arc<ServerList> {
        &self.servers
    }

    /// Writes and reads if it is time to; also sooner while nobody is known to lead. `epoch` is that of the own lease, 0 without.
    pub fn update(&mut self, epoch: i64, seq: u64) {
        let is_due = self.noted.is_none_or(|noted| noted.elapsed() >= INTERVAL);
        if is_due {
            self.note(epoch, seq);
        } else if self.servers.leader().is_none() {
            self.read();
        }
    }

    pub fn note(&mut self, epoch: i64, seq: u64) {
        self.noted = Some(Instant::now());
        if let Err(error) = self.address.note(&self.database, epoch, seq) {
            tracing::debug!("the list of servers is not written: {error}");
        }
        self.read();
    }

    fn read(&self) {
        match SeenServer::list(&self.database) {
            Ok(servers) => self.servers.set(servers),
            Err(error) => tracing::debug!("the list of servers is not read: {error}"),
        }
    }
}
