//! The server's writer around the real state machine and the real journal: decides, applies, commits, and only then answers.
//! It follows `crates/server/src/writer/`, without its threads.

use super::bug::Bug;
use super::checks::{Broken, Ledger};
use super::disks::Disks;
use super::dispatch::Dispatcher;
use super::orders::OrderTexts;
use super::site;
use cluster::command::SignalJob;
use cluster::view::builder::ViewBuilder;
use cluster::{Command, Context, Event, Reply, State};
use model::id::AttemptId;
use model::principal::Principal;
use model::reason::Refusal;
use model::record::JobRecord;
use model::time::Timestamp;
use model::tres::TresKind;
use sched::Memo;
use std::sync::Arc;
use store::{Journal, JournalError, LogFile, LogOptions, Position, Snapshots};

/// Small, so that a history has several segments.
const SEGMENT_BYTES: u64 = 256 << 10;

/// Ids are leased from the high-water mark in blocks of this many: few, so that a history leases often.
const ID_BLOCK: u64 = 16;

/// Events between two snapshots.
const SNAPSHOT_EVENTS: u64 = 120;

/// One request to the writer.
pub struct Work {
    pub by: Principal,
    pub command: Command,
    pub answer: AnswerTo,
}

impl Work {
    /// A command of the server itself, which nobody waits for.
    pub fn own(command: Command) -> Self {
        Self { by: site::root(), command, answer: AnswerTo::Nobody }
    }

    /// Marks a node as lost to which nobody is connected.
    pub fn lost(node: &str) -> Self {
        let command = Command::NodeLost { node: node.to_owned() };
        Self { by: site::root(), command, answer: AnswerTo::Lost { node: node.to_owned() } }
    }
}

/// Who is answered once the commit is on disk.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerTo {
    Nobody,
    Client,
    /// An agent that waits for the acknowledgement of a report, if it has a serial. With `forget`, nobody waited for the
    /// attempt's end.
    Report {
        node: String,
        link: u64,
        serial: Option<u64>,
        forget: Option<AttemptId>,
    },
    /// Nobody; that the node is lost has to be written, and is tried again until it is.
    Lost {
        node: String,
    },
    /// A node that said hello, with what its spool holds.
    Hello {
        node: String,
        link: u64,
        held: Vec<(AttemptId, bool)>,
    },
}

/// What goes to the disk as one commit, and who waits for it.
#[derive(Default)]
pub struct Batch {
    pub events: Vec<Event>,
    bytes: Vec<Vec<u8>>,
    pub answers: Vec<(AnswerTo, Result<Reply, Refusal>)>,
    pub signals: Vec<SignalJob>,
}

pub struct Server {
    pub state: State,
    journal: Box<dyn Journal>,
    /// The epoch of its lease, where the journal is in a database.
    pub epoch: u64,
    snapshots: Snapshots,
    snapshot_seq: u64,
    pub term: u64,
    leased: u64,
    pub dispatcher: Dispatcher,
    pub view_builder: ViewBuilder,
    pub memo: Memo,
    /// A plan was made and is not carried out yet.
    pub plan_under_way: bool,
}

/// What is on the disks.
pub struct Opened {
    pub state: State,
    journal: Box<dyn Journal>,
    epoch: u64,
    snapshots: Snapshots,
    snapshot_seq: u64,
    /// Acknowledged history is gone.
    pub has_loss: bool,
}

impl Opened {
    /// The number of the history's last event.
    pub fn end(&self) -> u64 {
        self.journal.last_seq()
    }
}

/// Reads the newest good snapshot and every event after it. A server that starts has no epoch yet: it takes the lease of a
/// database over.
pub fn open(disks: &Disks, epoch: Option<u64>) -> Result<Opened, JournalError> {
    let mut snapshots = Snapshots::new(Arc::new(disks.snapshots.clone()));
    let found = snapshots.newest_good()?;
    let position = found.position();
    let mut state = match &found.snapshot {
        None => State::default(),
        Some(snapshot) => {
            let read = serde_json::from_slice::<State>(&snapshot.body);
            let mut state = read.map_err(|error| JournalError::Replay {
                seq: position.seq,
                reason: error.to_string(),
            })?;
            state.rebuild_derived();
            state
        }
    };
    let mut replay = |event: &[u8]| -> Result<(), String> {
        let event: Event = serde_json::from_slice(event).map_err(|e| e.to_string())?;
        state.apply(&event);
        Ok(())
    };
    let (journal, epoch, has_loss): (Box<dyn Journal>, u64, bool) = match &disks.database {
        Some(database) => {
            let epoch = epoch.unwrap_or_else(|| database.take_lease());
            let journal = database.open(epoch, position.seq, &mut replay)?;
            (Box::new(journal), epoch, false)
        }
        None => {
            let options = LogOptions { segment_bytes: SEGMENT_BYTES };
            let disk = Arc::new(disks.journal.clone());
            let replay = |record: store::Record<'_>| replay(record.event);
            let (journal, recovery) = LogFile::open(disk, options, position, replay)?;
            (Box::new(journal), 0, recovery.loss.is_some())
        }
    };
    Ok(Opened { state, journal, epoch, snapshots, snapshot_seq: position.seq, has_loss })
}

impl Server {
    /// A server that begins a term of its own with what was on the disks.
    pub fn start(opened: Opened, texts: &Arc<OrderTexts>, protocol: u32, now: Timestamp) -> Self {
        let Opened { state, journal, epoch, snapshots, snapshot_seq, .. } = opened;
        let term = journal.term().max(state.term) + 1;
        Self {
            leased: journal.high_water().leased_ids,
            dispatcher: Dispatcher::new(texts.clone(), term, protocol, now),
            state,
            journal,
            epoch,
            snapshots,
            snapshot_seq,
            term,
            view_builder: ViewBuilder::default(),
            memo: Memo::default(),
            plan_under_way: false,
        }
    }

    /// Goes on with what the disks have, after a commit that failed.
    pub fn roll_back(&mut self, opened: Opened) {
        let Opened { state, journal, snapshots, .. } = opened;
        self.leased = self.leased.max(journal.high_water().leased_ids);
        self.state = state;
        self.journal = journal;
        self.snapshots = snapshots;
    }

    pub fn position(&self) -> Position {
        self.journal.position()
    }

    /// Decides on a command and applies what was decided, for the commit that is being put together.
    pub fn decide(
        &mut self,
        work: Work,
        (now, random): (Timestamp, u128),
        ledger: &Ledger,
        batch: &mut Batch,
    ) -> Result<(), Broken> {
        let Work { by, command, answer } = work;
        let context = Context { now, random, by };
        let decided = self.state.decide(&command, &context).and_then(|decision| {
            let ids = decision.events.iter().filter(|event| event.gives_job_id()).count() as u64;
            self.lease(u64::from(self.state.next_job) + ids)?;
            Ok(decision)
        });
        let decision = match decided {
            Ok(decision) => decision,
            Err(refusal) => {
                batch.answers.push((answer, Err(refusal)));
                return Ok(());
            }
        };
        for event in decision.events {
            let moving = ledger.before(&self.state, &event)?;
            let record = self.apply(&event);
            ledger.after(&self.state, &event, record.as_ref(), &moving)?;
            let bytes = serde_json::to_vec(&event)
                .map_err(|error| Broken(format!("an event cannot be written: {error}")))?;
            batch.bytes.push(bytes);
            batch.events.push(event);
        }
        if let Reply::Signals { signals, .. } = &decision.reply {
            batch.signals.extend(signals.iter().cloned());
        }
        batch.answers.push((answer, Ok(decision.reply)));
        Ok(())
    }

    fn apply(&mut self, event: &Event) -> Option<JobRecord> {
        let bugs = self.dispatcher.bugs;
        let is_configured = matches!(event, Event::Configured { .. });
        let keeps_marks = is_configured && bugs.has(Bug::MarksOfOldConfiguration);
        let before = keeps_marks.then(|| self.state.nodes.clone());
        let record = self.state.apply(event);
        for (name, known) in before.into_iter().flatten() {
            if let Some(node) = self.state.nodes.get_mut(&name) {
                node.used = known.used;
            }
        }
        match event {
            Event::StepStarted { .. } if bugs.has(Bug::StepsCharged) => {
                let charged = self.state.charged_usage.qos.values_mut().next();
                let seconds = charged.and_then(|usage| usage.tres_s.get_mut(&TresKind::Cpu));
                seconds.into_iter().for_each(|seconds| *seconds += 1.0);
            }
            Event::Started(started) if bugs.has(Bug::DevicesUncounted) => {
                for share in &started.allocation.nodes {
                    if let Some(node) = self.state.nodes.get_mut(&share.node) {
                        node.used.gres.retain(|held| !share.gres.contains(held));
                    }
                }
            }
            _ => {}
        }
        record
    }

    /// Ids are given out only below the durable high-water mark.
    fn lease(&mut self, wanted: u64) -> Result<(), Refusal> {
        if wanted < self.leased {
            return Ok(());
        }
        let upto = (wanted / ID_BLOCK + 1) * ID_BLOCK;
        let leased = self.journal.lease(upto);
        leased.map_err(|error| Refusal::DiskFull(error.to_string()))?;
        self.leased = upto;
        Ok(())
    }

    /// Makes the batch durable.
    pub fn append(&mut self, batch: &Batch) -> Result<(), JournalError> {
        let events: Vec<&[u8]> = batch.bytes.iter().map(Vec::as_slice).collect();
        let expected = self.journal.last_seq();
        self.journal.append(self.term, expected, &events).map(|_| ())
    }

    /// Work ahead of need: a spare segment, and a snapshot when one is due. What fails here is tried again later.
    pub fn maintain(&mut self) {
        let _ = self.journal.maintain();
        let position = self.journal.position();
        if position.seq < self.snapshot_seq + SNAPSHOT_EVENTS {
            return;
        }
        self.snapshot_seq = position.seq;
        let Ok(body) = serde_json::to_vec(&self.state) else { return };
        if let Ok(upto) = self.snapshots.write(position, &body) {
            let _ = self.journal.compact(upto);
        }
    }
}
