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
use cluster::Command;
use cluster::token::{ADMIN_TOKEN, TokenStatus, UserToken};
use model::hostlist;
use model::principal::Role;
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
    // The file says which token is the administrator's: one that was replaced there is refused from now on.
    let known = shared.read().user_tokens.get(&hash).cloned();
    let is_good = |t: UserToken| t.is_admin_token() && t.status(clock::now()) == TokenStatus::Good;
    if !known.is_some_and(is_good) {
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
    let nodes = options.local_nodes.clone();
    if !nodes.is_empty() && !has_join_file(shared, options) {
        let file = join::issue_join_file(shared, me(), nodes, JOIN_LIFE).await.map_err(refused)?;
        let json = serde_json::to_string(&file).map_err(|e| ServerError::Other(e.to_string()))?;
        identity::write_private(&options.server_dir, "local.join", &json)?;
    }
    Ok(())
}

/// Whether there is a join file that is still good, or that all its nodes have already joined by.
fn has_join_file(shared: &Shared, options: &ServerOptions) -> bool {
    let read = std::fs::read(options.server_dir.join("local.join")).ok();
    let file = read.and_then(|b| serde_json::from_slice::<wire::link::JoinFile>(&b).ok());
    let Some(file) = file else { return false };
    let state = shared.read();
    let now = clock::now();
    let joined = file.nodes.iter().all(|n| state.has_live_certificate(n, now));
    let usable = state.tokens.get(&token::hash(&file.token));
    let usable = usable.is_some_and(|t| t.expires > now);
    file.nodes == options.local_nodes
        && file.authority == shared.identity.authority_pem()
        && (joined || usable)
}
