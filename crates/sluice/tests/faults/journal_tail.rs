//! A journal of the real program, cut at every byte of its tail: a prefix of what was written is restored, and the loss is
//! reported.

use crate::harness::{Cluster, TWO_NODES, until};
use cluster::{Event, State};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{LogFile, LogOptions, Position, RealDisk, Recovery};

/// How many bytes of the tail are cut one by one: several commits.
const TAIL: usize = 1000;

/// A journal with jobs, arrays, steps, cancels and ends in it. The cluster is down.
fn lived() -> Cluster {
    let cluster = Cluster::up(TWO_NODES);
    cluster.submit(&["-H", "--wrap", "true"]);
    let array = cluster.submit(&["-o", "/dev/null", "--array=1-3", "--wrap", "exit 2"]);
    cluster.sluice(&["srun", "true"]).ok();
    let cancelled = cluster.submit(&["-o", "/dev/null", "--wrap", "sleep 600"]);
    cluster.await_state(cancelled, "RUNNING");
    cluster.sluice(&["scancel", &cancelled.to_string()]).ok();
    cluster.await_end(format!("{array}_3"));
    cluster.await_end(cancelled);
    let last = cluster.submit(&["-o", "/dev/null", "--wrap", "true"]);
    cluster.await_end(last);
    cluster.sluice(&["down"]).ok();
    cluster
}

fn segment(cluster: &Cluster) -> PathBuf {
    let dir = cluster.state().join("server/journal");
    let names = std::fs::read_dir(dir).unwrap().flatten().map(|e| e.path());
    names.filter(|p| p.to_string_lossy().contains("journal-")).max().unwrap()
}

fn end_of(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|b| *b != 0).unwrap() + 1
}

/// Reads a journal as the server does, and applies every event.
fn read_back(dir: &Path, segment_bytes: u64) -> (Vec<Vec<u8>>, Recovery) {
    let disk = Arc::new(RealDisk::open(dir).unwrap());
    let mut events = Vec::new();
    let mut state = State::default();
    let replay = |record: store::Record<'_>| -> Result<(), String> {
        let event: Event = serde_json::from_slice(record.event).map_err(|e| e.to_string())?;
        state.apply(&event);
        events.push(record.event.to_vec());
        Ok(())
    };
    let options = LogOptions { segment_bytes };
    let (_, recovery) =
        LogFile::open(disk, options, Position::START, replay).expect("a cut end is no damage");
    (events, recovery)
}

#[test]
fn up_a_journal_cut_at_any_byte_of_its_tail_restores_a_prefix_and_reports_the_cut() {
    let cluster = lived();
    let path = segment(&cluster);
    let whole = std::fs::read(&path).unwrap();
    let end = end_of(&whole);
    // A shorter copy of the file in a folder of its own: only zeros follow the end.
    let size = (end + (64 << 10)) as u64;
    // In `/dev/shm` if it exists: thousands of journals are synced here.
    let memory = tempfile::tempdir_in("/dev/shm");
    let scratch = memory.or_else(|_| tempfile::tempdir()).unwrap();
    let dir = scratch.path().join("journal");
    std::fs::create_dir(&dir).unwrap();
    let file = dir.join(path.file_name().unwrap());
    for entry in std::fs::read_dir(path.parent().unwrap()).unwrap().flatten() {
        if entry.path() != path && entry.file_name() != "spare.log" {
            std::fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
        }
    }
    std::fs::write(&file, &whole[..size as usize]).unwrap();
    let (all, recovery) = read_back(&dir, size);
    assert_eq!(recovery.torn_tail, None);
    assert!(all.len() > 20, "{} events", all.len());
    // The file ends at the cut, or preallocated zeros follow.
    let mut torn = 0;
    for length in [0, size as usize] {
        let mut seen = 0;
        for cut in end.saturating_sub(TAIL)..=end {
            let mut bytes = whole[..cut].to_vec();
            bytes.resize(length.max(cut), 0);
            std::fs::write(&file, &bytes).unwrap();
            let (events, recovery) = read_back(&dir, size);
            assert!(all.starts_with(&events), "cut at {cut}: not the beginning of what was");
            assert!(events.len() >= seen, "cut at {cut}: less than with an earlier cut");
            seen = events.len();
            let Some(tail) = &recovery.torn_tail else { continue };
            torn += 1;
            assert!(tail.offset < cut as u64, "cut at {cut}: {tail}");
            assert_eq!(tail.seq, events.len() as u64 + 1, "cut at {cut}: {tail}");
            if cut % 16 == 0 {
                // It is reported once: the next reader finds a clean end.
                let (again, recovery) = read_back(&dir, size);
                assert_eq!((again.len(), recovery.torn_tail), (events.len(), None), "{cut}");
            }
        }
    }
    std::fs::write(&file, &whole[..size as usize]).unwrap();
    assert_eq!(read_back(&dir, size).0, all, "a cut behind the last byte takes nothing");
    assert!(torn > TAIL, "most cuts go through a commit: {torn} of {}", 2 * TAIL);
    println!("{} events, {torn} torn cuts", all.len());
}

#[test]
fn up_a_server_starts_from_a_cut_journal_and_takes_new_jobs() {
    let cluster = lived();
    let path = segment(&cluster);
    let whole = std::fs::read(&path).unwrap();
    let end = end_of(&whole);
    for (round, back) in [1, 97, 700, 1500].into_iter().enumerate() {
        let mut bytes = whole.clone();
        bytes[end - back..].fill(0);
        std::fs::write(&path, &bytes).unwrap();
        let before = cluster.log("server").len();
        cluster.start();
        let said = cluster.log("server")[before..].to_string();
        assert!(said.contains("unfinished commit"), "{back} bytes cut: {said}");
        let shown = cluster.sluice(&["squeue", "-h", "-t", "all", "-o", "%A"]).ok();
        // A node remembers the attempts of discarded histories too: no id runs twice.
        for _ in 0..round {
            cluster.submit(&["-H", "--wrap", "true"]);
        }
        let id = cluster.submit(&["-o", "/dev/null", "--wrap", "true"]);
        assert!(!shown.lines().any(|l| l.trim() == id.to_string()), "{id} was given before");
        assert_eq!(cluster.await_end(id), "COMPLETED|0:0", "{back} bytes cut");
        cluster.sluice(&["down"]).ok();
        // Each cut starts from the same journal; what follows it is discarded.
        std::fs::write(&path, &whole).unwrap();
    }
}

/// The numbers and words of the audit trail's rows.
fn audit_trail(cluster: &Cluster) -> Vec<String> {
    let shown = cluster.sluice(&["sacctmgr", "-n", "-P", "show", "transactions"]).ok();
    shown.lines().map(str::to_owned).collect()
}

#[test]
fn up_ids_of_a_lost_tail_are_never_given_again_and_jobs_that_end_are_booked() {
    // Ids are leased in blocks of 1000: the second job's lease moves the high-water mark to where the journal then ends.
    let cluster = Cluster::up(&format!("{TWO_NODES}FirstJobId=998\n"));
    let job = |name: &str| {
        let id = cluster.submit(&["-o", "/dev/null", "-J", name, "--wrap", "true"]);
        assert_eq!(cluster.await_end(id), "COMPLETED|0:0", "{name}");
        id
    };
    let booked =
        |id: u32| cluster.sluice(&["sacct", "-nXPj", &id.to_string(), "-o", "JobName"]).ok();
    job("kept");
    cluster.sluice(&["down"]).ok();
    let path = segment(&cluster);
    let kept = std::fs::read(&path).unwrap();
    cluster.start();
    let lost = job("lost");
    cluster.sluice(&["sacctmgr", "-i", "add", "account", "lost"]).ok();
    until("the lost job to be booked", || (booked(lost) == "lost\n").then_some(()));
    let trail = audit_trail(&cluster);
    assert!(trail.iter().any(|row| row.contains("lost")), "{trail:?}");
    cluster.sluice(&["down"]).ok();
    std::fs::write(&path, &kept).unwrap();
    let before = cluster.log("server").len();
    // The start that finds the loss does nothing else; the next one must still know of it.
    cluster.start();
    cluster.sluice(&["down"]).ok();
    assert!(cluster.log("server")[before..].contains("LOST"), "{}", cluster.log("server"));
    cluster.start();
    let later = job("later");
    assert!(later > lost, "{later} after {lost}");
    cluster.sluice(&["sacctmgr", "-i", "add", "account", "later"]).ok();
    until("the later job to be booked", || (booked(later) == "later\n").then_some(()));
    assert_eq!(booked(lost), "lost\n", "its record stays");
    let now = audit_trail(&cluster);
    let gone: Vec<_> = trail.iter().filter(|row| !now.contains(row)).collect();
    assert!(gone.is_empty(), "entries of the audit trail were replaced: {gone:?}");
    assert!(now.iter().any(|row| row.contains("later")), "{now:?}");
}
