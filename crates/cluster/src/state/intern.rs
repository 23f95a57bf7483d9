//! Interning: ten thousand jobs of one script by one user hold one copy of what they have in common.
//!
//! Derived and never stored: interning changes how much memory the state takes, and not its value.

use foldhash::fast::RandomState;
use model::principal::Principal;
use model::request::Request;
use model::run::{Component, JobSpec, Launch};
use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

/// A pool is swept when it has grown by so many entries since the last sweep.
const SWEEP_AFTER: usize = 1024;

#[derive(Debug, Default)]
pub struct Interner {
    specs: Pool<JobSpec>,
    owners: Pool<Principal>,
    requests: Pool<Request>,
    launches: Pool<Launch>,
    components: Pool<[Component]>,
    limits: Pool<[(String, u64)]>,
    texts: Pool<str>,
}

/// A copy of the state shares the parts already, and needs no pools.
impl Clone for Interner {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Two states are equal however their parts are shared.
impl PartialEq for Interner {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Interner {
    pub fn text(&mut self, text: &Arc<str>) -> Arc<str> {
        self.texts.shared(text)
    }

    /// The same specification, with every part that is known already shared.
    pub fn spec(&mut self, spec: &Arc<JobSpec>) -> Arc<JobSpec> {
        let asked = self.specs.hashed(spec);
        if let Some(held) = self.specs.held(&asked) {
            return held;
        }
        let launch = self.launches.hashed(&spec.launch);
        let launch = self.launches.held(&launch).unwrap_or_else(|| {
            let mut own = (*launch.value).clone();
            own.work_dir = self.text(&own.work_dir);
            own.rlimits = self.limits.shared(&own.rlimits);
            let files = [&mut own.command, &mut own.stdin, &mut own.stdout, &mut own.stderr];
            for file in files.into_iter().flatten() {
                *file = self.texts.shared(file);
            }
            self.launches.take(launch.with(Arc::new(own)))
        });
        let components = self.components.hashed(&spec.components);
        let components = self.components.held(&components).unwrap_or_else(|| {
            let shared = |c: &Component| Component { request: self.requests.shared(&c.request) };
            let own = spec.components.iter().map(shared).collect();
            self.components.take(components.with(own))
        });
        let owner = self.owners.shared(&spec.owner);
        let mut own = JobSpec { owner, components, launch, ..(**spec).clone() };
        own.name = self.text(&own.name);
        own.submit_line = self.text(&own.submit_line);
        own.submit_host = self.text(&own.submit_host);
        self.specs.take(asked.with(Arc::new(own)))
    }
}

#[derive(Debug)]
struct Pool<T: ?Sized> {
    held: HashSet<Hashed<T>, RandomState>,
    survived: usize,
}

/// A value with its hash. A specification is long: it is hashed once, and not again whenever its pool grows or is swept.
#[derive(Debug)]
struct Hashed<T: ?Sized> {
    hash: u64,
    value: Arc<T>,
}

impl<T: ?Sized> Hashed<T> {
    /// Another copy of the same value.
    fn with(&self, value: Arc<T>) -> Self {
        Self { hash: self.hash, value }
    }
}

impl<T: ?Sized> Hash for Hashed<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl<T: ?Sized + Eq> PartialEq for Hashed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.value == other.value
    }
}

impl<T: ?Sized + Eq> Eq for Hashed<T> {}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self { held: HashSet::default(), survived: 0 }
    }
}

impl<T: ?Sized + Eq + Hash> Pool<T> {
    fn hashed(&self, value: &Arc<T>) -> Hashed<T> {
        Hashed { hash: self.held.hasher().hash_one(value), value: value.clone() }
    }

    fn held(&self, value: &Hashed<T>) -> Option<Arc<T>> {
        self.held.get(value).map(|held| held.value.clone())
    }

    fn take(&mut self, entry: Hashed<T>) -> Arc<T> {
        debug_assert_eq!(entry.hash, self.hashed(&entry.value).hash, "the hash is the value's");
        if self.held.len() > 2 * self.survived + SWEEP_AFTER {
            self.held.retain(|held| Arc::strong_count(&held.value) > 1);
            self.held.shrink_to_fit();
            self.survived = self.held.len();
        }
        let value = entry.value.clone();
        self.held.insert(entry);
        value
    }

    fn shared(&mut self, value: &Arc<T>) -> Arc<T> {
        let entry = self.hashed(value);
        self.held(&entry).unwrap_or_else(|| self.take(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_shared_and_unused_ones_are_swept() {
        let mut interner = Interner::default();
        let one = interner.text(&"gpu".into());
        assert!(Arc::ptr_eq(&one, &interner.text(&"gpu".into())));
        for i in 0..10_000 {
            interner.text(&i.to_string().into());
        }
        assert!(interner.texts.held.len() <= 2 * SWEEP_AFTER);
        assert!(Arc::ptr_eq(&one, &interner.text(&"gpu".into())));
    }
}
