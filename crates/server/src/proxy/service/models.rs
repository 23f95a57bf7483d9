//! Models of services: `/proxy/models/PROJECT/` speaks OpenAI's API for all of a project's services that serve one. A request is
//! passed on to the service that has the model which it names. Where the model has an `eos_token`, the request gets it as one more `stop`.

use super::live::LiveService;
use super::path_rule::PathRule;
use super::request_source::RequestSource;
use super::table::{Services, Table};
use super::{Passed, exchange, member};
use crate::http::authenticate;
use crate::http::refusal_form;
use crate::proxy::exchange::said;
use crate::shared::Shared;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use model::service::{ServedModel, Service};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use wire::client::REQUEST_BYTES_MAX;

/// dstack's paths, and the same with OpenAI's version.
pub const LIST_ROUTES: [&str; 2] =
    ["/proxy/models/{project}/models", "/proxy/models/{project}/v1/models"];
pub const CHAT_ROUTES: [&str; 2] =
    ["/proxy/models/{project}/chat/completions", "/proxy/models/{project}/v1/chat/completions"];

/// Whatever else is below the address of a project's models.
pub const OTHER_ROUTE: &str = "/proxy/models/{project}/{*rest}";

/// Bytes of the `stop` of a request that is read, and fields beside it: each takes more memory than bytes.
const STOP_BYTES_MAX: usize = 64 << 10;
const FIELDS_MAX: usize = 1024;

/// What is read of a request.
#[derive(Deserialize)]
struct Asked {
    model: String,
}

/// OpenAI's `stop`: texts at which an answer ends.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Several(Vec<String>),
}

/// The fields of a request, each as it is written.
struct Fields(BTreeMap<String, Box<RawValue>>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfRequest;

        impl<'de> Visitor<'de> for OfRequest {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of fields")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = map.next_entry()? {
                    fields.insert(name, value);
                    if fields.len() > FIELDS_MAX {
                        return Err(A::Error::custom("too many fields"));
                    }
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(OfRequest)
    }
}

/// The request with one more text at which its answer ends; `None` where its `stop` is none, or it has too many fields. All else stays
/// as it is written.
fn with_stop(request: &[u8], end: &str) -> Option<Vec<u8>> {
    let Fields(mut fields) = serde_json::from_slice(request).ok()?;
    let said = fields.remove("stop");
    let said = said.as_ref().map_or("null", |said| said.get());
    if said.len() > STOP_BYTES_MAX {
        return None;
    }
    let mut ends = match serde_json::from_str::<Option<Stop>>(said).ok()? {
        None => Vec::new(),
        Some(Stop::One(text)) => vec![text],
        Some(Stop::Several(texts)) => texts,
    };
    if !ends.iter().any(|text| text == end) {
        ends.push(end.to_owned());
    }
    fields.insert("stop".to_owned(), to_raw_value(&ends).ok()?);
    serde_json::to_vec(&fields).ok()
}

/// Marks the answer of a replica, which clients get as it is.
#[derive(Clone)]
struct OfReplica;

/// Middleware: what is refused here, by whichever check, has the form of OpenAI's refusals.
pub async fn refusals_as_json(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.extensions().get::<OfReplica>().is_some() {
        return response;
    }
    refusal_form::as_json(response, refusal).await
}

fn refusal(status: StatusCode, line: &str) -> Value {
    let kind = if status.is_server_error() { "server_error" } else { "invalid_request_error" };
    json!({"error": {"message": line, "type": kind, "param": null, "code": null}})
}

/// The answer at the other paths of OpenAI's API.
pub async fn unknown_path() -> Response {
    said(StatusCode::NOT_FOUND, "expected PROJECT/models or PROJECT/chat/completions")
}

/// The models of a project.
pub async fn list(
    State(shared): State<Arc<Shared>>,
    axum::Extension(services): axum::Extension<Arc<Services>>,
    Path(project): Path<String>,
    request: Request,
) -> Response {
    if let Err(response) = member(&shared, authenticate::caller(&shared, &request), &project) {
        return *response;
    }
    let table = services.current(&shared).await;
    let source = RequestSource::of(request.extensions(), request.headers());
    let is_found = |live: &LiveService| source.finds_model(&shared, &project, &live.service);
    let found = served(&table, &project).filter(|(live, _)| is_found(live));
    let mut models: Vec<Value> = found.map(|(live, model)| body(live, model)).collect();
    models.sort_by(|one, other| one["id"].as_str().cmp(&other["id"].as_str()));
    let text = json!({"object": "list", "data": models}).to_string();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

fn body(live: &LiveService, model: &ServedModel) -> Value {
    json!({
        "object": "model",
        "id": model.name,
        "created": live.created.secs(),
        "owned_by": live.owner.name,
    })
}

/// The services of a project that serve a model.
fn served<'t>(
    table: &'t Table,
    project: &str,
) -> impl Iterator<Item = (&'t Arc<LiveService>, &'t ServedModel)> {
    let of_project = table.values().filter(move |live| live.name.project == project);
    of_project.filter_map(|live| Some((live, live.service.model.as_ref()?)))
}

/// The service of a project that serves a model, also one that has come since the table was made.
async fn find(
    services: &Services,
    shared: &Shared,
    project: &str,
    model: &str,
) -> Option<Arc<LiveService>> {
    let named = |table: &Table| {
        let mut all = served(table, project);
        all.find(|(_, served)| served.name == model).map(|(live, _)| live.clone())
    };
    let known = named(&services.table(shared));
    if known.is_some() {
        return known;
    }
    named(services.current(shared).await.as_ref())
}

/// A chat completion, streamed where the request says so. The request's body is whole already (`body_limits`).
pub async fn chat(
    State(shared): State<Arc<Shared>>,
    axum::Extension(services): axum::Extension<Arc<Services>>,
    Path(project): Path<String>,
    request: Request,
) -> Response {
    if let Err(response) = member(&shared, authenticate::caller(&shared, &request), &project) {
        return *response;
    }
    let (mut parts, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, REQUEST_BYTES_MAX).await else {
        return said(StatusCode::BAD_REQUEST, "the request cannot be read");
    };
    let Ok(Asked { model }) = serde_json::from_slice(&bytes) else {
        return said(StatusCode::BAD_REQUEST, "expected JSON with the name of a `model`");
    };
    let source = RequestSource::of(&parts.extensions, &parts.headers);
    let live = find(&services, &shared, &project, &model).await;
    let live = live.filter(|live| source.finds_model(&shared, &project, &live.service));
    let served = live.as_deref().and_then(|live| live.service.model.as_ref());
    let (Some(live), Some(served)) = (&live, served) else {
        let why = format!("project {project} has no service with model {model:?}");
        return said(StatusCode::NOT_FOUND, &why);
    };
    let Some(uri) = PathRule::of(&live.service).completions() else {
        return said(StatusCode::BAD_REQUEST, "the model's prefix cannot be read");
    };
    let host = parts.uri.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    if let Some(host) = host.filter(|_| !parts.headers.contains_key(header::HOST)) {
        parts.headers.insert(header::HOST, host);
    }
    let path = uri.path().to_owned();
    parts.uri = uri;
    let body = match &served.eos_token {
        None => Body::from(bytes),
        Some(end) => {
            let Some(longer) = with_stop(&bytes, end) else {
                let why = format!(
                    "expected `stop` as a text or a list of them, and {FIELDS_MAX} fields at most"
                );
                return said(StatusCode::BAD_REQUEST, &why);
            };
            parts.headers.remove(header::TRANSFER_ENCODING);
            parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(longer.len()));
            Body::from(longer)
        }
    };
    let request = Request::from_parts(parts, body);
    let prefix = format!("{}/", Service::models_path(&project));
    let rest = path.trim_start_matches('/');
    let live = live.clone();
    let passed = Passed { live, prefix: &prefix, rest, of_model: true, by_token: true };
    let (mut answer, is_of_replica) = exchange(&shared, &services, &passed, request).await;
    if is_of_replica {
        answer.extensions_mut().insert(OfReplica);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_model_is_one_more_stop_of_its_requests() {
        for (asked, expected) in [
            (r#"{"model":"m"}"#, r#"{"model":"m","stop":["</s>"]}"#),
            (r#"{"a":1.50,"stop":null}"#, r#"{"a":1.50,"stop":["</s>"]}"#),
            (r#"{"stop":"x"}"#, r#"{"stop":["x","</s>"]}"#),
            (r#"{"stop":["x","</s>"]}"#, r#"{"stop":["x","</s>"]}"#),
            (r#"{"messages":[ {"role":"a"}]}"#, r#"{"messages":[ {"role":"a"}],"stop":["</s>"]}"#),
        ] {
            let found = with_stop(asked.as_bytes(), "</s>").expect(asked);
            assert_eq!(String::from_utf8_lossy(&found), expected);
        }
        let long = format!(r#"{{"stop":["{}"]}}"#, "x".repeat(STOP_BYTES_MAX));
        let fields: Vec<String> = (0..=FIELDS_MAX).map(|n| format!("\"{n}\":1")).collect();
        let many = format!("{{{}}}", fields.join(","));
        for bad in [r#"{"stop":7}"#, r#"{"stop":[7]}"#, "[]", &long, &many] {
            assert_eq!(with_stop(bad.as_bytes(), "</s>"), None, "{bad:.20}");
        }
    }
}
