//! What a batch takes from the queue: its first command, and what comes together with it.
//!
//! A commit is a sync of the disk, and nobody reads the state meanwhile. Where many clients submit at once, each commit would have the one
//! or two submissions that were read since the last. So the writer waits a moment for those that are on their way, and for as many
//! as came together the last time. A client that submits alone waits for nobody.

use crate::shared::writer_queue::{Work, WriterQueue, WriterRequest};
use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Commands that go into one commit.
pub const BATCH: usize = 1024;

/// How long a submission waits at most for others to go into its commit: a few times what a commit takes.
pub const GATHER_TIMEOUT: Duration = Duration::from_micros(300);

/// The time between two looks at the queue: as long as a few submissions take to be read. A wait for each of them would wake the thread
/// as often.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);

/// Commands that were taken from the queue ahead of their batch.
#[derive(Default)]
pub struct GatheredWork {
    ahead: VecDeque<Work>,
    /// The submissions of the last batch.
    submissions: usize,
}

impl GatheredWork {
    /// A command that was taken ahead: the first of the next batch.
    pub fn take_ahead(&mut self) -> Option<Work> {
        self.ahead.pop_front()
    }

    /// A further command of the same batch, where there is one. Who commits a submission on his own thread has no queue.
    pub fn next(&mut self, work: Option<&Receiver<Work>>) -> Option<Work> {
        let next = self.ahead.pop_front().or_else(|| work?.try_recv().ok())?;
        self.submissions += usize::from(is_submission(&next));
        Some(next)
    }

    /// Begins a batch of one submission, where none came together with others the last time, and nothing waits.
    pub fn begin_alone(&mut self) -> bool {
        let is_alone = self.ahead.is_empty() && self.submissions <= 1;
        if is_alone {
            self.submissions = 1;
        }
        is_alone
    }

    /// Takes what comes together with the first command of a batch, for `most` long.
    pub fn gather(
        &mut self,
        first: &Work,
        work: &Receiver<Work>,
        queue: &WriterQueue,
        most: Duration,
    ) {
        let own = usize::from(is_submission(first));
        let last = std::mem::replace(&mut self.submissions, own);
        if own == 0 {
            return;
        }
        let begun = Instant::now();
        loop {
            let room = BATCH.saturating_sub(self.ahead.len());
            self.ahead.extend(work.try_iter().take(room));
            let there = own + self.ahead.iter().filter(|one| is_submission(one)).count();
            let is_more_due = there < last || queue.is_submission_coming();
            if !is_more_due || self.ahead.len() >= BATCH || begun.elapsed() >= most {
                return;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

fn is_submission(work: &Work) -> bool {
    matches!(work.request, WriterRequest::Submit(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::principal::server_principal;
    use crate::testing::{submission, user};
    use cluster::Command;
    use tokio::task::yield_now;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Has a submission in the queue.
    async fn put(queue: &WriterQueue) {
        let queue = queue.clone();
        tokio::spawn(async move { queue.submit(Box::new(submission("")), user()).await });
        yield_now().await;
    }

    #[tokio::test]
    async fn submission_waits_for_one_that_is_coming_and_alone_for_nobody() {
        let (queue, work) = WriterQueue::new();
        let mut gathered = GatheredWork::default();
        put(&queue).await;
        let first = work.try_recv().expect("a submission");
        // It would not return before the hour is over.
        gathered.gather(&first, &work, &queue, HOUR);
        assert_eq!((gathered.ahead.len(), gathered.submissions), (0, 1));
        let coming = queue.announce_submission();
        let asked = queue.clone();
        let gathering = std::thread::spawn(move || {
            gathered.gather(&first, &work, &asked, HOUR);
            (gathered, work)
        });
        put(&queue).await;
        drop(coming);
        let (mut gathered, work) = gathering.join().expect("no panic");
        assert_eq!(gathered.ahead.len(), 1, "it has come");
        assert!(!gathered.begin_alone(), "it waits");
        assert!(gathered.next(Some(&work)).is_some() && gathered.next(Some(&work)).is_none());
        assert_eq!(gathered.submissions, 2);
        assert!(!gathered.begin_alone(), "others came with the last");
    }

    #[tokio::test]
    async fn submission_waits_for_as_many_as_came_together_and_other_commands_do_not() {
        let (queue, work) = WriterQueue::new();
        let mut gathered = GatheredWork { submissions: 2, ..GatheredWork::default() };
        put(&queue).await;
        let first = work.try_recv().expect("a submission");
        let asked = queue.clone();
        let gathering = std::thread::spawn(move || {
            gathered.gather(&first, &work, &asked, HOUR);
            (gathered, work)
        });
        put(&queue).await;
        let (mut gathered, work) = gathering.join().expect("no panic");
        assert_eq!(gathered.ahead.len(), 1);
        gathered.next(Some(&work));
        // Nobody else comes: it is bounded.
        put(&queue).await;
        let first = work.try_recv().expect("a submission");
        gathered.gather(&first, &work, &queue, Duration::ZERO);
        let command = Command::StartTerm { term: 1 };
        let _answer = queue.enqueue(command, server_principal()).await.expect("a queue");
        gathered.submissions = 2;
        let first = work.try_recv().expect("a command");
        gathered.gather(&first, &work, &queue, HOUR);
        assert_eq!(gathered.submissions, 0, "the next batch waits for nobody");
        assert!(gathered.begin_alone() && gathered.submissions == 1);
    }
}
