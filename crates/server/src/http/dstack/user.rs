//! Users: those with a role, a token or an account, and those whom an administrator made known.

use super::answer::{ApiResult, Json, Refused};
use crate::auth::principal;
use crate::clock;
use crate::http::calls;
use crate::http::ssh_keys::held_private_key;
use crate::shared::Shared;
use crate::show::dstack_id::uuid;
use axum::Extension;
use axum::extract::State;
use cluster::authorise::{Act, authorise};
use cluster::command::SetUser;
use cluster::rights::role_of;
use cluster::{Command, State as Cluster};
use dstack::api::project::{
    ByUsername, CreateUser, DeleteUsers, TokenCreds, User, UserPermissions, UserWithCreds,
};
use dstack::status::GlobalRole;
use model::principal::{Principal, Role};
use model::reason::Refusal;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::task::block_in_place;
use wire::client::{Answer, Call};
use wire::token::TokenLife;

/// The name of the token that `refresh_token` makes, and replaces.
const TOKEN_NAME: &str = "dstack";

/// The user of this name, in dstack's form.
pub fn body(shared: &Shared, state: &Cluster, name: &str, role: Role) -> User {
    let known = state.users.get(name);
    User {
        id: uuid("user", name),
        username: name.to_owned(),
        created_at: Some(known.map_or(shared.setup.started, |known| known.created).into()),
        global_role: if role == Role::Admin { GlobalRole::Admin } else { GlobalRole::User },
        email: known.and_then(|known| known.email.clone()),
        active: known.is_none_or(|known| known.active),
        permissions: UserPermissions { can_create_projects: role >= Role::Operator },
        ssh_public_key: None,
    }
}

/// The caller.
pub fn own_body(shared: &Shared, by: &Principal) -> User {
    let state = shared.read();
    body(shared, &state, &by.name, role_of(&state, by))
}

/// No token is sent back: the state has hashes alone.
fn without_creds(user: User) -> UserWithCreds {
    UserWithCreds { user, creds: TokenCreds { token: String::new() }, ssh_private_key: None }
}

pub async fn my_user(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
) -> ApiResult<UserWithCreds> {
    Ok(Json(with_ssh_key(&shared, &by)))
}

/// The caller, with the key that the client comes in with by SSH, where there is an endpoint for it.
fn with_ssh_key(shared: &Shared, by: &Principal) -> UserWithCreds {
    let mut own = without_creds(own_body(shared, by));
    if shared.setup.ssh.is_some() {
        own.ssh_private_key = held_private_key(shared, by, &by.name).map(|key| key.0);
        own.user.ssh_public_key = Some(shared.ssh_keys.held_public_line(&by.name));
    }
    own
}

/// Replaces the key that the server holds: one's own, or anybody's for an administrator.
pub async fn refresh_ssh_key(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<ByUsername>,
) -> ApiResult<UserWithCreds> {
    let name = wanted.username;
    // As for `sluice key renew`: a token that may not make another locks nobody out.
    authorise(&shared.read(), &by, Act::ManageTokens(&name))?;
    if name != by.name && principal::of_name(&name).is_none() {
        return Err(no_such_user(&name));
    }
    block_in_place(|| shared.ssh_keys.renew(&name, clock::now()))?;
    if name == by.name {
        return Ok(Json(with_ssh_key(&shared, &by)));
    }
    Ok(Json(without_creds(named(&shared, &shared.read(), &by, &name))))
}

/// All users for administrators; to others only themselves.
pub async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
) -> ApiResult<Vec<User>> {
    let state = shared.read();
    if authorise(&state, &by, Act::Administer).is_err() {
        drop(state);
        return Ok(Json(vec![own_body(&shared, &by)]));
    }
    let mut names: BTreeSet<&str> = state.users.keys().map(String::as_str).collect();
    names.extend(state.roles.keys().map(String::as_str));
    names.extend(state.user_tokens.values().map(|token| token.user()));
    names.extend(state.associations.iter().filter_map(|a| a.user.as_deref()));
    names.insert(&by.name);
    Ok(Json(names.into_iter().map(|name| named(&shared, &state, &by, name)).collect()))
}

fn named(shared: &Shared, state: &Cluster, by: &Principal, name: &str) -> User {
    let role = if name == by.name { role_of(state, by) } else { role_by_name(state, name) };
    body(shared, state, name, role)
}

pub fn role_by_name(state: &Cluster, name: &str) -> Role {
    if name == "root" { Role::Admin } else { state.roles.get(name).copied().unwrap_or_default() }
}

fn no_such_user(name: &str) -> Refused {
    Refused::not_found(format!("User {name} not found"))
}

/// Oneself, or anybody for an administrator.
pub async fn get(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<ByUsername>,
) -> ApiResult<UserWithCreds> {
    if wanted.username != by.name {
        authorise(&shared.read(), &by, Act::Administer)?;
        // The state is not held meanwhile: the user database may be slow.
        if principal::of_name(&wanted.username).is_none() {
            return Err(no_such_user(&wanted.username));
        }
    }
    Ok(Json(without_creds(named(&shared, &shared.read(), &by, &wanted.username))))
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<CreateUser>,
) -> ApiResult<User> {
    set(&shared, by, wanted, true).await
}

pub async fn update(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<CreateUser>,
) -> ApiResult<User> {
    set(&shared, by, wanted, false).await
}

/// A user of this cluster is an account of its machines: processes run as somebody.
async fn set(
    shared: &Arc<Shared>,
    by: Principal,
    wanted: CreateUser,
    is_new: bool,
) -> ApiResult<User> {
    let name = wanted.username;
    authorise(&shared.read(), &by, Act::Administer)?;
    if principal::of_name(&name).is_none() {
        let text =
            format!("user {name}: there is no Unix account of this name on the server's machine");
        return Err(Refused::because(text));
    }
    let role = match wanted.global_role {
        GlobalRole::Admin => Role::Admin,
        GlobalRole::User => Role::User,
    };
    let (email, active) = (wanted.email, wanted.active.unwrap_or(true));
    let set = SetUser { name: name.clone(), role, email, active, is_new };
    shared.writer.run(Command::SetUser(set), by.clone()).await?;
    let state = shared.read();
    Ok(Json(named(shared, &state, &by, &name)))
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<DeleteUsers>,
) -> ApiResult<()> {
    let names = wanted.users.clone();
    shared.writer.run(Command::RemoveUsers { names: wanted.users }, by).await?;
    // Their tokens have ended with them, and so do the keys with which they came in by SSH.
    let now = clock::now();
    block_in_place(|| names.iter().try_for_each(|name| shared.ssh_keys.end_all(name, now)))?;
    Ok(Json(()))
}

/// Makes a token in place of the one that was made here before: its text is in this answer and nowhere else.
pub async fn refresh_token(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<ByUsername>,
) -> ApiResult<UserWithCreds> {
    let name = wanted.username;
    authorise(&shared.read(), &by, Act::ManageTokens(&name))?;
    if principal::of_name(&name).is_none() {
        return Err(no_such_user(&name));
    }
    let revoke = Call::RevokeToken { name: TOKEN_NAME.into(), user: Some(name.clone()) };
    match calls::answer(&shared, by.clone(), revoke).await {
        Ok(_) | Err(Refusal::UnknownThing { .. }) => {}
        Err(why) => return Err(why.into()),
    }
    let make = Call::UserToken {
        name: name.clone(),
        account: None,
        unix_user: None,
        role: None,
        token_name: Some(TOKEN_NAME.into()),
        life: TokenLife::Usual,
    };
    let Answer::Token { text, .. } = calls::answer(&shared, by.clone(), make).await? else {
        return Err(Refused::because("the token was not made"));
    };
    let state = shared.read();
    let user = named(&shared, &state, &by, &name);
    Ok(Json(UserWithCreds { user, creds: TokenCreds { token: text }, ssh_private_key: None }))
}
