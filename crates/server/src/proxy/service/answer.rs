//! The answer of a replica as the client gets it, the same from the server and from gateways.

use super::request_head::{SANDBOX, WHOLE_HOST};
use crate::connection_limits::TUNNEL_IDLE;
use crate::http::peer::HeldSlot;
use crate::proxy::access_log::Entry;
use crate::proxy::exchange::join_upgraded;
use crate::proxy::headers;
use crate::proxy::outstanding::Outstanding;
use crate::proxy::pool::AnswerBody;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use hyper::upgrade::OnUpgrade;

/// Where the answer to a request goes, and what is held until all of it was taken.
pub struct AnswerTo<'a> {
    /// The request, as one that its replica has not answered yet, and as one of its WebSockets.
    pub outstanding: Outstanding,
    pub websocket: Option<Outstanding>,
    /// The client's connection, where it may become a WebSocket.
    pub upgrade: Option<OnUpgrade>,
    pub slot: Option<HeldSlot>,
    /// The path at which the client finds the service, with a slash at its end.
    pub prefix: &'a str,
    /// The replica has seen the whole path.
    pub is_whole: bool,
}

impl AnswerTo<'_> {
    /// The answer; `None` where the replica changed the protocol and nobody had asked for that. `entry`: its line of the access log, if it
    /// is to have one; taken where the answer's body is followed to its end.
    pub fn pass(
        self,
        mut answer: hyper::Response<AnswerBody>,
        entry: &mut Option<Entry>,
    ) -> Option<Response> {
        let Self { outstanding, websocket, upgrade, slot, prefix, is_whole } = self;
        let mut answer = if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let held = (outstanding, websocket, slot);
            join_upgraded(&mut answer, upgrade?, Some(TUNNEL_IDLE), held);
            answer.map(|_| Body::empty())
        } else {
            let status = answer.status();
            let entry = entry.take().map(|entry| entry.answered(status));
            answer.map(|body| Body::new(body.counted(outstanding).logged(entry)))
        };
        headers::to_client(answer.headers_mut(), prefix, is_whole);
        // That of the replica's connection. By 1.0 the client's would end with the answer, and an answer by 2 has the version of its own.
        *answer.version_mut() = Version::HTTP_11;
        if prefix != WHOLE_HOST {
            let sandbox = HeaderValue::from_static(SANDBOX);
            answer.headers_mut().append(header::CONTENT_SECURITY_POLICY, sandbox);
        }
        Some(answer)
    }
}
