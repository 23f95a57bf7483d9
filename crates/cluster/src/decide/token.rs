//! Commands about tokens: making, replacing and revoking them.

use crate::authorise::{Act, authorise};
use crate::command::{Command, Context, Decision};
use crate::event::Event;
use crate::membership::JoinGroup;
use crate::rights::role_of;
use crate::state::State;
use crate::token::{ADMIN_TOKEN, JoinToken, TokenStatus, UserToken};
use model::bounds::{self, Bound};
use model::hostlist;
use model::principal::Role;
use model::reason::Refusal;
use model::time::Timestamp;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// How long a token may last that is not an administrator's to make.
const USER_LIFE_DAYS_MAX: u32 = 365;

/// How long an ended token of a user is remembered at least, so that one who makes and revokes tokens in a loop is refused: of
/// so many (`bounds::TOKENS`), each is two events and two entries of the audit trail.
const ENDED_KEPT: Duration = Duration::from_secs(3600);

/// How long a join token may last.
const JOIN_LIFE_DAYS_MAX: u32 = 30;

impl State {
    pub(super) fn decide_token(
        &self,
        command: &Command,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let events = match command {
            Command::SetUserToken(token) => self.user_token_made(token, context)?,
            Command::SetAdminToken(token) => self.admin_token_replaced(token, context)?,
            Command::RevokeToken { name, user } => {
                vec![self.token_revoked(name, user.as_deref(), context)?]
            }
            Command::IssueHostToken { hash, node, id, expires } => {
                let issued =
                    self.join_token_issued(hash, vec![node.clone()], None, *expires, context)?;
                let host = self.fleet_host(node).map(|(_, _, host)| host);
                if host.is_none_or(|host| host.id != *id || host.leaving.is_some()) {
                    return Err(Refusal::UnknownNode(node.clone()));
                }
                issued
            }
            Command::IssueToken { hash, nodes, expires } => {
                self.join_token_issued(hash, nodes.clone(), None, *expires, context)?
            }
            Command::IssueGroupToken { hash, pattern, count, dynamic, expires } => {
                authorise(self, &context.by, Act::Administer)?;
                let count = self.check_pattern(pattern, *count, *dynamic)?;
                let (pattern, dynamic) = (pattern.clone(), *dynamic);
                let group = JoinGroup { pattern, count, used: 0, dynamic };
                self.join_token_issued(hash, Vec::new(), Some(group), *expires, context)?
            }
            other => unreachable!("{other:?} is decided elsewhere"),
        };
        Ok(events.into())
    }

    fn user_token_made(&self, token: &UserToken, context: &Context) -> Result<Vec<Event>, Refusal> {
        authorise(self, &context.by, Act::ManageTokens(token.user()))?;
        let role = role_of(self, &context.by);
        if token.role > role || token.limit.is_some_and(|limit| limit > role) {
            return Err(Refusal::AccessDenied);
        }
        check_name(&token.token_name)?;
        let longest = if role < Role::Admin { Some(USER_LIFE_DAYS_MAX) } else { None };
        check_life(token.expires, longest, context.now)?;
        let now = context.now;
        let name = token.shown_name();
        let of_user = || self.user_tokens.values().filter(|known| known.user() == token.user());
        let named = |known: &UserToken| known.shown_name() == name;
        if of_user().any(|known| named(known) && known.status(now) == TokenStatus::Good) {
            let user = token.user();
            return Err(Refusal::Other(format!("{user} has a token {name} already: revoke it")));
        }
        let mut events = Vec::new();
        if of_user().count() >= bounds::TOKENS.most {
            let is_old = |known: &&UserToken| {
                role >= Role::Admin || known.made.is_none_or(|made| made + ENDED_KEPT <= now)
            };
            let ended = of_user().filter(is_old);
            let ended = ended.filter_map(|known| Some((known.ended(now)?, &known.hash)));
            let (_, oldest) = ended.min().ok_or_else(|| too_many(bounds::TOKENS))?;
            events.push(Event::UserTokenRemoved { hash: oldest.clone() });
        }
        events.push(Event::UserTokenSet(Box::new(token.clone())));
        Ok(events)
    }

    /// The one before is refused from now on.
    fn admin_token_replaced(
        &self,
        token: &UserToken,
        context: &Context,
    ) -> Result<Vec<Event>, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let is_hash = token.hash.len() == 64 && token.hash.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_hash {
            return Err(invalid("token hash", &token.hash, "64 hexadecimal digits".into()));
        }
        let good = self.user_tokens.values();
        let good =
            good.filter(|t| t.is_admin_token() && t.status(context.now) == TokenStatus::Good);
        let former = good.filter(|known| known.hash != token.hash);
        let revoked =
            former.map(|t| Event::UserTokenRevoked { hash: t.hash.clone(), at: context.now });
        let mut events: Vec<Event> = revoked.collect();
        events.push(Event::UserTokenSet(Box::new(token.clone())));
        // Each was the token of a start or of a rotation: of those that have ended, the newest are remembered.
        let admins = self.user_tokens.values().filter(|t| t.is_admin_token());
        if admins.clone().count() >= bounds::TOKENS.most {
            let ended = admins.filter_map(|known| Some((known.revoked?, &known.hash)));
            let oldest = ended.filter(|(_, hash)| **hash != token.hash).min();
            events.extend(oldest.map(|(_, h)| Event::UserTokenRemoved { hash: h.clone() }));
        }
        Ok(events)
    }

    /// Users revoke their own tokens by name; administrators all, and say whose where several have that name.
    fn token_revoked(
        &self,
        name: &str,
        user: Option<&str>,
        context: &Context,
    ) -> Result<Event, Refusal> {
        let admin = authorise(self, &context.by, Act::Administer).is_ok();
        let user = if admin { user } else { Some(user.unwrap_or(&context.by.name)) };
        if let Some(user) = user {
            authorise(self, &context.by, Act::ManageTokens(user))?;
        }
        let good = self.user_tokens.values().filter(|t| t.status(context.now) == TokenStatus::Good);
        let mut named =
            good.filter(|t| user.is_none_or(|u| t.user() == u) && t.shown_name() == name);
        match (named.next(), named.next()) {
            (Some(token), None) if token.is_admin_token() => Err(Refusal::Other(
                "the administrator's token is replaced, not revoked: sluice token rotate admin"
                    .into(),
            )),
            (Some(token), None) => {
                Ok(Event::UserTokenRevoked { hash: token.hash.clone(), at: context.now })
            }
            (Some(_), Some(_)) => {
                let text = format!("several users have a token {name}: name one with --user");
                Err(Refusal::Other(text))
            }
            (None, _) => {
                let mut joins = self.tokens.keys().filter(|_| user.is_none());
                let join = joins.find(|hash| JoinToken::shown_name(hash) == name);
                let unknown = || Refusal::UnknownThing { what: "token".into(), name: name.into() };
                let hash = join.ok_or_else(unknown)?;
                Ok(Event::JoinTokenRemoved { hash: hash.clone() })
            }
        }
    }

    fn join_token_issued(
        &self,
        hash: &str,
        nodes: Vec<String>,
        group: Option<JoinGroup>,
        expires: Timestamp,
        context: &Context,
    ) -> Result<Vec<Event>, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        if let Some(missing) = nodes.iter().find(|n| !self.has_machine(n)) {
            return Err(Refusal::UnknownNode(missing.clone()));
        }
        check_life(Some(expires), Some(JOIN_LIFE_DAYS_MAX), context.now)?;
        let expired = self.tokens.iter().filter(|(_, token)| token.expires <= context.now);
        let mut events: Vec<Event> =
            expired.map(|(hash, _)| Event::JoinTokenRemoved { hash: hash.clone() }).collect();
        if self.tokens.len() - events.len() >= bounds::JOIN_TOKENS.most {
            return Err(too_many(bounds::JOIN_TOKENS));
        }
        events.push(Event::TokenIssued {
            hash: hash.to_string(),
            nodes,
            expires,
            made: Some(context.now),
            group,
        });
        Ok(events)
    }

    /// How many may join by a group's pattern. Some of its names must be machines of the cluster, or there must be room for
    /// dynamic nodes where it may bring those.
    fn check_pattern(
        &self,
        pattern: &str,
        count: Option<u32>,
        dynamic: bool,
    ) -> Result<u32, Refusal> {
        let names = hostlist::expand(pattern).map_err(|e| Refusal::Other(e.to_string()))?;
        if dynamic && self.room_for_nodes() == 0 {
            let most = self.config.parameters.max_node_count;
            return Err(Refusal::Other(format!(
                "there is no room for dynamic nodes: MaxNodeCount is {most}"
            )));
        }
        let brings_nodes = dynamic && !names.is_empty();
        if !brings_nodes && !names.iter().any(|name| self.has_machine(name)) {
            let expected =
                "a host list with names of slurm.conf, as in gpu[001-100]; others with --dynamic";
            return Err(invalid("pattern", pattern, expected.to_owned()));
        }
        let count = count.map_or(names.len(), |count| count as usize);
        if count == 0 || count > hostlist::HOSTS_MAX {
            let expected = format!("1 to {}", hostlist::HOSTS_MAX);
            return Err(invalid("count", &count.to_string(), expected));
        }
        Ok(count as u32)
    }
}

/// A name that was given; without one the token is named after its user and hash.
fn check_name(name: &str) -> Result<(), Refusal> {
    let most = bounds::TOKEN_NAME_BYTES.most;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._@-".contains(&b);
    if name.len() > most || !name.bytes().all(plain) {
        let expected = format!("letters, digits and . _ @ -, at most {most}");
        return Err(invalid(bounds::TOKEN_NAME_BYTES.what, name, expected));
    }
    if name == ADMIN_TOKEN {
        let expected = "another name: this is the administrator's token".to_string();
        return Err(invalid(bounds::TOKEN_NAME_BYTES.what, name, expected));
    }
    Ok(())
}

/// `expires` is `None` for a token that never expires, and `longest` for whoever may make such a token.
fn check_life(
    expires: Option<Timestamp>,
    longest: Option<u32>,
    now: Timestamp,
) -> Result<(), Refusal> {
    let too_long = |longest: u32| expires.is_none_or(|at| at > now + DAY * longest);
    match longest {
        _ if expires.is_some_and(|at| at <= now) => {
            Err(invalid("expires", "0s", "more than nothing, as in 90d".into()))
        }
        Some(days) if too_long(days) => {
            let asked =
                expires.map_or("never".to_string(), |at| format!("{}s", at.secs() - now.secs()));
            Err(invalid("expires", &asked, format!("at most {days}d")))
        }
        _ => Ok(()),
    }
}

fn invalid(what: &str, value: &str, expected: String) -> Refusal {
    Refusal::InvalidValue { what: what.into(), value: value.into(), expected }
}

fn too_many(bound: Bound) -> Refusal {
    invalid(bound.what, &(bound.most + 1).to_string(), format!("at most {}", bound.most))
}
