//! The slots of a node's pulls: as many as may go on at a time, shared by users. A free slot goes to a user who has
//! fewer than the others that wait.

use std::io::{Seek, Write};
use std::path::Path;

use super::Store;
use super::folders::names;
use super::lock::{Lock, Mode, POLL};
use super::stopped::Watcher;
use crate::error::{Error, Result};

/// Before the name of a file whose lock somebody holds who waits for a slot.
const WAITING: &str = "waiting-";

impl Store {
    /// Waits for a slot; it is free again when what is returned is dropped.
    pub(crate) fn wait_for_slot(&self, user: u32) -> Result<Lock> {
        let mut watcher = Watcher::new(self);
        let own = format!("{WAITING}{}-{:?}", std::process::id(), std::thread::current().id());
        let own = self.folders.slots().join(own);
        let mut waiting: Option<Lock> = None;
        loop {
            let slots = (0..self.options.pulls_max.max(1)).map(|number| self.folders.slot(number));
            let (mut free, mut held) = (None, Vec::new());
            for path in slots {
                match Lock::try_take(&path, Mode::Exclusive)? {
                    Some(slot) => free = free.or(Some(slot)),
                    None => held.extend(user_of(&path)),
                }
            }
            let count = |user: u32| held.iter().filter(|one| **one == user).count();
            if let Some(mut slot) = free
                && !self.waiting_users(&own).any(|other| count(other) < count(user))
            {
                write_user(&mut slot, user)?;
                if let Some(waiting) = waiting {
                    waiting.remove();
                }
                return Ok(slot);
            }
            if waiting.is_none() {
                let mut lock = Lock::take(&own, Mode::Exclusive, || ())?;
                write_user(&mut lock, user)?;
                waiting = Some(lock);
            }
            watcher.turn();
            std::thread::sleep(POLL);
        }
    }

    /// The users who wait for a slot, without the caller's own entry. Entries of the killed are removed.
    fn waiting_users(&self, own: &Path) -> impl Iterator<Item = u32> {
        let folder = self.folders.slots();
        let entries = names(&folder).into_iter();
        let entries = entries.filter(|name| name.to_string_lossy().starts_with(WAITING));
        entries.map(move |name| folder.join(name)).filter(|path| *path != *own).filter_map(|path| {
            match Lock::try_take(&path, Mode::Exclusive) {
                Ok(Some(left)) => {
                    left.remove();
                    None
                }
                _ => user_of(&path),
            }
        })
    }
}

fn user_of(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.parse().ok()
}

fn write_user(lock: &mut Lock, user: u32) -> Result<()> {
    let path = lock.path().to_owned();
    let file = lock.file();
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(user.to_string().as_bytes()));
    written.map_err(Error::at(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreOptions;
    use std::sync::mpsc::channel;

    #[test]
    fn a_free_slot_goes_to_the_user_who_has_fewer() {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions { pulls_max: 2, ..StoreOptions::bounded(1 << 20) };
        let store = Store::open_with(folder.path(), options).unwrap();
        let (first, second) = (store.wait_for_slot(1).unwrap(), store.wait_for_slot(1).unwrap());
        let (got, order) = channel();
        std::thread::scope(|scope| {
            for user in [1, 1, 2] {
                let (got, store) = (got.clone(), &store);
                scope.spawn(move || {
                    let slot = store.wait_for_slot(user).unwrap();
                    got.send((user, slot)).unwrap();
                });
            }
            let entries = || names(&store.folders.slots()).len();
            while entries() < 5 {
                std::thread::sleep(POLL);
            }
            drop(first);
            let (user, slot) = order.recv().unwrap();
            assert_eq!(user, 2, "user 1 has one already");
            drop((slot, second));
            let users = [order.recv().unwrap().0, order.recv().unwrap().0];
            assert_eq!(users, [1, 1]);
        });
        assert_eq!(names(&store.folders.slots()).len(), 2, "nobody waits any more");
    }
}
