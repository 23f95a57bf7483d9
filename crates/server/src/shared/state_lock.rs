//! The cluster's state behind its lock.

use cluster::State;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Everybody reads; only the writer's thread writes.
///
/// A poisoned lock means that applying an event broke an invariant: nothing may go on, so both methods panic.
#[derive(Clone)]
pub struct StateLock(Arc<RwLock<State>>);

impl StateLock {
    pub fn new(state: State) -> Self {
        Self(Arc::new(RwLock::new(state)))
    }

    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.read().expect("the state's invariants hold")
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.write().expect("the state's invariants hold")
    }
}
