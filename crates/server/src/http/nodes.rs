//! The calls about machines and their agents: `sluice node`.

use crate::agents::dynamic_node;
use crate::clock;
use crate::shared::Shared;
use cluster::authorise::{Act, authorise};
use cluster::membership::{JoinMethod, JoinRecord};
use cluster::{Command, State};
use model::hostlist;
use model::node::NodeConfig;
use model::principal::Principal;
use model::reason::Refusal;
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::agent_view::{AgentView, JoinMethodView, JoinView, NewNodes};
use wire::client::{Answer, Call};

pub async fn answer(shared: &Arc<Shared>, by: Principal, call: Call) -> Result<Answer, Refusal> {
    match call {
        Call::Agents => agents(shared, &by),
        Call::RejoinNode { name } => {
            shared.writer.run(Command::RejoinNode { node: name }, by).await?;
            Ok(Answer::Done)
        }
        Call::RemoveNode { name } => {
            shared.writer.run(Command::RemoveAgent { node: name.clone() }, by).await?;
            // A link that is made meanwhile is refused by the state.
            shared.agents.cut(&name);
            tracing::info!("node {name} was removed: its certificate is void");
            Ok(Answer::Done)
        }
        Call::CreateNodes(new) => {
            authorise(&shared.read(), &by, Act::Administer)?;
            let nodes = created(&new, dynamic_node::is_declared(&shared.read()))?;
            shared.writer.run(Command::CreateNodes(nodes), by).await?;
            tracing::info!("nodes {} were created", new.names);
            Ok(Answer::Done)
        }
        Call::DeleteNodes { nodes } => {
            shared.writer.run(Command::DeleteNodes { nodes: nodes.clone() }, by).await?;
            nodes.iter().for_each(|node| dynamic_node::forget(shared, node));
            tracing::info!("nodes {} were deleted", hostlist::compress(&nodes));
            Ok(Answer::Done)
        }
        other => unreachable!("{other:?} is answered elsewhere"),
    }
}

/// The nodes that a client asks for, each as it would be.
fn created(new: &NewNodes, declared: bool) -> Result<Vec<NodeConfig>, Refusal> {
    let names = hostlist::expand(&new.names).map_err(|error| Refusal::Other(error.to_string()))?;
    let count = names.len();
    let is_whole = |list: &Vec<String>| list.is_empty() || list.len() == count;
    if names.is_empty() || !is_whole(&new.addresses) || !is_whole(&new.hostnames) {
        return Err(Refusal::Other(format!(
            "{}: expected names, and as many addresses or none",
            new.names
        )));
    }
    let each = names.into_iter().enumerate().map(|(at, name)| {
        let hostname = new.hostnames.get(at).unwrap_or(&name).clone();
        let address = new.addresses.get(at).unwrap_or(&hostname).clone();
        let like = new.node.clone();
        let node = NodeConfig { name, address, hostname, declared, dynamic: true, ..like };
        let held = dynamic_node::within_bounds(&node);
        if held != node {
            return Err(Refusal::Other(format!(
                "node {}: it has more than a node may have",
                node.name
            )));
        }
        Ok(node)
    });
    each.collect()
}

fn agents(shared: &Shared, by: &Principal) -> Result<Answer, Refusal> {
    let (state, now) = (shared.read(), clock::now());
    authorise(&state, by, Act::Operate)?;
    let mut names: BTreeSet<&String> = state.nodes.keys().collect();
    names.extend(&state.config.login_nodes);
    names.extend(state.agents.keys());
    let view = |node: &String| {
        let peer = shared.agents.peer(node);
        AgentView {
            node: node.clone(),
            login: state.config.login_nodes.contains(node),
            address: peer.as_ref().map(|peer| peer.address.to_string()),
            version: peer.as_ref().map(|peer| peer.build.program.to_string()),
            connected: peer.as_ref().map(|peer| peer.since),
            joined: state.agents.contains_key(node).then(|| join(&state, node)),
            rejoin_until: state.rejoins.get(node).copied().filter(|until| *until > now),
        }
    };
    Ok(Answer::Agents(names.into_iter().map(view).collect()))
}

fn join(state: &State, node: &str) -> JoinView {
    let record = state.joins.get(node);
    // One that was made at the first renewal of an older node knows neither token nor time of the join.
    let known = record.filter(|record| !record.token.is_empty());
    let method = |record: &JoinRecord| match record.method {
        JoinMethod::File => JoinMethodView::File,
        JoinMethod::Group => JoinMethodView::Group,
        JoinMethod::Fleet => JoinMethodView::Fleet,
    };
    JoinView {
        at: known.map(|record| record.at),
        method: known.map(method),
        token: known.map(|record| record.token.clone()),
        certificate_end: record.map(|record| record.certificate_end),
    }
}
