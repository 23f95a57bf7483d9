//! What the embedded journal promises after crashes, full disks, I/O errors and damage.

use std::sync::Arc;

use proptest::prelude::*;
use store::{Disk, FaultyDisk, Journal, JournalError, LogFile, LogOptions, Position, Recovery};

const SEGMENT_HEADER: usize = 128;

fn options() -> LogOptions {
    LogOptions { segment_bytes: 1024 }
}

type Opened = Result<(LogFile, Recovery, Vec<String>), JournalError>;

fn open_from(disk: &FaultyDisk, snapshot: Position) -> Opened {
    let mut events = Vec::new();
    let replay = |record: store::Record<'_>| {
        assert_eq!(record.seq, snapshot.seq + events.len() as u64 + 1);
        events.push(String::from_utf8_lossy(record.event).into_owned());
        Ok(())
    };
    let (log, recovery) = LogFile::open(Arc::new(disk.clone()), options(), snapshot, replay)?;
    Ok((log, recovery, events))
}

fn open(disk: &FaultyDisk) -> Opened {
    open_from(disk, Position::START)
}

fn event(seq: u64) -> String {
    format!("event {seq} {}", "x".repeat(seq as usize % 40))
}

/// Appends commits of one to three events until the journal ends at `upto`.
fn fill(log: &mut LogFile, upto: u64) -> Result<(), JournalError> {
    while log.last_seq() < upto {
        let first = log.last_seq() + 1;
        let events: Vec<String> = (first..=upto.min(first + first % 3)).map(event).collect();
        let events: Vec<&[u8]> = events.iter().map(String::as_bytes).collect();
        log.append(1, first - 1, &events)?;
        log.maintain()?;
    }
    Ok(())
}

fn filled(upto: u64) -> FaultyDisk {
    let disk = FaultyDisk::default();
    fill(&mut open(&disk).unwrap().0, upto).unwrap();
    disk
}

fn history(upto: usize) -> Vec<String> {
    (1..=upto as u64).map(event).collect()
}

fn segments(disk: &FaultyDisk) -> Vec<String> {
    let names = disk.list("").unwrap().into_iter().map(|entry| entry.name);
    names.filter(|name| name.starts_with("journal-")).collect()
}

fn content(disk: &FaultyDisk, name: &str) -> Vec<u8> {
    disk.open(name).unwrap().read_all().unwrap()
}

fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

/// The error that opening must give, or the test fails.
fn damage(disk: &FaultyDisk, case: &str) -> String {
    match open(disk) {
        Err(error @ JournalError::Damaged { .. }) => error.to_string(),
        Err(other) => panic!("{case}: {other}"),
        Ok((_, recovery, events)) => panic!("{case}: {} events, {recovery:?}", events.len()),
    }
}

#[test]
fn what_was_appended_is_read_back_across_segments() {
    let disk = filled(60);
    assert!(segments(&disk).len() > 3);
    let (mut log, recovery, events) = open(&disk).unwrap();
    assert_eq!(events, history(60));
    assert_eq!(recovery, Recovery { replayed: 60, ..Recovery::default() });
    assert_eq!(log.append(1, 60, &[b"next"]).unwrap(), 61);
}

#[test]
fn an_append_is_refused_if_it_does_not_fit_the_history() {
    let disk = filled(5);
    let mut log = open(&disk).unwrap().0;
    log.append(7, 5, &[b"a"]).unwrap();
    assert!(matches!(
        log.append(6, 6, &[b"b"]),
        Err(JournalError::OldTerm { given: 6, current: 7 })
    ));
    for expected in [0, 5, 7] {
        let refused = log.append(7, expected, &[b"b"]);
        assert!(matches!(refused, Err(JournalError::WrongSeq { found: 6, .. })), "{expected}");
    }
    assert!(matches!(log.append(7, 6, &[&[1; 2000]]), Err(JournalError::TooLarge { .. })));
    assert_eq!(log.append(7, 6, &[]).unwrap(), 6);
    assert_eq!(log.append(7, 6, &[b"b", b"c"]).unwrap(), 8);
    drop(log);
    let (mut log, ..) = open(&disk).unwrap();
    assert_eq!(log.term(), 7);
    assert!(matches!(log.append(6, 8, &[b"d"]), Err(JournalError::OldTerm { .. })));
}

#[test]
fn the_term_survives_compaction_into_an_empty_segment() {
    let disk = FaultyDisk::default();
    let mut log = open(&disk).unwrap().0;
    log.append(9, 0, &[&[1; 700]]).unwrap();
    let position = log.position();
    // The next segment gets its name and header, but the commit is caught by a crash: a header's
    // write, its sync, the rename and the folder's sync come before the frame.
    disk.crash_at(5);
    assert!(log.append(9, 1, &[&[2; 700]]).is_err());
    disk.restart(1);
    let (mut log, ..) = open_from(&disk, position).unwrap();
    log.compact(1).unwrap();
    assert_eq!(segments(&disk).len(), 1);
    assert_eq!(open_from(&disk, position).unwrap().0.term(), 9);
}

#[test]
fn every_cut_of_the_tail_recovers_a_prefix_and_says_what_was_cut() {
    let disk = filled(7);
    let name = segments(&disk).pop().unwrap();
    let whole = content(&disk, &name);
    let mut lengths = Vec::new();
    for cut in SEGMENT_HEADER..=used(&whole) {
        let truncated = disk.fork();
        truncated.tamper(&name, |bytes| bytes.truncate(cut)).unwrap();
        let zeroed = disk.fork();
        zeroed.tamper(&name, |bytes| bytes[cut..].fill(0)).unwrap();
        for copy in [truncated, zeroed] {
            let (mut log, recovery, events) = open(&copy).unwrap();
            assert_eq!(events, history(events.len()), "cut at {cut}");
            if let Some(torn) = recovery.torn_tail {
                assert_eq!(
                    (torn.seq, torn.file.as_str()),
                    (events.len() as u64 + 1, name.as_str())
                );
            }
            // The journal goes on as if the torn commit had never been.
            fill(&mut log, 12).unwrap();
            let (_, recovery, after) = open(&copy).unwrap();
            assert_eq!((recovery.torn_tail, after), (None, history(12)), "cut at {cut}");
            lengths.push(events.len());
        }
    }
    assert!(lengths.contains(&0) && lengths.contains(&7), "the cuts reach from end to end");
}

#[test]
fn a_flipped_bit_before_the_last_commit_is_damage() {
    let disk = filled(24);
    let names = segments(&disk);
    let newest = names.last().unwrap();
    let before_last = used(&content(&disk, newest)).next_multiple_of(8);
    open(&disk).unwrap().0.append(1, 24, &[b"last"]).unwrap();
    assert!(names.len() > 1 && names == segments(&disk));
    for name in &names {
        let bytes = content(&disk, name);
        let end = if name == newest { before_last } else { bytes.len() };
        for byte in 0..end {
            let copy = disk.fork();
            copy.tamper(name, |bytes| bytes[byte] ^= 1 << (byte % 8)).unwrap();
            let said = damage(&copy, &format!("{name} byte {byte}"));
            assert!(said.starts_with("journal-"), "{said}");
        }
    }
}

#[test]
fn missing_renamed_swapped_and_foreign_segments_are_damage() {
    let disk = filled(60);
    let names = segments(&disk);
    for name in &names[..names.len() - 1] {
        let copy = disk.fork();
        copy.remove(name).unwrap();
        damage(&copy, &format!("{name} missing"));
    }
    let copy = disk.fork();
    copy.rename(names.last().unwrap(), "journal-000000000099.log").unwrap();
    assert!(damage(&copy, "renamed").contains("under another's name"));

    // Another journal's segment of the same number, sound in itself.
    let other = FaultyDisk::default();
    let mut log = open(&other).unwrap().0;
    log.append(1, 0, &[b"another history"]).unwrap();
    fill(&mut log, 60).unwrap();
    for name in segments(&other).iter().filter(|name| names.contains(name)) {
        let (copy, foreign) = (disk.fork(), content(&other, name));
        copy.tamper(name, |bytes| *bytes = foreign).unwrap();
        damage(&copy, &format!("{name} foreign"));
    }
}

#[test]
fn a_snapshot_must_lie_on_the_history() {
    let disk = filled(20);
    let (log, ..) = open(&disk).unwrap();
    let end = log.position();
    assert_eq!(open_from(&disk, end).unwrap().2, Vec::<String>::new());
    let wrong = [
        ("beyond the end", Position { seq: 21, ..end }),
        ("another hash", Position { seq: 20, chain: [1; 32] }),
        ("inside a commit", Position { seq: 4, ..end }),
    ];
    for (case, position) in wrong {
        let result = open_from(&disk, position);
        assert!(matches!(result, Err(JournalError::Damaged { .. })), "{case}");
    }
    let empty = open_from(&FaultyDisk::default(), end);
    assert!(matches!(empty, Err(JournalError::Damaged { .. })), "a snapshot without a journal");
}

#[test]
fn compaction_removes_all_that_the_snapshot_has_and_nothing_else() {
    let disk = FaultyDisk::default();
    let mut log = open(&disk).unwrap().0;
    let mut positions = Vec::new();
    for upto in 1..=40 {
        fill(&mut log, upto).unwrap();
        positions.push(log.position());
    }
    for position in positions {
        let copy = disk.fork();
        let (mut log, ..) = open(&copy).unwrap();
        log.compact(position.seq).unwrap();
        let (_, recovery, events) = open_from(&copy, position).unwrap();
        assert_eq!(events, history(40)[position.seq as usize..], "{position:?}");
        assert_eq!(recovery.loss, None);
        let left = segments(&copy);
        assert_eq!(left.first() == segments(&disk).first(), open(&copy).is_ok());
        if left.len() > 1 {
            copy.remove(&left[0]).unwrap();
            assert!(open_from(&copy, position).is_err(), "{position:?}: {} was needed", left[0]);
        }
    }
}

#[test]
fn a_leftover_gap_among_compacted_segments_means_nothing() {
    let disk = filled(40);
    let position = open(&disk).unwrap().0.position();
    disk.remove(&segments(&disk)[1]).unwrap();
    assert_eq!(open_from(&disk, position).unwrap().1.replayed, 0);
}

#[test]
fn a_lost_end_is_told_by_the_high_water_mark_until_it_is_settled() {
    let disk = filled(10);
    let mut log = open(&disk).unwrap().0;
    log.lease(3000).unwrap();
    log.lease(2000).unwrap();
    fill(&mut log, 12).unwrap();
    assert_eq!((log.high_water().leased_ids, log.high_water().seq), (3000, 10));
    drop(log);

    let cut = disk.fork();
    for name in segments(&cut) {
        cut.remove(&name).unwrap();
    }
    let mark = cut.open("high-water").unwrap().read_all().unwrap();
    let said = damage(&cut, "a mark without a journal");
    assert!(said.contains("seen seq 10 and ids up to 3000, and there is no journal"), "{said}");
    assert!(segments(&cut).is_empty(), "nothing is begun");
    // Another history in its place, then the mark of the first one.
    cut.remove("high-water").unwrap();
    fill(&mut open(&cut).unwrap().0, 3).unwrap();
    cut.tamper("high-water", |bytes| *bytes = mark).unwrap();
    let (mut log, recovery, _) = open(&cut).unwrap();
    let loss = recovery.loss.unwrap();
    assert_eq!((loss.expected_seq, loss.found_seq), (10, 3));
    assert_eq!(log.high_water().leased_ids, 3000);
    // Another history that grows past the mark does not hide the loss.
    for seq in 3..11 {
        log.append(1, seq, &[b"other"]).unwrap();
    }
    let (mut log, recovery, _) = open(&cut).unwrap();
    assert!(recovery.loss.unwrap().to_string().contains("not the one that was written"));
    log.lease(0).unwrap();
    assert_eq!(open(&cut).unwrap().1.loss, None);

    cut.remove("high-water").unwrap();
    assert!(damage(&cut, "no mark").contains("missing"));
}

#[test]
fn a_full_disk_refuses_a_commit_whole_and_the_reserve_is_kept() {
    let disk = filled(3);
    let mut log = open(&disk).unwrap().0;
    disk.set_capacity(Some(disk.used_bytes()));
    let room = log.free_bytes();
    assert!(room > 1024 - SEGMENT_HEADER as u64, "the spare segment counts");
    let mut events = 3;
    let refused = loop {
        match log.append(1, events, &[&[7; 100]]) {
            Ok(seq) => events = seq,
            Err(error) => break error,
        }
        log.maintain().unwrap();
    };
    assert!(matches!(refused, JournalError::Full { .. }), "{refused}");
    assert!((events - 3) * 176 + 176 > room - 176, "the room was real: {events} events of {room}");
    assert!(log.free_bytes() < 176);
    assert!(matches!(log.append(1, events, &[&[7; 100]]), Err(JournalError::Full { .. })));
    assert!(matches!(log.lease(5), Err(JournalError::Full { .. })));
    assert_eq!(open(&disk.fork()).unwrap().1.replayed, events, "nothing half-written");

    disk.set_capacity(None);
    assert_eq!(log.append(1, events, &[&[7; 100]]).unwrap(), events + 1);
    log.maintain().unwrap();
    assert!(log.free_bytes() > 1024 - SEGMENT_HEADER as u64);
}

#[test]
fn after_an_io_error_the_journal_is_reopened_and_what_it_shows_is_durable() {
    for sync in 1..=4 {
        let disk = filled(6);
        let mut log = open(&disk).unwrap().0;
        disk.fail_sync_at(sync);
        let mut acknowledged = 6;
        let failed = (0..12).any(|_| match log.append(1, acknowledged, &[&[3; 300]]) {
            Ok(seq) => {
                acknowledged = seq;
                false
            }
            Err(_) => true,
        });
        assert!(failed, "sync {sync}");
        assert!(matches!(log.append(1, acknowledged, &[b"x"]), Err(JournalError::Poisoned)));
        let (log, _, shown) = open(&disk).unwrap();
        assert!(shown.len() as u64 >= acknowledged);
        drop(log);
        disk.restart(sync);
        let (_, recovery, events) = open(&disk).unwrap();
        assert_eq!((recovery.torn_tail, events), (None, shown), "sync {sync}");
    }
}

/// Works until the crash, restarts, and checks that what was acknowledged is there, in order, and
/// that the journal goes on. Returns whether the crash came.
fn survive(crash_at: u64, seed: u64) -> bool {
    let disk = FaultyDisk::default();
    disk.crash_at(crash_at);
    let (mut acknowledged, mut leased) = (0, 0);
    let worked = open(&disk).and_then(|(mut log, ..)| {
        for upto in (3..=45).step_by(3) {
            fill(&mut log, upto).inspect_err(|_| acknowledged = log.last_seq())?;
            acknowledged = log.last_seq();
            if upto % 9 == 0 {
                log.lease(upto * 10)?;
                leased = upto * 10;
            }
        }
        Ok(())
    });
    disk.restart(seed);
    let case = format!("crash at {crash_at}, seed {seed}");
    let (mut log, recovery, events) = open(&disk).unwrap_or_else(|e| panic!("{case}: {e}"));
    assert_eq!(events, history(events.len()), "{case}");
    assert!(events.len() as u64 >= acknowledged, "{case}: {} of {acknowledged}", events.len());
    assert_eq!(recovery.loss, None, "{case}");
    assert!(log.high_water().leased_ids >= leased, "{case}");
    fill(&mut log, 60).unwrap();
    assert_eq!(open(&disk).unwrap().2, history(60), "{case}");
    worked.is_err()
}

#[test]
fn a_crash_at_any_write_loses_nothing_acknowledged() {
    let mut crash_at = 1;
    while (0..12).fold(false, |crashed, seed| survive(crash_at, seed * 7919 + crash_at) | crashed) {
        crash_at += 1;
    }
    assert!(crash_at > 80, "the crashes cover the whole work: {crash_at}");
}

#[test]
fn what_a_killed_program_left_unsynced_is_durable_once_it_has_been_replayed() {
    for crash_at in 1..90 {
        let disk = FaultyDisk::default();
        disk.crash_at(crash_at);
        let _ = open(&disk).and_then(|(mut log, ..)| fill(&mut log, 45));
        disk.restart_program();
        let (mut log, _, shown) = open(&disk).unwrap();
        if crash_at % 2 == 0 {
            fill(&mut log, shown.len() as u64 + 1).unwrap();
        }
        disk.restart(crash_at);
        let expected = history(log.last_seq() as usize);
        assert_eq!(open(&disk).unwrap().2, expected, "crash at {crash_at}");
    }
}

proptest! {
    #[test]
    fn any_bytes_in_place_of_a_segment_are_answered_without_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..1500),
        at in 0_usize..1024,
    ) {
        let disk = filled(12);
        let name = segments(&disk)[0].clone();
        disk.tamper(&name, |content| {
            content.truncate(at);
            content.extend_from_slice(&bytes);
        }).unwrap();
        if let Ok((_, _, events)) = open(&disk) {
            prop_assert_eq!(&events, &history(events.len()));
        }
    }
}

#[test]
fn texts_are_handed_out_with_their_commit_until_a_snapshot_has_it() {
    let disk = FaultyDisk::default();
    let (mut log, ..) = open(&disk).unwrap();
    log.append_with_texts(1, 0, &[b"a"], b"text of a").unwrap();
    log.append(1, 1, &[b"b"]).unwrap();
    let snapshot = log.position();
    log.append_with_texts(1, 2, &[b"c", b"d"], b"text of c").unwrap();
    let read = |disk: &FaultyDisk, from: Position| {
        let mut texts = Vec::new();
        let take = |text: &[u8]| {
            texts.push(String::from_utf8_lossy(text).into_owned());
            Ok(())
        };
        let (log, recovery, _) = open_from(disk, from).unwrap();
        store::carried_texts(disk, from.seq, take).unwrap();
        (texts, recovery.replayed, log.last_seq())
    };
    let all = vec!["text of a".to_owned(), "text of c".to_owned()];
    assert_eq!(read(&disk, Position::START), (all.clone(), 4, 4));
    assert_eq!(read(&disk, snapshot), (all[1..].to_vec(), 2, 4));
    // A commit that is cut off has none.
    let segment = segments(&disk).remove(0);
    let end = used(&content(&disk, &segment));
    disk.tamper(&segment, |bytes| bytes[end - 1] = 0).unwrap();
    assert_eq!(read(&disk, Position::START), (all[..1].to_vec(), 2, 2));
}

#[test]
fn segment_that_is_begun_lets_all_before_it_go() {
    let disk = FaultyDisk::default();
    let (mut log, ..) = open(&disk).unwrap();
    log.append_with_texts(1, 0, &[b"a"], b"a secret").unwrap();
    log.begin_segment().unwrap();
    log.begin_segment().unwrap();
    let snapshot = log.position();
    assert_eq!(segments(&disk).len(), 2, "an empty one is not left");
    log.compact(snapshot.seq).unwrap();
    let kept = segments(&disk).into_iter().map(|name| content(&disk, &name));
    assert!(!kept.collect::<Vec<_>>().concat().windows(8).any(|bytes| bytes == b"a secret"));
    log.append(1, 1, &[b"b"]).unwrap();
    drop(log);
    assert_eq!(open_from(&disk, snapshot).unwrap().2, ["b"]);
}
