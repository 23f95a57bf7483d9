//! How the sources of machines fare: what their last calls failed with, and the machines that they have and nobody asked for.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most strangers of a source that are named.
const STRANGERS_MAX: usize = 100;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceStatus {
    /// By call, `offers` or `describe`: what it failed with since it last went well.
    failures: BTreeMap<&'static str, String>,
    /// By token: what the calls for a machine failed with since one of them went well. There are as many as live machines at most: a
    /// machine is gone when its last call went well.
    of_machines: BTreeMap<String, String>,
    /// Ids of machines with the cluster's tag that nobody asked for.
    pub strangers: Vec<String>,
}

impl SourceStatus {
    /// What calls about the whole source fail with comes before what those for one machine do.
    pub fn failure(&self) -> Option<&str> {
        self.failures.values().chain(self.of_machines.values()).next().map(String::as_str)
    }
}

/// By name of the source.
#[derive(Default)]
pub struct SourceStatuses(Mutex<BTreeMap<String, SourceStatus>>);

impl SourceStatuses {
    /// Notes how a call ended.
    pub fn set_failure(&self, source: &str, call: &'static str, failure: Option<String>) {
        let mut all = self.lock();
        let failures = &mut all.entry(source.to_owned()).or_default().failures;
        match failure {
            Some(text) => drop(failures.insert(call, text)),
            None => drop(failures.remove(call)),
        }
    }

    /// Notes how a call for the machine of this token ended.
    pub fn set_machine_failure(&self, source: &str, token: &str, failure: Option<String>) {
        let mut all = self.lock();
        let failures = &mut all.entry(source.to_owned()).or_default().of_machines;
        match failure {
            Some(text) => drop(failures.insert(token.to_owned(), text)),
            None => drop(failures.remove(token)),
        }
    }

    pub fn set_strangers(&self, source: &str, mut ids: Vec<String>) {
        ids.truncate(STRANGERS_MAX);
        self.lock().entry(source.to_owned()).or_default().strangers = ids;
    }

    pub fn of(&self, source: &str) -> SourceStatus {
        self.lock().get(source).cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, SourceStatus>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_stays_until_the_same_call_goes_well() {
        let all = SourceStatuses::default();
        all.set_failure("cloud", "offers", Some("no key".into()));
        all.set_failure("cloud", "describe", None);
        assert_eq!(all.of("cloud").failure(), Some("no key"));
        all.set_failure("cloud", "offers", None);
        all.set_strangers("cloud", vec!["i-1".into(); 200]);
        let status = all.of("cloud");
        assert_eq!((status.failure(), status.strangers.len()), (None, STRANGERS_MAX));
        assert_eq!(all.of("other"), SourceStatus::default());
    }

    #[test]
    fn failure_with_one_machine_is_told_where_the_source_itself_answers() {
        let all = SourceStatuses::default();
        all.set_machine_failure("cloud", "7-0af", Some("delete cloud-7: not allowed".into()));
        assert_eq!(all.of("cloud").failure(), Some("delete cloud-7: not allowed"));
        all.set_failure("cloud", "offers", Some("no key".into()));
        assert_eq!(all.of("cloud").failure(), Some("no key"), "it says more");
        all.set_failure("cloud", "offers", None);
        all.set_machine_failure("cloud", "8-1bc", None);
        assert!(all.of("cloud").failure().is_some(), "another machine says nothing of this one");
        all.set_machine_failure("cloud", "7-0af", None);
        assert_eq!(all.of("cloud").failure(), None);
    }
}
