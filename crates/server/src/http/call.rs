//! `POST /api/v1/call`: the envelope of a client's call, and the answer as a response.

use crate::http::answer::{answer_json, refused};
use crate::http::{call_bounds, calls};
use crate::shared::Shared;
use crate::show::job_list::EncodedAnswer;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::principal::Principal;
use std::sync::Arc;
use wire::client::{Answer, Envelope};

pub async fn call(
    State(shared): State<Arc<Shared>>,
    axum::Extension(by): axum::Extension<Principal>,
    body: Bytes,
) -> Response {
    if let Err(refusal) = call_bounds::check(&body) {
        return answer_json(&Answer::Refused(refusal));
    }
    let envelope: Envelope = match serde_json::from_slice(&body) {
        Ok(envelope) => envelope,
        Err(error) => {
            return refused(StatusCode::BAD_REQUEST, &format!("the call cannot be read: {error}"));
        }
    };
    if !wire::version::compatible(envelope.version) {
        let text = format!("protocol {} is not spoken here", envelope.version);
        return refused(StatusCode::BAD_REQUEST, &text);
    }
    let kind = envelope.call.kind();
    // On a task of its own: a client that goes away does not take back what it asked for.
    let answer = tokio::spawn(async move {
        let _timer = shared.volatile.counters.begin_call(kind, &by);
        calls::call(&shared, by, envelope.call).await
    })
    .await;
    match answer {
        Ok(Ok(EncodedAnswer::Json(json))) => {
            ([(header::CONTENT_TYPE, "application/json")], json).into_response()
        }
        Ok(Ok(EncodedAnswer::Lines(text))) => {
            ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
        }
        _ => refused(StatusCode::INTERNAL_SERVER_ERROR, "the server failed; its log says why"),
    }
}
