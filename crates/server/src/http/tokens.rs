//! The calls about tokens. Only hashes reach the state; the text of a token goes to whoever asked for it.

use crate::agents::join::{self, JoinGroupRequest};
use crate::auth::{json_web_token, principal, token};
use crate::clock;
use crate::shared::Shared;
use cluster::Command;
use cluster::authorise::{Act, authorise};
use cluster::membership::JoinGroup;
use cluster::token::{JoinToken, TokenStatus, UserToken};
use model::principal::{Principal, Role};
use model::reason::Refusal;
use model::secret::SecretValue;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use wire::client::{Answer, Call};
use wire::link::JoinFile;
use wire::token::{LoginHint, TokenLife, TokenOf, TokenView};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// How long a user's token is good for where nothing else is said.
const USER_LIFE: Duration = DAY.saturating_mul(90);

/// How long a join token is good for where nothing else is said.
pub const JOIN_LIFE: Duration = DAY;

pub async fn answer(shared: &Arc<Shared>, by: Principal, call: Call) -> Result<Answer, Refusal> {
    match call {
        Call::NodeToken { nodes, life } => {
            join_answer(&join::issue_join_file(shared, by, nodes, join_life(life)).await?)
        }
        Call::GroupToken { pattern, count, dynamic, life } => {
            let group = JoinGroupRequest { pattern, count, dynamic };
            join_answer(&join::issue_group_join_file(shared, by, group, join_life(life)).await?)
        }
        Call::UserToken { name, account, unix_user, role, token_name, life } => {
            let wanted = UserToken {
                name,
                account,
                unix_user,
                role: role.unwrap_or(Role::User),
                token_name: token_name.unwrap_or_default(),
                limit: role,
                ..UserToken::default()
            };
            user_token(shared, by, wanted, life).await
        }
        Call::RestToken { user, life_s } => rest_token(shared, by, user, life_s).await,
        Call::Tokens => tokens(shared, &by),
        Call::RevokeToken { name, user } => {
            shared.writer.run(Command::RevokeToken { name, user }, by).await?;
            Ok(Answer::Done)
        }
        Call::RotateAdminToken { hash, token } => {
            authorise(&shared.read(), &by, Act::Administer)?;
            let known = admin_token(shared);
            let known = known.ok_or_else(|| Refusal::Other("there is no admin token".into()))?;
            let next = UserToken { hash, made: Some(clock::now()), ..known };
            let given = token_to_share(shared.key_files.are_shared(), token, &next.hash)?;
            rotate_admin_token(shared, by, next, given).await
        }
        other => unreachable!("{other:?} is answered elsewhere"),
    }
}

/// The text of the administrator's new token, where other servers are to have it: without it, the one that takes over would have a
/// token that is refused.
fn token_to_share(
    is_shared: bool,
    given: Option<SecretValue>,
    hash: &str,
) -> Result<Option<SecretValue>, Refusal> {
    let given = given.filter(|given| is_shared && token::hash(&given.0) == hash);
    if is_shared && given.is_none() {
        let why = "several servers share the administrator's token: replace it by \
                   sluice token rotate admin of this version";
        return Err(Refusal::Other(why.into()));
    }
    Ok(given)
}

/// Shares the new token before it counts: a server that takes over in between has a token that its state does not know yet, and says
/// so, and nobody was told that the token was replaced.
async fn rotate_admin_token(
    shared: &Arc<Shared>,
    by: Principal,
    next: UserToken,
    given: Option<SecretValue>,
) -> Result<Answer, Refusal> {
    let former = match &given {
        Some(given) => shared.key_files.share_admin_token(&given.0).map_err(|error| {
            Refusal::Other(format!("other servers would not have the new admin.token: {error}"))
        })?,
        None => None,
    };
    let hash = next.hash.clone();
    let set = shared.writer.run(Command::SetAdminToken(Box::new(next)), by).await;
    // A commit that was refused may be in the database all the same.
    let is_set = || admin_token(shared).is_some_and(|known| known.hash == hash);
    if let (Err(_), Some(former)) = (&set, former)
        && !is_set()
        && let Err(error) = shared.key_files.share_admin_token(&former)
    {
        tracing::error!("other servers have an admin.token that was not taken: {error}");
    }
    set.map(|_| Answer::Done)
}

/// A token that is kept, with the name and the rights that are wanted.
async fn user_token(
    shared: &Arc<Shared>,
    by: Principal,
    wanted: UserToken,
    life: TokenLife,
) -> Result<Answer, Refusal> {
    let now = clock::now();
    let text = token::generate();
    let made = UserToken {
        hash: token::hash(&text),
        made: Some(now),
        expires: match life {
            TokenLife::Usual => Some(now + USER_LIFE),
            TokenLife::Seconds(seconds) => Some(now + Duration::from_secs(seconds)),
            TokenLife::Never => None,
        },
        ..wanted
    };
    shared.writer.run(Command::SetUserToken(Box::new(made.clone())), by).await?;
    // A directory of users may have its user later: the token is made all the same.
    let user_unknown = !is_user_known(shared, &made).await;
    Ok(Answer::Token { text, login: hint(shared), user_unknown })
}

/// Whether the token stands for somebody. The user directory may be slow: threads that answer others do not wait for it.
async fn is_user_known(shared: &Shared, token: &UserToken) -> bool {
    let accounts = &shared.volatile.token_accounts;
    if token.user() != principal::ROOT {
        accounts.prepare(token.user()).await;
    }
    principal::of_token(token, |name| accounts.find(name)).is_some()
}

/// The longest life of a JSON Web Token: nobody can revoke a single one.
const REST_TOKEN_LIFE_MAX: Duration = DAY.saturating_mul(366);

/// A token for Slurm's REST API. A JSON Web Token is signed and not kept: who may make tokens for a user may make it.
async fn rest_token(
    shared: &Arc<Shared>,
    by: Principal,
    user: Option<String>,
    life_s: u64,
) -> Result<Answer, Refusal> {
    let name = user.unwrap_or_else(|| by.name.clone());
    let place = shared.read().config.jwt_key.clone();
    let Some(place) = place else {
        let wanted = UserToken { name, role: Role::User, ..UserToken::default() };
        return user_token(shared, by, wanted, TokenLife::Seconds(life_s)).await;
    };
    authorise(&shared.read(), &by, Act::ManageTokens(&name))?;
    let life = Duration::from_secs(life_s);
    if life.is_zero() || life > REST_TOKEN_LIFE_MAX {
        let most = REST_TOKEN_LIFE_MAX.as_secs();
        return Err(Refusal::Other(format!("lifespan={life_s}: expected 1 to {most} seconds")));
    }
    let found = UserToken { name: name.clone(), ..UserToken::default() };
    if !is_user_known(shared, &found).await {
        return Err(Refusal::UnknownThing { what: "user".into(), name });
    }
    // The file of the key may be slow: threads that answer others do not wait for it.
    let signer = shared.clone();
    let key = move || json_web_token::key_to_sign(&place, &signer.key_files);
    let key = spawn_blocking(key).await.map_err(|error| Refusal::Other(error.to_string()))?;
    let key = key.map_err(|error| Refusal::Other(error.to_string()))?;
    let text = json_web_token::sign(&key, &name, clock::now(), life);
    Ok(Answer::Token { text, login: None, user_unknown: false })
}

/// Where a user of another machine logs in, and the authority to expect there; of a server that listens on loopback alone, the
/// authority to expect once it listens elsewhere.
fn hint(shared: &Shared) -> Option<LoginHint> {
    let listen: SocketAddr = shared.setup.listen.parse().ok()?;
    let state = shared.read();
    let config = &state.config;
    let fingerprint = match config.server_certificate {
        Some(_) => None,
        None => shared.identity.authority_fingerprint().ok(),
    };
    if listen.ip().is_loopback() {
        return Some(LoginHint { url: format!("http://{listen}"), fingerprint, loopback: true });
    }
    let address = config.server_addresses.first().or(shared.setup.listen_addresses.first())?;
    let (host, _) = address.rsplit_once(':')?;
    let url = format!("https://{host}:{}", listen.port());
    Some(LoginHint { url, fingerprint, loopback: false })
}

fn admin_token(shared: &Shared) -> Option<UserToken> {
    let (state, now) = (shared.read(), clock::now());
    let mut good = state.user_tokens.values().filter(|t| t.status(now) == TokenStatus::Good);
    good.find(|token| token.is_admin_token()).cloned()
}

fn join_life(life: TokenLife) -> Duration {
    match life {
        TokenLife::Usual => JOIN_LIFE,
        TokenLife::Seconds(seconds) => Duration::from_secs(seconds),
        // Longer than a join token may last: it is refused as such.
        TokenLife::Never => Duration::MAX,
    }
}

fn join_answer(file: &JoinFile) -> Result<Answer, Refusal> {
    let text = serde_json::to_string_pretty(file).map_err(|e| Refusal::Other(e.to_string()))?;
    Ok(Answer::Token { text: text + "\n", login: None, user_unknown: false })
}

/// All tokens for an administrator; their own for others.
fn tokens(shared: &Shared, by: &Principal) -> Result<Answer, Refusal> {
    let (state, now) = (shared.read(), clock::now());
    authorise(&state, by, Act::ManageTokens(&by.name))?;
    let admin = authorise(&state, by, Act::Administer).is_ok();
    let shown = state.user_tokens.values().filter(|token| admin || token.user() == by.name);
    let users = shown.map(|token| TokenView {
        name: token.shown_name(),
        of: TokenOf::User { name: token.user().to_string(), limit: token.limit },
        made: token.made,
        expires: token.expires,
        last_use: shared.volatile.token_uses.last(&token.hash),
        status: token.status(now),
    });
    let joins = state.tokens.iter().filter(|(_, token)| admin && token.expires > now);
    let joins = joins.map(|(hash, token)| TokenView {
        name: JoinToken::shown_name(hash),
        of: match &token.group {
            Some(JoinGroup { pattern, count, used, dynamic }) => {
                let (pattern, count) = (pattern.clone(), *count);
                TokenOf::Group { pattern, count, used: *used, dynamic: *dynamic }
            }
            None => TokenOf::Nodes(token.nodes.clone()),
        },
        made: token.made,
        expires: Some(token.expires),
        last_use: None,
        status: TokenStatus::Good,
    });
    Ok(Answer::Tokens(users.chain(joins).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_admin_token_is_given_where_other_servers_need_it() {
        let (text, other) = (token::generate(), token::generate());
        let hash = token::hash(&text);
        let share = |is_shared, given: Option<&String>| {
            token_to_share(is_shared, given.map(|text| SecretValue(text.clone())), &hash)
        };
        share(true, None).expect_err("the other servers would not have it");
        share(true, Some(&other)).expect_err("it is another");
        assert_eq!(share(true, Some(&text)).expect("shared"), Some(SecretValue(text.clone())));
        assert_eq!(share(false, None).expect("a server alone"), None);
        assert_eq!(share(false, Some(&text)).expect("a server alone"), None);
    }
}
