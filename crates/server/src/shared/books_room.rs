//! Room in the books for what jobs leave there: how much those of one user may add, and the part of the disk that is kept for root
//! and operators.
//!
//! Records are what is accounted for: none is left out, and none is removed to make room. New work is refused instead, first that of
//! users whose jobs add most.

use model::bounds::{BOOKS_RESERVE_BYTES, USER_BOOKS_BYTES};
use model::reason::Refusal;
use model::record::{JobRecord, StepRecord};
use nix::sys::statvfs::statvfs;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

const DAY: Duration = Duration::from_secs(86_400);

/// How often the disk is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A twentieth of a small disk is kept, where that is less than [`BOOKS_RESERVE_BYTES`].
const RESERVE_PART: u64 = 20;

/// Once less than the reserve is free, the jobs of each user may add a 64th of it; then he submits no more.
const SHARE_PART: u64 = 64;

/// Users whose records are counted.
const USERS_MAX: usize = 65_536;

/// What a record takes beside its texts and lists, with the indices by which it is found.
const RECORD_BYTES: u64 = 4 << 10;
/// The same of a step in it.
const STEP_BYTES: u64 = 1 << 10;
/// The same of a node's name in it.
const NODE_BYTES: u64 = 32;

/// What adds to the books when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewWork {
    Jobs,
    Steps,
}

#[derive(Default)]
pub struct BooksRoom {
    /// What the jobs of each user added.
    added: Mutex<HashMap<u32, Added>>,
    last_look: Mutex<Option<Instant>>,
    /// What the last look has found.
    disk: Mutex<Option<Disk>>,
}

#[derive(Debug, Clone, Copy)]
struct Added {
    /// The bytes that were added up to a moment and are not forgotten.
    bytes: u64,
    at: Instant,
    /// Bytes that were added since the disk was found to be low.
    since_low: u64,
}

impl Added {
    /// What counts now: as much as may be added at once is forgotten in a day.
    fn lately(self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.at).as_nanos();
        let forgotten = passed * USER_BOOKS_BYTES.most as u128 / DAY.as_nanos();
        self.bytes.saturating_sub(u64::try_from(forgotten).unwrap_or(u64::MAX))
    }
}

#[derive(Debug, Clone, Copy)]
struct Disk {
    size: u64,
    /// What is free for new records.
    free: u64,
    is_low: bool,
}

impl Disk {
    fn reserve(self) -> u64 {
        (self.size / RESERVE_PART).min(BOOKS_RESERVE_BYTES.most as u64)
    }

    /// A disk that was low is so until a quarter more is free: shares do not begin anew with every file that comes and goes.
    fn after(self, before: Option<Self>) -> Self {
        let (was_low, reserve) = (before.is_some_and(|before| before.is_low), self.reserve());
        let enough = if was_low { reserve + reserve / 4 } else { reserve };
        Self { is_low: self.free < enough, ..self }
    }
}

impl BooksRoom {
    /// Counts records that go into the books. `counted`: the user whom a user counts as.
    pub fn note(&self, records: &[JobRecord], counted: impl Fn(u32) -> u32, now: Instant) {
        for record in records {
            self.add(counted(record.uid), record_bytes(record), now);
        }
    }

    pub fn add(&self, user: u32, bytes: u64, now: Instant) {
        let mut added = self.added();
        if added.len() >= USERS_MAX && !added.contains_key(&user) {
            added.retain(|_, of_user| of_user.lately(now) > 0);
            let least = added.iter().min_by_key(|(_, of_user)| of_user.lately(now));
            if let Some(least) = least.map(|(user, _)| *user).filter(|_| added.len() >= USERS_MAX) {
                added.remove(&least);
            }
        }
        let of_user = added.entry(user).or_insert(Added { bytes: 0, at: now, since_low: 0 });
        *of_user = Added {
            bytes: of_user.lately(now).saturating_add(bytes),
            at: now,
            since_low: of_user.since_low.saturating_add(bytes),
        };
    }

    /// Looks how much of the disk of this folder is free, where it is time to. `reusable`: the bytes in the books that records left
    /// which were purged.
    pub fn look(&self, folder: &Path, reusable: u64, now: Instant) {
        {
            let mut last_look = self.last_look.lock().expect("no panic with the time held");
            if last_look.is_some_and(|at| now.saturating_duration_since(at) < LOOK_INTERVAL) {
                return;
            }
            *last_look = Some(now);
        }
        let Ok(found) = statvfs(folder) else { return };
        let unit = found.fragment_size();
        let free = found.blocks_available().saturating_mul(unit).saturating_add(reusable);
        self.set_disk(found.blocks().saturating_mul(unit), free);
    }

    fn set_disk(&self, size: u64, free: u64) {
        let before = *self.disk();
        let disk = Disk { size, free, is_low: false }.after(before);
        *self.disk() = Some(disk);
        let (reserve, was_low) = (disk.reserve(), before.is_some_and(|before| before.is_low));
        if disk.is_low && !was_low {
            self.added().values_mut().for_each(|of_user| of_user.since_low = 0);
            tracing::warn!(
                free,
                reserve,
                "the disk of the books is nearly full: users whose ended jobs add more than their share submit no more, \
                 and below half of the reserve none but root and operators"
            );
        } else if was_low && !disk.is_low {
            tracing::info!(free, reserve, "the disk of the books has room again");
        }
    }

    fn added(&self) -> MutexGuard<'_, HashMap<u32, Added>> {
        self.added.lock().expect("no panic with what was added held")
    }

    fn disk(&self) -> MutexGuard<'_, Option<Disk>> {
        self.disk.lock().expect("no panic with the disk's room held")
    }

    /// Refuses new work of a user for whose records there is no room. It is not for root and operators.
    pub fn check(&self, user: u32, name: &str, work: NewWork, now: Instant) -> Result<(), Refusal> {
        let added = self.added().get(&user).copied();
        let lately = added.map_or(0, |added| added.lately(now));
        let most = USER_BOOKS_BYTES.most as u64;
        if lately > most {
            let wait_s = u128::from(DAY.as_secs()) * u128::from(lately - most) / u128::from(most);
            let minutes = wait_s / 60 + 1;
            return Err(Refusal::Other(format!(
                "user {name}: records of ended jobs: {lately} bytes lately: expected at most {most} at once, and as much in a day: \
                 try again in {minutes} minutes"
            )));
        }
        match *self.disk() {
            Some(disk) if disk.is_low => {
                has_share(disk, name, added.map_or(0, |added| added.since_low), work)
            }
            _ => Ok(()),
        }
    }

    #[cfg(test)]
    pub fn has_noted(&self, user: u32) -> bool {
        self.added().contains_key(&user)
    }
}

/// Refuses work where the disk is low: new jobs of who has added his share since then, and below half of the reserve all.
fn has_share(disk: Disk, name: &str, added: u64, work: NewWork) -> Result<(), Refusal> {
    let (free, reserve) = (disk.free, disk.reserve());
    let (kept, share) = (reserve / 2, reserve / SHARE_PART);
    let why = if free < kept {
        format!(
            "{free} bytes are free for records: the last {kept} are kept for root and operators"
        )
    } else if work == NewWork::Jobs && added > share {
        format!(
            "{free} bytes are free for records: since that is less than {reserve}, ended jobs of {name} have added {added}: \
             expected at most {share} of one user"
        )
    } else {
        return Ok(());
    };
    Err(Refusal::DiskFull(why))
}

/// About what a record takes in the books.
pub fn record_bytes(record: &JobRecord) -> u64 {
    let optional = [
        &record.array_pending,
        &record.comment,
        &record.wckey,
        &record.reservation,
        &record.constraint,
        &record.dependency,
        &record.container,
    ];
    let files =
        record.streams.iter().flat_map(|files| [&files.stdin, &files.stdout, &files.stderr]);
    let own = [&record.name, &record.partition, &record.work_dir, &record.submit_line];
    let texts = own.into_iter().chain(optional.into_iter().flatten()).chain(files);
    let texts: u64 = texts.map(|text| json_bytes(text)).sum();
    // The name has an index, and so has each node.
    let indexed = record.name.len() as u64 + names_bytes(&record.nodes);
    let steps: u64 = record.steps.iter().map(step_bytes).sum();
    RECORD_BYTES + texts + indexed + names_bytes(&record.nodes) + steps
}

fn step_bytes(step: &StepRecord) -> u64 {
    let texts = [&step.name, &step.submit_line].into_iter().chain(&step.container);
    let texts: u64 = texts.map(|text| json_bytes(text)).sum();
    STEP_BYTES + texts + names_bytes(&step.nodes)
}

fn names_bytes(names: &[String]) -> u64 {
    names.iter().map(|name| NODE_BYTES + name.len() as u64).sum()
}

/// The bytes of a text in JSON, where a control character takes six.
fn json_bytes(text: &str) -> u64 {
    let each = |byte: u8| match byte {
        0..0x20 => 6,
        b'"' | b'\\' => 2,
        _ => 1,
    };
    text.bytes().map(each).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = USER_BOOKS_BYTES.most as u64;
    const GIB: u64 = 1 << 30;

    fn said(refused: Result<(), Refusal>) -> String {
        let said = refused.expect_err("refused").to_string();
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    }

    fn with_disk(size: u64, free: u64) -> BooksRoom {
        let room = BooksRoom::default();
        room.set_disk(size, free);
        room
    }

    #[test]
    fn user_adds_so_much_at_once_and_as_much_in_a_day_and_others_have_their_own() {
        let (room, start) = (BooksRoom::default(), Instant::now());
        let check = |user, now| room.check(user, "ada", NewWork::Jobs, now);
        room.add(1, MOST, start);
        assert_eq!(check(1, start), Ok(()));
        room.add(1, MOST / 24, start);
        for work in [NewWork::Jobs, NewWork::Steps] {
            let refused = said(room.check(1, "ada", work, start));
            assert!(refused.starts_with("user ada: records of ended jobs: "), "{refused}");
            assert!(refused.ends_with("try again in 60 minutes"), "{refused}");
        }
        assert_eq!(check(2, start), Ok(()), "another user");
        assert_eq!(check(1, start + DAY / 23), Ok(()), "an hour later, and a little");
        // What trickles in is forgotten as fast, however often it is counted.
        for hour in 0..100 {
            let now = start + DAY * 2 + DAY / 24 * hour;
            room.add(1, MOST / 24, now);
            assert_eq!(check(1, now), Ok(()), "{hour}");
        }
    }

    #[test]
    fn on_a_disk_that_is_nearly_full_each_user_has_a_share_and_a_part_is_kept_from_all() {
        let now = Instant::now();
        let (size, reserve) = (1000 * GIB, 4 * GIB);
        for (free, heavy_jobs, heavy_steps, light) in [
            (reserve, true, true, true),
            (reserve - 1, false, true, true),
            (reserve / 2, false, true, true),
            (reserve / 2 - 1, false, false, false),
            (0, false, false, false),
        ] {
            let room = with_disk(size, free);
            room.add(1, reserve / SHARE_PART + 1, now);
            room.add(2, reserve / SHARE_PART, now);
            let is_in = |user, work| match room.check(user, "ada", work, now) {
                Ok(()) => true,
                refused => !said(refused).starts_with("the server's disk is full: "),
            };
            assert_eq!(is_in(1, NewWork::Jobs), heavy_jobs, "{free}");
            assert_eq!(is_in(1, NewWork::Steps), heavy_steps, "{free}");
            for (user, work) in [(2, NewWork::Jobs), (3, NewWork::Jobs), (3, NewWork::Steps)] {
                assert_eq!(is_in(user, work), light, "{free} {user} {work:?}");
            }
        }
        // What was added before the disk was low counts in no share.
        let room = with_disk(size, reserve);
        for free in [reserve - 1, 5 * GIB, reserve - 1] {
            room.add(1, GIB, now);
            room.set_disk(size, free);
            assert_eq!(room.check(1, "ada", NewWork::Jobs, now), Ok(()), "{free}");
        }
        room.add(1, reserve / SHARE_PART + 1, now);
        for free in [reserve - 2, reserve, 5 * GIB - 1] {
            room.set_disk(size, free);
            said(room.check(1, "ada", NewWork::Jobs, now));
        }
        // The reserve of a small disk is a twentieth of it.
        assert_eq!(with_disk(GIB, GIB / 20).check(1, "ada", NewWork::Jobs, now), Ok(()));
        let small = said(with_disk(GIB, GIB / 41).check(1, "ada", NewWork::Jobs, now));
        assert!(small.ends_with("are kept for root and operators"), "{small}");
    }

    #[test]
    fn disk_is_looked_at_once_a_second_and_what_was_purged_is_free() {
        let (room, start) = (BooksRoom::default(), Instant::now());
        let dir = tempfile::tempdir().expect("a folder");
        let free = || room.disk().map(|disk| disk.free);
        room.look(&dir.path().join("absent"), 0, start);
        assert_eq!(free(), None);
        assert_eq!(room.check(1, "ada", NewWork::Jobs, start), Ok(()), "nothing is known of it");
        room.look(dir.path(), 0, start + LOOK_INTERVAL / 2);
        assert_eq!(free(), None, "too soon");
        let reusable = 1 << 60;
        room.look(dir.path(), reusable, start + LOOK_INTERVAL);
        assert!(free().is_some_and(|free| free >= reusable));
    }

    #[test]
    fn users_that_are_counted_are_bounded_and_who_added_most_is_one_of_them() {
        let (room, now) = (BooksRoom::default(), Instant::now());
        room.add(0, MOST + 1, now);
        for user in 1..=USERS_MAX as u32 {
            room.add(user, GIB, now);
        }
        assert_eq!(room.added().len(), USERS_MAX);
        said(room.check(0, "ada", NewWork::Jobs, now));
    }
}
