//! What clients upload before they submit the run that needs it: archives of files, changes to repositories, and what a
//! repository is cloned with. Each user has a folder; what a run needs is copied into its submission.
//!
//! A folder holds at most [`bounds::UPLOADS_BYTES`] and [`bounds::UPLOADS`], all of them [`bounds::ALL_UPLOADS_BYTES`]: what
//! was used longest ago goes first. What nobody used for a day goes too. A repository counts in its user's folder alone,
//! and neither a day nor another user makes it go.
//!
//! Uploads are written one after another, and of each user's one waits among the others': see [`Uploads::turn`].

use model::bounds;
use model::reason::Refusal;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncGuard, OwnedMutexGuard};

const UNUSED_MAX: Duration = Duration::from_secs(24 * 3600);

/// After this time all folders are looked through for what nobody used.
const COUNT_INTERVAL: Duration = Duration::from_secs(3600);
/// What all uploads are brought down to when they have reached their bound, so that not every upload looks through them.
const ALL_BYTES_KEPT: usize = bounds::ALL_UPLOADS_BYTES.most / 4 * 3;

/// An upload that is being written; a crash may leave it.
const UNFINISHED: &str = "new";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Archive,
    /// A diff, as `git` writes it.
    Code,
    /// Where a repository is and what it is cloned with, encrypted.
    Repository,
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Archive => "archive-",
            Self::Code => "code-",
            Self::Repository => "repository-",
        }
    }
}

pub struct Uploads {
    dir: PathBuf,
    /// The users who have a turn or wait for one.
    users: Mutex<HashMap<u32, Arc<AsyncMutex<()>>>>,
    /// Held while room is made and a file is written.
    writing: AsyncMutex<Option<Count>>,
}

/// All uploads but repositories, as they were counted; more than there are after some were removed.
struct Count {
    bytes: u64,
    at: Instant,
}

/// Keeps other requests of the user from holding uploads in memory.
pub type OwnTurn = OwnedMutexGuard<()>;

/// The right to write an upload.
pub struct Turn<'a> {
    uploads: &'a Uploads,
    uid: u32,
    count: AsyncGuard<'a, Option<Count>>,
    /// After the count, which others wait for. `None` where the caller has it, or writes for the user unasked.
    _own: Option<OwnTurn>,
}

/// A file of the folder, with the time of its last use.
struct Kept {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

impl Uploads {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, users: Mutex::default(), writing: AsyncMutex::new(None) }
    }

    /// Waits, without a thread, until no other request of the user has its turn.
    pub async fn own_turn(&self, uid: u32) -> OwnTurn {
        let own = {
            let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
            users.retain(|_, turn| Arc::strong_count(turn) > 1);
            users.entry(uid).or_default().clone()
        };
        own.lock_owned().await
    }

    /// Waits, without a thread, until the user may write: behind the user's own uploads, and one of each other user's.
    pub async fn turn(&self, uid: u32) -> Turn<'_> {
        let own = self.own_turn(uid).await;
        Turn { _own: Some(own), ..self.turn_to_write(uid).await }
    }

    /// The same without waiting for the user's own turn. Whoever has the right to seal takes this one: a user's turn is held
    /// while its holder waits for that right.
    pub async fn turn_to_write(&self, uid: u32) -> Turn<'_> {
        Turn { uploads: self, uid, count: self.writing.lock().await, _own: None }
    }

    /// An upload of the user, which was used now; `None` if it is not here, or no more.
    pub fn get(&self, uid: u32, kind: Kind, key: &str) -> Option<Vec<u8>> {
        let path = self.path(uid, kind, key).ok()?;
        let bytes = fs::read(&path).ok()?;
        if let Ok(file) = File::options().append(true).open(&path) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(bytes)
    }

    /// Removes an upload; one that is not here need not be.
    pub fn remove(&self, uid: u32, kind: Kind, key: &str) {
        let path = self.path(uid, kind, key);
        let _ = path.map(fs::remove_file);
    }

    /// The keys of the user's uploads of one kind, with their bytes.
    pub fn kept(&self, uid: u32, kind: Kind) -> Vec<(String, u64)> {
        let kept = list(&self.folder(uid)).unwrap_or_default();
        let one = |kept: Kept| {
            let key = kept.path.file_name()?.to_str()?.strip_prefix(kind.prefix())?;
            Some((key.to_owned(), kept.bytes))
        };
        kept.into_iter().filter_map(one).collect()
    }

    /// Everybody who has uploads.
    pub fn users(&self) -> Vec<u32> {
        let folders = listed(&self.dir).unwrap_or_default().into_iter().flatten();
        folders.filter_map(|folder| folder.file_name().to_str()?.parse().ok()).collect()
    }

    fn folder(&self, uid: u32) -> PathBuf {
        self.dir.join(uid.to_string())
    }

    fn path(&self, uid: u32, kind: Kind, key: &str) -> Result<PathBuf, Refusal> {
        if !is_key(key) {
            return Err(Refusal::InvalidValue {
                what: "hash".into(),
                value: key.chars().take(80).collect(),
                expected: "expected 64 hexadecimal digits".into(),
            });
        }
        Ok(self.folder(uid).join(format!("{}{key}", kind.prefix())))
    }
}

impl Turn<'_> {
    /// Keeps an upload under the key that its user gives it, 64 hexadecimal digits: the client's hash of it.
    pub fn put(&mut self, kind: Kind, key: &str, bytes: &[u8]) -> Result<(), Refusal> {
        check_size(bytes)?;
        let path = self.uploads.path(self.uid, kind, key)?;
        let written = self.make_room(kind, bytes.len() as u64, &path).and_then(|()| {
            let folder = self.uploads.folder(self.uid);
            fs::create_dir_all(&folder)?;
            let new = folder.join(UNFINISHED);
            let mut file = File::create(&new)?;
            file.write_all(bytes)?;
            // Who asks for it by its key later takes it for whole.
            file.sync_all()?;
            fs::rename(&new, &path)
        });
        written.map_err(|error| Refusal::DiskFull(format!("the upload was not kept: {error}")))
    }

    /// What lies at `path` is replaced and needs no room of its own.
    fn make_room(&mut self, kind: Kind, bytes: u64, path: &Path) -> io::Result<()> {
        let (count, most) = (bounds::UPLOADS.most, bounds::UPLOADS_BYTES.most as u64);
        let mut own = list(&self.uploads.folder(self.uid))?;
        own.retain(|kept| kept.path != path);
        drop_oldest(own, most.saturating_sub(bytes), count - 1)?;
        if kind == Kind::Repository {
            return Ok(());
        }
        let most = bounds::ALL_UPLOADS_BYTES.most as u64;
        let known = self
            .count
            .take()
            .filter(|count| count.bytes + bytes <= most && count.at.elapsed() < COUNT_INTERVAL);
        let counted = match known {
            Some(count) => count,
            None => Count { bytes: self.count_all(bytes)?, at: Instant::now() },
        };
        *self.count = Some(Count { bytes: counted.bytes + bytes, ..counted });
        Ok(())
    }

    /// Looks through all folders, and drops what has to go so that `bytes` more have room. Returns the bytes that stay.
    fn count_all(&self, bytes: u64) -> io::Result<u64> {
        let mut all = Vec::new();
        for folder in listed(&self.uploads.dir)? {
            all.extend(list(&folder?.path())?);
        }
        all.retain(|kept| !kept.is_repository());
        drop_unused(&mut all)?;
        let used: u64 = all.iter().map(|kept| kept.bytes).sum();
        if used + bytes <= bounds::ALL_UPLOADS_BYTES.most as u64 {
            return Ok(used);
        }
        drop_oldest(all, (ALL_BYTES_KEPT as u64).saturating_sub(bytes), usize::MAX)
    }
}

impl Kept {
    fn is_repository(&self) -> bool {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(Kind::Repository.prefix())
    }
}

/// Refuses what is too large to be kept.
pub fn check_size(bytes: &[u8]) -> Result<(), Refusal> {
    bounds::ARCHIVE_BYTES.hold(bytes.len())
}

/// Whether a text is a SHA-256 in hexadecimal digits.
pub fn is_key(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn listed(folder: &Path) -> io::Result<Vec<io::Result<fs::DirEntry>>> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(entries.collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The uploads in a folder, the one first that was used longest ago.
fn list(folder: &Path) -> io::Result<Vec<Kept>> {
    let mut all = Vec::new();
    for entry in listed(folder)? {
        let entry = entry?;
        let facts = match entry.metadata() {
            // It was removed, or renamed once it was whole.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            facts => facts?,
        };
        all.push(Kept { path: entry.path(), bytes: facts.len(), used: facts.modified()? });
    }
    all.sort_by_key(|kept| kept.used);
    Ok(all)
}

/// Removes what was used longest ago until the rest is within both bounds. Returns the bytes that stay.
fn drop_oldest(mut kept: Vec<Kept>, bytes_max: u64, count_max: usize) -> io::Result<u64> {
    kept.sort_by_key(|kept| kept.used);
    let mut bytes: u64 = kept.iter().map(|kept| kept.bytes).sum();
    let mut count = kept.len();
    for old in &kept {
        if bytes <= bytes_max && count <= count_max {
            break;
        }
        remove(old)?;
        (bytes, count) = (bytes - old.bytes, count - 1);
    }
    Ok(bytes)
}

fn drop_unused(kept: &mut Vec<Kept>) -> io::Result<()> {
    let now = SystemTime::now();
    let stays = |kept: &Kept| now.duration_since(kept.used).unwrap_or_default() < UNUSED_MAX;
    let (staying, going): (Vec<Kept>, Vec<Kept>) =
        std::mem::take(kept).into_iter().partition(stays);
    *kept = staying;
    going.iter().try_for_each(remove)
}

/// Its user may have removed it meanwhile.
fn remove(old: &Kept) -> io::Result<()> {
    match fs::remove_file(&old.path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn key(n: u32) -> String {
        format!("{n:064x}")
    }

    fn keys(uploads: &Uploads, uid: u32, kind: Kind) -> Vec<String> {
        uploads.kept(uid, kind).into_iter().map(|(key, _)| key).collect()
    }

    fn age(uploads: &Uploads, kind: Kind, n: u32, age_s: u64) {
        let file = File::options().append(true).open(uploads.path(1, kind, &key(n)).unwrap());
        let then = SystemTime::now() - Duration::from_secs(age_s);
        file.unwrap().set_modified(then).unwrap();
    }

    #[tokio::test]
    async fn uploads_are_a_users_own_and_the_longest_unused_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::new(dir.path().join("uploads"));
        let (size, fit) = (bounds::ARCHIVE_BYTES.most, 16);
        assert_eq!(size * fit, bounds::UPLOADS_BYTES.most);
        let bytes = vec![7; size];
        let mut turn = uploads.turn(1).await;
        for n in 0..fit as u32 {
            turn.put(Kind::Archive, &key(n), &bytes).unwrap();
            age(&uploads, Kind::Archive, n, 1000 - u64::from(n));
        }
        assert_eq!(uploads.get(2, Kind::Archive, &key(0)), None);
        assert_eq!(uploads.get(1, Kind::Code, &key(0)), None);
        // It was used now: the second goes.
        assert!(uploads.get(1, Kind::Archive, &key(0)).is_some());
        turn.put(Kind::Archive, &key(99), b"x").unwrap();
        let kept = keys(&uploads, 1, Kind::Archive);
        assert!(kept.contains(&key(0)) && kept.contains(&key(99)), "{kept:?}");
        assert!(!kept.contains(&key(1)), "{kept:?}");
        assert!(turn.put(Kind::Archive, &key(3), &vec![7; size + 1]).is_err());
        assert!(turn.put(Kind::Archive, "../../x", b"x").is_err());
    }

    #[tokio::test]
    async fn what_nobody_used_for_a_day_goes_but_for_repositories() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::new(dir.path().into());
        for kind in [Kind::Archive, Kind::Repository] {
            Uploads::new(dir.path().into()).turn(1).await.put(kind, &key(1), b"x").unwrap();
            age(&uploads, kind, 1, UNUSED_MAX.as_secs() + 1);
        }
        uploads.turn(2).await.put(Kind::Code, &key(2), b"y").unwrap();
        assert_eq!(keys(&uploads, 1, Kind::Archive), Vec::<String>::new());
        assert_eq!(keys(&uploads, 1, Kind::Repository), [key(1)]);
    }

    #[tokio::test]
    async fn uploads_of_all_make_room_and_leave_the_repositories_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::new(dir.path().into());
        let old = SystemTime::now() - Duration::from_secs(600);
        let full = bounds::UPLOADS_BYTES.most as u64;
        for uid in 1..=(bounds::ALL_UPLOADS_BYTES.most as u64 / full) as u32 {
            uploads.turn(uid).await.put(Kind::Repository, &key(uid), b"hush").unwrap();
            let repository = uploads.path(uid, Kind::Repository, &key(uid)).unwrap();
            // Longest unused of all.
            let file = File::options().append(true).open(repository).unwrap();
            file.set_modified(old - Duration::from_secs(60)).unwrap();
            // Nothing but its size is on disk.
            let file = File::create(uploads.path(uid, Kind::Archive, &key(uid)).unwrap()).unwrap();
            file.set_len(full).unwrap();
            file.set_modified(old + Duration::from_secs(u64::from(uid))).unwrap();
        }
        uploads.turn(99).await.put(Kind::Code, &key(99), b"y").unwrap();
        assert_eq!(keys(&uploads, 99, Kind::Code), [key(99)]);
        assert_eq!(keys(&uploads, 1, Kind::Archive), Vec::<String>::new(), "the oldest went");
        for uid in 1..=16 {
            assert_eq!(keys(&uploads, uid, Kind::Repository), [key(uid)], "{uid}");
        }
    }

    #[test]
    fn one_user_waits_behind_himself_and_not_before_others() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::new(dir.path().into());
        let mut waker = Context::from_waker(Waker::noop());
        let mut first = pin!(uploads.turn(1));
        let Poll::Ready(first) = first.as_mut().poll(&mut waker) else { panic!("it is free") };
        // Turns that wait are futures: no thread waits with them.
        let mut second = pin!(uploads.turn(1));
        let mut third = pin!(uploads.turn(1));
        let mut other = pin!(uploads.turn(2));
        assert!(second.as_mut().poll(&mut waker).is_pending());
        assert!(third.as_mut().poll(&mut waker).is_pending());
        assert!(other.as_mut().poll(&mut waker).is_pending());
        drop(first);
        assert!(second.as_mut().poll(&mut waker).is_pending(), "the other was before it");
        let Poll::Ready(other) = other.as_mut().poll(&mut waker) else { panic!("it is free") };
        drop(other);
        assert!(third.as_mut().poll(&mut waker).is_pending());
        assert!(second.as_mut().poll(&mut waker).is_ready());
    }
}
