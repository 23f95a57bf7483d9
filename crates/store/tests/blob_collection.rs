//! Blobs leave the disk when nothing needs them, and never before: not for a job, not for a replay from either snapshot, and
//! not through a crash at any write.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::sync::Arc;

use store::blob::{BIG_PER_TURN, BlobOptions, MOVED_BYTES_PER_TURN, Pass, RECORDS_PER_TURN};
use store::disk::Entry;
use store::{
    BlobId, Blobs, Disk, DiskFile, FaultyDisk, Journal, LogFile, LogOptions, Position, Snapshots,
};

fn options() -> BlobOptions {
    BlobOptions {
        packed_bytes_max: 200,
        pack_bytes: 2048,
        blob_bytes_max: 5000,
        staged_bytes_max: 4096,
    }
}

fn open(disk: &dyn Fn() -> Arc<dyn Disk>) -> Blobs {
    Blobs::open(disk(), options()).expect("blobs").0
}

/// Every fifth is large.
fn content(number: usize) -> Vec<u8> {
    let len = if number.is_multiple_of(5) { 300 + number } else { 30 + number % 50 };
    format!("secret of job {number} ").into_bytes().into_iter().cycle().take(len).collect()
}

fn id(number: usize) -> BlobId {
    BlobId::of(&content(number))
}

fn collect(blobs: &mut Blobs, thorough: bool, live: &HashSet<BlobId>) -> Pass {
    let mut pass = blobs.begin_pass(thorough);
    while !pass.is_over() {
        blobs.turn(&mut pass, &|id| live.contains(id)).expect("a turn");
    }
    pass
}

/// Every file below a folder, with its bytes.
fn files(disk: &FaultyDisk, dir: &str) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for Entry { name, is_dir, .. } in disk.list(dir).expect("a listing") {
        let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
        if is_dir {
            all.extend(files(disk, &path));
        } else {
            let bytes = disk.open(&path).and_then(|file| file.read_all()).expect("a file");
            all.push((path, bytes));
        }
    }
    all
}

fn holds(disk: &FaultyDisk, number: usize) -> bool {
    let content = content(number);
    files(disk, "").iter().any(|(_, bytes)| bytes.windows(content.len()).any(|w| w == content))
}

#[test]
fn dead_blobs_leave_the_disk_and_live_ones_stay() {
    let disk = FaultyDisk::default();
    let mut blobs = open(&|| Arc::new(disk.clone()));
    for number in 0..80 {
        blobs.put(&content(number), 7).expect("stored");
    }
    let live: HashSet<BlobId> = (0..80).filter(|n| n % 9 == 0 || n % 10 == 5).map(id).collect();
    let pass = collect(&mut blobs, false, &live);
    assert_eq!(pass.collected.blobs as usize, 80 - live.len(), "these packs are cheap to rewrite");
    for reopened in [false, true] {
        if reopened {
            disk.restart(3);
            blobs = open(&|| Arc::new(disk.clone()));
        }
        assert_eq!(blobs.len(), live.len());
        for number in 0..80 {
            let lives = live.contains(&id(number));
            let found = blobs.get(&id(number)).expect("readable");
            assert_eq!(found, lives.then(|| content(number)), "{number}, reopened: {reopened}");
            assert_eq!(holds(&disk, number), lives, "{number}, on the disk");
        }
    }
    assert_eq!(collect(&mut blobs, true, &live).collected.blobs, 0, "nothing is left to collect");
    // The same content again is stored again.
    blobs.put(&content(1), 8).expect("stored");
    assert_eq!(blobs.get(&id(1)).expect("readable"), Some(content(1)));
}

#[test]
fn blob_that_was_damaged_before_the_start_stays_while_a_job_needs_it() {
    let disk = FaultyDisk::default();
    let mut blobs = open(&|| Arc::new(disk.clone()));
    for number in 0..80 {
        blobs.put(&content(number), 7).expect("stored");
    }
    drop(blobs);
    // 3 is small and in an older pack, 75 is large: of the one the content is hit, of the other the header.
    for (number, at) in [(3, 60), (75, 9)] {
        let content = content(number);
        let place = |bytes: &[u8]| bytes.windows(content.len()).position(|w| w == content);
        let stored = files(&disk, "").into_iter().find(|(_, bytes)| place(bytes).is_some());
        let (file, mut bytes) = stored.expect("it is stored");
        let record = place(&bytes).expect("its place") - 56;
        bytes[record + at] ^= 1;
        disk.open(&file).and_then(|file| file.write_at(0, &bytes)).expect("damaged");
    }
    let mut blobs = open(&|| Arc::new(disk.clone()));
    assert_eq!(blobs.len(), 78);
    let before = files(&disk, "").len();
    let live: HashSet<BlobId> = [3, 75].map(id).into();
    let pass = collect(&mut blobs, true, &live);
    assert_eq!(pass.damaged, 2, "what is needed and damaged is said");
    assert!(files(&disk, "").len() < before, "all else is collected");
    let rest = &content(3)[8..];
    let packs = files(&disk, "packs");
    assert!(packs.iter().any(|(_, bytes)| bytes.windows(rest.len()).any(|w| w == rest)));
    assert!(holds(&disk, 75), "the content of the large one is whole");
    let pass = collect(&mut blobs, true, &HashSet::new());
    assert_eq!(pass.damaged, 0);
    assert!(!holds(&disk, 75) && files(&disk, "packs").is_empty(), "nobody needs them now");
}

#[test]
fn turn_over_large_blobs_looks_at_a_bounded_number_of_them() {
    let disk = FaultyDisk::default();
    let mut blobs = open(&|| Arc::new(disk.clone()));
    let large =
        (0..).map(|n| format!("{n:<300}")).filter(|text| BlobId::of(text.as_bytes()).0[0] == 0);
    for text in large.take(2 * BIG_PER_TURN + 1) {
        blobs.put(text.as_bytes(), 1).expect("stored");
    }
    let mut pass = blobs.begin_pass(false);
    let mut most = 0;
    while !pass.is_over() {
        let before = blobs.len();
        blobs.turn(&mut pass, &|_| false).expect("a turn");
        most = most.max(before - blobs.len());
    }
    assert_eq!((most, blobs.len()), (BIG_PER_TURN, 0));
}

#[test]
fn packs_that_mostly_live_wait_for_the_thorough_pass() {
    let disk = FaultyDisk::default();
    let options = BlobOptions { packed_bytes_max: 64 << 10, ..BlobOptions::default() };
    let mut blobs = Blobs::open(Arc::new(disk.clone()), options).expect("blobs").0;
    let text = |n: u8| vec![n; 60 << 10];
    let ids: Vec<BlobId> = (1..=20).map(|n| blobs.put(&text(n), 1).expect("stored")).collect();
    let live: HashSet<BlobId> = ids[1..].iter().copied().collect();
    assert_eq!(collect(&mut blobs, false, &live).collected.blobs, 0);
    assert!(!blobs.contains(&ids[0]), "it is not found any more");
    let mut pass = blobs.begin_pass(true);
    let mut turns = 0;
    while !pass.is_over() {
        let before = disk.used_bytes();
        blobs.turn(&mut pass, &|id| live.contains(id)).expect("a turn");
        let grown = disk.used_bytes().saturating_sub(before);
        assert!(grown <= (16 << 20) + 2 * MOVED_BYTES_PER_TURN as u64, "one turn wrote {grown}");
        turns += usize::from(!pass.asks());
    }
    assert_eq!(pass.collected.blobs, 1);
    assert!(turns >= 19 * (60 << 10) / (MOVED_BYTES_PER_TURN + (64 << 10)), "{turns} turns");
    assert!(ids[1..].iter().all(|id| blobs.get(id).expect("readable").is_some()));
}

#[test]
fn one_turn_asks_about_a_bounded_number_of_blobs() {
    let mut blobs = Blobs::open(Arc::new(FaultyDisk::default()), BlobOptions::default()).unwrap().0;
    for number in 0..3000_u32 {
        blobs.stage(&number.to_le_bytes(), 1).expect("staged");
    }
    blobs.commit_staged().expect("stored");
    let mut pass = blobs.begin_pass(true);
    while !pass.is_over() {
        let asked = std::cell::Cell::new(0);
        let is_live = |_: &BlobId| {
            asked.set(asked.get() + 1);
            false
        };
        blobs.turn(&mut pass, &is_live).expect("a turn");
        assert!(asked.get() <= RECORDS_PER_TURN, "{} in one turn", asked.get());
    }
    assert_eq!((pass.collected.blobs, blobs.len()), (3000, 0));
}

#[test]
fn damaged_pack_keeps_what_can_still_be_read() {
    let disk = FaultyDisk::default();
    let mut blobs = open(&|| Arc::new(disk.clone()));
    let numbers = [1, 2, 3, 4];
    for number in numbers {
        blobs.put(&content(number), 1).expect("stored");
    }
    let used = files(&disk, "packs")[0].1.iter().rposition(|byte| *byte != 0).expect("bytes") + 1;
    for byte in 0..used {
        let copy = disk.fork();
        let mut blobs = open(&|| Arc::new(copy.clone()));
        copy.tamper("packs/pack-00000001", |bytes| bytes[byte] ^= 4).expect("tampered");
        let readable: Vec<usize> =
            numbers.into_iter().filter(|n| matches!(blobs.get(&id(*n)), Ok(Some(_)))).collect();
        assert_eq!(readable.len(), 3, "byte {byte}");
        let live: HashSet<BlobId> = numbers[1..].iter().map(|n| id(*n)).collect();
        collect(&mut blobs, true, &live);
        for number in readable.into_iter().filter(|n| *n != 1) {
            let found = blobs.get(&id(number)).expect("readable");
            assert_eq!(found, Some(content(number)), "byte {byte}, blob {number}");
        }
    }
}

/// One folder of a disk that journal, snapshots and blobs share, so that a crash comes between any two of their writes.
struct Folder(FaultyDisk, &'static str);

impl Folder {
    fn path(&self, path: &str) -> String {
        if path.is_empty() { self.1.to_owned() } else { format!("{}/{path}", self.1) }
    }
}

impl Disk for Folder {
    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.0.open(&self.path(path))
    }
    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.0.create(&self.path(path))
    }
    fn make_dir(&self, path: &str) -> io::Result<()> {
        self.0.make_dir(&self.path(path))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(&self.path(from), &self.path(to))
    }
    fn link(&self, path: &str, to: &str) -> io::Result<()> {
        self.0.link(&self.path(path), &self.path(to))
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.0.remove(&self.path(path))
    }
    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        self.0.list(&self.path(dir))
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.0.sync_dir(&self.path(dir))
    }
    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
}

type AnyError = Box<dyn std::error::Error>;

/// A server in small: jobs that need a blob each, a journal of their submits and purges, snapshots, and a collection.
struct Server {
    jobs: BTreeSet<usize>,
    journal: LogFile,
    snapshots: Snapshots,
    blobs: Blobs,
}

impl Server {
    fn start(disk: &FaultyDisk) -> Result<Self, AnyError> {
        for dir in ["journal", "snapshots", "blobs"] {
            disk.make_dir(dir)?;
        }
        disk.sync_dir("")?;
        let folder = |name| Arc::new(Folder(disk.clone(), name)) as Arc<dyn Disk>;
        let mut snapshots = Snapshots::new(folder("snapshots"));
        let found = snapshots.newest_good()?;
        let position = found.position();
        let mut jobs: BTreeSet<usize> = match found.snapshot {
            Some(snapshot) => serde_json::from_slice(&snapshot.body)?,
            None => BTreeSet::new(),
        };
        let replay = |record: store::Record<'_>| -> Result<(), String> {
            let event: i64 = serde_json::from_slice(record.event).map_err(|e| e.to_string())?;
            let job = event.unsigned_abs() as usize;
            if event > 0 {
                jobs.insert(job)
            } else {
                jobs.remove(&job)
            };
            Ok(())
        };
        let log = LogOptions { segment_bytes: 1024 };
        let journal = LogFile::open(folder("journal"), log, position, replay)?.0;
        let mut blobs = Blobs::open(folder("blobs"), options())?.0;
        let texts = |records: &[u8]| blobs.restore(records).map_err(|e| e.to_string());
        store::carried_texts(&*folder("journal"), position.seq, texts)?;
        blobs.commit_staged()?;
        Ok(Self { jobs, journal, snapshots, blobs })
    }

    fn record(&mut self, event: i64, texts: &[u8]) -> Result<(), AnyError> {
        let bytes = event.to_string();
        let end = self.journal.last_seq();
        self.journal.append_with_texts(1, end, &[bytes.as_bytes()], texts)?;
        Ok(())
    }

    fn submit(&mut self, job: usize) -> Result<(), AnyError> {
        // Every fourth has the content of the one three before it, which may just have been purged.
        self.blobs.stage(&content(needed(job)), 1)?;
        // The commit of every third carries nothing: its blob is synced first.
        let room = if job.is_multiple_of(3) { 0 } else { self.journal.commit_bytes_max() / 2 };
        let texts = self.blobs.store_staged(room)?;
        self.record(job as i64, &texts)?;
        self.jobs.insert(job);
        Ok(())
    }

    fn purge(&mut self, job: usize) -> Result<(), AnyError> {
        self.record(-(job as i64), &[])?;
        self.jobs.remove(&job);
        Ok(())
    }

    fn snapshot(&mut self) -> Result<(), AnyError> {
        self.blobs.sync()?;
        let position: Position = self.journal.position();
        let upto = self.snapshots.write(position, &serde_json::to_vec(&self.jobs)?)?;
        self.journal.compact(upto)?;
        Ok(())
    }

    fn work(&mut self, acknowledged: &mut BTreeMap<usize, bool>) -> Result<(), AnyError> {
        let mut pass = self.blobs.begin_pass(true);
        for job in 1..40 {
            self.submit(job)?;
            acknowledged.insert(job, true);
            if job > 3 && job % 7 != 0 {
                acknowledged.insert(job - 3, false);
                self.purge(job - 3)?;
            }
            if job % 6 == 0 {
                self.snapshot()?;
            }
            for _ in 0..20 {
                let live: HashSet<BlobId> = self.jobs.iter().map(|job| id(needed(*job))).collect();
                self.blobs.turn(&mut pass, &|id| live.contains(id))?;
                if pass.is_over() {
                    pass = self.blobs.begin_pass(true);
                }
            }
        }
        Ok(())
    }

    fn check(&self, acknowledged: &BTreeMap<usize, bool>, case: &str) {
        for (job, lives) in acknowledged {
            assert!(!lives || self.jobs.contains(job), "{case}: job {job} is lost");
        }
        for job in &self.jobs {
            let found = self.blobs.get(&id(needed(*job))).expect("readable");
            assert_eq!(found, Some(content(needed(*job))), "{case}: the blob of job {job}");
        }
    }
}

fn needed(job: usize) -> usize {
    if job > 3 && job.is_multiple_of(4) { job - 3 } else { job }
}

#[test]
fn a_crash_at_any_write_leaves_every_blob_that_a_replay_needs() {
    let mut crash_at = 1;
    loop {
        let mut crashed = false;
        for seed in 0..2 {
            let disk = FaultyDisk::default();
            disk.crash_at(crash_at);
            let mut acknowledged = BTreeMap::new();
            if let Ok(mut server) = Server::start(&disk) {
                crashed |= server.work(&mut acknowledged).is_err();
            } else {
                crashed = true;
            }
            disk.restart(seed);
            let case = format!("crash at {crash_at}, seed {seed}");
            let server = Server::start(&disk).unwrap_or_else(|e| panic!("{case}: {e}"));
            server.check(&acknowledged, &case);
            // The newest snapshot may be damaged: the older one and the journal need the same blobs.
            let names = disk.list("snapshots").expect("snapshots");
            if let Some(newest) = names.iter().rfind(|entry| entry.name.ends_with(".snap"))
                && names.len() > 1
            {
                let path = format!("snapshots/{}", newest.name);
                disk.tamper(&path, |bytes| bytes[100] ^= 1).expect("tampered");
                let older = Server::start(&disk).unwrap_or_else(|e| panic!("{case}: {e}"));
                assert_eq!(older.jobs, server.jobs, "{case}");
                older.check(&acknowledged, &case);
            }
        }
        if !crashed {
            break;
        }
        // Every write at first, then a sample.
        crash_at += if crash_at < 60 { 1 } else { 3 };
    }
    assert!(crash_at > 300, "the crashes cover the whole work: {crash_at}");
}
