//! The projects that somebody is a member of: the main one, and accounts.

use crate::shared::Shared;
use cluster::State;
use cluster::rights::{Rights, members};
use cluster::visibility::Viewer;
use model::account::ROOT_ACCOUNT;
use model::fleet::MAIN_PROJECT;
use model::principal::Principal;
use wire::project::ProjectView;

pub fn projects(shared: &Shared, by: &Principal) -> Vec<ProjectView> {
    let state = shared.read();
    let rights = Rights::of(&state, by);
    let names = state.accounts.keys().map(String::as_str);
    let own = names.filter(|name| *name != ROOT_ACCOUNT && *name != MAIN_PROJECT);
    let own = own.filter(|name| rights.project_role(name).is_some());
    [MAIN_PROJECT].into_iter().chain(own).map(|name| view(&state, by, name)).collect()
}

/// Members are shown as users and coordinators of accounts are.
pub fn view(state: &State, by: &Principal, name: &str) -> ProjectView {
    let viewer = Viewer::new(state, by);
    let is_shown = |user: &str| {
        let account = state.accounts.get(name);
        account.is_none_or(|account| viewer.coordinator(account, user))
    };
    let known = state.projects.get(name);
    let mut members = members(state, name);
    members.retain(|user, _| is_shown(user));
    ProjectView {
        name: name.to_owned(),
        owner: known.map(|known| known.owner.clone()).filter(|owner| is_shown(owner)),
        created: known.map(|known| known.created),
        members,
        default_gateway: state.default_gateways.get(name).cloned(),
    }
}
