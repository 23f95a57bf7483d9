//! The queue of mails about jobs, and the jobs whose time limit or dependency is watched for one.

use crate::per_user::{CountedUser, UserCounts};
use model::id::JobId;
use model::mail::MailType;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Mails that may wait; further ones are dropped, and counted.
pub const QUEUE_MAX: usize = 4096;

/// Mails of one user's jobs that may wait: one user's mass of jobs does not silence the others.
pub const USER_QUEUE_MAX: usize = 512;

/// Ended jobs that are remembered from one look to the next; with more, everything is looked at.
const ENDED_MAX: usize = 65_536;

/// One mail to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailNotice {
    pub kind: MailType,
    pub job: JobId,
    /// The user id of the job's owner: each user has a part of the queue.
    pub owner: u32,
    /// The array, where the mail is about all its tasks.
    pub array: Option<JobId>,
    /// The value of `--mail-user`, or the owner's name with `MailDomain`.
    pub to: String,
    pub subject: String,
    /// What the program finds in its environment beside the facts of the job.
    pub variables: Vec<(&'static str, String)>,
}

/// A mail in the queue. It counts as one of its owner's until it is dropped.
pub struct QueuedMail {
    pub notice: MailNotice,
    _counted: CountedUser,
}

/// What has changed since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WatchChanges {
    /// Watched jobs that are new, or that were changed.
    pub changed: BTreeSet<JobId>,
    /// Jobs, and arrays of tasks, that have ended.
    pub ended: BTreeSet<JobId>,
    /// Too many have ended to remember which.
    pub everything: bool,
}

#[derive(Default)]
struct Watched {
    jobs: BTreeSet<JobId>,
    changes: WatchChanges,
}

pub struct MailQueue {
    sender: SyncSender<QueuedMail>,
    of_users: UserCounts,
    dropped: AtomicU64,
    watched: Mutex<Watched>,
}

impl MailQueue {
    /// The queue, and the end from which mails are sent.
    pub fn new() -> (Self, Receiver<QueuedMail>) {
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let queue = Self {
            sender,
            of_users: UserCounts::default(),
            dropped: AtomicU64::new(0),
            watched: Mutex::default(),
        };
        (queue, receiver)
    }

    /// Never waits. An array has one mail of a kind in a commit.
    pub fn add(&self, notices: Vec<MailNotice>) {
        let mut arrays = BTreeSet::new();
        for notice in notices {
            let (kind, array) = (notice.kind, notice.array);
            if array.is_some_and(|array| !arrays.insert((array, kind))) {
                continue;
            }
            let job = notice.job;
            let counted = self.of_users.enter(notice.owner, USER_QUEUE_MAX);
            let queued = counted.map(|_counted| QueuedMail { notice, _counted });
            let sent = queued.map(|queued| self.sender.try_send(queued));
            let is_dropped = matches!(sent, None | Some(Err(TrySendError::Full(_))));
            if is_dropped && self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!(
                    %job,
                    "mail: {USER_QUEUE_MAX} of one user or {QUEUE_MAX} of all wait; further ones are dropped"
                );
            }
        }
    }

    /// How many were dropped since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// Has the job looked at, now and at the times that it asks for.
    pub fn watch(&self, job: JobId) {
        let mut watched = self.watched.lock().expect("no panic with it held");
        watched.jobs.insert(job);
        watched.changes.changed.insert(job);
    }

    pub fn unwatch(&self, job: JobId) {
        let mut watched = self.watched.lock().expect("no panic with it held");
        watched.jobs.remove(&job);
    }

    /// Has the jobs looked at that depend on this one.
    pub fn note_end(&self, job: JobId) {
        let mut watched = self.watched.lock().expect("no panic with it held");
        // Nobody asks for what depends on it.
        if watched.jobs.is_empty() {
            return;
        }
        if watched.changes.ended.len() < ENDED_MAX {
            watched.changes.ended.insert(job);
        } else {
            watched.changes.everything = true;
        }
    }

    pub fn take_changes(&self) -> WatchChanges {
        std::mem::take(&mut self.watched.lock().expect("no panic with it held").changes)
    }

    pub fn watched(&self) -> Vec<JobId> {
        self.watched.lock().expect("no panic with it held").jobs.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(job: u32, array: Option<u32>) -> MailNotice {
        MailNotice {
            kind: MailType::Requeue,
            job: JobId(job),
            owner: job % 16,
            array: array.map(JobId),
            to: "ann".into(),
            subject: String::new(),
            variables: Vec::new(),
        }
    }

    #[test]
    fn queue_is_bounded_and_an_array_has_one_mail_of_a_kind_in_a_commit() {
        let (queue, mails) = MailQueue::new();
        queue.add(vec![notice(2, Some(1)), notice(3, Some(1)), notice(4, None), notice(5, None)]);
        assert_eq!(mails.try_iter().map(|mail| mail.notice.job.0).collect::<Vec<_>>(), [2, 4, 5]);
        for job in 0..QUEUE_MAX as u32 + 3 {
            queue.add(vec![notice(job, None)]);
        }
        assert_eq!((queue.take_dropped(), queue.take_dropped()), (3, 0));
        assert_eq!(mails.try_iter().count(), QUEUE_MAX);
    }

    #[test]
    fn one_users_mails_leave_room_for_those_of_others() {
        let (queue, mails) = MailQueue::new();
        let of = |owner| MailNotice { owner, ..notice(1, None) };
        for _ in 0..USER_QUEUE_MAX + 5 {
            queue.add(vec![of(1000)]);
        }
        queue.add(vec![of(1001)]);
        assert_eq!(queue.take_dropped(), 5);
        let sent: Vec<u32> = mails.try_iter().map(|mail| mail.notice.owner).collect();
        assert_eq!((sent.len(), sent.last()), (USER_QUEUE_MAX + 1, Some(&1001)));
        queue.add(vec![of(1000)]);
        assert_eq!(mails.try_iter().count(), 1, "what was sent does not count any more");
    }

    #[test]
    fn ends_are_noted_only_while_a_job_is_watched() {
        let (queue, _mails) = MailQueue::new();
        queue.note_end(JobId(1));
        assert_eq!(queue.take_changes(), WatchChanges::default());
        queue.watch(JobId(7));
        queue.note_end(JobId(1));
        let changes = queue.take_changes();
        assert_eq!((changes.changed, changes.ended), ([JobId(7)].into(), [JobId(1)].into()));
        assert_eq!(queue.take_changes(), WatchChanges::default());
        assert_eq!(queue.watched(), [JobId(7)]);
    }
}
