//! Refusals that several APIs make, as lines of text, in the form of the API that was asked.

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::Value;

/// The most bytes of a refusal that was made elsewhere.
const REFUSAL_BYTES_MAX: usize = 16 << 10;

/// The refusal as the JSON that `form` makes of its status and its line. What is no refusal, or is JSON already, stays as it is.
pub async fn as_json(response: Response, form: fn(StatusCode, &str) -> Value) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_json = kind.is_some_and(|kind| kind.starts_with(b"application/json"));
    if is_json || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let said = to_bytes(body, REFUSAL_BYTES_MAX).await.unwrap_or_default();
    let said = String::from_utf8_lossy(&said).trim().replace('\n', " ");
    let line = if said.is_empty() { status.to_string() } else { said };
    head.headers.remove(header::CONTENT_LENGTH);
    let json = HeaderValue::from_static("application/json");
    head.headers.insert(header::CONTENT_TYPE, json);
    Response::from_parts(head, Body::from(form(status, &line).to_string()))
}
