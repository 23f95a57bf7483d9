//! The single writer: decides, journals, applies, and only then answers.
//!
//! Commands that come while one commit is on its way to the disk go together into the next:
//! group commit. If the journal refuses a commit, the state is read back from disk, so that clients
//! are never shown what the disk does not have.

use crate::clock;
use crate::error::ServerError;
use crate::mail::notice;
use crate::repeated_failure::RepeatedFailure;
use crate::shared::Shared;
use crate::shared::books_room::NewWork;
use crate::shared::run_totals::RunChange;
use crate::shared::runtime_thread::aside;
use crate::shared::writer_queue::{Answer, NamedSubmission, StateCopy, Text, Work, WriterRequest};
use crate::step::ask::step_ask;
use crate::writer::commit::{EncodedEvent, PendingBatch, PendingCommit};
use crate::writer::gathered::{BATCH, GatheredWork};
use crate::writer::new_work;
use crate::writer::recover::{Recovered, ReplayedEntry, StateDisks};
use crate::writer::resubmit::{self, Repeats};
use crate::writer::snapshot::SnapshotWriter;
use crate::writer::submission::group;
use cluster::books::deleted_runs;
use cluster::command::Submit;
use cluster::{Command, Context, Decision, Event, Reply, State};
use model::id::BlobRef;
use model::reason::Refusal;
use model::run::{BlobBytes, LaunchKind};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use store::{BlobError, Journal};
use tokio::sync::oneshot;
use wire::client::Submission;
use wire::step::StepLaunch;

/// Bytes of events that go into one commit, well below a segment of the journal.
const BATCH_BYTES: usize = 4 << 20;

/// Bytes left in a commit for the step that starts with its job.
const FIRST_STEP_BYTES: usize = 8 << 20;

/// A commit that takes longer is logged.
const SLOW_COMMIT: Duration = Duration::from_secs(1);

/// Ids are leased from the high-water mark in blocks of this many.
const ID_BLOCK: u64 = 1000;

/// New jobs are refused when less than this is left in the journal: ends of jobs must still fit.
const RESERVED_FOR_ENDS: u64 = 6 << 20;

/// The thread's own side: the journal, the snapshots and the lease of ids.
pub struct WriterThread {
    pub(super) shared: OnceLock<Arc<Shared>>,
    pub(super) disks: StateDisks,
    pub(super) journal: Box<dyn Journal>,
    pub(super) snapshots: SnapshotWriter,
    term: u64,
    pub(super) leased: u64,
    /// What was taken from the queue ahead of its batch.
    pub(super) gathered: GatheredWork,
    /// How long the last commit took.
    pub(super) last_commit: Duration,
    /// Copies that were asked for during a batch.
    copies: Vec<(PathBuf, CopyReply)>,
    /// Told when the last batch is on disk.
    pub(super) stopped: Option<oneshot::Sender<()>>,
    pub(super) failed_commits: RepeatedFailure,
    /// Submissions that came again: what comes of the first of them is the same job.
    repeats: Repeats,
    /// What a commit says to the books that failed and that the disk has after all.
    pub(super) kept: Option<Vec<ReplayedEntry>>,
}

type CopyReply = oneshot::Sender<Result<StateCopy, ServerError>>;

impl WriterThread {
    /// The state, the thread that changes it, and the records that the books may lack. A loss has been settled before
    /// (`lost_history`).
    pub fn new(recovered: Recovered, disks: StateDisks) -> (State, Self, Vec<ReplayedEntry>) {
        let Recovered { state, journal, snapshots, records, snapshot_seq, .. } = recovered;
        let leased = journal.high_water().leased_ids;
        let carries_texts = journal.texts_bytes_max() > 0;
        let term = journal.term().max(state.term) + 1;
        let thread = Self {
            shared: OnceLock::new(),
            disks,
            journal,
            snapshots: SnapshotWriter::new(snapshots, snapshot_seq, carries_texts),
            term,
            leased,
            gathered: GatheredWork::default(),
            last_commit: Duration::ZERO,
            copies: Vec::new(),
            stopped: None,
            failed_commits: RepeatedFailure::new("commits"),
            repeats: Repeats::default(),
            kept: None,
        };
        (state, thread, records)
    }

    pub fn term(&self) -> u64 {
        self.term
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        self.shared.get().expect("share() sets it first").clone()
    }

    /// One batch: the first command, and those that wait in the queue.
    pub(super) fn batch(
        &mut self,
        first: Work,
        work: Option<&Receiver<Work>>,
    ) -> Result<(), ServerError> {
        let shared = self.shared();
        let mut pending = PendingBatch::new(self.journal.commit_bytes_max());
        // Held until the commit is on disk: nobody is shown what could still be lost.
        let mut state = shared.state.write();
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(one) = next.take() {
            self.add_work(&mut state, one, &mut pending, &shared);
            taken += 1;
            if taken < BATCH && pending.size() < BATCH_BYTES {
                next = self.gathered.next(work);
            }
        }
        let mut committed = Vec::new();
        let mut commits = pending.into_commits().into_iter();
        let mut rolled_back = Ok(());
        while let Some(mut commit) = commits.next() {
            match self.commit(&mut commit, &shared) {
                Ok(()) => committed.push(commit),
                Err(error) => {
                    // Later commits build on the one that failed.
                    let lost = std::iter::once(commit).chain(commits.by_ref()).collect();
                    rolled_back = aside(|| self.roll_back(lost, error, &mut state, &shared));
                }
            }
        }
        drop(state);
        for commit in committed {
            self.publish(commit, &shared);
        }
        self.publish_kept(&shared);
        rolled_back
    }

    fn add_work(
        &mut self,
        state: &mut State,
        work: Work,
        pending: &mut PendingBatch,
        shared: &Shared,
    ) {
        let context = clock::context(work.by);
        match work.request {
            WriterRequest::Command(command) => {
                let room = new_work::check_command(shared, state, &context.by, &command);
                let answer =
                    room.and_then(|()| self.execute(state, &command, &context, pending, shared));
                pending.answer(work.reply, answer);
            }
            WriterRequest::Batch(commands) => {
                for command in commands {
                    // A start that has been overtaken is no error: the next plan sees why.
                    let _ = self.execute(state, &command, &context, pending, shared);
                }
                pending.answer(work.reply, Ok(Reply::Done));
            }
            WriterRequest::Step { command, job, launch } => {
                // A job that is not there is refused below.
                let owner = state.jobs.get(&job).map_or(0, |found| found.spec.owner.uid);
                let room = new_work::check(shared, state, &context.by, NewWork::Steps)
                    .and_then(|()| shared.volatile.step_launches.check_room(owner, job, &launch));
                let answer =
                    room.and_then(|()| self.execute(state, &command, &context, pending, shared));
                if let Ok(Reply::Step(placed)) = &answer {
                    shared.volatile.step_launches.put(owner, job, placed.step, *launch);
                }
                pending.answer(work.reply, answer);
            }
            WriterRequest::Copy { books, to } => self.copies.push((books, to)),
            WriterRequest::Stop(stopped) => {
                // Its caller waits for `stopped` alone.
                drop(work.reply);
                self.stopped = Some(stopped);
            }
            WriterRequest::Submit(submission) => {
                let answer = self.submit(state, *submission, &context, pending, shared);
                pending.answer(work.reply, answer);
            }
        }
    }

    fn submit(
        &mut self,
        state: &mut State,
        named: NamedSubmission,
        context: &Context,
        pending: &mut PendingBatch,
        shared: &Shared,
    ) -> Answer {
        if self.journal.free_bytes() < RESERVED_FOR_ENDS + pending.size() as u64 {
            return Err(Refusal::DiskFull("no room is left in the journal".into()));
        }
        let NamedSubmission {
            submission,
            script,
            environment,
            first_step,
            configuration,
            workspace,
            group_texts,
        } = named;
        let Submission { is_repeat, is_only_of_call, .. } = submission;
        let is_late = !is_repeat && is_only_of_call && self.repeats.has(&submission.spec);
        if is_repeat {
            self.repeats.note(&submission.spec, context.now);
        }
        if (is_repeat || is_late)
            && let Some(job) = resubmit::find(state, &submission.spec, context.now)
        {
            return Ok(Reply::Submitted { job: job.id, run: job.run });
        }
        if is_late {
            return Err(Refusal::Other("it was sent again, and answered then".into()));
        }
        new_work::check(shared, state, &context.by, NewWork::Jobs)?;
        let unique_name = submission.unique_name;
        let Submission {
            mut spec, mut het_components, array, hold, priority, requeue_unsaid, ..
        } = submission;
        if requeue_unsaid && spec.launch.kind == LaunchKind::Batch {
            spec.requeue = state.config.parameters.job_requeue;
        }
        let launch = Arc::make_mut(&mut spec.launch);
        let (name, bytes) = (
            |text: &Option<Text>| text.as_ref().map(|text| BlobRef::from(&text.name)),
            |text: &Option<Text>| text.as_ref().map_or(0, |text| text.content.len() as u32),
        );
        launch.script = name(&script);
        launch.environment = name(&environment);
        launch.first_step = name(&first_step).map(Box::new);
        launch.configuration = name(&configuration).map(Box::new);
        launch.workspace = name(&workspace).map(Box::new);
        launch.blob_bytes = BlobBytes {
            script: bytes(&script),
            environment: bytes(&environment),
            first_step: bytes(&first_step),
            configuration: bytes(&configuration),
            workspace: bytes(&workspace),
        };
        if spec.launch.kind == LaunchKind::Task {
            for other in &mut het_components {
                other.launch = Arc::new(group(&spec.launch, &other.launch));
            }
        }
        for (other, texts) in het_components.iter_mut().zip(&group_texts) {
            let launch = Arc::make_mut(&mut other.launch);
            launch.script = Some(BlobRef::from(&texts.script.name));
            launch.environment = Some(BlobRef::from(&texts.environment.name));
            launch.workspace = name(&texts.workspace).map(Box::new);
            launch.blob_bytes.script = texts.script.content.len() as u32;
            launch.blob_bytes.environment = texts.environment.content.len() as u32;
            launch.blob_bytes.workspace = bytes(&texts.workspace);
        }
        let submit =
            Submit { spec, array, hold, priority, het_components, test_only: false, unique_name };
        let command = Command::Submit(Box::new(submit));
        let decision = state.decide(&command, context)?;
        // What is refused leaves nothing on the disk.
        let mut blobs = shared.blobs.lock().expect("no panic with the blobs held");
        let full = |e: BlobError| Refusal::DiskFull(e.to_string());
        let now_s = context.now.secs() as u64;
        // The step's key is in it.
        if let Some(Text { name, content }) = first_step {
            blobs.stage_private(name, &content, now_s).map_err(full)?;
        }
        let texts = [script, environment, configuration, workspace];
        let of_groups = group_texts.into_iter().flat_map(|texts| {
            [Some(texts.script), Some(texts.environment), texts.workspace].into_iter().flatten()
        });
        for Text { name, content } in texts.into_iter().flatten().chain(of_groups) {
            blobs.stage_named(name, &content, now_s).map_err(full)?;
        }
        drop(blobs);
        self.carry_out(state, &command, decision, context, pending, shared)
    }

    fn execute(
        &mut self,
        state: &mut State,
        command: &Command,
        context: &Context,
        pending: &mut PendingBatch,
        shared: &Shared,
    ) -> Answer {
        let decision = state.decide(command, context)?;
        self.carry_out(state, command, decision, context, pending, shared)
    }

    /// Applies what was decided, for the commit that is being put together.
    fn carry_out(
        &mut self,
        state: &mut State,
        command: &Command,
        Decision { events, reply }: Decision,
        context: &Context,
        pending: &mut PendingBatch,
        shared: &Shared,
    ) -> Answer {
        self.lease(
            u64::from(state.next_job) + events.iter().filter(|e| e.gives_job_id()).count() as u64,
        )?;
        let starts = matches!(command, Command::Start(_));
        // The step that starts with its job goes into the same commit.
        let more = if starts { FIRST_STEP_BYTES } else { 0 };
        for group in pending.groups(command, events)? {
            pending.make_room(&group, more);
            apply_group(state, group, pending, shared);
        }
        if starts {
            self.create_first_step(state, context, pending, shared)?;
        }
        if let Reply::Signals { signals, .. } = &reply {
            pending.last().signals.extend(signals.iter().cloned());
        }
        Ok(reply)
    }

    /// `srun` outside an allocation: its step starts in the same commit as its job.
    fn create_first_step(
        &self,
        state: &mut State,
        context: &Context,
        pending: &mut PendingBatch,
        shared: &Shared,
    ) -> Result<(), Refusal> {
        let Some(Event::Started(started)) = pending.last().events.last() else { return Ok(()) };
        let job = started.attempt.job;
        let Some(known) = state.jobs.get(&job) else { return Ok(()) };
        let owner = known.spec.owner.uid;
        let Some(blob) = known.spec.launch.first_step.clone() else { return Ok(()) };
        let unread =
            |e: String| Refusal::Other(format!("the step of job {job} cannot be read: {e}"));
        let text = shared.blob_text(&blob).map_err(|e| unread(e.to_string()))?;
        let launch: StepLaunch = serde_json::from_str(&text).map_err(|e| unread(e.to_string()))?;
        let command = Command::CreateStep { job, ask: Box::new(step_ask(&launch)) };
        let Decision { events, reply } = state.decide(&command, context)?;
        for group in pending.groups(&command, events)? {
            apply_group(state, group, pending, shared);
        }
        if let Reply::Step(placed) = reply {
            shared.volatile.step_launches.put(owner, job, placed.step, launch);
        }
        Ok(())
    }

    /// Ids are given out only below the durable high-water mark.
    fn lease(&mut self, wanted: u64) -> Result<(), Refusal> {
        if wanted < self.leased {
            return Ok(());
        }
        let upto = (wanted / ID_BLOCK + 1) * ID_BLOCK;
        self.journal.lease(upto).map_err(|e| ServerError::from(e).not_kept())?;
        self.leased = upto;
        Ok(())
    }

    /// The bytes of texts that a commit with so many bytes of events carries. What ends of jobs need stays free.
    fn room_for_texts(&self, events_bytes: usize) -> usize {
        let reserved = RESERVED_FOR_ENDS + events_bytes as u64;
        let free = self.journal.free_bytes().saturating_sub(reserved);
        let free = usize::try_from(free).unwrap_or(usize::MAX);
        let left = self.journal.commit_bytes_max().saturating_sub(events_bytes);
        self.journal.texts_bytes_max().min(free).min(left)
    }

    fn commit(&mut self, pending: &mut PendingCommit, shared: &Shared) -> Result<(), ServerError> {
        pending.seq = self.journal.last_seq();
        if pending.events.is_empty() {
            shared.blobs.lock().expect("no panic with the blobs held").discard_staged();
            return Ok(());
        }
        let begun = Instant::now();
        let room = self.room_for_texts(pending.size);
        let lock_blobs = || shared.blobs.lock().expect("no panic with the blobs held");
        let mut blobs = lock_blobs();
        // No other commit names a text that is not on the disk: ends of jobs do not wait for one that takes no texts.
        let is_submit = pending.events.iter().any(|event| matches!(event, Event::Submitted(_)));
        let names_texts = is_submit || blobs.staged_len() > 0;
        let texts = if names_texts { blobs.store_staged(room)? } else { Vec::new() };
        drop(blobs);
        // Before the commit: the disk may have one after all that failed.
        if !texts.is_empty() {
            self.snapshots.note_texts(begun);
        }
        let events: Vec<&[u8]> = pending.bytes.iter().map(Vec::as_slice).collect();
        let appended = self.journal.append_with_texts(self.term, pending.seq, &events, &texts);
        if names_texts {
            lock_blobs().note_journal(appended.is_ok());
        }
        pending.seq = appended?;
        let took = begun.elapsed();
        self.last_commit = took;
        log_if_slow(took, pending.events.len());
        self.failed_commits.succeeded();
        shared.volatile.totals.add_commit(took, self.journal.bytes());
        Ok(())
    }

    fn publish(&mut self, pending: PendingCommit, shared: &Arc<Shared>) {
        let wake = pending.events.iter().any(Event::may_start_jobs);
        let is_new_job = |event: &Event| matches!(event, Event::Submitted(_));
        let mut wakers = pending.events.iter().filter(|event| event.may_start_jobs());
        let only_new_jobs = wakers.all(is_new_job);
        if !pending.events.is_empty() {
            shared.forecasts.state_changed();
        }
        for event in &pending.events {
            shared.volatile.counters.add_event(event);
            shared.volatile.totals.add_event(event);
            shared.volatile.changes.add_event(event);
        }
        for change in pending.run_changes {
            shared.volatile.run_totals.add(change);
        }
        if pending.events.iter().any(|event| matches!(event, Event::Purged { .. })) {
            shared.volatile.unneeded_blobs.store(true, Ordering::Release);
        }
        let deleted = pending.events.iter().flat_map(deleted_runs).copied().collect();
        let counted = |uid| shared.counted_user(uid);
        shared.volatile.books_room.note(&pending.records, counted, Instant::now());
        shared.books.add(pending.seq, pending.records, deleted, pending.activities);
        shared.mail.add(pending.mails);
        // The dispatcher has no orders for jobs that only wait: their clients do not wait until its thread was woken.
        let only_wait = pending.signals.is_empty() && pending.events.iter().all(is_new_job);
        if only_wait {
            answer_all(pending.answers);
            shared.dispatch.committed_new_jobs(pending.events);
            shared.commits.committed_submits();
        } else {
            shared.dispatch.committed(pending.events, pending.signals);
            answer_all(pending.answers);
            shared.commits.committed();
        }
        if wake && only_new_jobs {
            shared.planner.wake_for_new_jobs();
        } else if wake {
            shared.planner.wake();
        }
    }

    /// Work ahead of need. What fails here is tried again after the next batch: nothing acknowledged depends on it.
    pub(super) fn after_batch(&mut self) {
        for (books, to) in std::mem::take(&mut self.copies) {
            // The backup that asked for the copy may have been broken off.
            let _ = to.send(self.copy(&books, &self.shared()));
        }
        if let Err(error) = self.journal.maintain() {
            tracing::warn!("the journal has no spare segment: {error}");
        }
        if let Some(upto) = self.snapshots.take_finished()
            && let Err(error) = self.journal.compact(upto)
        {
            tracing::warn!("the journal keeps what a snapshot has: {error}");
        }
        let shared = self.shared();
        let (last_seq, bytes) = (self.journal.last_seq(), self.journal.bytes());
        let now = Instant::now();
        let reusable = shared.books.reusable_bytes();
        shared.volatile.books_room.look(&shared.setup.server_dir, reusable, now);
        self.snapshots.note_failure(now);
        let is_due = self.snapshots.is_due(last_seq, shared.setup.snapshot_events, bytes);
        let is_for_texts = self.snapshots.is_due_for_texts(now, last_seq);
        // A snapshot leaves ended jobs out: the books must have them first.
        if !(is_due || is_for_texts) || !shared.books.is_settled() {
            return;
        }
        // What the snapshot has is not read from the journal again, and so no text that it carries.
        let synced = shared.blobs.lock().expect("no panic with the blobs held").sync();
        if let Err(error) = synced {
            tracing::warn!("no snapshot yet: the journal alone has the last texts: {error}");
            return;
        }
        if is_for_texts {
            // What is before the snapshot is removed as a whole.
            match self.journal.begin_segment() {
                Ok(()) => self.snapshots.forget_texts(),
                Err(error) => {
                    tracing::warn!("the journal keeps the texts that a snapshot has: {error}");
                    self.snapshots.put_off_texts(now);
                    // A full disk has no room for a segment, and may have it once a snapshot that is due anyway is written.
                    if !is_due {
                        return;
                    }
                }
            }
        }
        self.snapshots.start(self.journal.position(), bytes, shared.read().clone());
    }
}

fn answer_all(answers: Vec<(Option<oneshot::Sender<Answer>>, Answer)>) {
    for (reply, answer) in answers {
        if let Some(reply) = reply {
            // A client that is gone does not hear it; what was done stays done.
            let _ = reply.send(answer);
        }
    }
}

fn apply_group(
    state: &mut State,
    group: Vec<EncodedEvent>,
    pending: &mut PendingBatch,
    shared: &Shared,
) {
    for event in group {
        let cancelled = RunChange::of_cancelled_tasks(state, &event.event);
        let noted = state.activities.noted();
        let records = state.apply(&event.event);
        pending.last().activities.extend(state.activities.after(noted).cloned());
        let run_change = cancelled.or_else(|| RunChange::of(state, &event.event));
        if let Some(job) = notice::watched_job(state, &event.event) {
            shared.mail.watch(job);
        }
        if let Some(job) = notice::ended_job(state, &event.event) {
            shared.mail.note_end(job);
        }
        let mails = notice::of_event(state, &event.event);
        pending.add(event, records, run_change, mails);
    }
}

fn log_if_slow(took: Duration, events: usize) {
    if took >= SLOW_COMMIT {
        let took_ms = took.as_millis() as u64;
        tracing::warn!(took_ms, events, "slow commit: the journal's disk is late");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::logged;

    #[test]
    fn slow_commit_is_logged_with_its_length_and_events() {
        let lines = |took| logged(|| log_if_slow(took, 2));
        assert!(lines(SLOW_COMMIT - Duration::from_millis(1)).is_empty());
        let expected = "WARN slow commit: the journal's disk is late took_ms=1000 events=2";
        assert_eq!(lines(SLOW_COMMIT), [expected]);
    }
}
