use super::*;
use crate::FaultyDisk;
use model::id::JobId;

fn key(job: u32) -> LogKey {
    LogKey { attempt: AttemptId { job: JobId(job), number: 1 }, node: "n-1".into() }
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
    let file = disk.open("1-1-n-1.log").unwrap();
    for cut in 1..(HEADER_BYTES as u64 + 5) {
        let fork = disk.fork();
        let len = file.len().unwrap() - cut;
        fork.open("1-1-n-1.log").unwrap().truncate(len).unwrap();
        let logs = LogFiles::new(Arc::new(fork)).unwrap();
        assert_eq!(logs.len(&key(1)).unwrap(), 5, "{cut}");
        logs.append(&key(1), Timestamp(3), b" again").unwrap();
        logs.close(&key(1)).unwrap();
        assert_eq!(text(&logs.read(&key(1), 0, 1 << 20).unwrap()), "whole again", "{cut}");
    }
}

#[test]
fn oldest_logs_are_removed_first_and_none_that_is_written_to() {
    let logs = LogFiles::new(Arc::new(FaultyDisk::default())).unwrap();
    for job in [2, 10, 9] {
        logs.append(&key(job), Timestamp(1), &[b'x'; 100]).unwrap();
        if job != 2 {
            logs.close(&key(job)).unwrap();
        }
    }
    assert_eq!(logs.shrink(300).unwrap(), 1);
    let left = |job| !logs.read(&key(job), 0, 1).unwrap().chunks.is_empty();
    assert_eq!([left(2), left(9), left(10)], [true, false, true]);
    assert_eq!(logs.shrink(300).unwrap(), 0);
    assert_eq!(logs.total(), 2 * (100 + HEADER_BYTES as u64));
}
