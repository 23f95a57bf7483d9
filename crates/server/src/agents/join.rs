//! How an agent becomes one of the cluster's: a join file with a token, which is good for one certificate.

use crate::auth::principal::server_principal;
use crate::auth::token;
use crate::clock;
use crate::shared::Shared;
use cluster::{Command, Reply};
use model::principal::Principal;
use model::reason::Refusal;
use std::time::Duration;
use wire::link::{JoinAccepted, JoinFile, JoinRequest, ToAgent};

/// Issues a token for these nodes; the file carries it to their machine.
pub async fn issue_join_file(
    shared: &Shared,
    by: Principal,
    nodes: Vec<String>,
    life: Duration,
) -> Result<JoinFile, Refusal> {
    let (token, expires) = (token::generate(), clock::now() + life);
    let command = Command::IssueToken { hash: token::hash(&token), nodes: nodes.clone(), expires };
    shared.writer.run(command, by).await?;
    Ok(join_file(shared, token, nodes))
}

/// The same for the host of a fleet that is this node, if it still is.
pub async fn issue_host_join_file(
    shared: &Shared,
    node: &str,
    id: &str,
    life: Duration,
) -> Result<JoinFile, Refusal> {
    let (token, expires) = (token::generate(), clock::now() + life);
    let (hash, node, id) = (token::hash(&token), node.to_owned(), id.to_owned());
    let nodes = vec![node.clone()];
    let command = Command::IssueHostToken { hash, node, id, expires };
    shared.writer.run(command, server_principal()).await?;
    Ok(join_file(shared, token, nodes))
}

fn join_file(shared: &Shared, token: String, nodes: Vec<String>) -> JoinFile {
    let configured = shared.read().config.server_addresses.clone();
    JoinFile {
        version: wire::version::PROTOCOL,
        servers: if configured.is_empty() {
            shared.setup.agents_addresses.clone()
        } else {
            configured
        },
        authority: shared.identity.authority_pem().to_string(),
        token,
        nodes,
    }
}

/// Answers an agent that wants to join: its token is spent, and its key certified.
pub async fn admit(shared: &Shared, join: &JoinRequest) -> ToAgent {
    let refused = |why: String| ToAgent::Refused { why };
    if !wire::version::compatible(join.version) {
        return refused(format!("protocol {} is not spoken here", join.version));
    }
    let (certificate, fingerprint) = match shared.identity.certify(&join.certificate_request) {
        Ok(signed) => signed,
        Err(error) => return refused(format!("the certificate request cannot be used: {error}")),
    };
    let command = Command::UseToken { hash: token::hash(&join.token), fingerprint };
    match shared.writer.run(command, server_principal()).await {
        Ok(Reply::TokenNodes(nodes)) => {
            tracing::info!("an agent joined for {}", model::hostlist::compress(&nodes));
            let order_key = shared.identity.order_public_key();
            ToAgent::Joined(JoinAccepted { certificate, order_key, nodes })
        }
        Ok(_) => refused("the token was not taken".into()),
        Err(why) => {
            tracing::warn!("an agent was turned away: {why}");
            refused(why.to_string())
        }
    }
}
