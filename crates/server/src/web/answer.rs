//! The form of answers to the page: JSON, or a refusal as `{"error": "…"}` with a status.

use crate::http::{named_fields, refusal_form};
use crate::shared::failed_sign_ins::FailedSignIn;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{StatusCode, header};
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

/// Middleware: a refusal that other APIs make too, as a line of text, has the form of this API.
pub async fn refusals_as_json(request: Request, next: Next) -> Response {
    refusal_form::as_json(next.run(request).await, |_, line| json!({ "error": line })).await
}

/// The value in a request's body.
pub fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, WebRefusal> {
    named_fields::from_slice(body)
        .map_err(|error| WebRefusal::bad(format!("the request cannot be read: {error}")))
}
