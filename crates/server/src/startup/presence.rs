//! What one of several servers writes down of itself, and reads of the others: so each knows who leads, and shows who is there.
//!
//! A session and a thread of its own do it: a table that somebody holds keeps no lease from being renewed or taken.

use crate::shared::server_list::ServerList;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store::postgres::{Database, SeenServer, ServerAddress};

/// How often a server says that it is there.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often it looks who leads while that is not known.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct Presence {
    address: ServerAddress,
    database: Arc<Database>,
    servers: Arc<ServerList>,
    /// The epoch of the own lease, 0 without.
    epoch: AtomicI64,
    seq: AtomicU64,
    is_over: AtomicBool,
    /// Held by who writes.
    turn: Mutex<()>,
    wake: SyncSender<()>,
}

impl Presence {
    pub fn start(
        address: ServerAddress,
        database: Arc<Database>,
        servers: Arc<ServerList>,
    ) -> io::Result<Arc<Self>> {
        let (wake, woken) = sync_channel(1);
        let presence = Arc::new(Self {
            address,
            database,
            servers,
            epoch: AtomicI64::new(0),
            seq: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            turn: Mutex::default(),
            wake,
        });
        let own = presence.clone();
        std::thread::Builder::new().name("presence".into()).spawn(move || own.run(&woken))?;
        Ok(presence)
    }

    pub fn servers(&self) -> &Arc<ServerList> {
        &self.servers
    }

    /// How far it has come while it waits: written down with the next word.
    pub fn set_seq(&self, seq: u64) {
        self.seq.store(seq, Ordering::Relaxed);
    }

    /// Has all written down at once.
    pub fn tell(&self) {
        // One that is told already says it all.
        let _ = self.wake.try_send(());
    }

    /// It leads, and is written down as the leader. A server that knows of none yet waits for that: agents are told by what it knows
    /// whether there are several.
    pub fn lead(&self, epoch: i64) {
        self.epoch.store(epoch, Ordering::Relaxed);
        self.seq.store(0, Ordering::Relaxed);
        if self.servers.is_empty() {
            self.note();
        } else {
            self.tell();
        }
    }

    /// Forgets this server, and writes nothing more of it. What fails here is shown as down, and forgotten after a day.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _turn = self.turn();
        let _ = self.address.remove(&self.database);
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, woken: &Receiver<()>) {
        let (mut noted, mut is_told) = (None::<Instant>, false);
        while !self.is_over.load(Ordering::Relaxed) {
            if is_told || noted.is_none_or(|noted| noted.elapsed() >= INTERVAL) {
                noted = Some(Instant::now());
                self.note();
            } else if self.servers.leader().is_none() {
                self.read();
            }
            is_told = match woken.recv_timeout(LOOK_INTERVAL) {
                Ok(()) => true,
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => return,
            };
        }
    }

    fn note(&self) {
        let _turn = self.turn();
        if self.is_over.load(Ordering::Relaxed) {
            return;
        }
        let (epoch, seq) = (self.epoch.load(Ordering::Relaxed), self.seq.load(Ordering::Relaxed));
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
