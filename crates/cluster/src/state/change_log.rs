//! The last changes of the state, so that a view is brought up to date without a look at every node and job.

use model::id::JobId;
use std::collections::VecDeque;
use std::sync::Arc;

/// Changes that are kept. A view that has not seen older ones is compared with the whole state.
const CHANGES_MAX: usize = 8_192;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StateChange {
    /// The job came, changed or ended.
    Job(JobId),
    /// What is used of the node, or whether it takes jobs.
    Node(String),
}

#[derive(Debug, Default)]
pub(crate) struct ChangeLog {
    /// Tells one log from another: a copy of the state, or one that was read back from disk, has a log of its own.
    identity: Arc<()>,
    /// The number of the first change that is kept.
    first: u64,
    changes: VecDeque<StateChange>,
}

/// How far the changes of one log are known.
#[derive(Debug, Clone)]
pub(crate) struct LogPosition {
    identity: Arc<()>,
    next: u64,
}

impl ChangeLog {
    pub fn note_job(&mut self, job: JobId) {
        self.make_room();
        self.changes.push_back(StateChange::Job(job));
    }

    pub fn note_node(&mut self, name: &str) {
        // Every start and every end notes each of its nodes: the text of the change that leaves serves for the next.
        let text = match self.make_room() {
            Some(StateChange::Node(mut text)) => {
                text.clear();
                text.push_str(name);
                text
            }
            _ => name.to_owned(),
        };
        self.changes.push_back(StateChange::Node(text));
    }

    /// Something changed that is not told as a change of single jobs and nodes: no position before it is good any more.
    pub fn note_anything(&mut self) {
        self.first = self.end() + 1;
        self.changes.clear();
    }

    /// Takes out the oldest change where no more are kept.
    fn make_room(&mut self) -> Option<StateChange> {
        if self.changes.len() < CHANGES_MAX {
            return None;
        }
        self.first += 1;
        self.changes.pop_front()
    }

    fn end(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    pub fn position(&self) -> LogPosition {
        LogPosition { identity: self.identity.clone(), next: self.end() }
    }

    /// The changes from this position on; `None` if they are not all known as such.
    pub fn since<'l>(
        &'l self,
        position: &LogPosition,
    ) -> Option<impl Iterator<Item = &'l StateChange> + use<'l>> {
        let is_of_this = Arc::ptr_eq(&self.identity, &position.identity);
        let seen = position.next.checked_sub(self.first).filter(|_| is_of_this)?;
        Some(self.changes.iter().skip(usize::try_from(seen).ok()?))
    }
}

impl Clone for ChangeLog {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Derived: equal states may have come about by other changes.
impl PartialEq for ChangeLog {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(log: &ChangeLog, position: &LogPosition) -> Option<Vec<StateChange>> {
        Some(log.since(position)?.cloned().collect())
    }

    #[test]
    fn changes_are_told_from_a_position_on() {
        let mut log = ChangeLog::default();
        log.note_job(JobId(1));
        let position = log.position();
        assert_eq!(since(&log, &position), Some(Vec::new()));
        log.note_job(JobId(2));
        log.note_node("n1");
        let expected = vec![StateChange::Job(JobId(2)), StateChange::Node("n1".into())];
        assert_eq!(since(&log, &position), Some(expected));
    }

    #[test]
    fn position_is_no_good_after_another_kind_of_change_or_in_a_copy() {
        let mut log = ChangeLog::default();
        let position = log.position();
        assert_eq!(since(&log.clone(), &position), None, "a copy goes its own way");
        log.note_anything();
        assert_eq!(since(&log, &position), None);
        assert_eq!(since(&log, &log.position()), Some(Vec::new()));
    }

    #[test]
    fn no_more_changes_are_kept_than_the_bound() {
        let mut log = ChangeLog::default();
        let position = log.position();
        for job in 0..CHANGES_MAX as u32 {
            log.note_job(JobId(job));
        }
        assert_eq!(since(&log, &position).map(|changes| changes.len()), Some(CHANGES_MAX));
        log.note_job(JobId(0));
        assert_eq!(since(&log, &position), None);
    }

    #[test]
    fn change_that_leaves_gives_its_text_and_no_name_to_the_next() {
        let mut log = ChangeLog::default();
        (0..CHANGES_MAX).for_each(|at| log.note_node(&format!("node{at}")));
        let position = log.position();
        ["n1", "a much longer name"].iter().for_each(|name| log.note_node(name));
        let expected = ["n1", "a much longer name"].map(|name| StateChange::Node(name.into()));
        assert_eq!(since(&log, &position), Some(expected.to_vec()));
    }
}
