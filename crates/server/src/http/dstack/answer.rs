//! The form of requests and answers: JSON, or one of dstack's errors.

use crate::http::{call_bounds, named_fields};
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use dstack::api::error::{ApiError, Code};
use model::reason::Refusal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A body of a request, or of an answer.
pub struct Json<T>(pub T);

/// A request without a body asks for nothing in particular.
const NOTHING: &[u8] = b"{}";

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refused> {
        let body = Bytes::from_request(request, state).await;
        let body = body.map_err(|error| ApiError::invalid_body(&[], error.body_text()))?;
        let bytes = if body.is_empty() { NOTHING } else { &body };
        call_bounds::check(bytes)?;
        Ok(Self(named_fields::from_slice(bytes).map_err(|error| bad_body(&error))?))
    }
}

fn bad_body(error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    if error.is_syntax() || error.is_eof() {
        return ApiError::no_json(error.column().saturating_sub(1), text);
    }
    let missing = text.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    missing.map_or_else(|| ApiError::invalid_body(&[], &text), ApiError::missing_field)
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

/// An error on its way to the client.
#[derive(Debug)]
pub struct Refused(pub ApiError);

pub type ApiResult<T> = Result<Json<T>, Refused>;

impl Refused {
    pub fn because(text: impl Into<String>) -> Self {
        Self(ApiError::refused(Code::Error, text))
    }

    pub fn not_found(text: impl Into<String>) -> Self {
        Self(ApiError::not_found(text))
    }

    /// What it says to a person, in whichever of dstack's forms that is.
    pub fn text(&self) -> String {
        let detail = &self.0.body["detail"];
        let message =
            [&detail[0]["msg"], &detail["msg"], detail].into_iter().find_map(Value::as_str);
        message.map_or_else(|| self.0.body.to_string(), str::to_owned)
    }
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl From<Refusal> for Refused {
    fn from(why: Refusal) -> Self {
        match why {
            Refusal::AccessDenied => Self(ApiError::forbidden()),
            Refusal::UnknownJob(_) => Self::not_found("Run not found"),
            why @ Refusal::UnknownThing { .. } => Self::not_found(why.to_string()),
            why @ Refusal::AlreadyExists { .. } => {
                Self(ApiError::refused(Code::ResourceExists, why.to_string()))
            }
            other => Self::because(other.to_string()),
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::BAD_REQUEST);
        (status, Json(self.0.body)).into_response()
    }
}
