//! Users whom administrators make known, change and remove.

use super::activity::noted;
use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision, SetUser};
use crate::event::Event;
use crate::state::State;
use crate::token::TokenStatus;
use crate::web_session::SignInProof;
use model::activity::{ActivityKind, ActivityTarget};
use model::principal::Role;
use model::project::KnownUser;
use model::reason::Refusal;

impl State {
    pub(super) fn decide_set_user(
        &self,
        set: &SetUser,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let name = &set.name;
        let known = self.users.get(name);
        if set.is_new && known.is_some() {
            return Err(Refusal::AlreadyExists { what: "user".into(), name: name.clone() });
        }
        if !set.is_new && !self.is_known_user(name) && *name != context.by.name {
            return Err(Refusal::UnknownThing { what: "user".into(), name: name.clone() });
        }
        let user = KnownUser {
            created: known.map_or(context.now, |known| known.created),
            email: set.email.clone(),
            active: set.active,
        };
        let mut events = vec![Event::UserSet { name: name.clone(), user }];
        // A role between the two is not dstack's to take away.
        let role = self.roles.get(name).copied().unwrap_or_default();
        if (role == Role::Admin) != (set.role == Role::Admin) {
            events.push(Event::RoleSet { name: name.clone(), role: set.role });
        }
        let what = if set.is_new { ActivityKind::Created } else { ActivityKind::Changed };
        events.push(noted(context, ActivityTarget::User(name.clone()), what));
        Ok(events.into())
    }

    /// Whether the cluster has heard of the user: by an administrator, a role, a token, an association or a sign-on.
    pub fn is_known_user(&self, name: &str) -> bool {
        self.users.contains_key(name)
            || self.roles.contains_key(name)
            || self.user_tokens.values().any(|token| token.user() == name)
            || self.associations.iter().any(|a| a.user.as_deref() == Some(name))
            || self.has_signed_on(name)
    }

    /// Whether the user is here by the word of the identity provider.
    fn has_signed_on(&self, name: &str) -> bool {
        self.web_sessions.values().any(|known| {
            known.who.name == name && matches!(known.proof, SignInProof::SingleSignOn { .. })
        })
    }

    /// Their tokens, sessions and roles end with them; what they ran stays in the books.
    pub(super) fn decide_remove_users(
        &self,
        names: &[String],
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let mut events = Vec::new();
        for name in names {
            if *name == context.by.name {
                return Err(Refusal::Other(format!("user {name} cannot remove themselves")));
            }
            let known = self.users.contains_key(name) || self.roles.contains_key(name);
            if !known && !self.has_signed_on(name) {
                return Err(Refusal::UnknownThing { what: "user".into(), name: name.clone() });
            }
            let is_good = |status| status == TokenStatus::Good;
            let tokens = self.user_tokens.values().filter(|token| {
                token.user() == name
                    && !token.is_admin_token()
                    && is_good(token.status(context.now))
            });
            let revoked =
                tokens.map(|t| Event::UserTokenRevoked { hash: t.hash.clone(), at: context.now });
            events.extend(revoked);
            let sessions = self.web_sessions.values().filter(|known| known.who.name == *name);
            events.extend(sessions.map(|s| Event::WebSessionClosed { hash: s.hash.clone() }));
            events.push(Event::UserRemoved { name: name.clone() });
            let target = ActivityTarget::User(name.clone());
            events.push(noted(context, target, ActivityKind::Deleted));
        }
        Ok(events.into())
    }
}
