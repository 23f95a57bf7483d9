//! What somebody is to the cluster: operator, administrator, coordinator of accounts. `authorise` says what follows from it
//! for actions, `visibility` for what is shown.

use crate::state::State;
use model::account::{Account, ROOT_ACCOUNT};
use model::fleet::MAIN_PROJECT;
use model::principal::{Principal, Role};
use model::project::{Members, ProjectRole};

/// What a principal may do beyond its own jobs, within the limit of its token.
pub fn role_of(state: &State, who: &Principal) -> Role {
    let role = if who.uid == 0 || who.role == Role::Admin {
        Role::Admin
    } else {
        state.roles.get(&who.name).copied().unwrap_or(who.role)
    };
    who.token_limit.map_or(role, |limit| role.min(limit))
}

/// Whether there is a project of this name: the main one, or an account.
pub fn is_project(state: &State, name: &str) -> bool {
    name == MAIN_PROJECT || name != ROOT_ACCOUNT && state.accounts.contains_key(name)
}

/// The members of a project that is an account.
pub fn members(state: &State, project: &str) -> Members {
    let coordinators = state.accounts.get(project).map_or(&[][..], |known| &known.coordinators);
    let is_admin = |name: &String| {
        state.projects.get(project).is_some_and(|known| known.admins.contains(name))
    };
    let role = |name: &String| {
        if !coordinators.contains(name) {
            ProjectRole::User
        } else if is_admin(name) {
            ProjectRole::Admin
        } else {
            ProjectRole::Manager
        }
    };
    let associated = state.associations.iter().filter(|a| a.account == project);
    let names = associated.filter_map(|a| a.user.as_ref()).chain(coordinators);
    names.map(|name| (name.clone(), role(name))).collect()
}

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
        let role = role_of(state, who);
        let (admin, operator) = (role == Role::Admin, role >= Role::Operator);
        Self { state, who, admin, operator }
    }

    /// Whether the jobs of this owner in this account are theirs to manage.
    pub fn manages(&self, owner: u32, account: &str) -> bool {
        owner == self.who.uid || self.operator || self.coordinates(account)
    }

    /// Whether they coordinate the account or one above it.
    pub fn coordinates(&self, account: &str) -> bool {
        let accounts = &self.state.accounts;
        let mut above = self.accounts_up_from(account).filter_map(|name| accounts.get(name));
        above.any(|account| self.is_coordinator(account))
    }

    /// Whether they coordinate any account.
    pub fn coordinates_any(&self) -> bool {
        self.state.accounts.values().any(|account| self.is_coordinator(account))
    }

    /// A token that is limited to what users may do is not a coordinator's either.
    fn is_coordinator(&self, account: &Account) -> bool {
        let named = || account.coordinators.contains(&self.who.name);
        self.who.token_permits(Role::Operator) && named()
    }

    /// An operator manages every project, and does not read secrets.
    pub(crate) fn manages_secrets(&self, project: &str) -> bool {
        self.admin || !self.operator && self.project_role(project) == Some(ProjectRole::Admin)
    }

    /// Their role in a project, which is an account. Everybody is a user of the main one, which has no account of its own.
    pub fn project_role(&self, name: &str) -> Option<ProjectRole> {
        let account = || self.state.accounts.get(name).filter(|_| name != ROOT_ACCOUNT);
        if self.operator {
            return Some(ProjectRole::Admin);
        }
        if name == MAIN_PROJECT {
            return Some(ProjectRole::User);
        }
        account()?;
        let is_admin = || self.state.projects.get(name)?.admins.get(&self.who.name);
        if !self.coordinates(name) {
            let is_member = self.state.tree().is_member(name, &self.who.name);
            return is_member.then_some(ProjectRole::User);
        }
        let role = is_admin().map_or(ProjectRole::Manager, |_| ProjectRole::Admin);
        Some(role)
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
