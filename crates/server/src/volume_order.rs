//! An order about a volume that a node carries out: its folder is made or removed, its disk mounted or let go.

use crate::shared::Shared;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use wire::volume::{CARRIED_OUT, VolumeOrder};

/// Why an order was not carried out.
pub struct Failure {
    pub why: String,
    /// The node said so, or was never asked.
    pub is_known: bool,
}

/// Has the agent of the node carry the order out for the owner of the volume.
pub async fn carry_out(
    shared: &Arc<Shared>,
    node: &str,
    uid: u32,
    order: VolumeOrder,
    limit: Duration,
) -> Result<(), Failure> {
    let said = |why: String, is_known| Err(Failure { why, is_known });
    let stream = shared.dispatch.volume(node.to_owned(), uid, order);
    let outcome = async {
        let mut reader = stream.await.ok().flatten()?;
        let mut done = Vec::new();
        while let Some(chunk) = reader.next().await {
            match chunk {
                Ok(bytes) => done.extend(bytes.into_iter().take(CARRIED_OUT.len())),
                Err(why) => return Some(Err(why)),
            }
        }
        (done == CARRIED_OUT).then_some(Ok(()))
    };
    match timeout(limit, outcome).await {
        Ok(Some(Ok(()))) => Ok(()),
        Ok(Some(Err(why))) => said(format!("node {node}: {why}"), true),
        Ok(None) => said(format!("the agent of node {node} was lost meanwhile"), false),
        Err(_) => said(format!("node {node} has not answered within {} s", limit.as_secs()), false),
    }
}
