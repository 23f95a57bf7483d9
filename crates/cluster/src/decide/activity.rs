//! What a command of an administrator or a user is noted as, for the list of events.

use crate::command::Context;
use crate::event::Event;
use crate::state::State;
use model::activity::{Activity, ActivityKind, ActivityTarget};

/// The event that notes what the caller did.
pub(super) fn noted(context: &Context, target: ActivityTarget, what: ActivityKind) -> Event {
    let actor = Some(context.by.name.clone());
    Event::Noted(Box::new(Activity { number: 0, at: context.now, actor, target, what }))
}

impl State {
    /// How a change of accounts is noted; a change of nothing else is.
    pub(super) fn account_activity(&self, event: &Event, context: &Context) -> Option<Event> {
        let project = |name: &String| ActivityTarget::Project(name.clone());
        let (target, what) = match event {
            Event::AccountSet(account) if self.accounts.contains_key(&account.name) => {
                (project(&account.name), ActivityKind::Changed)
            }
            Event::AccountSet(account) => (project(&account.name), ActivityKind::Created),
            Event::AccountRemoved { name } => (project(name), ActivityKind::Deleted),
            Event::AssociationSet(set) => {
                (project(&set.account), ActivityKind::MemberSet(set.user.clone()?))
            }
            Event::AssociationRemoved { account, user, .. } => {
                (project(account), ActivityKind::MemberRemoved(user.clone()?))
            }
            Event::RoleSet { name, .. } => {
                (ActivityTarget::User(name.clone()), ActivityKind::Changed)
            }
            _ => return None,
        };
        Some(noted(context, target, what))
    }
}
