//! The steps through which the proxy reaches ports of jobs: one for each job, node and user, for as long as somebody uses it.

use super::kept_connections::KeptConnections;
use crate::connection_limits::TUNNEL_IDLE;
use crate::shared::Shared;
use crate::shared::ssh_connections::SshConnection;
use crate::ssh::access::Access;
use crate::ssh::forward::Forwarder;
use crate::ssh::tunnel::Tunnels;
use crate::task_groups::node_by_rank;
use model::id::JobId;
use model::principal::Principal;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::io::DuplexStream;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use wire::forward::OwnServer;

/// How long an unused step stays, and how often it is looked at.
const IDLE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(10);
/// Steps of all users, and of one.
const ALL_MAX: usize = 1024;
const OF_USER_MAX: usize = 32;
/// Connections at once through one step.
pub const CONNECTIONS_MAX: usize = 128;

type Key = (JobId, u32, u32);

pub struct Forwarders {
    steps: Mutex<HashMap<Key, Arc<Entry>>>,
    /// Steps of one user.
    of_user_max: usize,
    /// Places of connections that the server makes without a step.
    pub near_slots: Arc<Semaphore>,
    /// Connections to replicas, by step and without one, that count as their owner's while nobody uses them.
    pub kept: KeptConnections,
    /// Where steps run, whichever thread asks for one: they outlast its requests, and may keep a thread from others.
    runtime: Option<Handle>,
}

impl Default for Forwarders {
    fn default() -> Self {
        let near_slots = Arc::new(Semaphore::new(0));
        let runtime = Handle::try_current().ok();
        Self {
            steps: Mutex::default(),
            of_user_max: OF_USER_MAX,
            near_slots,
            kept: KeptConnections::default(),
            runtime,
        }
    }
}

pub struct Entry {
    job: JobId,
    forwarder: Forwarder,
    used: Mutex<Instant>,
    /// Counts as a connection to the job: a dev environment that is looked at is not inactive.
    _open: SshConnection,
}

impl Entry {
    /// Connects to a server of the job's at a port: on a network that the job shares with others, to none of theirs.
    pub async fn open(
        &self,
        shared: &Shared,
        port: u16,
    ) -> Option<(DuplexStream, Option<OwnServer>)> {
        let has_own_network = {
            let state = shared.read();
            let attempt = state.jobs.get(&self.job).and_then(|job| job.attempt());
            attempt.is_some_and(|attempt| attempt.network.is_some())
        };
        self.forwarder.orders().open(port, !has_own_network).await
    }

    fn touch(&self) {
        *self.used.lock().expect("no panic with the time held") = Instant::now();
    }

    fn is_idle(&self) -> bool {
        self.used.lock().expect("no panic with the time held").elapsed() > IDLE
    }
}

impl Forwarders {
    /// Steps into replicas of services: one user may have many of those, and leaves room for others. So many connections to replicas
    /// on this machine need none.
    pub fn of_services(near_connections: usize) -> Self {
        let near_slots = Arc::new(Semaphore::new(near_connections));
        Self { of_user_max: ALL_MAX / 2, near_slots, ..Self::default() }
    }

    fn steps(&self) -> MutexGuard<'_, HashMap<Key, Arc<Entry>>> {
        self.steps.lock().expect("no panic with the steps held")
    }

    /// The step for this user in a job; nothing where there are too many.
    pub fn get(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        by: &Principal,
        job: JobId,
        rank: u32,
    ) -> Option<Arc<Entry>> {
        let (job, rank) = {
            let state = shared.read();
            let found = state.jobs.get(&job);
            let node = found.map(|found| node_by_rank(&state, found, rank));
            node.map_or((job, rank), |(found, rank)| (found.id, rank))
        };
        let key = (job, rank, by.uid);
        let mut steps = self.steps();
        steps.retain(|_, entry| !entry.forwarder.has_ended());
        if let Some(known) = steps.get(&key) {
            known.touch();
            return Some(known.clone());
        }
        let of_user = steps.keys().filter(|(.., uid)| *uid == by.uid).count();
        if steps.len() >= ALL_MAX || of_user >= self.of_user_max {
            return None;
        }
        let _runtime = self.runtime.as_ref().map(Handle::enter);
        let access = Access { by: by.clone(), job, rank };
        let tunnels = Tunnels { idle: TUNNEL_IDLE, served: Default::default() };
        let entry = Arc::new(Entry {
            job,
            forwarder: Forwarder::start(shared.clone(), access, None, tunnels),
            used: Mutex::new(Instant::now()),
            _open: shared.volatile.ssh_connections.opened(job),
        });
        steps.insert(key, entry.clone());
        drop(steps);
        tokio::spawn(self.clone().end_when_idle(key, entry.clone()));
        Some(entry)
    }

    /// Forgets a step that nobody has used for a while: it ends with its last connection.
    async fn end_when_idle(self: Arc<Self>, key: Key, entry: Arc<Entry>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let mut steps = self.steps();
            let is_known = steps.get(&key).is_some_and(|known| Arc::ptr_eq(known, &entry));
            // This task and the map hold it.
            let is_unused = Arc::strong_count(&entry) <= 2 && entry.is_idle();
            if entry.forwarder.has_ended() || is_unused || !is_known {
                if is_known {
                    steps.remove(&key);
                }
                return;
            }
        }
    }
}
