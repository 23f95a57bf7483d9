//! Reading a journal back: every checksum and every link of the chain from the snapshot's position
//! on, and the line between a torn tail and damage.
//!
//! Each commit is synced before the next is written, so a crash can leave at most one unfinished
//! commit, and it is the last thing in the newest segment. That alone is a torn tail. Bad bytes with
//! a sound commit after them, a gap in the segments or a broken chain are damage, and stop recovery.

use crate::disk::Disk;
use crate::frame::{
    ALIGN, Fault, Frame, HeaderFault, JOURNAL_FORMAT, SEGMENT_HEADER, SegmentHeader, last_written,
};
use crate::journal::{HighWater, JournalError, Loss, Position, Record, Recovery, TornTail};

const PREFIX: &str = "journal-";
const SUFFIX: &str = ".log";

pub(crate) fn segment_name(number: u64) -> String {
    format!("{PREFIX}{number:012}{SUFFIX}")
}

fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let number = digits.parse().ok()?;
    (segment_name(number) == name).then_some(number)
}

/// A segment file that recovery has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub number: u64,
    /// The last seq before it.
    pub before: u64,
}

/// The end of the newest segment, where the next commit goes.
pub(crate) struct Tail {
    pub end: Position,
    pub term: u64,
    /// Where in the newest segment the next frame starts.
    pub offset: u64,
    /// Header or frame that was written last, with its place: it may have reached only the page
    /// cache, and is written once more before anything builds on it.
    pub last_write: (u64, Vec<u8>),
}

pub(crate) type Replay<'a> = dyn FnMut(Record<'_>) -> Result<(), String> + 'a;

pub(crate) struct Scan<'a> {
    pub disk: &'a dyn Disk,
    pub snapshot: Position,
    pub high_water: HighWater,
    pub replay: &'a mut Replay<'a>,
}

pub(crate) struct Scanned {
    pub segments: Vec<Segment>,
    /// `None` if there is no segment at all.
    pub tail: Option<Tail>,
    pub recovery: Recovery,
}

/// What the scan has come to.
struct Progress {
    at: Position,
    term: u64,
    snapshot_seen: bool,
    high_water_seen: bool,
    recovery: Recovery,
}

/// How far the frames of a segment reach.
struct Reach {
    offset: usize,
    last_frame: Option<(usize, usize)>,
}

impl Scan<'_> {
    pub fn run(mut self) -> Result<Scanned, JournalError> {
        let headers = headers(self.disk)?;
        let snapshot = self.snapshot.seq;
        // Segments that end before the snapshot are leftovers of a compaction; their order of
        // removal is up to the file system, so gaps among them mean nothing.
        let first = headers.iter().rposition(|header| header.before.seq <= snapshot);
        let Some(first) = first else {
            return match headers.first() {
                None => self.without_segments(),
                Some(header) => Err(JournalError::damaged(
                    &segment_name(header.number),
                    0,
                    format!(
                        "the oldest segment starts at seq {}, but the newest good snapshot ends at {snapshot}",
                        header.before.seq + 1
                    ),
                )),
            };
        };
        let mut progress = Progress {
            at: headers[first].before,
            term: headers[first].term,
            snapshot_seen: false,
            high_water_seen: self.high_water.seq < headers[first].before.seq,
            recovery: Recovery::default(),
        };
        let mut tail = None;
        for (index, header) in headers.iter().enumerate().skip(first) {
            let newest = index + 1 == headers.len();
            let expected = headers[first].number + (index - first) as u64;
            tail = Some(self.segment(header, expected, newest, &mut progress)?);
        }
        let recovery = self.finish(progress)?;
        let segments = headers.iter().map(|h| Segment { number: h.number, before: h.before.seq });
        Ok(Scanned { segments: segments.collect(), tail, recovery })
    }

    fn without_segments(&self) -> Result<Scanned, JournalError> {
        if self.snapshot.seq > 0 {
            let found = format!("a snapshot at seq {}, and no journal", self.snapshot.seq);
            return Err(JournalError::damaged(&segment_name(1), 0, found));
        }
        // The mark is written before the first segment, and then says that nothing was given out.
        let HighWater { leased_ids, seq, .. } = self.high_water;
        if leased_ids > 0 || seq > 0 {
            let found = format!(
                "the high-water mark has seen seq {seq} and ids up to {leased_ids}, and there is no journal; \
                 put its segments back, or remove the mark to begin an empty cluster"
            );
            return Err(JournalError::damaged(&segment_name(1), 0, found));
        }
        Ok(Scanned { segments: Vec::new(), tail: None, recovery: Recovery::default() })
    }

    fn segment(
        &mut self,
        header: &SegmentHeader,
        expected: u64,
        newest: bool,
        progress: &mut Progress,
    ) -> Result<Tail, JournalError> {
        let name = segment_name(header.number);
        if header.number != expected {
            let found = format!("segment {} is missing", segment_name(expected));
            return Err(JournalError::damaged(&name, 0, found));
        }
        if header.before != progress.at {
            let found = format!(
                "the segment continues {:?}, but the one before it ends at {:?}",
                header.before, progress.at
            );
            return Err(JournalError::damaged(&name, 24, found));
        }
        let file = self.disk.open(&name).map_err(JournalError::io("open", &name))?;
        let bytes = file.read_all().map_err(JournalError::io("read", &name))?;
        self.reach(&name, progress)?;
        let reach = self.frames(&name, &bytes, progress)?;
        let torn = torn_tail(&name, &bytes, reach.offset, progress.at.seq + 1, newest)?;
        if torn.is_some() {
            progress.recovery.torn_tail = torn;
        }
        let (start, end) = reach.last_frame.unwrap_or((0, SEGMENT_HEADER));
        Ok(Tail {
            end: progress.at,
            term: progress.term,
            offset: reach.offset as u64,
            last_write: (start as u64, bytes[start..end].to_vec()),
        })
    }

    /// Follows the frames as far as they are sound.
    fn frames(
        &mut self,
        name: &str,
        bytes: &[u8],
        progress: &mut Progress,
    ) -> Result<Reach, JournalError> {
        let mut reach = Reach { offset: SEGMENT_HEADER, last_frame: None };
        while let Ok(frame) = Frame::parse(&bytes[reach.offset..]) {
            let place = (name, reach.offset as u64);
            let before = (&progress.at, progress.term);
            let (recovery, replay) = (&mut progress.recovery, &mut *self.replay);
            let next = replay_frame(&frame, place, before, self.snapshot.seq, recovery, replay)?;
            (progress.at, progress.term) = (next, frame.term);
            reach.last_frame = Some((reach.offset, reach.offset + frame.len));
            reach.offset += frame.len;
            self.reach(name, progress)?;
        }
        Ok(reach)
    }

    /// Compares the history with what snapshot and high-water mark know about this position.
    fn reach(&self, name: &str, progress: &mut Progress) -> Result<(), JournalError> {
        let at = progress.at;
        if at.seq == self.high_water.seq {
            progress.high_water_seen = at == self.high_water.position();
        }
        if at.seq < self.snapshot.seq || progress.snapshot_seen {
            return Ok(());
        }
        progress.snapshot_seen = true;
        if at == self.snapshot {
            return Ok(());
        }
        let found = format!("the history at {at:?} is not the snapshot's, {:?}", self.snapshot);
        Err(JournalError::damaged(name, 0, found))
    }

    fn finish(&self, progress: Progress) -> Result<Recovery, JournalError> {
        let end = progress.at.seq;
        if !progress.snapshot_seen {
            let found =
                format!("the snapshot is at seq {}, the log ends at {end}", self.snapshot.seq);
            return Err(JournalError::damaged("journal", 0, found));
        }
        let mut recovery = progress.recovery;
        if !progress.high_water_seen {
            recovery.loss = Some(Loss { expected_seq: self.high_water.seq, found_seq: end });
        }
        Ok(recovery)
    }
}

/// Checks that a frame continues the history that ends at `before`, a position and its term, and hands its events after the
/// snapshot on. Returns the position after it. `place` is a file and a byte in it, for errors.
pub(crate) fn replay_frame(
    frame: &Frame<'_>,
    place: (&str, u64),
    before: (&Position, u64),
    snapshot_seq: u64,
    recovery: &mut Recovery,
    replay: &mut Replay<'_>,
) -> Result<Position, JournalError> {
    let damaged = |found: String| JournalError::damaged(place.0, place.1, found);
    let (at, term) = before;
    let next = frame.follows(at).map_err(damaged)?;
    if frame.term < term {
        return Err(damaged(format!("term {} after term {term}", frame.term)));
    }
    for (seq, event) in (frame.first_seq..).zip(frame.each_event()) {
        let event = event.map_err(damaged)?;
        if seq > snapshot_seq {
            recovery.replayed += 1;
            replay(Record { seq, term: frame.term, event })
                .map_err(|reason| JournalError::Replay { seq, reason })?;
        }
    }
    Ok(next)
}

/// Hands out the texts of each commit behind `after_seq` that carries some, in order, and changes nothing. The journal was opened
/// before, so that all of it is sound.
pub fn carried_texts(
    disk: &dyn Disk,
    after_seq: u64,
    mut take: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), JournalError> {
    let headers = headers(disk)?;
    let first = headers.iter().rposition(|header| header.before.seq <= after_seq).unwrap_or(0);
    for header in headers.iter().skip(first) {
        let name = segment_name(header.number);
        let file = disk.open(&name).map_err(JournalError::io("open", &name))?;
        let bytes = file.read_all().map_err(JournalError::io("read", &name))?;
        let mut rest = bytes.get(SEGMENT_HEADER..).unwrap_or_default();
        while let Ok(frame) = Frame::parse(rest) {
            let seq = (frame.first_seq + u64::from(frame.events)).saturating_sub(1);
            if seq > after_seq && !frame.texts.is_empty() {
                take(frame.texts).map_err(|reason| JournalError::Replay { seq, reason })?;
            }
            rest = &rest[frame.len..];
        }
    }
    Ok(())
}

/// Refuses a journal of a newer program, and changes nothing.
pub fn refuse_newer(disk: &dyn Disk) -> Result<(), JournalError> {
    HighWater::read(disk)?;
    headers(disk).map(drop)
}

/// The headers of all segments, by number.
fn headers(disk: &dyn Disk) -> Result<Vec<SegmentHeader>, JournalError> {
    let entries = disk.list("").map_err(JournalError::io("list", "the journal"))?;
    let mut headers = Vec::new();
    for entry in entries {
        let Some(number) = segment_number(&entry.name) else { continue };
        let mut bytes = [0; SEGMENT_HEADER];
        let file = disk.open(&entry.name).map_err(JournalError::io("open", &entry.name))?;
        let read = file.read_at(0, &mut bytes).map_err(JournalError::io("read", &entry.name))?;
        let header = SegmentHeader::parse(&bytes[..read])
            .map_err(|fault| header_error(&entry.name, fault))?;
        if header.number != number {
            let found = format!("this is segment {}, under another's name", header.number);
            return Err(JournalError::damaged(&entry.name, 16, found));
        }
        headers.push(header);
    }
    headers.sort_unstable_by_key(|header| header.number);
    Ok(headers)
}

fn header_error(file: &str, fault: HeaderFault) -> JournalError {
    match fault {
        HeaderFault::Damaged(found) => JournalError::damaged(file, 0, found),
        HeaderFault::Version(found) => other_version(file, found),
    }
}

/// What a program of another version wrote. Only a newer one may have: an older format stays readable.
pub(crate) fn other_version(file: &str, found: u32) -> JournalError {
    JournalError::Newer { file: file.to_owned(), found, known: JOURNAL_FORMAT }
}

/// What lies behind the last sound frame: nothing, an unfinished commit, or damage.
fn torn_tail(
    file: &str,
    bytes: &[u8],
    offset: usize,
    seq: u64,
    newest: bool,
) -> Result<Option<TornTail>, JournalError> {
    let rest = &bytes[offset..];
    let Some(last) = last_written(rest) else { return Ok(None) };
    let damaged = |found: String| Err(JournalError::damaged(file, offset as u64, found));
    let fault = match Frame::parse(rest) {
        Err(Fault::Version(version)) => {
            return Err(other_version(file, version.into()));
        }
        Err(Fault::Unfinished(what)) => what,
        Ok(_) => "a frame out of place",
    };
    for ahead in (ALIGN..=last).step_by(ALIGN) {
        if let Ok(frame) = Frame::parse(&rest[ahead..]) {
            return damaged(format!(
                "{fault} where seq {seq} was due, and a sound commit (seq {}) at byte {}",
                frame.first_seq,
                offset + ahead
            ));
        }
    }
    if !newest {
        return damaged(format!("{fault} where seq {seq} was due, and later segments exist"));
    }
    let bytes = last as u64 + 1;
    Ok(Some(TornTail { file: file.to_owned(), seq, offset: offset as u64, bytes }))
}
