//! A common amount of something, of which one user has a part at most at the same time, half of it where nothing else is said, and
//! an eighth is kept for root and operators.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One user has at most this part (a half).
const USER_PART: usize = 2;

/// This part (an eighth) is kept for root and operators.
const RESERVED_PART: usize = 8;

pub struct UserShares {
    user_most: usize,
    reserved_most: usize,
    unreserved: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    /// What each user has left, while he has some of it.
    of_each: Mutex<HashMap<u32, Weak<Semaphore>>>,
}

/// Who asks for a share.
#[derive(Debug, Clone, Copy)]
pub struct ShareOwner {
    pub uid: u32,
    /// The reserved part is open to him, and a user's part is no bound.
    pub is_operator: bool,
}

/// Units of one user, until they are dropped.
pub struct Share {
    _own: Option<OwnedSemaphorePermit>,
    _common: OwnedSemaphorePermit,
}

impl UserShares {
    pub fn new(units: usize) -> Self {
        Self::with_user_most(units, units / USER_PART)
    }

    /// One user has at most `user_most` of the units.
    pub fn with_user_most(units: usize, user_most: usize) -> Self {
        let reserved = units / RESERVED_PART;
        Self {
            user_most,
            reserved_most: reserved,
            unreserved: Arc::new(Semaphore::new(units - reserved)),
            reserved: Arc::new(Semaphore::new(reserved)),
            of_each: Mutex::default(),
        }
    }

    /// What is more than the asker could ever have is counted as the most.
    fn counted(&self, owner: ShareOwner, units: usize) -> u32 {
        let most = if owner.is_operator { self.reserved_most } else { self.user_most };
        u32::try_from(units.min(most)).unwrap_or(u32::MAX)
    }

    /// Waits until the units are free.
    pub async fn acquire(&self, owner: ShareOwner, units: usize) -> Option<Share> {
        let units = self.counted(owner, units);
        let own = if owner.is_operator {
            None
        } else {
            Some(self.own(owner.uid).acquire_many_owned(units).await.ok()?)
        };
        let common = match self.unreserved.clone().try_acquire_many_owned(units) {
            Ok(common) => common,
            Err(_) => self.pool(owner).acquire_many_owned(units).await.ok()?,
        };
        Some(Share { _own: own, _common: common })
    }

    /// The units if they are free now.
    pub fn try_acquire(&self, owner: ShareOwner, units: usize) -> Option<Share> {
        let units = self.counted(owner, units);
        let own = if owner.is_operator {
            None
        } else {
            Some(self.own(owner.uid).try_acquire_many_owned(units).ok()?)
        };
        let common = self.unreserved.clone().try_acquire_many_owned(units);
        let common = common.or_else(|_| self.pool(owner).try_acquire_many_owned(units)).ok()?;
        Some(Share { _own: own, _common: common })
    }

    /// Where one waits who found nothing unreserved.
    fn pool(&self, owner: ShareOwner) -> Arc<Semaphore> {
        if owner.is_operator { self.reserved.clone() } else { self.unreserved.clone() }
    }

    fn own(&self, uid: u32) -> Arc<Semaphore> {
        let mut of_each = self.of_each.lock().expect("no panic with it held");
        if let Some(own) = of_each.get(&uid).and_then(Weak::upgrade) {
            return own;
        }
        of_each.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.user_most));
        of_each.insert(uid, Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADA: ShareOwner = ShareOwner { uid: 1001, is_operator: false };
    const BOB: ShareOwner = ShareOwner { uid: 1002, is_operator: false };
    const EVE: ShareOwner = ShareOwner { uid: 1003, is_operator: false };
    const OLGA: ShareOwner = ShareOwner { uid: 1004, is_operator: true };

    fn taken(shares: &UserShares, owner: ShareOwner) -> Vec<Share> {
        std::iter::from_fn(|| shares.try_acquire(owner, 1)).collect()
    }

    #[test]
    fn user_has_half_at_most_and_an_eighth_is_for_operators() {
        let shares = UserShares::new(16);
        let of_ada = taken(&shares, ADA);
        let of_bob = taken(&shares, BOB);
        assert_eq!((of_ada.len(), of_bob.len()), (8, 6));
        assert_eq!(taken(&shares, EVE).len(), 0);
        assert_eq!(taken(&shares, OLGA).len(), 2);
        drop(of_ada);
        assert_eq!(taken(&shares, EVE).len(), 8);
        drop(of_bob);
        shares.try_acquire(EVE, 1).expect("free again");
        assert_eq!(shares.of_each.lock().unwrap().len(), 1, "nobody is kept for nothing");
    }

    #[tokio::test]
    async fn operator_does_not_wait_behind_users_who_do() {
        let shares = Arc::new(UserShares::new(16));
        let held = (taken(&shares, ADA), taken(&shares, BOB));
        let waiting = shares.clone();
        let waits = tokio::spawn(async move { waiting.acquire(EVE, 1).await.is_some() });
        tokio::task::yield_now().await;
        shares.acquire(OLGA, 1).await.expect("the reserved part");
        assert!(!waits.is_finished());
        drop(held);
        assert!(waits.await.expect("no panic"));
    }

    #[test]
    fn more_than_there_can_be_is_counted_as_the_most() {
        let shares = UserShares::new(64);
        assert!(shares.try_acquire(OLGA, 1 << 40).is_some());
        let of_ada: Vec<Share> = std::iter::from_fn(|| shares.try_acquire(ADA, 1000)).collect();
        assert_eq!(of_ada.len(), 1, "her half, and no second time");
    }
}
