//! The calls about the SSH endpoint: its address, and the keys with which a user comes in.

use crate::shared::Shared;
use cluster::authorise::{Act, authorise};
use model::principal::{Principal, Role};
use model::reason::Refusal;
use model::secret::SecretValue;
use tokio::task::block_in_place;
use wire::client::Answer;
use wire::ssh::{SshAnswer, SshRequest};

/// The key that the server holds for a user, for a caller who may have it. It outlasts a token and a job, so it is given to those alone who may do all
/// that their user may: by the kernel's word on the server's own socket, or by a token without a limit.
pub fn held_private_key(shared: &Shared, by: &Principal, user: &str) -> Option<SecretValue> {
    let is_whole = by.token_limit.is_none_or(|limit| limit == Role::Admin);
    is_whole.then(|| shared.ssh_keys.held_private_text(user))
}

/// Registering a key needs the same right as making a token: a token that leaked could otherwise register a key and
/// outlive its own end.
pub fn answer(
    shared: &Shared,
    by: &Principal,
    user: Option<String>,
    request: SshRequest,
) -> Result<Answer, Refusal> {
    let user = user.unwrap_or_else(|| by.name.clone());
    let is_own = user == by.name && matches!(request, SshRequest::List | SshRequest::Connect);
    if !is_own {
        authorise(&shared.read(), by, Act::ManageTokens(&user))?;
    }
    let keys = &shared.ssh_keys;
    let mut private_key = None;
    block_in_place(|| match &request {
        SshRequest::List => Ok(()),
        SshRequest::Add { key } => keys.add(&user, key),
        SshRequest::Remove { key } => keys.remove(&user, key),
        SshRequest::Renew => keys.renew(&user),
        SshRequest::Connect => {
            private_key = held_private_key(shared, by, &user);
            Ok(())
        }
    })?;
    let endpoint = shared.setup.ssh.clone();
    Ok(Answer::Ssh(SshAnswer { endpoint, keys: keys.list(&user), private_key }))
}
