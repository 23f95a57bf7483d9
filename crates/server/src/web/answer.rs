//! The form of answers to the page: JSON, or a refusal as `{"error": "…"}` with a status.

use crate::http::named_fields;
use crate::shared::failed_sign_ins::FailedSignIn;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use model::reason::Refusal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

pub type WebResult = Result<Response, WebRefusal>;

/// Why something is not answered, in one line for a person.
#[derive(Debug)]
pub struct WebRefusal {
    pub status: StatusCode,
    pub text: String,
    /// Set where somebody was not let in, whose attempts are counted.
    pub failed_sign_in: Option<FailedSignIn>,
}

impl WebRefusal {
    pub fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), failed_sign_in: None }
    }

    /// Somebody is not let in; for whom he would have been taken, where that is known.
    pub fn failed_sign_in(
        status: StatusCode,
        text: impl Into<String>,
        account: Option<String>,
    ) -> Self {
        let failed_sign_in = Some(FailedSignIn { account });
        Self { failed_sign_in, ..Self::new(status, text) }
    }

    /// Something was asked for that cannot be.
    pub fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// The server answered a call with what does not belong to it.
    pub fn unexpected() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed; its log says why")
    }
}

impl From<Refusal> for WebRefusal {
    fn from(why: Refusal) -> Self {
        let status = match &why {
            Refusal::AccessDenied => StatusCode::FORBIDDEN,
            Refusal::UnknownJob(_) | Refusal::UnknownThing { .. } => StatusCode::NOT_FOUND,
            _ => StatusCode::CONFLICT,
        };
        Self::new(status, why.to_string())
    }
}

impl IntoResponse for WebRefusal {
    fn into_response(self) -> Response {
        let mut response = json_answer(&json!({ "error": self.text }));
        *response.status_mut() = self.status;
        if let Some(failed) = self.failed_sign_in {
            response.extensions_mut().insert(failed);
        }
        response
    }
}

pub fn json_answer(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The most bytes of a refusal that was made elsewhere.
const REFUSAL_BYTES_MAX: usize = 16 << 10;

/// Middleware: a refusal that other APIs make too, as a line of text, has the form of this API.
pub async fn refusals_as_json(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
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
    Response::from_parts(head, Body::from(json!({ "error": line }).to_string()))
}

/// The value in a request's body.
pub fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, WebRefusal> {
    named_fields::from_slice(body)
        .map_err(|error| WebRefusal::bad(format!("the request cannot be read: {error}")))
}
