//! Keeps a launch order from being taken twice: remembers the highest term, and each launch until its order expires.
//!
//! Kept in `STATE/nodes/NAME/seen.jsonl`, one line a launch, so that a replayed order is refused even after the attempt
//! was forgotten and the agent restarted. Expired entries are dropped when the file is rewritten. It is opened for each line:
//! an agent may be ten thousand nodes, most of which never had a job.

use crate::error::AgentError;
use model::id::{AttemptId, JobId};
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use wire::term;

/// The file is rewritten when it has at least this many lines, and twice as many as it needs.
const REWRITE_AT: usize = 4096;
/// The most unexpired launches. Beyond it no launch is taken until some expire.
const TAKEN_MAX: usize = 1 << 18;

#[derive(Debug, Serialize, Deserialize)]
struct GuardEntry {
    term: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    taken: Option<(AttemptId, Timestamp)>,
    /// The attempt has ended here, and the server has its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forgotten: Option<AttemptId>,
    /// The launch was taken but never carried out: the agent died in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    released: Option<AttemptId>,
}

impl GuardEntry {
    fn of_term(term: u64) -> GuardEntry {
        GuardEntry { term, taken: None, forgotten: None, released: None }
    }
}

pub(crate) struct ReplayGuard {
    path: PathBuf,
    lines: usize,
    /// The last line may be incomplete: the disk was full.
    torn: bool,
    /// The number of lines after the last rewrite.
    lines_needed: usize,
    term: u64,
    taken: HashMap<AttemptId, Timestamp>,
    newest: BTreeMap<JobId, u32>,
    forgotten: HashSet<AttemptId>,
}

impl ReplayGuard {
    /// Reads the file in the node's own folder.
    pub fn open(folder: &Path, now: Timestamp) -> Result<ReplayGuard, AgentError> {
        let path = folder.join("seen.jsonl");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(AgentError::file("read", &path, e)),
        };
        // A line that a crash cut short had no effect: a launch is carried out only after its line is written.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<GuardEntry>(line).ok());
        let mut guard = ReplayGuard {
            path,
            lines: 0,
            torn: false,
            lines_needed: 0,
            term: 0,
            taken: HashMap::new(),
            newest: BTreeMap::new(),
            forgotten: HashSet::new(),
        };
        for line in lines {
            guard.enter_term(line.term);
            if let Some((attempt, expires)) = line.taken {
                guard.note(attempt, expires);
            }
            if let Some(attempt) = line.released {
                guard.taken.remove(&attempt);
            }
            guard.forgotten.extend(line.forgotten);
        }
        if !text.is_empty() {
            guard.rewrite(now)?;
        }
        Ok(guard)
    }

    pub fn term(&self) -> u64 {
        self.term
    }

    /// A restored server does not know what was launched here after its backup, and gives the same numbers again. Orders of
    /// the server before it are refused by their term: nothing of it needs to be remembered.
    fn enter_term(&mut self, term: u64) {
        if term::epoch(term) > term::epoch(self.term) {
            self.taken.clear();
            self.newest.clear();
            self.forgotten.clear();
        }
        self.term = self.term.max(term);
    }

    pub fn was_taken(&self, attempt: AttemptId) -> bool {
        self.taken.contains_key(&attempt)
    }

    /// The highest remembered attempt of the job that was launched here.
    pub fn newest_attempt(&self, job: JobId) -> Option<u32> {
        self.newest.get(&job).copied()
    }

    pub fn raise_term(&mut self, term: u64) -> Result<(), AgentError> {
        if term > self.term {
            self.enter_term(term);
            self.append(&GuardEntry::of_term(term))?;
        }
        Ok(())
    }

    /// Remembers a launch before it is carried out.
    pub fn take(
        &mut self,
        attempt: AttemptId,
        expires: Timestamp,
        now: Timestamp,
    ) -> Result<(), AgentError> {
        if self.lines >= REWRITE_AT.max(2 * self.lines_needed) {
            self.rewrite(now)?;
        }
        if self.taken.len() >= TAKEN_MAX {
            return Err(AgentError::Content {
                path: self.path.display().to_string(),
                reason: format!(
                    "{TAKEN_MAX} launch orders have not expired yet; no more are taken"
                ),
            });
        }
        self.append(&GuardEntry {
            taken: Some((attempt, expires)),
            ..GuardEntry::of_term(self.term)
        })?;
        self.note(attempt, expires);
        Ok(())
    }

    /// Notes that the attempt has ended here and was forgotten.
    pub fn forget(&mut self, attempt: AttemptId) -> Result<(), AgentError> {
        if !self.taken.contains_key(&attempt) || !self.forgotten.insert(attempt) {
            return Ok(());
        }
        self.append(&GuardEntry { forgotten: Some(attempt), ..GuardEntry::of_term(self.term) })
    }

    /// Releases launches that were taken but are not in `here` and never ended: the agent died before it carried them
    /// out. They may be ordered again.
    pub fn release_unstarted(&mut self, here: &[AttemptId]) -> Result<(), AgentError> {
        let open =
            |attempt: &&AttemptId| !self.forgotten.contains(attempt) && !here.contains(attempt);
        let unstarted: Vec<AttemptId> = self.taken.keys().filter(open).copied().collect();
        unstarted.into_iter().try_for_each(|attempt| self.release(attempt))
    }

    /// Releases a launch that will not be carried out: it may be ordered again.
    pub fn release(&mut self, attempt: AttemptId) -> Result<(), AgentError> {
        self.taken.remove(&attempt);
        self.append(&GuardEntry { released: Some(attempt), ..GuardEntry::of_term(self.term) })
    }

    fn note(&mut self, attempt: AttemptId, expires: Timestamp) {
        self.taken.insert(attempt, expires);
        let newest = self.newest.entry(attempt.job).or_insert(attempt.number);
        *newest = attempt.number.max(*newest);
    }

    fn append(&mut self, line: &GuardEntry) -> Result<(), AgentError> {
        let mut bytes = encode(line);
        if self.torn {
            bytes.insert(0, b'\n');
        }
        let written = open_append(&self.path).and_then(|mut file| file.write_all(&bytes));
        self.torn = written.is_err();
        written.map_err(|e| AgentError::file("append to", &self.path, e))?;
        self.lines += 1;
        Ok(())
    }

    fn rewrite(&mut self, now: Timestamp) -> Result<(), AgentError> {
        self.taken.retain(|_, expires| *expires >= now);
        self.newest.clear();
        self.forgotten.retain(|attempt| self.taken.contains_key(attempt));
        let mut bytes = encode(&GuardEntry::of_term(self.term));
        for (attempt, expires) in &self.taken {
            let forgotten = self.forgotten.get(attempt).copied();
            let taken = Some((*attempt, *expires));
            bytes.extend(encode(&GuardEntry {
                taken,
                forgotten,
                ..GuardEntry::of_term(self.term)
            }));
            let newest = self.newest.entry(attempt.job).or_insert(attempt.number);
            *newest = attempt.number.max(*newest);
        }
        let fresh = self.path.with_extension("new");
        fs::write(&fresh, &bytes)
            .and_then(|()| fs::rename(&fresh, &self.path))
            .map_err(|e| AgentError::file("write", &self.path, e))?;
        self.lines = self.taken.len() + 1;
        self.torn = false;
        self.lines_needed = self.lines;
        Ok(())
    }
}

fn encode(line: &GuardEntry) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).expect("numbers always have a JSON form");
    bytes.push(b'\n');
    bytes
}

fn open_append(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::tests::attempt;

    #[test]
    fn restarted_agent_remembers_a_launch_until_its_order_expires() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let mut guard = ReplayGuard::open(folder.path(), Timestamp(0)).expect("an empty memory");
        guard.raise_term(7).expect("written");
        guard.raise_term(3).expect("an older one changes nothing");
        guard.take(attempt(1, 2), Timestamp(100), Timestamp(0)).expect("written");
        guard.take(attempt(1, 1), Timestamp(200), Timestamp(0)).expect("written");
        drop(guard);

        // A crash during a write leaves half a line.
        let path = folder.path().join("seen.jsonl");
        let mut file = OpenOptions::new().append(true).open(path).expect("the file");
        file.write_all(b"{\"term\":9,\"tak").expect("half a line");

        let guard = ReplayGuard::open(folder.path(), Timestamp(100)).expect("the same memory");
        assert_eq!((guard.term(), guard.newest_attempt(JobId(1))), (7, Some(2)));
        assert!(guard.was_taken(attempt(1, 1)) && guard.was_taken(attempt(1, 2)));
        drop(guard);
        let guard = ReplayGuard::open(folder.path(), Timestamp(101)).expect("the same memory");
        assert!(!guard.was_taken(attempt(1, 2)), "its order can no longer be taken");
        assert!(guard.was_taken(attempt(1, 1)));
    }

    #[test]
    fn file_is_rewritten_before_it_grows_too_long() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let mut guard = ReplayGuard::open(folder.path(), Timestamp(0)).expect("an empty memory");
        for job in 0..3 * REWRITE_AT as u32 {
            let now = Timestamp(i64::from(job));
            guard.take(attempt(job, 1), now, now).expect("written");
        }
        let text = fs::read_to_string(folder.path().join("seen.jsonl")).expect("the file");
        assert!(text.lines().count() <= 2 * REWRITE_AT, "{}", text.lines().count());
        assert!(guard.taken.len() <= 2 * REWRITE_AT);
    }
}
