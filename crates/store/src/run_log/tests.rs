use super::*;
use crate::FaultyDisk;
use model::id::JobId;

fn key(job: u32) -> LogKey {
    key_of(1000, job)
}

fn key_of(owner: u32, job: u32) -> LogKey {
    LogKey { attempt: AttemptId { job: JobId(job), number: 1 }, owner, node: "n-1".into() }
}

fn text(page: &LogPage) -> String {
    page.chunks.iter().map(|chunk| String::from_utf8_lossy(&chunk.bytes)).collect()
}

#[test]
fn output_is_read_back_page_by_page_with_its_times() {
    let logs = LogFiles::new(Arc::new(FaultyDisk::default())).unwrap();
    assert_eq!(logs.read(&key(1), 0, 100).unwrap(), LogPage::default());
    for (at, piece) in [(1, "one\n"), (2, "two\n"), (3, "three\n")] {
        logs.append(&key(1), Timestamp(at), piece.as_bytes()).unwrap();
    }
    assert_eq!(logs.len(&key(1)).unwrap(), 14);
    let first = logs.read(&key(1), 0, 1).unwrap();
    assert_eq!((text(&first).as_str(), first.chunks[0].at), ("one\n", Timestamp(1)));
    let rest = logs.read(&key(1), first.next, 1 << 20).unwrap();
    assert_eq!(text(&rest), "two\nthree\n");
    assert!(logs.read(&key(1), rest.next, 1 << 20).unwrap().chunks.is_empty());
}

#[test]
fn record_that_a_crash_cut_short_is_written_again() {
    let disk = FaultyDisk::default();
    let logs = LogFiles::new(Arc::new(disk.clone())).unwrap();
    logs.append(&key(1), Timestamp(1), b"whole").unwrap();
    logs.append(&key(1), Timestamp(2), b" torn").unwrap();
    let file = disk.open("1-1-n-1.1000.log").unwrap();
    for cut in 1..(HEADER_BYTES as u64 + 5) {
        let fork = disk.fork();
        let len = file.len().unwrap() - cut;
        fork.open("1-1-n-1.1000.log").unwrap().truncate(len).unwrap();
        let logs = LogFiles::new(Arc::new(fork)).unwrap();
        assert_eq!(logs.len(&key(1)).unwrap(), 5, "{cut}");
        logs.append(&key(1), Timestamp(3), b" again").unwrap();
        logs.close(&key(1)).unwrap();
        assert_eq!(text(&logs.read(&key(1), 0, 1 << 20).unwrap()), "whole again", "{cut}");
    }
}

/// What `job` of `owner` would find of its log.
fn left(logs: &LogFiles, owner: u32, job: u32) -> bool {
    !logs.read(&key_of(owner, job), 0, 1).unwrap().chunks.is_empty()
}

#[test]
fn oldest_logs_are_removed_first_and_those_that_are_written_to_last() {
    let logs = LogFiles::new(Arc::new(FaultyDisk::default())).unwrap();
    for job in [2, 10, 9] {
        logs.append(&key(job), Timestamp(1), &[b'x'; 100]).unwrap();
        if job != 2 {
            logs.close(&key(job)).unwrap();
        }
    }
    assert_eq!(logs.shrink(300).unwrap(), 1);
    assert_eq!([2, 9, 10].map(|job| left(&logs, 1000, job)), [true, false, true]);
    assert_eq!(logs.shrink(300).unwrap(), 0);
    assert_eq!(logs.total(), 2 * (100 + HEADER_BYTES as u64));
}

#[test]
fn user_who_writes_much_loses_his_own_logs_and_nobody_elses() {
    let logs = LogFiles::new(Arc::new(FaultyDisk::default())).unwrap();
    let close = |owner, job, bytes: usize| {
        logs.append(&key_of(owner, job), Timestamp(1), &vec![b'x'; bytes]).unwrap();
        logs.close(&key_of(owner, job)).unwrap();
    };
    close(1, 1, 100);
    for job in 2..20 {
        close(2, job, 100);
    }
    assert!(logs.shrink(1000).unwrap() > 0);
    assert!(left(&logs, 1, 1), "the oldest log of all, of one who has little");
    assert!(!left(&logs, 2, 2) && left(&logs, 2, 19));
    assert!(logs.total() <= 1000);
}

#[test]
fn log_that_is_written_to_is_removed_where_its_owner_has_most_and_goes_on_after_a_word() {
    let logs = LogFiles::new(Arc::new(FaultyDisk::default())).unwrap();
    let big = key_of(2, 5);
    logs.append(&key_of(1, 1), Timestamp(1), &[b'o'; 300]).unwrap();
    logs.close(&key_of(1, 1)).unwrap();
    logs.append(&big, Timestamp(1), &[b'x'; 900]).unwrap();
    assert_eq!(logs.shrink(1000).unwrap(), 1);
    assert!(left(&logs, 1, 1));
    assert_eq!(logs.len(&big).unwrap(), 900, "the node is not asked for it again");
    logs.append(&big, Timestamp(2), b"more").unwrap();
    let said = text(&logs.read(&big, 0, 1 << 20).unwrap());
    assert_eq!(said, String::from_utf8_lossy(EVICTED_NOTICE).into_owned() + "more");
    assert_eq!(logs.len(&big).unwrap(), 904);
}

#[test]
fn log_of_the_build_before_is_found_under_its_name() {
    let disk = FaultyDisk::default();
    let logs = LogFiles::new(Arc::new(disk.clone())).unwrap();
    logs.append(&key(1), Timestamp(1), b"old").unwrap();
    logs.close(&key(1)).unwrap();
    disk.rename("1-1-n-1.1000.log", "1-1-n-1.log").unwrap();
    assert_eq!(text(&logs.read(&key(1), 0, 100).unwrap()), "old");
}

#[test]
fn damaged_record_is_left_out_and_said_and_the_rest_is_kept() {
    let disk = FaultyDisk::default();
    let logs = LogFiles::new(Arc::new(disk.clone())).unwrap();
    for piece in ["one\n", "two\n", "three\n"] {
        logs.append(&key(1), Timestamp(1), piece.as_bytes()).unwrap();
    }
    logs.close(&key(1)).unwrap();
    let second = HEADER_BYTES as u64 + 4;
    // Each byte of the second record in turn: checksum, length, offset, time, output.
    for byte in second..second + HEADER_BYTES as u64 + 4 {
        let fork = disk.fork();
        let file = fork.open("1-1-n-1.1000.log").unwrap();
        let mut was = [0];
        file.read_at(byte, &mut was).unwrap();
        file.write_at(byte, &[was[0] ^ 0x10]).unwrap();
        let logs = LogFiles::new(Arc::new(fork)).unwrap();
        assert_eq!(logs.len(&key(1)).unwrap(), 14, "{byte}");
        let said = text(&logs.read(&key(1), 0, 1 << 20).unwrap());
        assert!(said.starts_with("one\n\n[sluice: about 28 bytes"), "{byte}: {said}");
        assert!(said.ends_with("disk]\nthree\n"), "{byte}: {said}");
        let page = logs.read(&key(1), second, 1 << 20).unwrap();
        assert!(text(&page).ends_with("disk]\nthree\n"), "a page that begins with the damage");
    }
}
