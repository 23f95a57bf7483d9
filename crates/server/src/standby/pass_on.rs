//! One request that a standby passes on to the leader, and its answer back: whole, as a stream, or as another protocol.

use super::Standby;
use super::leader_link::LeaderStream;
use crate::http::answer::refused;
use crate::http::authenticate::{self, Caller};
use crate::http::peer::{HeldSlot, Peer};
use crate::proxy::exchange::join_upgraded_until;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::link::PassedFrom;

/// Said where it is not known whether the leader has done what was asked.
const LOST: &str = "the leader was lost before it answered: look whether it was done, or try again";

/// How many connections to the leader this server holds open for callers whom it does not know.
const STRANGERS_MAX: usize = 512;
const TOO_MANY_STRANGERS: &str = "too many requests without a token are passed on: try again";

/// Bounds what callers cost whom this server does not know: one connection of theirs may have many requests, and each of them opens
/// a connection to the leader.
pub struct Strangers(Arc<Semaphore>);

impl Default for Strangers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(STRANGERS_MAX)))
    }
}

/// Counts as a stranger's connection to the leader until the last of it is dropped.
type StrangerSlot = Arc<OwnedSemaphorePermit>;

impl Strangers {
    /// One more; `None` when there are as many as may be.
    fn enter(&self) -> Option<StrangerSlot> {
        self.0.clone().try_acquire_owned().ok().map(Arc::new)
    }
}

pub async fn pass_on(standby: &Standby, request: Request) -> Response {
    let from = match request.extensions().get::<Peer>() {
        Some(Peer::Socket(who)) => {
            PassedFrom::Socket { uid: who.uid, gid: who.gid, user: who.name.clone() }
        }
        Some(Peer::Port { from, .. }) => PassedFrom::Port { address: *from },
        // Nodes ask the leader.
        Some(Peer::Node(_)) | None => {
            return refused(StatusCode::FORBIDDEN, "a standby passes nothing on for nodes");
        }
    };
    let is_stranger = matches!(from, PassedFrom::Port { .. })
        && !matches!(authenticate::caller(&standby.shared, &request), Caller::Known(_));
    let slot = if is_stranger { standby.strangers.enter() } else { None };
    if is_stranger && slot.is_none() {
        let why = refused(StatusCode::SERVICE_UNAVAILABLE, TOO_MANY_STRANGERS);
        return standby.freshness.stamp(why);
    }
    let stream = match standby.leader.open(&standby.shared.identity, from).await {
        Ok(stream) => stream,
        // A client knows by the stamp that it may ask again, here or elsewhere.
        Err(why) => {
            return standby.freshness.stamp(refused(StatusCode::SERVICE_UNAVAILABLE, &why));
        }
    };
    let answered = exchange(stream, request, slot).await;
    standby.freshness.note_passed();
    answered.unwrap_or_else(|error| {
        tracing::debug!("a request was not answered by the leader: {error}");
        standby.freshness.stamp(refused(StatusCode::BAD_GATEWAY, LOST))
    })
}

async fn exchange(
    leader: LeaderStream,
    request: Request,
    slot: Option<StrangerSlot>,
) -> hyper::Result<Response> {
    let (mut parts, body) = request.into_parts();
    let of_client = parts.extensions.remove::<OnUpgrade>();
    let held = parts.extensions.remove::<HeldSlot>();
    let (succeeded, of_upgraded) = (leader.succeeded(), leader.succeeded());
    let (mut sender, connection) = http1::handshake(TokioIo::new(leader.stream)).await?;
    let of_connection = slot.clone();
    tokio::spawn(async move {
        let _slot = of_connection;
        // What fails is told to whoever waits for the answer, and so is a leader in whose place is another.
        tokio::select! {
            _ = connection.with_upgrades() => {}
            () = succeeded => {}
        }
    });
    let mut outgoing = hyper::Request::new(body);
    *outgoing.method_mut() = parts.method;
    let path = parts.uri.path_and_query().cloned();
    *outgoing.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    // HTTP/2 has the host in the address.
    let host = parts.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    *outgoing.headers_mut() = parts.headers;
    outgoing
        .headers_mut()
        .entry(header::HOST)
        .or_insert_with(|| host.unwrap_or_else(|| HeaderValue::from_static("sluice")));
    let mut answer = sender.send_request(outgoing).await?;
    match of_client {
        Some(of_client) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
            let held = (held, sender, slot);
            join_upgraded_until(&mut answer, of_client, None, of_upgraded, held);
        }
        _ => {
            // They are of the connection to the leader.
            answer.headers_mut().remove(header::CONNECTION);
            answer.headers_mut().remove(header::TRANSFER_ENCODING);
        }
    }
    Ok(answer.map(Body::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_have_a_bounded_number_of_connections_to_the_leader() {
        let strangers = Strangers::default();
        let mut open: Vec<_> = (0..STRANGERS_MAX).filter_map(|_| strangers.enter()).collect();
        assert_eq!(open.len(), STRANGERS_MAX);
        assert!(strangers.enter().is_none());
        open.pop();
        assert!(strangers.enter().is_some());
    }
}
