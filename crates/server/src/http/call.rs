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
use tokio::task::block_in_place;
use wire::client::{Answer, Envelope};

/// A call that is longer takes milliseconds to read.
const LARGE_CALL_BYTES: usize = 64 << 10;

pub async fn call(
    State(shared): State<Arc<Shared>>,
    axum::Extension(by): axum::Extension<Principal>,
    body: Bytes,
) -> Response {
    let read = || read_call(&body);
    // The connections of others that are on this thread do not wait while a large call is read.
    let read = if body.len() > LARGE_CALL_BYTES { block_in_place(read) } else { read() };
    let envelope = match read {
        Ok(envelope) => envelope,
        Err(refusal) => return *refusal,
    };
    drop(body);
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

/// The call in a request's body, held to its bounds; else the response that refuses it.
fn read_call(body: &[u8]) -> Result<Envelope, Box<Response>> {
    call_bounds::check(body).map_err(|refusal| Box::new(answer_json(&Answer::Refused(refusal))))?;
    let unreadable = |text: String| Box::new(refused(StatusCode::BAD_REQUEST, &text));
    let envelope: Envelope = serde_json::from_slice(body)
        .map_err(|error| unreadable(format!("the call cannot be read: {error}")))?;
    if !wire::version::compatible(envelope.version) {
        return Err(unreadable(format!("protocol {} is not spoken here", envelope.version)));
    }
    Ok(envelope)
}
