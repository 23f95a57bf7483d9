//! A disk in memory that fails on demand, for the tests here and for the fault simulator.
//!
//! It keeps apart what a running program sees and what would survive a power cut. At a crash every
//! write that was not synced survives whole, in part (sector by sector) or not at all, and of the
//! changes to names that were not synced a prefix survives. One seed gives one outcome.

mod crash;

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskFile, Entry, checked, parent};
use crash::{Chance, Change, FileState, NameChange, Names};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A disk whose copies share one content, as two handles of a folder would.
#[derive(Clone, Default)]
pub struct FaultyDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    files: HashMap<u64, FileState>,
    next_inode: u64,
    seen: Names,
    durable: Names,
    pending: Vec<NameChange>,
    /// Counts restarts; a handle from before one is dead.
    epoch: u64,
    operations: u64,
    syncs: u64,
    crash_at: Option<u64>,
    fail_sync_at: Option<u64>,
    writes: u64,
    fail_write_at: Option<u64>,
    capacity: Option<u64>,
    crashed: bool,
    /// What was asked of the disk after its crash.
    refused: Cell<u64>,
}

impl FaultyDisk {
    /// The `count`-th change from now (1 is the next) is caught half-way by a crash: it fails, as
    /// does everything after it until [`FaultyDisk::restart`].
    pub fn crash_at(&self, count: u64) {
        let mut state = self.lock();
        state.crash_at = Some(state.operations + count);
    }

    /// The `count`-th sync of a file from now fails with EIO and, as on Linux, forgets what it
    /// should have written while readers still see it.
    pub fn fail_sync_at(&self, count: u64) {
        let mut state = self.lock();
        state.fail_sync_at = Some(state.syncs + count);
    }

    /// The `count`-th write to a file from now fails with EIO; half of its bytes are seen afterwards.
    pub fn fail_write_at(&self, count: u64) {
        let mut state = self.lock();
        state.fail_write_at = Some(state.writes + count);
    }

    /// All files together may hold this many bytes; `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity = bytes;
    }

    pub fn used_bytes(&self) -> u64 {
        self.lock().used()
    }

    /// Whether the crash that was asked for has come.
    pub fn crashed(&self) -> bool {
        self.lock().crashed
    }

    /// How often something was asked of the disk after a crash.
    pub fn refused(&self) -> u64 {
        self.lock().refused.get()
    }

    /// Cuts the power and starts again: what was not synced survives as `seed` decides.
    pub fn restart(&self, seed: u64) {
        let mut state = self.lock();
        let mut chance = Chance(seed);
        let mut inodes: Vec<u64> = state.files.keys().copied().collect();
        inodes.sort_unstable();
        for inode in inodes {
            if let Some(file) = state.files.get_mut(&inode) {
                file.crash(&mut chance);
            }
        }
        let pending = std::mem::take(&mut state.pending);
        let survive = chance.below(pending.len() as u64 + 1) as usize;
        for change in pending.into_iter().take(survive) {
            change.apply(&mut state.durable);
        }
        state.seen = state.durable.clone();
        let live: BTreeSet<u64> = state.seen.files.values().copied().collect();
        state.files.retain(|inode, _| live.contains(inode));
        drop(state);
        self.restart_program();
    }

    /// Starts again after the program was killed and the machine was not: everything written is
    /// still seen, and what was not synced is still at risk.
    pub fn restart_program(&self) {
        let mut state = self.lock();
        state.epoch += 1;
        state.crashed = false;
        state.crash_at = None;
        state.fail_sync_at = None;
        state.fail_write_at = None;
    }

    /// Changes a file behind everyone's back, as bit rot or a careless hand would.
    pub fn tamper(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut state = self.lock();
        let inode = state.inode(path)?;
        let file = state.files.get_mut(&inode).ok_or_else(missing)?;
        change(&mut file.seen);
        file.durable = file.seen.clone();
        file.pending.clear();
        Ok(())
    }

    /// A disk of its own with the same content, all of it durable.
    pub fn fork(&self) -> Self {
        let state = self.lock();
        let same = |file: &FileState| FileState {
            seen: file.seen.clone(),
            durable: file.seen.clone(),
            pending: Vec::new(),
        };
        let copy = State {
            files: state.files.iter().map(|(inode, file)| (*inode, same(file))).collect(),
            next_inode: state.next_inode,
            seen: state.seen.clone(),
            durable: state.seen.clone(),
            ..State::default()
        };
        Self { state: Arc::new(Mutex::new(copy)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, inode: u64, epoch: u64) -> Box<dyn DiskFile> {
        Box::new(FaultyFile { disk: self.clone(), inode, epoch })
    }
}

impl State {
    fn used(&self) -> u64 {
        self.seen
            .files
            .values()
            .filter_map(|i| self.files.get(i))
            .map(|f| f.seen.len() as u64)
            .sum()
    }

    fn inode(&self, path: &str) -> io::Result<u64> {
        self.seen.files.get(checked(path)?).copied().ok_or_else(missing)
    }

    fn alive(&self) -> io::Result<()> {
        if !self.crashed {
            return Ok(());
        }
        self.refused.set(self.refused.get() + 1);
        Err(io::Error::from_raw_os_error(EIO))
    }

    /// Counts one change; true when the crash catches it.
    fn count(&mut self) -> io::Result<bool> {
        self.alive()?;
        self.operations += 1;
        self.crashed = self.crash_at.is_some_and(|at| self.operations >= at);
        Ok(self.crashed)
    }

    fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        let caught = self.count()?;
        change.apply(&mut self.seen);
        self.pending.push(change);
        if caught { self.alive() } else { Ok(()) }
    }

    fn ensure_space(&self, more: usize) -> io::Result<()> {
        match self.capacity {
            Some(capacity) if more > 0 && self.used() + more as u64 > capacity => {
                Err(io::Error::from_raw_os_error(ENOSPC))
            }
            _ => Ok(()),
        }
    }
}

impl Disk for FaultyDisk {
    fn open(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        let state = self.lock();
        state.alive()?;
        Ok(self.handle(state.inode(path)?, state.epoch))
    }

    fn create(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.lock();
        let folder = parent(checked(path)?);
        if !folder.is_empty() && !state.seen.dirs.contains(folder) {
            return Err(missing());
        }
        let inode = state.next_inode;
        state.next_inode += 1;
        state.files.insert(inode, FileState::default());
        state.change_name(NameChange::Link(path.to_owned(), inode))?;
        Ok(self.handle(inode, state.epoch))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.lock();
        if state.seen.dirs.contains(checked(path)?) {
            return state.alive();
        }
        state.change_name(NameChange::MakeDir(path.to_owned()))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.inode(from)?;
        state.change_name(NameChange::Rename(from.to_owned(), checked(to)?.to_owned()))
    }

    fn link(&self, path: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        let inode = state.inode(path)?;
        if state.seen.files.contains_key(checked(to)?) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.change_name(NameChange::Link(to.to_owned(), inode))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.inode(path)?;
        state.change_name(NameChange::Unlink(path.to_owned()))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let state = self.lock();
        state.alive()?;
        if !dir.is_empty() && !state.seen.dirs.contains(checked(dir)?) {
            return Err(missing());
        }
        let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let files =
            state.seen.files.iter().filter(|(path, _)| parent(path) == dir).map(|(path, inode)| {
                Entry {
                    name: name(path),
                    len: state.files.get(inode).map_or(0, |file| file.seen.len() as u64),
                    is_dir: false,
                }
            });
        let dirs = state.seen.dirs.iter().filter(|path| parent(path) == dir);
        let dirs = dirs.map(|path| Entry { name: name(path), len: 0, is_dir: true });
        let mut entries: Vec<Entry> = files.chain(dirs).collect();
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let mut state = self.lock();
        if state.count()? {
            return state.alive();
        }
        let (synced, rest) =
            std::mem::take(&mut state.pending).into_iter().partition(|change| change.is_in(dir));
        state.pending = rest;
        let synced: Vec<NameChange> = synced;
        for change in synced {
            change.apply(&mut state.durable);
        }
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.lock();
        Ok(state.capacity.unwrap_or(u64::MAX).saturating_sub(state.used()))
    }
}

struct FaultyFile {
    disk: FaultyDisk,
    inode: u64,
    epoch: u64,
}

impl FaultyFile {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.lock();
        if state.epoch != self.epoch || !state.files.contains_key(&self.inode) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        act(&mut state)
    }

    fn change(&self, grows_to: usize, change: Change) -> io::Result<()> {
        self.with(|state| {
            let caught = state.count()?;
            let len = state.files.get(&self.inode).map_or(0, |file| file.seen.len());
            state.ensure_space(grows_to.saturating_sub(len))?;
            if let Some(file) = state.files.get_mut(&self.inode) {
                file.change(change);
            }
            if caught { state.alive() } else { Ok(()) }
        })
    }
}

impl DiskFile for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        self.with(|state| {
            state.alive()?;
            Ok(state.files[&self.inode].seen.len() as u64)
        })
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.change(len, Change::Extend(len))
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.change(0, Change::Truncate(usize::try_from(len).map_err(io::Error::other)?))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let fails = self.with(|state| {
            state.writes += 1;
            Ok(state.fail_write_at == Some(state.writes))
        })?;
        let written = if fails { &bytes[..bytes.len() / 2] } else { bytes };
        self.change(offset + written.len(), Change::Write { offset, bytes: written.to_vec() })?;
        if fails { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(()) }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.with(|state| {
            state.alive()?;
            let content = &state.files[&self.inode].seen;
            let start = usize::try_from(offset).map_err(io::Error::other)?.min(content.len());
            let read = buffer.len().min(content.len() - start);
            buffer[..read].copy_from_slice(&content[start..start + read]);
            Ok(read)
        })
    }

    fn read_all(&self) -> io::Result<Vec<u8>> {
        self.with(|state| {
            state.alive()?;
            Ok(state.files[&self.inode].seen.clone())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|state| {
            if state.count()? {
                return state.alive();
            }
            state.syncs += 1;
            let fails = state.fail_sync_at == Some(state.syncs);
            let Some(file) = state.files.get_mut(&self.inode) else { return Err(missing()) };
            let pending = std::mem::take(&mut file.pending);
            if fails {
                return Err(io::Error::from_raw_os_error(EIO));
            }
            pending.iter().for_each(|change| change.apply(&mut file.durable));
            Ok(())
        })
    }
}

fn missing() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_synced_is_sure_to_survive() {
        let mut outcomes = BTreeSet::new();
        for seed in 0..64 {
            let disk = FaultyDisk::default();
            let file = disk.create("a").unwrap();
            file.write_at(0, &[1; 1024]).unwrap();
            file.sync_data().unwrap();
            disk.sync_dir("").unwrap();
            file.write_at(0, &[2; 1024]).unwrap();
            disk.create("b").unwrap();
            disk.restart(seed);
            assert!(file.len().is_err(), "a handle does not outlive the crash");
            let bytes = disk.open("a").unwrap().read_all().unwrap();
            assert!(bytes[..512].iter().all(|b| *b == bytes[0]), "a sector is never torn");
            outcomes.insert((bytes[0], bytes[512], disk.open("b").is_ok()));
        }
        assert_eq!(outcomes.len(), 8, "every mixture happens: {outcomes:?}");
    }

    #[test]
    fn a_failed_sync_forgets_what_readers_still_see() {
        let disk = FaultyDisk::default();
        let file = disk.create("a").unwrap();
        disk.sync_dir("").unwrap();
        file.write_at(0, b"x").unwrap();
        disk.fail_sync_at(1);
        assert!(file.sync_data().is_err());
        file.sync_data().expect("the second sync lies");
        assert_eq!(file.read_all().unwrap(), b"x");
        disk.restart(0);
        assert_eq!(disk.open("a").unwrap().read_all().unwrap(), b"");
    }

    #[test]
    fn a_full_disk_refuses_growth_and_nothing_else() {
        let disk = FaultyDisk::default();
        let file = disk.create("a").unwrap();
        file.preallocate(100).unwrap();
        disk.set_capacity(Some(100));
        file.write_at(10, b"inside").unwrap();
        let error = file.write_at(98, b"over").unwrap_err();
        assert!(crate::disk::is_full(&error));
        assert_eq!(disk.free_bytes().unwrap(), 0);
    }
}
