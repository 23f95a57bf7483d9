//! Authorisation: the one place that says who may do what.

use crate::state::State;
use crate::state::job::Job;
use model::principal::{Principal, Role};
use model::reason::Refusal;

/// An action that needs permission.
#[derive(Debug, Clone, Copy)]
pub enum Act<'a> {
    /// Submit as this owner.
    SubmitAs(&'a Principal),
    /// Act as this job's owner: create, launch, attach to or type into its steps, hold or give up its allocation, choose
    /// the files that its processes open, read its script and output. Processes of a step run as the owner, so
    /// whoever manages jobs has no part in it.
    ActAsOwner(&'a Job),
    /// Manage this job: cancel, signal, hold, release, requeue, update it, see what it uses.
    ManageJob(&'a Job),
    /// Change this account: its users, the accounts below it, its coordinators.
    KeepBooks(&'a str),
    /// Operators' actions: raise a priority, lift an administrator's hold.
    Operate,
    /// Make, list and revoke the tokens of this user. Not by a token, unless an administrator's: a token that leaked could
    /// otherwise make another and outlive its own end.
    ManageTokens(&'a str),
    /// Administrators' actions: nodes, partitions, accounts, configuration, join tokens.
    Administer,
}

/// What a principal may do beyond its own jobs, within the limit of its token.
pub fn role_of(state: &State, who: &Principal) -> Role {
    let role = if who.uid == 0 || who.role == Role::Admin {
        Role::Admin
    } else {
        state.roles.get(&who.name).copied().unwrap_or(who.role)
    };
    who.token_limit.map_or(role, |limit| role.min(limit))
}

pub fn authorise(state: &State, who: &Principal, act: Act<'_>) -> Result<(), Refusal> {
    let role = role_of(state, who);
    let (admin, operator) = (role == Role::Admin, role >= Role::Operator);
    // A token that is limited to what users may do is not a coordinator's either.
    let coordinates =
        |account: &str| who.token_permits(Role::Operator) && coordinates(state, &who.name, account);
    let allowed = match act {
        Act::SubmitAs(owner) => owner.uid == who.uid || admin,
        Act::ActAsOwner(job) => job.spec.owner.uid == who.uid || admin,
        Act::ManageJob(job) => {
            job.spec.owner.uid == who.uid || operator || coordinates(&job.account)
        }
        Act::KeepBooks(account) => operator || coordinates(account),
        Act::Operate => operator,
        Act::ManageTokens(user) => admin || (who.name == user && who.token_limit.is_none()),
        Act::Administer => admin,
    };
    if allowed { Ok(()) } else { Err(Refusal::AccessDenied) }
}

/// Whether the user coordinates the account or one above it.
fn coordinates(state: &State, user: &str, account: &str) -> bool {
    let mut at = state.accounts.get(account);
    // Each step goes one account up; there are no more than there are accounts.
    for _ in 0..=state.accounts.len() {
        let Some(account) = at else { return false };
        if account.coordinators.iter().any(|name| name == user) {
            return true;
        }
        at = account.parent.as_ref().and_then(|parent| state.accounts.get(parent));
    }
    false
}
