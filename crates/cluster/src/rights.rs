//! What somebody is to the cluster: operator, administrator, coordinator of accounts. `authorise` says what follows from it
//! for actions, `visibility` for what is shown.

use crate::state::State;
use model::principal::{Principal, Role};

#[derive(Clone, Copy)]
pub struct Rights<'a> {
    state: &'a State,
    who: &'a Principal,
    pub admin: bool,
    /// Administrators are operators too.
    pub operator: bool,
}

impl<'a> Rights<'a> {
    pub fn of(state: &'a State, who: &'a Principal) -> Self {
        let role = state.roles.get(&who.name).copied().unwrap_or(who.role);
        let admin = who.is_admin() || role == Role::Admin;
        let operator = admin || role >= Role::Operator;
        Self { state, who, admin, operator }
    }

    /// Whether the jobs of this owner in this account are theirs to manage.
    pub fn manages(&self, owner: u32, account: &str) -> bool {
        owner == self.who.uid || self.operator || self.coordinates(account)
    }

    /// Whether they coordinate the account or one above it.
    pub fn coordinates(&self, account: &str) -> bool {
        let is_coordinator = |name: &String| *name == self.who.name;
        self.accounts_up_from(account).any(|account| {
            self.state
                .accounts
                .get(account)
                .is_some_and(|a| a.coordinators.iter().any(is_coordinator))
        })
    }

    /// Whether they coordinate any account.
    pub fn coordinates_any(&self) -> bool {
        let is_coordinator = |name: &String| *name == self.who.name;
        self.state.accounts.values().any(|a| a.coordinators.iter().any(is_coordinator))
    }

    /// Whether one of their associations is in the account or below it.
    pub fn belongs_to(&self, account: &str) -> bool {
        let own = self.own_accounts();
        own.into_iter().any(|own| self.accounts_up_from(own).any(|above| above == account))
    }

    /// The accounts of their associations.
    pub fn own_accounts(&self) -> Vec<&'a str> {
        let own = |user: &Option<String>| user.as_deref() == Some(self.who.name.as_str());
        let associations = self.state.associations.iter().filter(|a| own(&a.user));
        associations.map(|a| a.account.as_str()).collect()
    }

    /// The account, and those above it up to the root.
    fn accounts_up_from<'b>(&self, account: &'b str) -> impl Iterator<Item = &'b str>
    where
        'a: 'b,
    {
        let accounts = &self.state.accounts;
        let parent = |name: &&'b str| accounts.get(*name).and_then(|a| a.parent.as_deref());
        // Each step goes one account up; there are no more than there are accounts.
        std::iter::successors(Some(account), parent).take(accounts.len() + 1)
    }
}
