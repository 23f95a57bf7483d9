//! What the state needs before anybody is answered.

use super::ServerOptions;
use crate::agents::join;
use crate::auth::identity;
use crate::auth::principal::server_principal;
use crate::auth::token;
use crate::clock;
use crate::error::ServerError;
use crate::http::tokens::JOIN_LIFE;
use crate::shared::Shared;
use cluster::token::{ADMIN_TOKEN, TokenStatus, UserToken};
use cluster::{Command, State};
use model::hostlist;
use model::principal::Role;
use model::time::Timestamp;
use std::sync::Arc;

/// A new term, the configuration, the administrator's token, and a join file for this machine.
pub(super) async fn prepare(
    shared: &Arc<Shared>,
    options: &ServerOptions,
    term: u64,
) -> Result<(), ServerError> {
    let refused = |e: model::reason::Refusal| ServerError::Other(e.to_string());
    let me = server_principal;
    shared.writer.run(Command::StartTerm { term }, me()).await.map_err(refused)?;
    let config = Command::Configure(Box::new(options.config.clone()));
    shared.writer.run(config, me()).await.map_err(refused)?;
    let awaited = shared.read().restore_wait.clone();
    if let Some(wait) = awaited {
        let nodes: Vec<String> = wait.nodes.into_iter().collect();
        tracing::warn!(
            nodes = hostlist::compress(&nodes),
            "jobs of before the restore start when these nodes have connected, or are down"
        );
    }
    let hash = token::hash(&options.admin_token);
    let file = AdminTokenFile::judge(&shared.read(), &hash, options.store.is_some(), clock::now());
    match file {
        AdminTokenFile::Current => {}
        AdminTokenFile::OfAnotherTime => tracing::error!(
            "admin.token is not the administrator's token of this cluster, and is refused: \
             copy the file from the server that led when it was replaced"
        ),
        AdminTokenFile::New => {
            let admin = UserToken {
                hash,
                name: ADMIN_TOKEN.into(),
                token_name: ADMIN_TOKEN.into(),
                unix_user: Some(options.admin_user.clone()),
                role: Role::Admin,
                made: Some(clock::now()),
                ..UserToken::default()
            };
            let command = Command::SetAdminToken(Box::new(admin));
            shared.writer.run(command, me()).await.map_err(refused)?;
        }
    }
    let nodes = known_nodes(&shared.read(), &options.local_nodes);
    if !nodes.is_empty() && !has_join_file(shared, options, &nodes) {
        let file = join::issue_join_file(shared, me(), nodes, JOIN_LIFE).await.map_err(refused)?;
        let json = serde_json::to_string(&file).map_err(|e| ServerError::Other(e.to_string()))?;
        identity::write_private(&options.server_dir, "local.join", &json)?;
    }
    Ok(())
}

/// What the token in `admin.token` is to the cluster.
#[derive(Debug, PartialEq, Eq)]
enum AdminTokenFile {
    Current,
    /// The file says which token is the administrator's: the one before is refused from now on.
    New,
    /// One of several servers has a file of its own, which may be older than the cluster's token.
    OfAnotherTime,
}

impl AdminTokenFile {
    fn judge(state: &State, hash: &str, has_store: bool, now: Timestamp) -> Self {
        let is_good =
            |token: &UserToken| token.is_admin_token() && token.status(now) == TokenStatus::Good;
        if state.user_tokens.get(hash).is_some_and(is_good) {
            Self::Current
        } else if has_store && state.user_tokens.values().any(is_good) {
            Self::OfAnotherTime
        } else {
            Self::New
        }
    }
}

/// This machine's nodes that the cluster has. A node that the configuration has dropped is one of them while it has a job.
fn known_nodes(state: &State, nodes: &[String]) -> Vec<String> {
    nodes.iter().filter(|node| state.nodes.contains_key(*node)).cloned().collect()
}

/// Whether there is a join file for these nodes that is still good, or that all of them have already joined by.
fn has_join_file(shared: &Shared, options: &ServerOptions, nodes: &[String]) -> bool {
    let read = std::fs::read(options.server_dir.join("local.join")).ok();
    let file = read.and_then(|b| serde_json::from_slice::<wire::link::JoinFile>(&b).ok());
    let Some(file) = file else { return false };
    let state = shared.read();
    let now = clock::now();
    let joined = file.nodes.iter().all(|n| state.has_live_certificate(n, now));
    let usable = state.tokens.get(&token::hash(&file.token));
    let usable = usable.is_some_and(|t| t.expires > now);
    file.nodes == nodes && file.authority == shared.identity.authority_pem() && (joined || usable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(hash: &str, revoked: Option<Timestamp>) -> (String, UserToken) {
        let (hash, token_name) = (hash.to_owned(), ADMIN_TOKEN.into());
        (hash.clone(), UserToken { hash, token_name, revoked, ..UserToken::default() })
    }

    #[test]
    fn older_token_of_one_of_several_servers_does_not_replace_the_clusters() {
        let now = Timestamp(10);
        let mut state = State::default();
        let judge = |state: &State, hash: &str, has_store: bool| {
            AdminTokenFile::judge(state, hash, has_store, now)
        };
        assert_eq!(judge(&state, "first", true), AdminTokenFile::New);
        let tokens = [token("first", Some(Timestamp(5))), token("second", None)];
        state.user_tokens.extend(tokens);
        assert_eq!(judge(&state, "second", true), AdminTokenFile::Current);
        assert_eq!(judge(&state, "first", true), AdminTokenFile::OfAnotherTime);
        // A server alone has the one file.
        assert_eq!(judge(&state, "first", false), AdminTokenFile::New);
    }
}
