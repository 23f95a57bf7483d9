//! The owners of this machine's subordinate ids, by `/etc/subuid`. A user with a range of them can connect under each id of it, and
//! counts as one user all the same where users have bounds.

use nix::unistd::User;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

const FILE: &str = "/etc/subuid";
const FILE_BYTES_MAX: u64 = 8 << 20;

/// How often the file is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SubordinateRange {
    first: u32,
    count: u32,
    owner: u32,
}

/// The ranges, by their first ids.
#[derive(Default)]
pub struct SubordinateIds(RwLock<Vec<SubordinateRange>>);

impl SubordinateIds {
    /// The account that has this id as a subordinate one, and the first id of the range.
    pub fn owner(&self, id: u32) -> Option<(u32, u32)> {
        let ranges = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let after = ranges.partition_point(|range| range.first <= id);
        let range = ranges[..after].last()?;
        (id - range.first < range.count).then_some((range.owner, range.first))
    }

    /// Reads the file, and again when it has changed. Owners are looked up in the user database, which may be slow: on a thread that
    /// nobody waits for.
    pub async fn keep_current(self: Arc<Self>) {
        let mut seen = None;
        loop {
            let this = self.clone();
            let read = move || this.read_changed(Path::new(FILE), seen);
            seen = tokio::task::spawn_blocking(read).await.unwrap_or(seen);
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    fn read_changed(&self, path: &Path, seen: Option<SystemTime>) -> Option<SystemTime> {
        let modified = path.metadata().and_then(|file| file.modified()).ok();
        if modified.is_none() || modified != seen {
            let mut text = String::new();
            let opened = File::open(path);
            let read = opened.and_then(|f| f.take(FILE_BYTES_MAX).read_to_string(&mut text));
            // Without the file nobody has such ids.
            self.set(if read.is_ok() { &text } else { "" }, uid_of);
        }
        modified
    }

    fn set(&self, text: &str, uid_of: impl Fn(&str) -> Option<u32>) {
        let mut ranges: Vec<_> = text.lines().filter_map(|line| range(line, &uid_of)).collect();
        ranges.sort_by_key(|range| range.first);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = ranges;
    }
}

/// A line `OWNER:FIRST:COUNT`. The range of an owner whom nobody knows is a user of its own.
fn range(line: &str, uid_of: &impl Fn(&str) -> Option<u32>) -> Option<SubordinateRange> {
    let mut fields = line.trim().split(':');
    let (owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
    let (first, count) = (first.parse().ok()?, count.parse().ok()?);
    let owner = owner.parse().ok().or_else(|| uid_of(owner)).unwrap_or(first);
    Some(SubordinateRange { first, count, owner })
}

fn uid_of(name: &str) -> Option<u32> {
    User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_a_range_is_its_owners_and_any_other_nobodys() {
        let ids = SubordinateIds::default();
        let text = "bob:165536:65536\nann:100000:65536\n1003:300000:10\ngone:400000:5\nbroken\n";
        ids.set(text, |name| match name {
            "ann" => Some(1001),
            "bob" => Some(1002),
            _ => None,
        });
        for (id, owner) in [
            (100_000, Some((1001, 100_000))),
            (165_535, Some((1001, 100_000))),
            (165_536, Some((1002, 165_536))),
            (300_009, Some((1003, 300_000))),
            (300_010, None),
            (400_004, Some((400_000, 400_000))),
            (1001, None),
            (u32::MAX, None),
        ] {
            assert_eq!(ids.owner(id), owner, "{id}");
        }
    }

    #[test]
    fn file_that_changes_is_read_again_and_one_that_is_gone_has_no_ranges() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("subuid");
        let ids = SubordinateIds::default();
        std::fs::write(&path, "1001:100000:10\n").expect("written");
        let seen = ids.read_changed(&path, None);
        assert_eq!(ids.owner(100_003), Some((1001, 100_000)));
        std::fs::write(&path, "1002:100000:10\n").expect("written");
        let later = SystemTime::now() + Duration::from_secs(5);
        let file = File::options().write(true).open(&path).expect("it is there");
        file.set_modified(later).expect("a time");
        assert_ne!(ids.read_changed(&path, seen), seen);
        assert_eq!(ids.owner(100_003), Some((1002, 100_000)));
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(ids.read_changed(&path, seen), None);
        assert_eq!(ids.owner(100_003), None);
    }
}
