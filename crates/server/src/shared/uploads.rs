//! What clients upload before they submit the run that needs it: archives of files, changes to repositories, and what a
//! repository is cloned with. Each user has a folder; what a run needs is copied into its submission.
//!
//! A folder holds at most [`bounds::UPLOADS_BYTES`] and [`bounds::UPLOADS`], all of them [`bounds::ALL_UPLOADS_BYTES`]: what
//! was used longest ago goes first. What nobody used for a day goes too, but for repositories.

use model::bounds;
use model::reason::Refusal;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

const UNUSED_MAX: Duration = Duration::from_secs(24 * 3600);

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
    /// Held while room is made and a file is written.
    writing: Mutex<()>,
}

/// A file of the folder, with the time of its last use.
struct Kept {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

impl Uploads {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, writing: Mutex::new(()) }
    }

    /// Keeps an upload under its key, which is a hash of it in hexadecimal digits.
    pub fn put(&self, uid: u32, kind: Kind, key: &str, bytes: &[u8]) -> Result<(), Refusal> {
        check_size(bytes)?;
        let path = self.path(uid, kind, key)?;
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let written = self.make_room(uid, bytes.len() as u64).and_then(|()| {
            let folder = self.folder(uid);
            fs::create_dir_all(&folder)?;
            let new = folder.join(UNFINISHED);
            let mut file = File::create(&new)?;
            file.write_all(bytes)?;
            fs::rename(&new, &path)
        });
        written.map_err(|error| Refusal::DiskFull(format!("the upload was not kept: {error}")))
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

    /// The keys of the user's uploads of one kind.
    pub fn keys(&self, uid: u32, kind: Kind) -> Vec<String> {
        let kept = list(&self.folder(uid)).unwrap_or_default();
        let names = kept.iter().filter_map(|kept| kept.path.file_name()?.to_str());
        names.filter_map(|name| name.strip_prefix(kind.prefix())).map(str::to_owned).collect()
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

    fn make_room(&self, uid: u32, bytes: u64) -> io::Result<()> {
        let (count, most) = (bounds::UPLOADS.most, bounds::UPLOADS_BYTES.most as u64);
        let mut own = list(&self.folder(uid))?;
        drop_oldest(&mut own, most.saturating_sub(bytes), count - 1)?;
        let mut all = Vec::new();
        for folder in listed(&self.dir)? {
            all.extend(list(&folder?.path())?);
        }
        drop_unused(&mut all)?;
        let most = bounds::ALL_UPLOADS_BYTES.most as u64;
        drop_oldest(&mut all, most.saturating_sub(bytes), usize::MAX)
    }
}

/// Refuses what is too large to be kept.
pub fn check_size(bytes: &[u8]) -> Result<(), Refusal> {
    let most = bounds::ARCHIVE_BYTES.most;
    if bytes.len() <= most {
        return Ok(());
    }
    Err(Refusal::InvalidValue {
        what: bounds::ARCHIVE_BYTES.what.into(),
        value: format!("{} bytes", bytes.len()),
        expected: format!("at most {most} bytes"),
    })
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
        let facts = entry.metadata()?;
        all.push(Kept { path: entry.path(), bytes: facts.len(), used: facts.modified()? });
    }
    all.sort_by_key(|kept| kept.used);
    Ok(all)
}

fn drop_oldest(kept: &mut [Kept], bytes_max: u64, count_max: usize) -> io::Result<()> {
    kept.sort_by_key(|kept| kept.used);
    let mut bytes: u64 = kept.iter().map(|kept| kept.bytes).sum();
    let mut count = kept.len();
    for old in kept.iter() {
        if bytes <= bytes_max && count <= count_max {
            break;
        }
        fs::remove_file(&old.path)?;
        (bytes, count) = (bytes - old.bytes, count - 1);
    }
    Ok(())
}

fn drop_unused(kept: &mut Vec<Kept>) -> io::Result<()> {
    let now = SystemTime::now();
    let stays = |kept: &Kept| {
        let name = kept.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let age = now.duration_since(kept.used).unwrap_or_default();
        name.starts_with(Kind::Repository.prefix()) || age < UNUSED_MAX
    };
    let (staying, going) = std::mem::take(kept).into_iter().partition(stays);
    *kept = staying;
    going.iter().try_for_each(|old: &Kept| fs::remove_file(&old.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> String {
        format!("{n:064x}")
    }

    fn age(uploads: &Uploads, kind: Kind, n: u32, age_s: u64) {
        let file = File::options().append(true).open(uploads.path(1, kind, &key(n)).unwrap());
        let then = SystemTime::now() - Duration::from_secs(age_s);
        file.unwrap().set_modified(then).unwrap();
    }

    #[test]
    fn uploads_are_a_users_own_and_the_longest_unused_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::new(dir.path().join("uploads"));
        let (size, fit) = (bounds::ARCHIVE_BYTES.most, 16);
        assert_eq!(size * fit, bounds::UPLOADS_BYTES.most);
        let bytes = vec![7; size];
        for n in 0..fit as u32 {
            uploads.put(1, Kind::Archive, &key(n), &bytes).unwrap();
            age(&uploads, Kind::Archive, n, 1000 - u64::from(n));
        }
        assert_eq!(uploads.get(2, Kind::Archive, &key(0)), None);
        assert_eq!(uploads.get(1, Kind::Code, &key(0)), None);
        // It was used now: the second goes.
        assert!(uploads.get(1, Kind::Archive, &key(0)).is_some());
        uploads.put(1, Kind::Archive, &key(99), b"x").unwrap();
        let kept = uploads.keys(1, Kind::Archive);
        assert!(kept.contains(&key(0)) && kept.contains(&key(99)), "{kept:?}");
        assert!(!kept.contains(&key(1)), "{kept:?}");
        assert!(uploads.put(1, Kind::Archive, &key(3), &vec![7; size + 1]).is_err());
        assert!(uploads.put(1, Kind::Archive, "../../x", b"x").is_err());
    }

    #[test]
    fn what_nobody_used_for_a_day_goes_but_for_repositories() {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::new(dir.path().into());
        for kind in [Kind::Archive, Kind::Repository] {
            uploads.put(1, kind, &key(1), b"x").unwrap();
            age(&uploads, kind, 1, UNUSED_MAX.as_secs() + 1);
        }
        uploads.put(2, Kind::Code, &key(2), b"y").unwrap();
        assert_eq!(uploads.keys(1, Kind::Archive), Vec::<String>::new());
        assert_eq!(uploads.keys(1, Kind::Repository), [key(1)]);
    }
}
