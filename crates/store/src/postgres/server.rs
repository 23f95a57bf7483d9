//! Which servers there are: each writes down where it is found, and how far it has come in the history. Times are the database's.

use std::time::Duration;

use super::connection::Database;
use super::error::DatabaseError;
use super::{from_bigint, to_bigint};

const NOTE: &str = "INSERT INTO sluice.server (name, clients, agents, version, epoch, seq, seen)
    VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp())
    ON CONFLICT (name, clients) DO UPDATE SET agents = EXCLUDED.agents,
        version = EXCLUDED.version, epoch = EXCLUDED.epoch, seq = EXCLUDED.seq, seen = EXCLUDED.seen";
/// A server that was seen later than now was seen before the clock was set back: one that is there has said so since.
const LIST: &str = "SELECT s.name, s.clients, s.agents, s.version, s.seq,
        abs(extract(epoch FROM clock_timestamp() - s.seen)::float8),
        s.epoch > 0 AND s.epoch = l.epoch AND l.valid_until > clock_timestamp(), h.seq, h.term
    FROM sluice.server s CROSS JOIN sluice.lease l CROSS JOIN sluice.head h
    ORDER BY s.name, s.clients";
/// A server that has said nothing for so long is no server of the cluster any more.
const FORGET: &str = "DELETE FROM sluice.server WHERE seen NOT BETWEEN
    clock_timestamp() - interval '1 day' AND clock_timestamp() + interval '1 day'";
const REMOVE: &str = "DELETE FROM sluice.server WHERE name = $1 AND clients = $2";

/// Where a server is found, and which one it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    pub name: String,
    /// Addresses of the clients' port, and of the agents' port: `HOST:PORT`, in the order of preference.
    pub clients: Vec<String>,
    pub agents: Vec<String>,
    pub version: String,
}

/// A server as it was seen last.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenServer {
    pub address: ServerAddress,
    pub is_leader: bool,
    /// How long ago it said something.
    pub seen_ago: Duration,
    /// The events that it had not taken in then, of those that the database has now. The leader has all.
    pub events_behind: u64,
    /// The term of the history.
    pub term: u64,
}

impl ServerAddress {
    /// Writes down that the server is there. `epoch` is that of its lease, 0 while it waits.
    pub fn note(&self, database: &Database, epoch: i64, seq: u64) -> Result<(), DatabaseError> {
        let Self { name, version, .. } = self.clone();
        let (clients, agents) = (self.clients.join(","), self.agents.join(","));
        let seq = to_bigint(seq);
        database
            .ask(move |session| {
                session.execute(NOTE, &[&name, &clients, &agents, &version, &epoch, &seq])
            })
            .map(drop)
    }

    /// Forgets a server that ends, and those that were not seen for long.
    pub fn remove(&self, database: &Database) -> Result<(), DatabaseError> {
        let (name, clients) = (self.name.clone(), self.clients.join(","));
        database.ask(move |session| {
            session.execute(FORGET, &[])?;
            session.execute(REMOVE, &[&name, &clients]).map(drop)
        })
    }
}

impl SeenServer {
    pub fn list(database: &Database) -> Result<Vec<Self>, DatabaseError> {
        let rows = database.ask(|session| session.query(LIST, &[]))?;
        let addresses = |text: &str| -> Vec<String> {
            text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let server = |row: &tokio_postgres::Row| {
            let is_leader: bool = row.get(6);
            let (own, head) = (from_bigint(row.get(4)), from_bigint(row.get(7)));
            Self {
                address: ServerAddress {
                    name: row.get(0),
                    clients: addresses(row.get(1)),
                    agents: addresses(row.get(2)),
                    version: row.get(3),
                },
                is_leader,
                seen_ago: Duration::try_from_secs_f64(row.get(5)).unwrap_or_default(),
                events_behind: if is_leader { 0 } else { head.saturating_sub(own) },
                term: from_bigint(row.get(8)),
            }
        };
        Ok(rows.iter().map(server).collect())
    }
}
