//! The embedded journal: numbered, preallocated segment files, one `fdatasync` for each append.
//!
//! A segment is made, zeroed and synced as `spare.log` ahead of need and gets its number when the
//! one before it is full. So an append allocates nothing, and ends of jobs can still be recorded
//! when the disk is full: the rest of the segment and the spare are the reserve ([`Journal::free_bytes`]).
//! The folder also holds the high-water mark. After a failed write or sync nothing is known about
//! what is on the disk, so the journal refuses all further work until it is opened again.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::copy::CopiedFile;
use crate::disk::{Disk, DiskFile, is_full};
use crate::frame::{
    ALIGN, FRAME_HEADER, SEGMENT_HEADER, SegmentHeader, encode, frame_len, last_written,
};
use crate::high_water;
use crate::journal::{HighWater, Journal, JournalCopy, JournalError, Position, Record, Recovery};
use crate::recovery::{Scan, Scanned, Segment, Tail, segment_name};

const SPARE: &str = "spare.log";

/// The bytes of texts that a commit carries. More take about as long to be written as the sync that is saved.
const TEXTS_BYTES_MAX: usize = 128 << 10;

#[derive(Debug, Clone)]
pub struct LogOptions {
    /// The size of a segment file; a commit cannot be larger.
    pub segment_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes: 16 << 20 }
    }
}

impl LogOptions {
    fn frame_bytes_max(&self) -> u64 {
        self.segment_bytes.saturating_sub(SEGMENT_HEADER as u64)
    }
}

/// A journal in a folder of its own.
pub struct LogFile {
    disk: Arc<dyn Disk>,
    options: LogOptions,
    /// Oldest first; the last one is being written.
    segments: VecDeque<Segment>,
    active: Active,
    spare: Option<Box<dyn DiskFile>>,
    end: Position,
    term: u64,
    high_water: HighWater,
    /// The frame being written, kept for its allocation.
    frame: Vec<u8>,
    poisoned: bool,
}

struct Active {
    file: Box<dyn DiskFile>,
    name: String,
    offset: u64,
    capacity: u64,
}

impl LogFile {
    /// Opens the journal, or starts one in an empty folder. `snapshot` is the position of the
    /// snapshot that the caller has loaded ([`Position::START`] without one); every later event is
    /// handed to `replay` in order. After an error the caller discards what it has replayed.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        snapshot: Position,
        mut replay: impl FnMut(Record<'_>) -> Result<(), String>,
    ) -> Result<(Self, Recovery), JournalError> {
        let mark = HighWater::read(&*disk)?;
        let high_water = mark.unwrap_or_default();
        let scan = Scan { disk: &*disk, snapshot, high_water, replay: &mut replay };
        let Scanned { segments, tail, recovery } = scan.run()?;
        match mark {
            // Written before the first segment, so a journal without it has been tampered with.
            None if tail.is_some() => {
                return Err(JournalError::damaged(high_water::FILE, 0, "the mark is missing"));
            }
            None => high_water.write(&*disk)?,
            Some(_) => {}
        }
        if let Some(torn) = &recovery.torn_tail {
            tracing::warn!("{torn}");
        }
        if let Some(loss) = &recovery.loss {
            tracing::error!("{loss}");
        }
        let mut log = Self::attach(disk, options, segments, tail, &recovery)?;
        log.high_water = high_water;
        log.maintain()?;
        Ok((log, recovery))
    }

    /// Takes up writing where the scan ended.
    fn attach(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        segments: Vec<Segment>,
        tail: Option<Tail>,
        recovery: &Recovery,
    ) -> Result<Self, JournalError> {
        let (Some(newest), Some(tail)) = (segments.last(), tail) else {
            return Self::begin(disk, options);
        };
        let name = segment_name(newest.number);
        let file = disk.open(&name).map_err(JournalError::io("open", &name))?;
        if let Some(torn) = &recovery.torn_tail {
            let zeros = vec![0; usize::try_from(torn.bytes).unwrap_or(0)];
            file.write_at(torn.offset, &zeros).map_err(JournalError::io("cut", &name))?;
        }
        let (offset, bytes) = &tail.last_write;
        file.write_at(*offset, bytes).map_err(JournalError::io("write", &name))?;
        file.sync_data().map_err(JournalError::io("sync", &name))?;
        disk.sync_dir("").map_err(JournalError::io("sync", "the journal"))?;
        let mut capacity = file.len().map_err(JournalError::io("size", &name))?;
        if capacity < options.segment_bytes {
            // A segment that lost its preallocated end still works, with less space, if it cannot
            // be given back.
            let grown = file.preallocate(options.segment_bytes).and_then(|()| file.sync_data());
            match grown {
                Ok(()) => capacity = options.segment_bytes,
                Err(error) if is_full(&error) => {}
                Err(error) => return Err(JournalError::io("preallocate", &name)(error)),
            }
        }
        let active = Active { file, name, offset: tail.offset, capacity };
        Ok(Self::new(disk, options, segments.into(), active, tail.end, tail.term))
    }

    /// Begins a journal in an empty folder that goes on from this position of another, which a snapshot has.
    pub fn begin_at(
        disk: &Arc<dyn Disk>,
        position: Position,
        term: u64,
        leased_ids: u64,
    ) -> Result<(), JournalError> {
        let options = LogOptions::default();
        let mark = HighWater { leased_ids, seq: position.seq, chain: position.chain };
        mark.write(&**disk)?;
        let needed = options.segment_bytes;
        let file = make_spare(&**disk, &options)?.ok_or(JournalError::Full { needed })?;
        let header = SegmentHeader { number: 1, before: position, term };
        activate(&**disk, file, header, options.segment_bytes).map(drop)
    }

    fn begin(disk: Arc<dyn Disk>, options: LogOptions) -> Result<Self, JournalError> {
        let needed = options.segment_bytes;
        let file = make_spare(&*disk, &options)?.ok_or(JournalError::Full { needed })?;
        let active = activate(&*disk, file, SegmentHeader::FIRST, options.segment_bytes)?;
        let segments = VecDeque::from([Segment { number: 1, before: 0 }]);
        Ok(Self::new(disk, options, segments, active, Position::START, 0))
    }

    fn new(
        disk: Arc<dyn Disk>,
        options: LogOptions,
        segments: VecDeque<Segment>,
        active: Active,
        end: Position,
        term: u64,
    ) -> Self {
        Self {
            disk,
            options,
            segments,
            active,
            spare: None,
            end,
            term,
            high_water: HighWater::default(),
            frame: Vec::new(),
            poisoned: false,
        }
    }

    fn usable(&self) -> Result<(), JournalError> {
        if self.poisoned { Err(JournalError::Poisoned) } else { Ok(()) }
    }

    /// Goes on to the next segment. Without one to be had, nothing has changed.
    fn roll(&mut self, needed: u64) -> Result<(), JournalError> {
        let spare = match self.spare.take() {
            Some(spare) => spare,
            None => make_spare(&*self.disk, &self.options)?.ok_or(JournalError::Full { needed })?,
        };
        let number = self.segments.back().map_or(1, |segment| segment.number + 1);
        let size = self.options.segment_bytes;
        self.poisoned = true;
        let header = SegmentHeader { number, before: self.end, term: self.term };
        self.active = activate(&*self.disk, spare, header, size)?;
        self.poisoned = false;
        self.segments.push_back(Segment { number, before: self.end.seq });
        Ok(())
    }

    fn write_frame(&mut self) -> Result<(), JournalError> {
        let Active { file, name, offset, .. } = &mut self.active;
        file.write_at(*offset, &self.frame).map_err(JournalError::io("write", name))?;
        file.sync_data().map_err(JournalError::io("sync", name))?;
        *offset += self.frame.len() as u64;
        Ok(())
    }
}

impl Journal for LogFile {
    fn append(
        &mut self,
        term: u64,
        expected_seq: u64,
        events: &[&[u8]],
    ) -> Result<u64, JournalError> {
        self.append_with_texts(term, expected_seq, events, &[])
    }

    fn append_with_texts(
        &mut self,
        term: u64,
        expected_seq: u64,
        events: &[&[u8]],
        texts: &[u8],
    ) -> Result<u64, JournalError> {
        self.usable()?;
        if term < self.term {
            return Err(JournalError::OldTerm { given: term, current: self.term });
        }
        if expected_seq != self.end.seq {
            return Err(JournalError::WrongSeq { expected: expected_seq, found: self.end.seq });
        }
        if events.is_empty() {
            return Ok(self.end.seq);
        }
        let max = self.options.frame_bytes_max();
        let bytes = frame_len(events, texts).map_or(u64::MAX, |len| len as u64);
        if bytes > max {
            return Err(JournalError::TooLarge { bytes, max });
        }
        if self.active.capacity - self.active.offset < bytes {
            self.roll(bytes)?;
        }
        let end = encode(&self.end, term, events, texts, &mut self.frame);
        self.poisoned = true;
        self.write_frame()?;
        self.poisoned = false;
        (self.end, self.term) = (end, term);
        Ok(end.seq)
    }

    fn texts_bytes_max(&self) -> usize {
        TEXTS_BYTES_MAX
    }

    fn begin_segment(&mut self) -> Result<(), JournalError> {
        self.usable()?;
        if self.active.offset > SEGMENT_HEADER as u64 { self.roll(0) } else { Ok(()) }
    }

    fn position(&self) -> Position {
        self.end
    }

    fn term(&self) -> u64 {
        self.term
    }

    fn free_bytes(&self) -> u64 {
        let spare = if self.spare.is_some() { self.options.frame_bytes_max() } else { 0 };
        self.active.capacity - self.active.offset + spare
    }

    fn commit_bytes_max(&self) -> usize {
        let frame = usize::try_from(self.options.frame_bytes_max()).unwrap_or(usize::MAX);
        frame.saturating_sub(FRAME_HEADER + ALIGN)
    }

    /// The size of all segments.
    fn bytes(&self) -> u64 {
        self.segments.len() as u64 * self.options.segment_bytes
    }

    /// The segments, opened, up to where the history ends now.
    fn copy(&self) -> Result<JournalCopy, JournalError> {
        self.usable()?;
        let mut segments = Vec::with_capacity(self.segments.len());
        for segment in &self.segments {
            let name = segment_name(segment.number);
            let file = self.disk.open(&name).map_err(JournalError::io("open", &name))?;
            let len = file.len().map_err(JournalError::io("size", &name))?;
            segments.push(CopiedFile { name, file, len });
        }
        if let Some(newest) = segments.last_mut() {
            newest.len = self.active.offset;
        }
        let (position, term, high_water) = (self.end, self.term, self.high_water);
        Ok(JournalCopy { position, term, high_water, segments })
    }

    fn compact(&mut self, upto_seq: u64) -> Result<(), JournalError> {
        self.usable()?;
        let mut removed = false;
        while let (Some(oldest), Some(next)) = (self.segments.front(), self.segments.get(1)) {
            if next.before > upto_seq {
                break;
            }
            let name = segment_name(oldest.number);
            self.disk.remove(&name).map_err(JournalError::io("remove", &name))?;
            self.segments.pop_front();
            removed = true;
        }
        if removed {
            self.disk.sync_dir("").map_err(JournalError::io("sync", "the journal"))?;
        }
        Ok(())
    }

    fn maintain(&mut self) -> Result<(), JournalError> {
        self.usable()?;
        if self.spare.is_none() {
            self.spare = make_spare(&*self.disk, &self.options)?;
        }
        Ok(())
    }

    fn lease(&mut self, upto: u64) -> Result<(), JournalError> {
        self.usable()?;
        let leased_ids = upto.max(self.high_water.leased_ids);
        let mark = HighWater { leased_ids, seq: self.end.seq, chain: self.end.chain };
        mark.write(&*self.disk)?;
        self.high_water = mark;
        Ok(())
    }

    fn high_water(&self) -> HighWater {
        self.high_water
    }
}

/// A zeroed segment without a number, or `None` if the disk has no space for one.
fn make_spare(
    disk: &dyn Disk,
    options: &LogOptions,
) -> Result<Option<Box<dyn DiskFile>>, JournalError> {
    // One that is there already holds space that a full disk would not give again.
    if let Ok(file) = disk.open(SPARE)
        && file.read_all().is_ok_and(|bytes| is_blank(&bytes, options))
        && file.sync_data().is_ok()
    {
        return Ok(Some(file));
    }
    let made = disk.create(SPARE).and_then(|file| {
        file.preallocate(options.segment_bytes)?;
        file.sync_data()?;
        Ok(file)
    });
    match made {
        Ok(file) => Ok(Some(file)),
        Err(error) => {
            // Best effort: the next attempt empties it if it stays.
            let _ = disk.remove(SPARE);
            if is_full(&error) { Ok(None) } else { Err(JournalError::io("make", SPARE)(error)) }
        }
    }
}

/// A crash can leave a spare with a header, which the next one overwrites; frames it never has.
fn is_blank(bytes: &[u8], options: &LogOptions) -> bool {
    bytes.len() as u64 == options.segment_bytes
        && bytes.get(SEGMENT_HEADER..).is_some_and(|frames| last_written(frames).is_none())
}

/// Gives the spare its header, then its name, so that a segment with a name always has both.
fn activate(
    disk: &dyn Disk,
    file: Box<dyn DiskFile>,
    header: SegmentHeader,
    capacity: u64,
) -> Result<Active, JournalError> {
    let name = segment_name(header.number);
    file.write_at(0, &header.encode())
        .and_then(|()| file.sync_data())
        .and_then(|()| disk.rename(SPARE, &name))
        .and_then(|()| disk.sync_dir(""))
        .map_err(JournalError::io("begin", &name))?;
    Ok(Active { file, name, offset: SEGMENT_HEADER as u64, capacity })
}
