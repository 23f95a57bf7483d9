//! A model of what PostgreSQL promises to several servers: commits are durable or refused whole, an append must name the end
//! of the history, and only the server with the lease writes. A server may lose the answer to a commit that was kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::postgres::DatabaseError;
use store::{HighWater, Journal, JournalError, Position};

/// The history in a database. Copies share it, as sessions would.
#[derive(Clone, Default)]
pub struct SharedLog(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    events: Vec<Vec<u8>>,
    end: Position,
    term: u64,
    high_water: HighWater,
    /// The lease of which alone writes are taken.
    epoch: u64,
    fault: Option<SessionFault>,
}

/// What the next commit meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionFault {
    /// The session breaks before the commit: nothing is kept.
    BeforeCommit,
    /// The session breaks after it: all is kept, and nobody is told.
    AfterCommit,
}

impl SharedLog {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another server takes the lease over. Returns its epoch.
    pub fn take_lease(&self) -> u64 {
        let mut contents = self.contents();
        contents.epoch += 1;
        contents.epoch
    }

    pub fn arm(&self, fault: SessionFault) {
        self.contents().fault = Some(fault);
    }

    pub fn is_armed(&self) -> bool {
        self.contents().fault.is_some()
    }

    pub fn disarm(&self) {
        self.contents().fault = None;
    }

    /// Reads the history after this seq, for the server with the lease of this epoch.
    pub fn open(
        &self,
        epoch: u64,
        after: u64,
        mut replay: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<SharedJournal, JournalError> {
        let contents = self.contents();
        for (at, event) in contents.events.iter().enumerate().skip(after as usize) {
            let seq = at as u64 + 1;
            replay(event).map_err(|reason| JournalError::Replay { seq, reason })?;
        }
        let Contents { end, term, high_water, .. } = &*contents;
        let (end, term, high_water) = (*end, *term, *high_water);
        Ok(SharedJournal { log: self.clone(), epoch, end, term, high_water })
    }
}

/// One server's session.
pub struct SharedJournal {
    log: SharedLog,
    epoch: u64,
    end: Position,
    term: u64,
    high_water: HighWater,
}

impl SharedJournal {
    /// The history, if this server still has the lease.
    fn leading(&self) -> Result<MutexGuard<'_, Contents>, JournalError> {
        let contents = self.log.contents();
        if contents.epoch == self.epoch { Ok(contents) } else { Err(DatabaseError::Deposed.into()) }
    }
}

impl Journal for SharedJournal {
    fn append(
        &mut self,
        term: u64,
        expected_seq: u64,
        events: &[&[u8]],
    ) -> Result<u64, JournalError> {
        let mut contents = self.leading()?;
        if term < contents.term {
            return Err(JournalError::OldTerm { given: term, current: contents.term });
        }
        if expected_seq != contents.end.seq {
            let found = contents.end.seq;
            return Err(JournalError::WrongSeq { expected: expected_seq, found });
        }
        let fault = contents.fault.take();
        let broken = || -> JournalError {
            DatabaseError::Unreachable("the session broke".to_owned()).into()
        };
        if fault == Some(SessionFault::BeforeCommit) {
            return Err(broken());
        }
        for event in events {
            contents.end.seq += 1;
            mix(&mut contents.end.chain, event);
            contents.events.push(event.to_vec());
        }
        contents.term = term;
        if fault == Some(SessionFault::AfterCommit) {
            return Err(broken());
        }
        let end = contents.end;
        drop(contents);
        (self.end, self.term) = (end, term);
        Ok(end.seq)
    }

    fn position(&self) -> Position {
        self.end
    }

    fn term(&self) -> u64 {
        self.term
    }

    fn free_bytes(&self) -> u64 {
        u64::MAX
    }

    fn commit_bytes_max(&self) -> usize {
        1 << 24
    }

    fn bytes(&self) -> u64 {
        0
    }

    /// What a snapshot has is kept as well.
    fn compact(&mut self, _upto_seq: u64) -> Result<(), JournalError> {
        Ok(())
    }

    fn maintain(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    fn lease(&mut self, upto: u64) -> Result<(), JournalError> {
        let mut contents = self.leading()?;
        let leased_ids = upto.max(contents.high_water.leased_ids);
        let Position { seq, chain } = contents.end;
        contents.high_water = HighWater { leased_ids, seq, chain };
        let mark = contents.high_water;
        drop(contents);
        self.high_water = mark;
        Ok(())
    }

    fn high_water(&self) -> HighWater {
        self.high_water
    }
}

/// Takes an event into the hash of the history (FNV-1a, in the first bytes): it tells histories apart and resists nobody.
fn mix(chain: &mut [u8; 32], event: &[u8]) {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in chain[..8].iter().chain(event) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    chain[..8].copy_from_slice(&hash.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(log: &SharedLog) -> Vec<Vec<u8>> {
        let mut events = Vec::new();
        let all = log.open(0, 0, |event| {
            events.push(event.to_vec());
            Ok(())
        });
        all.expect("a history");
        events
    }

    fn session(log: &SharedLog) -> SharedJournal {
        log.open(log.take_lease(), 0, |_| Ok(())).expect("a session")
    }

    #[test]
    fn server_without_the_lease_writes_nothing() {
        let log = SharedLog::default();
        let mut first = session(&log);
        assert_eq!(first.append(1, 0, &[b"a", b"b"]).expect("kept"), 2);
        let mut second = session(&log);
        assert_eq!(second.position(), first.position());
        assert!(first.append(1, 2, &[b"late"]).is_err() && first.lease(10).is_err());
        assert_eq!(second.append(2, 2, &[b"c"]).expect("kept"), 3);
        assert_eq!(read(&log), [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
    }

    #[test]
    fn broken_session_keeps_all_of_a_commit_or_nothing() {
        for (fault, kept) in [(SessionFault::BeforeCommit, 0), (SessionFault::AfterCommit, 2)] {
            let log = SharedLog::default();
            let mut journal = session(&log);
            log.arm(fault);
            assert!(journal.append(1, 0, &[b"a", b"b"]).is_err());
            assert_eq!((read(&log).len(), log.is_armed()), (kept, false), "{fault:?}");
            assert_eq!(journal.last_seq(), 0, "nobody was told");
        }
    }
}
