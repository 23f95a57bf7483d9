//! The slots of a node's pulls: as many as may go on at a time, shared by users. A free slot goes to a user who has
//! fewer than the others that wait, and the last one of several to nobody who has one: registries that are slow on purpose would
//! keep everybody else from theirs.

use std::path::Path;

use super::Store;
use super::folders::names;
use super::lock::{Lock, Mode, POLL};
use super::stopped::Watcher;
use crate::error::Result;

/// Before the name of a file whose lock somebody holds who waits for a slot.
const WAITING: &str = "waiting-";
/// The file whose lock somebody holds who looks for a slot.
const LOOK: &str = "look";

impl Store {
    /// Waits for a slot; it is free again when what is returned is dropped. `on_wait` is told once, if there is none at first.
    pub(crate) fn wait_for_slot(&self, user: u32, on_wait: impl FnOnce()) -> Result<Lock> {
        let mut on_wait = Some(on_wait);
        let mut watcher = Watcher::new(self);
        let slots = self.folders.slots();
        let own = format!("{WAITING}{}-{:?}", std::process::id(), std::thread::current().id());
        let own = slots.join(own);
        let mut waiting: Option<Lock> = None;
        loop {
            // One process at a time: a slot that another one has just taken does not say yet whose it is.
            let look = Lock::take(&slots.join(LOOK), Mode::Exclusive, || watcher.turn())?;
            if let Some(slot) = self.slot_for(user, &own)? {
                if let Some(waiting) = waiting {
                    waiting.remove();
                }
                return Ok(slot);
            }
            if waiting.is_none() {
                let mut lock = Lock::take(&own, Mode::Exclusive, || ())?;
                lock.write(&user.to_string())?;
                waiting = Some(lock);
            }
            drop(look);
            if let Some(on_wait) = on_wait.take() {
                on_wait();
            }
            watcher.turn();
            std::thread::sleep(POLL);
        }
    }

    /// A free slot, if it is this user's turn.
    fn slot_for(&self, user: u32, own: &Path) -> Result<Option<Lock>> {
        let (mut free, mut free_count, mut held) = (None, 0, Vec::new());
        for number in 0..self.options.pulls_max.max(1) {
            let path = self.folders.slot(number);
            match Lock::try_take(&path, Mode::Exclusive)? {
                Some(slot) => {
                    free = free.or(Some(slot));
                    free_count += 1;
                }
                None => held.extend(user_of(&path)),
            }
        }
        let count = |user: u32| held.iter().filter(|one| **one == user).count();
        let is_kept = free_count == 1 && count(user) > 0;
        let is_turn = || !self.waiting_users(own).any(|other| count(other) < count(user));
        let Some(mut slot) = free.filter(|_| !is_kept && is_turn()) else { return Ok(None) };
        slot.write(&user.to_string())?;
        Ok(Some(slot))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreOptions;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// The users who wait, in order. A file is there before it says who waits.
    fn waiting(store: &Store) -> Vec<Option<u32>> {
        let slots = store.folders.slots();
        let entries = names(&slots).into_iter();
        let entries = entries.filter(|name| name.to_string_lossy().starts_with(WAITING));
        let mut users: Vec<_> = entries.map(|name| user_of(&slots.join(name))).collect();
        users.sort_unstable();
        users
    }

    #[test]
    fn a_free_slot_goes_to_the_user_who_has_fewer() {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions { pulls_max: 3, ..StoreOptions::bounded(1 << 20) };
        let store = Store::open_with(folder.path(), options).unwrap();
        let [first, second, third] =
            [1, 1, 3].map(|user| store.wait_for_slot(user, || ()).unwrap());
        let (got, order) = channel();
        for user in [1, 1, 2] {
            let (got, store) = (got.clone(), store.clone());
            std::thread::spawn(move || got.send((user, store.wait_for_slot(user, || ()).unwrap())));
        }
        let deadline = Instant::now() + TIMEOUT;
        while waiting(&store) != [Some(1), Some(1), Some(2)] {
            assert!(Instant::now() < deadline, "{:?} wait", waiting(&store));
            std::thread::sleep(POLL);
        }
        let next = || order.recv_timeout(TIMEOUT).expect("somebody gets a slot");
        drop(first);
        let (user, slot) = next();
        assert_eq!(user, 2, "user 1 has one already");
        drop((slot, second, third));
        let last = [next(), next()];
        assert_eq!(last.each_ref().map(|(user, _)| *user), [1, 1]);
        assert!(waiting(&store).is_empty(), "nobody waits any more");
    }

    #[test]
    fn a_user_who_has_a_slot_does_not_take_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions { pulls_max: 2, ..StoreOptions::bounded(1 << 20) };
        let store = Store::open_with(folder.path(), options).unwrap();
        let first = store.wait_for_slot(1, || ()).unwrap();
        let (got, second) = channel();
        let same_user = store.clone();
        std::thread::spawn(move || got.send(same_user.wait_for_slot(1, || ()).unwrap()));
        let deadline = Instant::now() + TIMEOUT;
        while waiting(&store) != [Some(1)] {
            assert!(Instant::now() < deadline, "{:?} wait", waiting(&store));
            std::thread::sleep(POLL);
        }
        let _other = store.wait_for_slot(2, || ()).unwrap();
        assert!(second.try_recv().is_err(), "it was kept for somebody else");
        drop(first);
        second.recv_timeout(TIMEOUT).expect("a slot for who has none any more");
    }

    /// As a user can bring it about: the tasks of an array want their images at the same time.
    #[test]
    fn pulls_that_begin_at_once_leave_the_last_slot_too() {
        const PULLS: usize = 8;
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions { pulls_max: 3, ..StoreOptions::bounded(1 << 20) };
        let store = Store::open_with(folder.path(), options).unwrap();
        let (got, slots) = channel();
        for _ in 0..PULLS {
            let (got, store) = (got.clone(), store.clone());
            std::thread::spawn(move || got.send(store.wait_for_slot(1, || ()).unwrap()));
        }
        let next = || slots.recv_timeout(TIMEOUT).expect("somebody gets a slot");
        let held = [next(), next()];
        let deadline = Instant::now() + TIMEOUT;
        while waiting(&store).len() < PULLS - 2 {
            assert!(Instant::now() < deadline, "{:?} wait", waiting(&store));
            std::thread::sleep(POLL);
        }
        let other = store.wait_for_slot(2, || ()).unwrap();
        assert!(slots.try_recv().is_err(), "it was kept for somebody else");
        drop((held, other));
        (2..PULLS).for_each(|_| drop(next()));
    }
}
