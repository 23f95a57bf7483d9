//! The writer's own thread, and submissions that are committed without it: for one that comes alone, to wake that thread and to be
//! woken by it takes as long as the commit.
//!
//! The thread that brings a submission commits it only where nothing else is to be done and the disk, or the database, is fast: a thread
//! of the runtime has others to serve. One that waits for a database all the same gives its other tasks away soon. What a commit leaves to be done after it, such as snapshots, is done with the next tick. Room in the journal is made
//! then too: a submission is for the writer's thread where the next tick may come too late for that.

use crate::error::ServerError;
use crate::shared::Shared;
use crate::shared::writer_queue::{InlineCommit, Work};
use crate::vital_task::CANNOT_GO_ON;
use crate::writer::gathered::GATHER_TIMEOUT;
use crate::writer::thread::WriterThread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A disk or a database is fast whose last commit took no longer.
const FAST_COMMIT: Duration = Duration::from_millis(1);

/// The writer, for its own thread and for those that bring it a submission.
#[derive(Clone)]
pub struct SharedWriter(Arc<Mutex<WriterThread>>);

impl WriterThread {
    /// Works until every sender is gone.
    pub fn run(self, shared: Arc<Shared>, work: &Receiver<Work>) -> Result<(), ServerError> {
        let queue = shared.writer.clone();
        let writer = self.share(shared);
        loop {
            let ahead = writer.lock().gathered.take_ahead();
            let Some(first) = ahead.or_else(|| work.recv().ok()) else { return Ok(()) };
            let mut thread = writer.lock();
            thread.gathered.gather(&first, work, &queue, GATHER_TIMEOUT);
            thread.batch(first, Some(work))?;
            if let Some(stopped) = thread.stopped.take() {
                let _ = stopped.send(());
                // Told from here: the lead is given up also where whoever asked for it is gone. A writer that stopped under a
                // lease that is renewed would hold the whole cluster.
                thread.shared().volatile.handover.notify_one();
                // Commands that come now keep their callers waiting until the process ends: those ask the next leader. Nobody
                // else has the writer meanwhile.
                loop {
                    std::thread::park();
                }
            }
            thread.after_batch();
        }
    }

    /// Allows others to commit submissions.
    pub fn share(self, shared: Arc<Shared>) -> SharedWriter {
        let queue = shared.writer.clone();
        let _ = self.shared.set(shared);
        let writer = SharedWriter(Arc::new(Mutex::new(self)));
        queue.allow_inline(writer.clone());
        writer
    }

    /// Whether the journal takes a commit of any size without making a segment, which takes long. After those of a fast caller it may
    /// have none in reserve until the thread has had a batch, and would refuse new jobs for want of room.
    fn has_room_for_any_commit(&self) -> bool {
        self.journal.free_bytes() >= self.journal.commit_bytes_max() as u64
    }
}

impl SharedWriter {
    fn lock(&self) -> MutexGuard<'_, WriterThread> {
        self.0.lock().expect("a panic of the writer ends the server")
    }
}

impl InlineCommit for SharedWriter {
    fn commit_inline(&self, work: Work) -> Option<Work> {
        let Ok(mut thread) = self.0.try_lock() else { return Some(work) };
        let is_fast = thread.last_commit <= FAST_COMMIT && thread.has_room_for_any_commit();
        if !is_fast || !thread.gathered.begin_alone() {
            return Some(work);
        }
        let failed = match catch_unwind(AssertUnwindSafe(|| thread.batch(work, None))) {
            Ok(Ok(())) => return None,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it panicked".to_owned(),
        };
        tracing::error!("the writer cannot go on: {failed}");
        std::process::exit(CANNOT_GO_ON);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;
    use crate::writer::recover::{JournalPlace, StateDisks};
    use model::reason::Refusal;
    use store::FaultyDisk;

    #[tokio::test(flavor = "multi_thread")]
    async fn submission_that_comes_alone_needs_no_thread_of_the_writer() {
        let mut server = TestServer::without_writer();
        let queue = server.start_without_thread();
        // It is answered: nothing is configured yet.
        assert!(server.submit("name: alone").await.is_err());
        // Another is under way: both are for the thread.
        let _coming = server.shared.writer.announce_submission();
        let submitted = tokio::time::timeout(Duration::ZERO, server.submit("name: second"));
        assert!(submitted.await.is_err() && queue.try_recv().is_ok());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn commit_of_a_caller_is_kept_or_undone_as_that_of_the_thread() {
        let server = TestServer::start().await;
        let kept = server.submit("name: kept").await.expect("a job");
        server.journal.fail_sync_at(1);
        let refused = server.submit("name: lost").await;
        assert!(matches!(refused, Err(Refusal::DiskFull(_))), "{refused:?}");
        let later = server.submit("name: later").await.expect("the writer goes on");
        assert!(later > kept);
        server.journal.restart(7);
        let on_disk = server.state_on_disk();
        assert!(on_disk.contains("\"kept\"") && on_disk.contains("\"later\""), "{on_disk}");
        assert_eq!(server.state_in_memory(), on_disk);
    }

    /// A fast caller fills a segment and the spare one between two ticks.
    #[test]
    fn commit_that_may_need_a_new_segment_is_for_the_thread() {
        let journal = JournalPlace::Files(Arc::new(FaultyDisk::default()));
        let disks = StateDisks { journal, snapshots: Arc::new(FaultyDisk::default()) };
        let (_, mut thread, _) = WriterThread::new(disks.recover().expect("a state"), disks);
        assert!(thread.has_room_for_any_commit());
        let more_than_half = vec![b'x'; thread.journal.commit_bytes_max() / 2 + 1];
        for seq in 0..2 {
            thread.journal.append(1, seq, &[&more_than_half[..]]).expect("kept");
        }
        assert!(!thread.has_room_for_any_commit(), "the spare segment is in use");
        thread.journal.maintain().expect("a spare segment");
        assert!(thread.has_room_for_any_commit());
    }
}
