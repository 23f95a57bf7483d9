//! What the controller has beside jobs: nodes, partitions, reservations, licenses, shares, and its own counters and configuration.

use super::client::{Client, Refused, RestResult};
use super::database::accounts;
use super::query::{self, Query};
use crate::http::body_limits::HeldRequest;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::Path;
use axum::response::Response;
use model::change::NodeChange;
use serde_json::Value;
use slurm::openapi::{rest, update};
use slurm::output::sshare;
use wire::client::{Answer, Call};
use wire::reservation::ReservationView;
use wire::view::ClusterView;

const LISTING: &[&str] = &["update_time", "flags"];

pub async fn ping(client: Client) -> Response {
    client.document(&rest::ping(&client.context(), &client.shared.setup.hostname))
}

pub async fn diagnostics(client: Client) -> RestResult {
    match client.ask(Call::Diagnostics { reset: false }).await? {
        Answer::Diagnostics(view) => client.send(rest::diagnostics(&client.context(), &view)),
        _ => Err(client.unexpected()),
    }
}

/// Reads the configuration again. Who asks with a token has no files to send: where the server's user may not read the folder, this
/// is refused, and `scontrol reconfigure` is for it.
pub async fn reconfigure(client: Client, query: Query) -> RestResult {
    query::check(&client, &query, &[])?;
    client.ask(Call::Reconfigure { files: None }).await?;
    Ok(client.document(&rest::done(&client.context())))
}

/// What each association was promised and has used; of these accounts and users, as `sshare` chooses them.
pub async fn shares(client: Client, query: Query) -> RestResult {
    query::check(&client, &query, &["accounts", "users"])?;
    let view = match client.ask(Call::Shares).await? {
        Answer::Shares(view) => view,
        _ => return Err(client.unexpected()),
    };
    let accounts = accounts(&client).await?;
    let wanted = sshare::Options {
        users: Some(query::list(&query, "users")).filter(|users| !users.is_empty()),
        accounts: query::list(&query, "accounts"),
        ..sshare::Options::default()
    };
    let write = || client.send(rest::shares(&client.context(), &view, &accounts, &wanted));
    client.at_turn(write).await?
}

async fn cluster(client: &Client) -> Result<ClusterView, Refused> {
    match client.ask(Call::Cluster).await? {
        Answer::Cluster(view) => Ok(view),
        _ => Err(client.unexpected()),
    }
}

pub async fn nodes(client: Client, query: Query) -> RestResult {
    query::check(&client, &query, LISTING)?;
    let view = cluster(&client).await?;
    client.at_turn(|| client.send(rest::nodes(&client.context(), &view))).await?
}

pub async fn node(client: Client, Path(name): Path<String>) -> RestResult {
    let mut view = cluster(&client).await?;
    view.nodes.retain(|node| node.config.name == name);
    if view.nodes.is_empty() {
        return Err(client.unknown("node", &name));
    }
    client.send(rest::nodes(&client.context(), &view))
}

/// Changes a node: its state with a reason, its weight, its features.
pub async fn update_node(
    client: Client,
    Path(name): Path<String>,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> RestResult {
    let properties: Value = client.read(&body)?;
    let changes = update::node_changes(&properties).map_err(|why| client.bad(&why))?;
    change_nodes(&client, held, vec![name], changes).await
}

/// The same of all nodes that the document names.
pub async fn update_nodes(
    client: Client,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> RestResult {
    let properties: Value = client.read(&body)?;
    let read = update::changes_of_nodes(&properties);
    let (names, changes) = read.map_err(|why| client.bad(&why))?;
    change_nodes(&client, held, names, changes).await
}

async fn change_nodes(
    client: &Client,
    held: HeldRequest,
    names: Vec<String>,
    changes: Vec<NodeChange>,
) -> RestResult {
    for change in changes {
        let call = Call::UpdateNode { nodes: names.clone(), change };
        if let Answer::Updated(results) = client.ask_with(Some(held.clone()), call).await?
            && let Some(why) = results.into_iter().find_map(|(_, result)| result.err())
        {
            return Err(client.refusal(&why));
        }
    }
    Ok(client.document(&rest::done(&client.context())))
}

/// Removes a node that no configuration file names.
pub async fn delete_node(client: Client, Path(name): Path<String>) -> RestResult {
    client.ask(Call::DeleteNodes { nodes: vec![name] }).await?;
    Ok(client.document(&rest::done(&client.context())))
}

pub async fn partitions(client: Client, query: Query) -> RestResult {
    query::check(&client, &query, LISTING)?;
    client.send(rest::partitions(&client.context(), &cluster(&client).await?))
}

pub async fn partition(client: Client, Path(name): Path<String>) -> RestResult {
    let mut view = cluster(&client).await?;
    view.partitions.retain(|partition| partition.name == name);
    if view.partitions.is_empty() {
        return Err(client.unknown("partition", &name));
    }
    client.send(rest::partitions(&client.context(), &view))
}

async fn all_reservations(client: &Client) -> Result<Vec<ReservationView>, Refused> {
    match client.ask(Call::Reservations).await? {
        Answer::Reservations(view) => Ok(view.reservations),
        _ => Err(client.unexpected()),
    }
}

pub async fn reservations(client: Client, query: Query) -> RestResult {
    query::check(&client, &query, &["update_time"])?;
    client.send(rest::reservations(&client.context(), &all_reservations(&client).await?))
}

pub async fn reservation(client: Client, Path(name): Path<String>) -> RestResult {
    let mut found = all_reservations(&client).await?;
    found.retain(|one| one.reservation.name == name);
    if found.is_empty() {
        return Err(client.unknown("reservation", &name));
    }
    client.send(rest::reservations(&client.context(), &found))
}

pub async fn licenses(client: Client) -> RestResult {
    match client.ask(Call::Licenses).await? {
        Answer::Licenses(found) => client.send(rest::licenses(&client.context(), &found)),
        _ => Err(client.unexpected()),
    }
}
