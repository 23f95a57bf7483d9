//! The two forms of an answer: JSON, and a line of text with a status.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use wire::client::Answer;

pub fn refused(status: StatusCode, text: &str) -> Response {
    (status, format!("{text}\n")).into_response()
}

pub fn answer_json(answer: &Answer) -> Response {
    match serde_json::to_vec(answer) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}
