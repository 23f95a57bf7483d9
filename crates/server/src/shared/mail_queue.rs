//! The queue of mails about jobs, and the jobs whose time limit or dependency is watched for one.

use model::id::JobId;
use model::mail::MailType;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Mails that may wait; further ones are dropped, and counted.
pub const QUEUE_MAX: usize = 4096;

/// One mail to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailNotice {
    pub kind: MailType,
    pub job: JobId,
    /// The array, where the mail is about all its tasks.
    pub array: Option<JobId>,
    /// The value of `--mail-user`, or the owner's name with `MailDomain`.
    pub to: String,
    pub subject: String,
    /// What the program finds in its environment beside the facts of the job.
    pub variables: Vec<(&'static str, String)>,
}

pub struct MailQueue {
    sender: SyncSender<MailNotice>,
    dropped: AtomicU64,
    watched: Mutex<BTreeSet<JobId>>,
}

impl MailQueue {
    /// The queue, and the end from which mails are sent.
    pub fn new() -> (Self, Receiver<MailNotice>) {
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        (Self { sender, dropped: AtomicU64::new(0), watched: Mutex::default() }, receiver)
    }

    /// Never waits. An array has one mail of a kind in a commit.
    pub fn add(&self, notices: Vec<MailNotice>) {
        let mut arrays = BTreeSet::new();
        for notice in notices {
            let (kind, array) = (notice.kind, notice.array);
            if array.is_some_and(|array| !arrays.insert((array, kind))) {
                continue;
            }
            if let Err(TrySendError::Full(notice)) = self.sender.try_send(notice)
                && self.dropped.fetch_add(1, Ordering::Relaxed) == 0
            {
                tracing::warn!(job = %notice.job, "mail: {QUEUE_MAX} wait; further ones are dropped");
            }
        }
    }

    /// How many were dropped since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    pub fn watch(&self, job: JobId) {
        self.watched.lock().expect("no panic with it held").insert(job);
    }

    pub fn unwatch(&self, job: JobId) {
        self.watched.lock().expect("no panic with it held").remove(&job);
    }

    pub fn watched(&self) -> Vec<JobId> {
        self.watched.lock().expect("no panic with it held").iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(job: u32, array: Option<u32>) -> MailNotice {
        MailNotice {
            kind: MailType::Requeue,
            job: JobId(job),
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
        assert_eq!(mails.try_iter().map(|mail| mail.job.0).collect::<Vec<_>>(), [2, 4, 5]);
        for job in 0..QUEUE_MAX as u32 + 3 {
            queue.add(vec![notice(job, None)]);
        }
        assert_eq!((queue.take_dropped(), queue.take_dropped()), (3, 0));
        assert_eq!(mails.try_iter().count(), QUEUE_MAX);
    }
}
