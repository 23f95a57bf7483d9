//! How dstack's API refuses: the client tells the cases apart by status and shape.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::reason::Refusal;
use serde_json::{Value, json};

#[derive(Debug)]
pub enum ApiError {
    /// No token at all.
    NotAuthenticated,
    InvalidToken,
    /// A token that may not do this.
    AccessDenied,
    NotFound,
    /// What the client prints: a code of dstack's, and a sentence.
    Refused { code: &'static str, text: String },
    /// A body that does not have the right form.
    Invalid { place: Vec<String>, text: String },
}

pub type ApiResult = Result<Json<Value>, ApiError>;

impl ApiError {
    pub fn refused(text: impl Into<String>) -> Self {
        Self::Refused { code: "error", text: text.into() }
    }

    pub fn missing(text: impl Into<String>) -> Self {
        Self::Refused { code: "resource_not_exists", text: text.into() }
    }

    pub fn later(what: &str) -> Self {
        Self::refused(format!("{what}: Sluice does not have this yet"))
    }
}

impl From<Refusal> for ApiError {
    fn from(why: Refusal) -> Self {
        match why {
            Refusal::AccessDenied => Self::AccessDenied,
            Refusal::UnknownJob(_) => Self::missing("Run not found"),
            other => Self::refused(other.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let denied = |msg: &str| json!({"detail": {"msg": msg, "code": null}});
        let (status, body) = match self {
            Self::NotAuthenticated => {
                (StatusCode::UNAUTHORIZED, json!({"detail": "Not authenticated"}))
            }
            Self::InvalidToken => (StatusCode::FORBIDDEN, denied("Invalid token")),
            Self::AccessDenied => (StatusCode::FORBIDDEN, denied("Access denied")),
            Self::NotFound => (StatusCode::NOT_FOUND, denied("Not found")),
            // The client takes the first of a list.
            Self::Refused { code, text } => {
                (StatusCode::BAD_REQUEST, json!({"detail": [{"msg": text, "code": code}]}))
            }
            Self::Invalid { place, text } => (
                StatusCode::UNPROCESSABLE_ENTITY,
                json!({"detail": [{"loc": place, "msg": text, "type": "value_error"}]}),
            ),
        };
        (status, Json(body)).into_response()
    }
}
