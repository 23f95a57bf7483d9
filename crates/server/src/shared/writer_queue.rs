//! The writer's queue: what it may be asked, and how an answer comes back.

use crate::auth::principal::server_principal;
use crate::error::ServerError;
use crate::shared::runtime_thread::is_multi_threaded;
use cluster::command::StepPlacement;
use cluster::{Command, Reply};
use model::id::JobId;
use model::principal::Principal;
use model::reason::Refusal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use store::{BlobId, BooksCopy, CopiedFile, JournalCopy};
use tokio::sync::oneshot;
use tokio::task::block_in_place;
use wire::byte_text::ByteText;
use wire::client::{GroupTexts, Submission};
use wire::step::StepLaunch;
use wire::workspace::Workspace;

/// Commands that may wait for the writer; more make their senders wait.
const QUEUE: usize = 4096;

/// How long a caller pauses when the queue is full.
const FULL_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

/// Texts that are longer take milliseconds to be named: the thread's other connections go on meanwhile.
const LONG_TEXT_BYTES: usize = 256 << 10;

pub type Answer = Result<Reply, Refusal>;

pub struct Work {
    pub request: WriterRequest,
    pub by: Principal,
    pub reply: Option<oneshot::Sender<Answer>>,
}

pub enum WriterRequest {
    Command(Command),
    Submit(Box<NamedSubmission>),
    Step {
        command: Command,
        job: JobId,
        launch: Box<StepLaunch>,
    },
    /// Several commands of the server's own, answered once.
    Batch(Vec<Command>),
    /// Commits what came before, and nothing more.
    Stop(oneshot::Sender<()>),
    /// The state on disk, as it is between two commits.
    Copy {
        books: PathBuf,
        to: oneshot::Sender<Result<StateCopy, ServerError>>,
    },
}

/// The state on disk at one position of the journal: files that are open, and lists of those that only grow.
pub struct StateCopy {
    pub journal: JournalCopy,
    pub snapshots: Vec<CopiedFile>,
    pub blobs: Vec<(String, u64)>,
    pub books: BooksCopy,
    pub next_job: u32,
}

/// A new job whose texts were named by their contents before it came into the queue: the writer,
/// for which everybody waits, does no hashing.
pub struct NamedSubmission {
    pub submission: Submission,
    pub script: Option<Text>,
    pub environment: Option<Text>,
    pub first_step: Option<Text>,
    pub configuration: Option<Text>,
    pub workspace: Option<Text>,
    /// The texts of each further group of replicas.
    pub group_texts: Vec<NamedGroupTexts>,
}

/// The texts of a group of replicas, by their contents.
pub struct NamedGroupTexts {
    pub script: Text,
    pub environment: Text,
    pub workspace: Option<Text>,
}

impl NamedGroupTexts {
    fn new(texts: GroupTexts, of_run: Option<&Workspace>) -> Result<Self, Refusal> {
        let workspace = texts.workspace_with(of_run).map(|own| serde_json::to_string(&own));
        let workspace = workspace.transpose().map_err(|e| Refusal::Other(e.to_string()))?;
        Ok(Self {
            script: Text::new(texts.script),
            environment: Text::new(texts.environment),
            workspace: workspace.map(Text::new),
        })
    }
}

pub struct Text {
    pub name: BlobId,
    pub content: Vec<u8>,
}

impl Text {
    fn new(content: impl Into<Vec<u8>>) -> Self {
        let content = content.into();
        Self { name: BlobId::of(&content), content }
    }
}

impl NamedSubmission {
    fn new(mut submission: Submission) -> Result<Self, Refusal> {
        let script = submission.script.take().map(Text::new);
        let environment = submission.environment.take().map(Text::new);
        let step = submission.first_step.take().map(|step| serde_json::to_string(&step));
        let step = step.transpose().map_err(|e| Refusal::Other(e.to_string()))?;
        let first_step = step.map(Text::new);
        let configuration = submission.configuration.take().map(Text::new);
        let of_run = submission.workspace.take();
        let named = |texts| NamedGroupTexts::new(texts, of_run.as_deref());
        let group_texts = std::mem::take(&mut submission.group_texts).into_iter();
        let group_texts = group_texts.map(named).collect::<Result<_, _>>()?;
        let workspace = of_run.as_ref().map(serde_json::to_string);
        let workspace = workspace.transpose().map_err(|e| Refusal::Other(e.to_string()))?;
        let workspace = workspace.map(Text::new);
        Ok(Self {
            submission,
            script,
            environment,
            first_step,
            configuration,
            workspace,
            group_texts,
        })
    }
}

/// The writer, for a thread that has a submission and may commit it itself.
pub trait InlineCommit: Send + Sync {
    /// Commits and answers; gives back what is for the writer's own thread, as when that is at work.
    fn commit_inline(&self, work: Work) -> Option<Work>;
}

#[derive(Clone)]
pub struct WriterQueue {
    sender: SyncSender<Work>,
    /// Set once the writer has started.
    inline: Arc<OnceLock<Box<dyn InlineCommit>>>,
    /// Submissions that are being checked and named, and are not in the queue yet.
    coming: Arc<AtomicUsize>,
}

/// A submission that is on its way into the queue, until this is dropped.
pub struct ComingSubmission(Arc<AtomicUsize>);

impl Drop for ComingSubmission {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WriterQueue {
    /// The queue, and the end from which the writer's thread takes its work.
    pub fn new() -> (Self, Receiver<Work>) {
        let (sender, receiver) = sync_channel(QUEUE);
        (Self { sender, inline: Arc::default(), coming: Arc::default() }, receiver)
    }

    /// Lets callers commit a submission themselves.
    pub fn allow_inline(&self, writer: impl InlineCommit + 'static) {
        // The writer starts once.
        let _ = self.inline.set(Box::new(writer));
    }

    /// Tells the writer that a submission is about to come: it may wait for it with a commit.
    pub fn announce_submission(&self) -> ComingSubmission {
        self.coming.fetch_add(1, Ordering::Relaxed);
        ComingSubmission(self.coming.clone())
    }

    pub fn is_submission_coming(&self) -> bool {
        self.coming.load(Ordering::Relaxed) > 0
    }

    /// Runs a command; answered when it is on disk.
    pub async fn run(&self, command: Command, by: Principal) -> Answer {
        self.ask(WriterRequest::Command(command), by).await
    }

    pub async fn submit(&self, submission: Box<Submission>, by: Principal) -> Answer {
        let script = submission.script.as_ref().map_or(0, ByteText::len);
        let bytes = script + submission.environment.as_ref().map_or(0, String::len);
        let has_more = submission.workspace.is_some() || !submission.group_texts.is_empty();
        let is_long = bytes > LONG_TEXT_BYTES || has_more;
        let coming = self.announce_submission();
        let name = || NamedSubmission::new(*submission);
        let named = if is_long { block_in_place(name) } else { name() };
        let named = named?;
        drop(coming);
        let request = WriterRequest::Submit(Box::new(named));
        // Others that come at the same time go into one commit, which the writer's thread makes.
        if self.inline.get().is_none() || self.is_submission_coming() || !is_multi_threaded() {
            return self.ask(request, by).await;
        }
        let (reply, answer) = oneshot::channel();
        let work = Work { request, by, reply: Some(reply) };
        let queue = self.clone();
        // A task of its own: the caller hears of a refusal while the writer still reads the state back.
        tokio::spawn(async move {
            if let Some(writer) = queue.inline.get()
                && let Some(work) = writer.commit_inline(work)
            {
                queue.put(work).await;
            }
        });
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Creates a step. The writer stores its launch before the order that needs it is made.
    pub async fn run_step(
        &self,
        command: Command,
        by: Principal,
        job: JobId,
        launch: StepLaunch,
    ) -> Result<StepPlacement, Refusal> {
        match self.ask(WriterRequest::Step { command, job, launch: Box::new(launch) }, by).await? {
            Reply::Step(placed) => Ok(placed),
            other => Err(Refusal::Other(format!("a step was answered with {other:?}"))),
        }
    }

    /// The state on disk between two commits, for a backup. `books` is the path of the books.
    pub fn copy(&self, books: PathBuf) -> Result<StateCopy, ServerError> {
        let (to, copied) = oneshot::channel();
        let request = WriterRequest::Copy { books, to };
        let stopping = || ServerError::Other("the server is stopping".into());
        self.sender
            .send(Work { request, by: server_principal(), reply: None })
            .map_err(|_| stopping())?;
        copied.blocking_recv().unwrap_or_else(|_| Err(stopping()))
    }

    /// Waits until all that came before is on disk. Nothing is committed or answered from then on.
    pub async fn stop(&self) {
        let (to, stopped) = oneshot::channel();
        let _asked = self.send(WriterRequest::Stop(to), server_principal()).await;
        let _ = stopped.await;
    }

    async fn ask(&self, request: WriterRequest, by: Principal) -> Answer {
        let answer = self.send(request, by).await.ok_or_else(stopping)?;
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Puts a command into the queue, behind all that were put there before; `None` when the server stops.
    pub async fn enqueue(
        &self,
        command: Command,
        by: Principal,
    ) -> Option<oneshot::Receiver<Answer>> {
        self.send(WriterRequest::Command(command), by).await
    }

    async fn send(
        &self,
        request: WriterRequest,
        by: Principal,
    ) -> Option<oneshot::Receiver<Answer>> {
        let (reply, answer) = oneshot::channel();
        self.put(Work { request, by, reply: Some(reply) }).await.then_some(answer)
    }

    /// Whether the command is in the queue; it is not where the server stops.
    async fn put(&self, mut work: Work) -> bool {
        // The queue's bound makes the caller wait, not the runtime's thread.
        loop {
            match self.sender.try_send(work) {
                Ok(()) => return true,
                Err(TrySendError::Full(back)) => {
                    work = back;
                    tokio::time::sleep(FULL_PAUSE).await;
                }
                Err(TrySendError::Disconnected(_)) => return false,
            }
        }
    }

    /// Hands over a command of the server's own; returns it when the queue is full.
    pub fn try_enqueue(&self, command: Command) -> Result<(), Box<Command>> {
        let work =
            Work { request: WriterRequest::Command(command), by: server_principal(), reply: None };
        match self.sender.try_send(work) {
            Err(TrySendError::Full(Work { request: WriterRequest::Command(command), .. })) => {
                Err(Box::new(command))
            }
            _ => Ok(()),
        }
    }

    /// Hands over a command of the server's own, and drops it when the queue is full: for what comes again anyway.
    pub fn enqueue_or_drop(&self, command: Command) {
        let work =
            Work { request: WriterRequest::Command(command), by: server_principal(), reply: None };
        let _ = self.sender.try_send(work);
    }

    /// Runs the server's own commands and waits until they are on disk.
    pub fn run_internal_batch(&self, commands: Vec<Command>) {
        if commands.is_empty() {
            return;
        }
        let (reply, answer) = oneshot::channel();
        let request = WriterRequest::Batch(commands);
        if self.sender.send(Work { request, by: server_principal(), reply: Some(reply) }).is_ok() {
            let _ = answer.blocking_recv();
        }
    }
}

fn stopping() -> Refusal {
    Refusal::Other("the server is stopping".into())
}
