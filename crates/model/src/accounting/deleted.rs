//! Accounts, associations and QOS that were deleted, for `sacctmgr show … withdeleted`: the newest of each.

use crate::account::{Account, Association, Qos};
use crate::bounds::DELETED_ENTRIES;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// An entry that is there again is not among them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeletedEntries {
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub accounts: VecDeque<Account>,
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub associations: VecDeque<Association>,
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub qos: VecDeque<Qos>,
}

impl DeletedEntries {
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty() && self.associations.is_empty() && self.qos.is_empty()
    }

    pub fn has_account(&self, name: &str) -> bool {
        self.accounts.iter().any(|account| account.name == name)
    }

    pub fn has_association(&self, one: &Association) -> bool {
        self.associations.iter().any(|deleted| is_same(deleted, one))
    }

    pub fn has_qos(&self, name: &str) -> bool {
        self.qos.iter().any(|qos| qos.name == name)
    }

    pub fn add_account(&mut self, account: Account) {
        self.restore_account(&account.name);
        push(&mut self.accounts, account);
    }

    /// A deleted association is nobody's default any more.
    pub fn add_association(&mut self, association: Association) {
        self.restore_association(&association);
        push(&mut self.associations, Association { default: false, ..association });
    }

    pub fn add_qos(&mut self, qos: Qos) {
        self.restore_qos(&qos.name);
        push(&mut self.qos, qos);
    }

    pub fn restore_account(&mut self, name: &str) {
        self.accounts.retain(|account| account.name != name);
    }

    pub fn restore_association(&mut self, one: &Association) {
        self.associations.retain(|deleted| !is_same(deleted, one));
    }

    pub fn restore_qos(&mut self, name: &str) {
        self.qos.retain(|qos| qos.name != name);
    }
}

fn is_same(a: &Association, b: &Association) -> bool {
    (&a.account, &a.user, &a.partition) == (&b.account, &b.user, &b.partition)
}

/// Adds the newest; the oldest leaves where there are too many.
fn push<T>(entries: &mut VecDeque<T>, newest: T) {
    entries.push_back(newest);
    if entries.len() > DELETED_ENTRIES.most {
        entries.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_what_is_there_again_is_not() {
        let mut deleted = DeletedEntries::default();
        for number in 0..=DELETED_ENTRIES.most {
            deleted.add_qos(Qos::named(&format!("q{number}")));
        }
        assert_eq!(deleted.qos.len(), DELETED_ENTRIES.most);
        assert!(!deleted.has_qos("q0") && deleted.has_qos("q1"));
        deleted.restore_qos("q1");
        assert!(!deleted.has_qos("q1"));
        let mut default = Association::plain("physics", Some("alice"));
        default.default = true;
        deleted.add_association(default.clone());
        assert!(deleted.has_association(&default) && !deleted.associations[0].default);
        assert!(!deleted.has_association(&Association::plain("physics", None)));
    }
}
