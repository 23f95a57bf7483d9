//! What the server's threads share.

pub mod agent_streams;
pub mod books_queue;
pub mod commit_watch;
pub mod counters;
pub mod link_shutdown;
pub mod step_launches;
pub mod step_queue;
pub mod writer_queue;

use crate::agents::listen::Agents;
use crate::shared::commit_watch::Changes;
use crate::shared::books_queue::BooksHandle;
use crate::shared::counters::Counters;
use crate::dispatch::Dispatch;
use crate::plan::forecast::Foresight;
use crate::auth::identity::Identity;
use crate::plan::planner::Planner;
use crate::shared::writer_queue::Writer;
use crate::shared::step_queue::StepQueue;
use crate::shared::step_launches::Steps;
use cluster::State;
use model::id::JobId;
use model::node::NodeFacts;
use model::reason::Reason;
use model::time::Timestamp;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};

pub struct Shared {
    pub state: Arc<RwLock<State>>,
    pub blobs: Arc<Mutex<store::Blobs>>,
    pub writer: Writer,
    pub planner: Planner,
    pub foresight: Foresight,
    pub dispatch: Dispatch,
    pub books: BooksHandle,
    pub agents: Agents,
    pub identity: Identity,
    pub changes: Changes,
    pub volatile: Volatile,
    pub setup: Setup,
}

/// What is lost with the process, and found again without harm.
#[derive(Default)]
pub struct Volatile {
    /// What the last plan found; replaced whole, so that who reads it holds nobody up.
    pub outlook: RwLock<Arc<Outlook>>,
    /// Load and memory of nodes, from their beats.
    pub facts: RwLock<HashMap<String, NodeFacts>>,
    pub detected: crate::agents::devices::Detected,
    /// Launches of steps whose orders may not have arrived.
    pub steps: Steps,
    /// Steps that wait for others of their job.
    pub step_queue: StepQueue,
    /// For `sdiag`.
    pub counters: Counters,
    /// How many connections hold each interactive allocation.
    pub holders: Mutex<HashMap<JobId, u32>>,
}

/// What a plan says of those that wait.
#[derive(Default)]
pub struct Outlook {
    pub planned: Option<Timestamp>,
    /// Why each waits.
    pub reasons: HashMap<JobId, Reason>,
    /// When those with a reservation are expected to start.
    pub estimates: HashMap<JobId, Timestamp>,
}

impl Volatile {
    pub fn outlook(&self) -> Arc<Outlook> {
        self.outlook.read().expect("no panic while writing what a plan found").clone()
    }
}

/// How the server was started.
#[derive(Debug, Clone)]
pub struct Setup {
    pub server_dir: PathBuf,
    pub machine: Option<crate::configure::Machine>,
    pub config_dir: Option<PathBuf>,
    pub agents_addresses: Vec<String>,
    pub listen: String,
    /// The state folder as clients on this machine name it: what jobs get as `SLUICE_STATE`.
    pub client_state: Option<String>,
    pub hostname: String,
    /// A snapshot is due after this many events.
    pub snapshot_events: u64,
    pub started: Timestamp,
}

impl Shared {
    pub fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        // A poisoned lock means that applying an event broke an invariant: nothing may go on.
        self.state.read().expect("the state's invariants hold")
    }
}
