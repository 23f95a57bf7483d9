//! A server for tests: its real state, writer and handles, on disks that can fail, without processes or sockets.

mod logged;

pub use logged::logged;

use crate::auth::identity::Identity;
use crate::auth::key_files::KeyFiles;
use crate::auth::principal::server_principal;
use crate::auth::secret_keys::SecretKeys;
use crate::clock;
use crate::configure::{self, Machine};
use crate::plan::planner::plan_once;
use crate::shared::dispatch_queue::{DispatchQueue, DispatchWork};
use crate::shared::forecast_queue::ForecastQueue;
use crate::shared::log_queue::LogQueue;
use crate::shared::mail_queue::MailQueue;
use crate::shared::ssh_keys::SshKeys;
use crate::shared::state_lock::StateLock;
use crate::shared::uploads::Uploads;
use crate::shared::writer_queue::{Work, WriterQueue};
use crate::shared::{Setup, Shared};
use crate::writer::books;
use crate::writer::recover::{JournalPlace, StateDisks, recover_with_blobs};
use crate::writer::thread::WriterThread;
use cluster::view::builder::ViewBuilder;
use cluster::{Command, Reply};
use dstack::configuration::{Configuration, parse};
use dstack::request::{Submitter, draft, for_offers};
use model::amount::Bytes;
use model::id::JobId;
use model::node::{NodeConfig, NodeFacts};
use model::principal::{Principal, Role};
use model::reason::Refusal;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use store::{Blobs, BookReader, Books, FaultyDisk, LogFiles};
use tempfile::TempDir;
use wire::client::Submission;

/// The one node of the cluster: 4 CPUs, 16 GiB.
pub const NODE: &str = "n1";

/// What the markers of browsers are signed with.
pub const MARKER_SECRET: &[u8] = b"of this server";

pub struct TestServer {
    pub shared: Arc<Shared>,
    /// What was handed to the dispatcher, in order.
    pub dispatch: Receiver<DispatchWork>,
    pub journal: FaultyDisk,
    pub blobs: FaultyDisk,
    /// The writer's own end, until `start_writer` takes it.
    writer: Option<(WriterThread, Receiver<Work>)>,
    dir: TempDir,
}

impl TestServer {
    /// A new server whose writer has not started: what is sent to it waits.
    pub fn without_writer() -> Self {
        Self::new(None)
    }

    /// The same, with a folder of configuration files.
    pub fn with_config_dir(config: &Path) -> Self {
        Self::new(Some(config.to_path_buf()))
    }

    fn new(config_dir: Option<PathBuf>) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let journal = FaultyDisk::default();
        let disks = disks(&journal);
        let (state, thread, _) = WriterThread::new(disks.recover().expect("a state"), disks);
        let books_path = dir.path().join("books.sqlite");
        let blobs_disk = FaultyDisk::default();
        let blobs = Blobs::open(Arc::new(blobs_disk.clone()), Default::default());
        let (writer, work) = WriterQueue::new();
        let (forecasts, _) = ForecastQueue::new();
        let (dispatch, dispatched) = DispatchQueue::new();
        let shared = Shared {
            state: StateLock::new(state),
            blobs: Mutex::new(blobs.expect("blobs").0),
            writer,
            planner: Default::default(),
            forecasts,
            dispatch,
            books: books::start(Books::open(&books_path).expect("books"), &books_path, None)
                .expect("a thread for the books"),
            agents: Default::default(),
            logs: LogQueue::new(Arc::new(
                LogFiles::new(Arc::new(FaultyDisk::default())).expect("logs"),
            ))
            .0,
            mail: MailQueue::new().0,
            identity: Identity::load_or_make(&dir.path().join("keys")).expect("keys"),
            key_files: KeyFiles::from(&dir.path().join("keys")),
            secret_keys: SecretKeys::load(&dir.path().join("keys"), std::iter::empty()),
            uploads: Uploads::new(dir.path().join("uploads")),
            ssh_keys: SshKeys::load(&dir.path().join("keys"), || Ok([1; 32])).expect("keys"),
            sealing: Default::default(),
            commits: Default::default(),
            volatile: Default::default(),
            setup: Setup { config_dir, ..setup(dir.path()) },
        };
        shared.volatile.proxy.keep_markers(MARKER_SECRET);
        let writer = Some((thread, work));
        let (shared, blobs) = (Arc::new(shared), blobs_disk);
        Self { shared, dispatch: dispatched, journal, blobs, writer, dir }
    }

    /// A server with its writer, configured with one node.
    pub async fn start() -> Self {
        let mut server = Self::without_writer();
        server.start_writer();
        server.run(Command::StartTerm { term: 1 }).await.expect("a term");
        let memory = Bytes::from_gib(16);
        let machine = Machine { node: NodeConfig::plain(NODE, 4, memory) };
        let config = configure::load(None, Some(&machine)).expect("a configuration");
        server.run(Command::Configure(Box::new(config))).await.expect("a configured cluster");
        server
    }

    pub fn start_writer(&mut self) {
        let (thread, work) = self.writer.take().expect("a writer that has not started");
        let shared = self.shared.clone();
        std::thread::spawn(move || thread.run(shared, &work).expect("a writer that goes on"));
    }

    /// Allows submissions to be committed by who brings them; what is for the writer's thread waits.
    pub fn start_without_thread(&mut self) -> Receiver<Work> {
        let (thread, work) = self.writer.take().expect("a writer that has not started");
        thread.share(self.shared.clone());
        work
    }

    pub async fn run(&self, command: Command) -> Result<Reply, Refusal> {
        self.shared.writer.run(command, server_principal()).await
    }

    /// Marks the node as up, with nothing in its spool.
    pub async fn node_up(&self) {
        let hello = Command::NodeHello {
            node: NODE.into(),
            facts: Box::new(NodeFacts::default()),
            held: Vec::new(),
        };
        self.run(hello).await.expect("a node that is up");
    }

    /// Submits a whole configuration.
    pub async fn submit_text(&self, text: &str) -> Result<JobId, Refusal> {
        match self.shared.writer.submit(Box::new(submission_of(text)), user()).await? {
            Reply::Submitted { job, .. } => Ok(job),
            other => panic!("a submit was answered with {other:?}"),
        }
    }

    pub async fn submit(&self, lines: &str) -> Result<JobId, Refusal> {
        match self.shared.writer.submit(Box::new(submission(lines)), user()).await? {
            Reply::Submitted { job, .. } => Ok(job),
            other => panic!("a submit was answered with {other:?}"),
        }
    }

    /// Makes one plan and carries it out, off the runtime's threads.
    pub fn plan(&self) {
        let shared = self.shared.clone();
        let plan = move || plan_once(&shared, &mut ViewBuilder::default(), &mut Default::default());
        std::thread::spawn(plan).join().expect("a plan");
    }

    pub fn book_reader(&self) -> BookReader {
        BookReader::open(&self.dir.path().join("books.sqlite")).expect("the books")
    }

    /// The state that a restart would find on disk, as JSON.
    pub fn state_on_disk(&self) -> String {
        let recovered = disks(&self.journal.fork()).recover().expect("a state");
        serde_json::to_string(&recovered.state).expect("JSON")
    }

    /// The blobs that a restart would find where every one of them was lost that the journal does not carry.
    pub fn blobs_from_journal(&self) -> Blobs {
        let lost = Arc::new(FaultyDisk::default());
        recover_with_blobs(&disks(&self.journal.fork()), lost).expect("a state").1
    }

    pub fn state_in_memory(&self) -> String {
        serde_json::to_string(&*self.shared.read()).expect("JSON")
    }
}

fn disks(journal: &FaultyDisk) -> StateDisks {
    let journal = JournalPlace::Files(Arc::new(journal.clone()));
    StateDisks { journal, snapshots: Arc::new(FaultyDisk::default()) }
}

fn setup(dir: &Path) -> Setup {
    Setup {
        machine: None,
        config_dir: None,
        server_dir: dir.to_path_buf(),
        agents_addresses: Vec::new(),
        listen: String::new(),
        listen_addresses: Vec::new(),
        proxy: None,
        ssh: None,
        ssh_host_key: String::new(),
        client_state: None,
        hostname: "host".into(),
        network_stack: None,
        snapshot_events: u64::MAX,
        started: clock::now(),
        set_log_level: |_| {},
    }
}

/// An ordinary user.
pub fn user() -> Principal {
    Principal { name: "ada".into(), uid: 1000, gid: 1000, role: Role::User, ..server_principal() }
}

/// A task of one CPU and 1 GiB that waits for capacity, with further lines of its configuration.
pub fn submission(lines: &str) -> Submission {
    submission_of(&format!(
        "type: task\ncommands: [make]\nresources: {{cpu: 1, memory: 1GB}}\n{lines}\n"
    ))
}

/// The submission of a configuration.
fn submission_of(text: &str) -> Submission {
    let loaded = parse("task.yml", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    let Ok(Configuration::Task(task)) = loaded.applicable() else { panic!("{text}") };
    let submitter = Submitter {
        now: clock::now(),
        random: 0,
        work_dir: "/home/ada",
        file: None,
        submit_line: String::new(),
        host: String::new(),
        session: 0,
        umask: 0o022,
        variable: &|_| None,
    };
    let mut submission = for_offers(&draft(task, &submitter).expect("a submission").submission);
    submission.spec.owner = Arc::new(user());
    submission.spec.dstack_priority = None;
    submission
}
