//! What one batch is to write: commits that each fit into the journal, and the answers that wait for each.

use crate::shared::mail_queue::MailNotice;
use crate::shared::run_totals::RunChange;
use crate::shared::writer_queue::Answer;
use cluster::command::SignalJob;
use cluster::{Command, Event};
use model::activity::Activity;
use model::id::JobId;
use model::reason::Refusal;
use model::record::JobRecord;
use store::EVENT_OVERHEAD;
use tokio::sync::oneshot;

/// The events of one commit, and who is answered once it is on disk.
#[derive(Default)]
pub struct PendingCommit {
    pub events: Vec<Event>,
    pub bytes: Vec<Vec<u8>>,
    pub size: usize,
    pub records: Vec<JobRecord>,
    pub run_changes: Vec<RunChange>,
    pub mails: Vec<MailNotice>,
    pub activities: Vec<Activity>,
    pub answers: Vec<(Option<oneshot::Sender<Answer>>, Answer)>,
    pub signals: Vec<SignalJob>,
    /// The journal's end after this commit.
    pub seq: u64,
}

/// An event and its bytes in the journal.
pub struct EncodedEvent {
    pub event: Event,
    pub bytes: Vec<u8>,
}

impl EncodedEvent {
    fn size(&self) -> usize {
        self.bytes.len() + EVENT_OVERHEAD
    }
}

/// The commits of one batch. The state has all their events already; they go to the disk in order.
pub struct PendingBatch {
    commits: Vec<PendingCommit>,
    /// The journal's bound on the bytes of one commit.
    commit_bytes_max: usize,
}

impl PendingBatch {
    pub fn new(commit_bytes_max: usize) -> Self {
        Self { commits: vec![PendingCommit::default()], commit_bytes_max }
    }

    /// The bytes of all commits together.
    pub fn size(&self) -> usize {
        self.commits.iter().map(|commit| commit.size).sum()
    }

    pub fn last(&mut self) -> &mut PendingCommit {
        self.commits.last_mut().expect("there is always one commit")
    }

    pub fn into_commits(self) -> Vec<PendingCommit> {
        self.commits
    }

    /// The events of a command, as groups that each have to be in one commit. Refused if a group is larger than that.
    pub fn groups(
        &self,
        command: &Command,
        events: Vec<Event>,
    ) -> Result<Vec<Vec<EncodedEvent>>, Refusal> {
        let mut groups: Vec<Vec<EncodedEvent>> = Vec::new();
        // The size of the last group.
        let mut size = 0;
        for event in events {
            let bytes = serde_json::to_vec(&event)
                .map_err(|e| Refusal::Other(format!("an event cannot be written: {e}")))?;
            let encoded = EncodedEvent { event, bytes };
            let of_event = encoded.size();
            match groups.last_mut() {
                Some(group) if !may_part(command, group, &encoded.event) => {
                    size += of_event;
                    group.push(encoded);
                }
                _ => {
                    size = of_event;
                    groups.push(vec![encoded]);
                }
            }
            // Nothing more is written of what is too much already.
            if size > self.commit_bytes_max {
                return Err(Refusal::InvalidValue {
                    what: "the request".into(),
                    value: format!("{size} bytes of changes, or more"),
                    expected: format!("at most {} at once", self.commit_bytes_max),
                });
            }
        }
        Ok(groups)
    }

    /// Begins another commit where the last one has no room for this group and for `more` bytes after it.
    pub fn make_room(&mut self, group: &[EncodedEvent], more: usize) {
        let last = self.last();
        let size = last.size + size_of_group(group) + more;
        if !last.events.is_empty() && size > self.commit_bytes_max {
            self.commits.push(PendingCommit::default());
        }
    }

    /// Adds an event that the state has, with what it gave for the books, for the counts of runs and for mails.
    pub fn add(
        &mut self,
        event: EncodedEvent,
        record: Option<JobRecord>,
        run_change: Option<RunChange>,
        mails: Vec<MailNotice>,
    ) {
        let size = event.size();
        let last = self.last();
        last.size += size;
        last.bytes.push(event.bytes);
        last.events.push(event.event);
        last.records.extend(record);
        last.run_changes.extend(run_change);
        last.mails.extend(mails);
    }

    /// Answers once everything up to here is on disk.
    pub fn answer(&mut self, reply: Option<oneshot::Sender<Answer>>, answer: Answer) {
        self.last().answers.push((reply, answer));
    }
}

fn size_of_group(group: &[EncodedEvent]) -> usize {
    group.iter().map(EncodedEvent::size).sum()
}

/// Whether a commit may end between a group and the next event, so that a crash there leaves a consistent state: the end of
/// a step stands alone, and so do the ends of different jobs. What is missing then comes with the repeated report, the next
/// tick or the repeated command.
fn may_part(command: &Command, group: &[EncodedEvent], next: &Event) -> bool {
    let several = matches!(
        command,
        Command::Report { .. }
            | Command::Cancel(_)
            | Command::Tick { .. }
            | Command::NodeLost { .. }
            | Command::NodeHello { .. }
    );
    let Some(last) = group.last() else { return true };
    match (several, &last.event) {
        (false, _) => false,
        (true, Event::StepEndedOnNode { .. }) => true,
        (true, last) => match (ended_job(last), ended_job(next)) {
            (Some(last), Some(next)) => last != next,
            _ => false,
        },
    }
}

/// The job whose end an event is a part of.
fn ended_job(event: &Event) -> Option<JobId> {
    match event {
        Event::Ending { job, .. } | Event::Ended { job, .. } | Event::Requeued { job, .. } => {
            Some(*job)
        }
        Event::AttemptEndedOnNode { attempt, .. }
        | Event::AttemptAbandonedOnNode { attempt, .. } => Some(attempt.job),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::command::AttemptReport;
    use model::id::{AttemptId, StepId};
    use model::time::Timestamp;

    const NOW: Timestamp = Timestamp(0);

    fn attempt(job: u32) -> AttemptId {
        AttemptId { job: JobId(job), number: 1 }
    }

    fn step_ended(job: u32) -> Event {
        Event::StepEndedOnNode {
            job: JobId(job),
            step: StepId::Number(0),
            node: "n1".into(),
            exit: Default::default(),
            usage: Default::default(),
            end: None,
        }
    }

    fn ended_on_node(job: u32) -> Event {
        let (exit, usage) = Default::default();
        let (attempt, node) = (attempt(job), "n1".into());
        Event::AttemptEndedOnNode { attempt, node, exit, usage, at: NOW, failure: None }
    }

    fn abandoned(job: u32) -> Event {
        Event::AttemptAbandonedOnNode { attempt: attempt(job), node: "n1".into() }
    }

    fn silent() -> Event {
        Event::NodeSilent { node: "n1".into(), at: NOW }
    }

    fn parts(command: &Command, last: Event, next: &Event) -> bool {
        may_part(command, &[EncodedEvent { event: last, bytes: Vec::new() }], next)
    }

    /// A commit that ends in the middle of a job's end would leave a job that has ended on no node, or holds what it gave
    /// back.
    #[test]
    fn commit_ends_only_between_jobs_and_after_the_end_of_a_step() {
        let what = AttemptReport::Started;
        let report = Command::Report { node: "n1".into(), attempt: attempt(1), at: NOW, what };
        let several = [report, Command::NodeLost { node: "n1".into() }];
        for command in &several {
            assert!(parts(command, step_ended(1), &ended_on_node(1)), "a step's end stands alone");
            assert!(parts(command, ended_on_node(1), &ended_on_node(2)), "ends of two jobs");
            assert!(parts(command, abandoned(1), &ended_on_node(2)), "ends of two jobs");
            assert!(!parts(command, ended_on_node(1), &abandoned(1)), "the end of one job");
            assert!(
                !parts(command, silent(), &abandoned(1)),
                "a node, and what became of its jobs"
            );
            assert!(!parts(command, ended_on_node(1), &silent()), "what else belongs to the end");
        }
        let whole = Command::StartTerm { term: 1 };
        assert!(!parts(&whole, step_ended(1), &step_ended(2)), "other commands are one commit");
        assert!(!parts(&whole, ended_on_node(1), &ended_on_node(2)));
    }
}
