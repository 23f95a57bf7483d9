//! Errors: the status and the body by which the client recognises each.

use serde::Serialize;
use serde_json::{Value, json};

/// An answer that is an error.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    pub status: u16,
    pub body: Value,
}

/// What the client does with an error depends on its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    Error,
    ResourceExists,
    ResourceNotExists,
    InvalidCredentials,
    BackendNotAvailable,
    RepoDoesNotExist,
    GatewayError,
}

impl ApiError {
    /// No token was sent.
    pub fn not_authenticated() -> Self {
        Self { status: 401, body: json!({ "detail": "Not authenticated" }) }
    }

    pub fn invalid_token() -> Self {
        Self { status: 403, body: json!({ "detail": { "msg": "Invalid token", "code": null } }) }
    }

    /// The user is known and may not do it.
    pub fn forbidden() -> Self {
        Self::denied("Access denied")
    }

    pub fn denied(why: &str) -> Self {
        Self { status: 403, body: json!({ "detail": { "msg": why, "code": null } }) }
    }

    /// Nothing is at this path.
    pub fn unknown_path() -> Self {
        Self { status: 404, body: json!({ "detail": "Not Found" }) }
    }

    /// The path is not for this method, or there is none.
    pub fn unknown_method() -> Self {
        Self { status: 405, body: json!({ "detail": "Method Not Allowed" }) }
    }

    /// The project does not exist, or it is hidden from the user.
    pub fn no_such_project() -> Self {
        Self { status: 404, body: json!({ "detail": { "msg": "Not found", "code": null } }) }
    }

    /// Another server has what this one lacks for the answer.
    pub fn of_another_server() -> Self {
        Self { status: 421, body: json!({ "detail": "Misdirected Request" }) }
    }

    /// The request was understood and cannot be done.
    pub fn refused(code: Code, message: impl Into<String>) -> Self {
        let message: String = message.into();
        Self { status: 400, body: json!({ "detail": [{ "msg": message, "code": code }] }) }
    }

    /// The same, where dstack gives no code.
    pub fn refused_without_code(message: impl Into<String>) -> Self {
        let message: String = message.into();
        Self { status: 400, body: json!({ "detail": [{ "msg": message, "code": null }] }) }
    }

    /// The body is no JSON; `at` is where that was found.
    pub fn no_json(at: usize, why: impl Into<String>) -> Self {
        let why: String = why.into();
        let detail = json!([{
            "type": "json_invalid", "loc": ["body", at], "msg": "JSON decode error",
            "input": {}, "ctx": { "error": why },
        }]);
        Self { status: 422, body: json!({ "detail": detail }) }
    }

    /// The body lacks a field that the call needs.
    pub fn missing_field(name: &str) -> Self {
        let detail = json!([{
            "type": "missing", "loc": ["body", name], "msg": "Field required", "input": null,
        }]);
        Self { status: 422, body: json!({ "detail": detail }) }
    }

    /// What was named does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::refused(Code::ResourceNotExists, message)
    }

    /// The body is not what the call takes; `place` is the path to the wrong part.
    pub fn invalid_body(place: &[&str], message: impl Into<String>) -> Self {
        let message: String = message.into();
        let place: Vec<&str> = ["body"].iter().chain(place).copied().collect();
        let detail =
            json!([{ "type": "value_error", "loc": place, "msg": message, "input": null }]);
        Self { status: 422, body: json!({ "detail": detail }) }
    }
}
