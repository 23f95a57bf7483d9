//! Interning: ten thousand jobs of one script by one user hold one copy of what they have in common.
//!
//! Derived and never stored: interning changes how much memory the state takes, and not its value.

use foldhash::fast::RandomState;
use model::principal::Principal;
use model::request::Request;
use model::run::{Component, JobSpec, Launch};
use std::collections::HashSet;
use std::hash::Hash;
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
        if let Some(held) = self.specs.held(spec) {
            return held;
        }
        let launch = &spec.launch;
        let launch = self.launches.held(launch).unwrap_or_else(|| {
            let mut own = (**launch).clone();
            own.work_dir = self.text(&own.work_dir);
            own.rlimits = self.limits.shared(&own.rlimits);
            let files = [&mut own.command, &mut own.stdin, &mut own.stdout, &mut own.stderr];
            for file in files.into_iter().flatten() {
                *file = self.texts.shared(file);
            }
            self.launches.take(Arc::new(own))
        });
        let components = self.components.held(&spec.components).unwrap_or_else(|| {
            let shared = |c: &Component| Component { request: self.requests.shared(&c.request) };
            let components = spec.components.iter().map(shared).collect();
            self.components.take(components)
        });
        let owner = self.owners.shared(&spec.owner);
        let mut own = JobSpec { owner, components, launch, ..(**spec).clone() };
        own.name = self.text(&own.name);
        own.submit_line = self.text(&own.submit_line);
        own.submit_host = self.text(&own.submit_host);
        self.specs.take(Arc::new(own))
    }
}

#[derive(Debug)]
struct Pool<T: ?Sized> {
    held: HashSet<Arc<T>, RandomState>,
    survived: usize,
}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self { held: HashSet::default(), survived: 0 }
    }
}

impl<T: ?Sized + Eq + Hash> Pool<T> {
    fn held(&self, value: &Arc<T>) -> Option<Arc<T>> {
        self.held.get(value).cloned()
    }

    fn take(&mut self, value: Arc<T>) -> Arc<T> {
        if self.held.len() > 2 * self.survived + SWEEP_AFTER {
            self.held.retain(|value| Arc::strong_count(value) > 1);
            self.held.shrink_to_fit();
            self.survived = self.held.len();
        }
        self.held.insert(value.clone());
        value
    }

    fn shared(&mut self, value: &Arc<T>) -> Arc<T> {
        self.held(value).unwrap_or_else(|| self.take(value.clone()))
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
