//! Calls of APIs that take and give JSON.

use super::http::{Http, Reply, Request, host_of};
use super::secret::SecretText;
use crate::machines::source::SourceError;
use model::printable::printable;
use serde_json::Value;

/// The most letters of a cloud's message that are passed on.
const MESSAGE_MAX: usize = 200;

/// A call. `bearer`: what proves who calls.
pub struct Call<'a> {
    pub method: &'a str,
    pub url: &'a str,
    pub bearer: &'a SecretText,
    pub body: Option<&'a Value>,
}

/// The status and the answer; an answer that is no JSON has no value.
pub fn call(http: &Http, call: &Call<'_>) -> Result<(u16, Value), SourceError> {
    let authorization = SecretText::new(format!("Bearer {}", call.bearer.expose()));
    let accept = ("accept", "application/json");
    let mut headers = vec![accept, ("authorization", authorization.expose())];
    let text = call.body.map(Value::to_string);
    if text.is_some() {
        headers.push(("content-type", "application/json"));
    }
    let body = text.as_deref().map(str::as_bytes);
    let request = Request { method: call.method, url: call.url, headers: &headers, body };
    read(call.url, &http.send(&request)?)
}

/// An answer as JSON. Where it is none, one that says that all is well is wrong.
pub fn read(url: &str, reply: &Reply) -> Result<(u16, Value), SourceError> {
    match serde_json::from_slice(&reply.body) {
        Ok(value) => Ok((reply.status, value)),
        Err(_) if reply.status >= 300 => Ok((reply.status, Value::Null)),
        Err(_) => Err(SourceError::unknown(format!("{}: the answer is no JSON", host_of(url)))),
    }
}

/// A message of a cloud's in one line.
pub fn shown(text: &str) -> String {
    let text: String = text.chars().take(MESSAGE_MAX).collect();
    printable(&text).into_owned()
}

/// A text of an answer, or nothing.
pub fn word<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
