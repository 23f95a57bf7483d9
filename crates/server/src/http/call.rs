//! `POST /api/v1/call`: the envelope of a client's call, and the answer as a response.

use crate::http::answer::{answer_json, refused};
use crate::http::body_limits::HeldRequest;
use crate::http::carried_out::carried_out;
use crate::http::{call_bounds, calls, named_fields};
use crate::rate_limit::RateLimit;
use crate::shared::Shared;
use crate::show::job_list::EncodedAnswer;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::principal::Principal;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::block_in_place;
use wire::client::{Answer, Call, Envelope};
use wire::diagnostics::CallKind;

/// A call that is longer takes milliseconds to read.
const LARGE_CALL_BYTES: usize = 64 << 10;

/// An answer that is shorter fits into a few packets as it is.
const COMPRESSED_BYTES_MIN: usize = 4 << 10;

/// A client on a long line asks for answers in this form, by `Accept-Encoding`.
const ZSTD: &str = "zstd";
/// The fastest level: lists repeat themselves.
const ZSTD_LEVEL: i32 = 1;

pub async fn call(
    State(shared): State<Arc<Shared>>,
    axum::Extension(by): axum::Extension<Principal>,
    axum::Extension(held): axum::Extension<HeldRequest>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let read = || read_call(&body);
    // The connections of others that are on this thread do not wait while a large call is read.
    let read = if body.len() > LARGE_CALL_BYTES { block_in_place(read) } else { read() };
    let mut envelope = match read {
        Ok(envelope) => envelope,
        Err(refusal) => return *refusal,
    };
    drop(body);
    let kind = envelope.call.kind();
    note_call(&shared, &mut envelope, &by);
    // A client that goes away does not take back what it asked for.
    let answer = carried_out(async move {
        // What it holds of the request counts until it is done.
        let _held = held;
        let _timer = shared.volatile.counters.begin_call(kind, &by);
        calls::call(&shared, by, envelope.call).await
    })
    .await;
    match answer {
        Some(Ok(EncodedAnswer::Json(json))) => whole(&headers, "application/json", json),
        Some(Ok(EncodedAnswer::Lines(text))) => whole(&headers, "text/plain; charset=utf-8", text),
        _ => refused(StatusCode::INTERNAL_SERVER_ERROR, "the server failed; its log says why"),
    }
}

/// Lines of the log about one user's calls, which may be refused: a user does not roll over what others wrote there.
const CALL_LINES: RateLimit = RateLimit { burst: 200, interval: Duration::from_secs(1) };

/// Gives a submitted job the id of its call, and logs calls that change something under theirs. The server alone says which call
/// a job came by.
fn note_call(shared: &Shared, envelope: &mut Envelope, by: &Principal) {
    let id = envelope.id.take();
    if let Call::Submit(submission) | Call::Resubmit(submission) = &mut envelope.call {
        submission.het_components.iter_mut().for_each(|spec| spec.call.clone_from(&id));
        submission.spec.call = id;
        return;
    }
    let Some(id) = id else { return };
    let (kind, user) = (envelope.call.kind(), by.name.as_str());
    match kind {
        CallKind::Cancel
        | CallKind::UpdateJob
        | CallKind::UpdateNode
        | CallKind::UpdatePartition
        | CallKind::Reconfigure
        | CallKind::ChangeAccounts
        | CallKind::Token => {
            match shared.volatile.call_lines.take(CALL_LINES, user.to_owned(), Instant::now()) {
                Some(0) => tracing::info!(call = %id, user, ?kind, "call"),
                Some(unlogged) => tracing::info!(call = %id, user, ?kind, unlogged, "call"),
                None => {}
            }
        }
        _ => tracing::debug!(call = %id, user, ?kind, "call"),
    }
}

/// The answer, compressed if it is long and the client asks for that.
fn whole(headers: &HeaderMap, content_type: &'static str, body: Vec<u8>) -> Response {
    let content_type = (header::CONTENT_TYPE, content_type);
    let takes_zstd = headers.get(header::ACCEPT_ENCODING).is_some_and(|value| value == ZSTD);
    if takes_zstd && body.len() >= COMPRESSED_BYTES_MIN {
        let compressed = block_in_place(|| zstd::bulk::compress(&body, ZSTD_LEVEL));
        if let Ok(compressed) = compressed {
            return ([content_type, (header::CONTENT_ENCODING, ZSTD)], compressed).into_response();
        }
    }
    ([content_type], body).into_response()
}

/// The call in a request's body, held to its bounds; else the response that refuses it.
pub fn read_call(body: &[u8]) -> Result<Envelope, Box<Response>> {
    call_bounds::check(body).map_err(|refusal| Box::new(answer_json(&Answer::Refused(refusal))))?;
    let unreadable = |text: String| Box::new(refused(StatusCode::BAD_REQUEST, &text));
    let envelope: Envelope = named_fields::from_slice(body)
        .map_err(|error| unreadable(format!("the call cannot be read: {error}")))?;
    if !wire::version::compatible(envelope.version) {
        return Err(unreadable(format!("protocol {} is not spoken here", envelope.version)));
    }
    Ok(envelope)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestServer, user};
    use model::id::CallId;
    use wire::version::PROTOCOL;

    #[test]
    fn call_whose_fields_have_no_names_is_refused() {
        let named = serde_json::to_vec(&Envelope::new(Call::Ping)).expect("JSON");
        assert!(read_call(&named).is_ok());
        let unnamed = format!(r#"[{PROTOCOL}, null, "ping"]"#);
        assert!(serde_json::from_str::<Envelope>(&unnamed).is_ok(), "as serde reads it");
        let refused = read_call(unnamed.as_bytes()).expect_err("refused");
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    }

    #[test]
    fn calls_of_one_user_are_logged_at_a_rate_and_counted_beyond_it() {
        let server = TestServer::without_writer();
        let lines = &server.shared.volatile.call_lines;
        for _ in 0..10_000 {
            // One that is refused: nobody revokes another's token.
            let call = Call::RevokeToken { name: "admin".into(), user: None };
            let mut envelope = Envelope { id: CallId::parse("c1"), ..Envelope::new(call) };
            note_call(&server.shared, &mut envelope, &user());
        }
        let later = Instant::now() + Duration::from_secs(1000);
        let left_out = lines.take(CALL_LINES, user().name, later);
        assert!(left_out.is_some_and(|count| count > 5_000), "{left_out:?}");
        assert_eq!(lines.take(CALL_LINES, "another".into(), later), Some(0));
    }
}
