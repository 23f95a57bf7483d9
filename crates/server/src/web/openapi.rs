//! `GET /openapi.json`: the OpenAPI document of our own API. Schemas are made from the types that requests are read into and answers
//! written from; the table has what types do not say.

use super::submit::{Checked, Pasted};
use super::{array_tasks, history, job, job_rows, nodes, session, timeline, usage};
use crate::http::browser::SESSION;
use crate::http::logs::LogsQuery;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::sync::OnceLock;

/// Makes the schema of a type.
type SchemaOf = fn(&mut SchemaGenerator) -> Value;

/// Where the schemas of types are in the document.
const DEFINITIONS: &str = "/components/schemas";

enum Content {
    /// JSON of a type.
    Json(SchemaOf),
    /// JSON that is as the call that commands make for it is answered.
    Answer,
    /// An empty object.
    Nothing,
    /// Bytes as they are.
    Text,
    /// Server-sent events.
    Events,
}

struct Operation {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    query: Option<SchemaOf>,
    body: Option<SchemaOf>,
    answer: Content,
}

/// A reference to the schema of a type.
fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().into()
}

/// The schema of a type itself.
fn inline<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    T::json_schema(generator).into()
}

fn token(_: &mut SchemaGenerator) -> Value {
    let text = json!({ "type": "string" });
    json!({"type": "object", "properties": { "token": text }, "required": ["token"]})
}

fn profile(_: &mut SchemaGenerator) -> Value {
    let text = || json!({ "type": "string" });
    let truth = || json!({ "type": "boolean" });
    json!({
        "type": "object",
        "properties": {
            "coordinates_accounts": truth(), "manages_secrets": truth(), "looks_only": truth(),
            "user": text(), "role": text(), "cluster": text(), "version": text(),
            "now": { "type": "integer" },
        },
    })
}

fn script(_: &mut SchemaGenerator) -> Value {
    json!({"type": "object", "properties": { "text": { "type": "string" } }})
}

fn ticket(_: &mut SchemaGenerator) -> Value {
    json!({"type": "object", "properties": { "rank": { "type": "integer" } }})
}

fn submitted(_: &mut SchemaGenerator) -> Value {
    json!({
        "type": "object",
        "properties": { "job": { "type": "integer" }, "name": { "type": "string" } },
        "required": ["job", "name"],
    })
}

fn call(_: &mut SchemaGenerator) -> Value {
    json!({
        "type": "object",
        "description": "A call as commands make it: {\"call\": \"ping\"}, {\"call\": {\"explain\": {…}}}.",
        "properties": { "call": {}, "version": { "type": "integer" } },
        "required": ["call"],
    })
}

const fn get(path: &'static str, summary: &'static str, answer: Content) -> Operation {
    Operation { method: "get", path, summary, query: None, body: None, answer }
}

const fn post(
    path: &'static str,
    summary: &'static str,
    body: Option<SchemaOf>,
    answer: Content,
) -> Operation {
    Operation { method: "post", path, summary, query: None, body, answer }
}

const fn with_query(operation: Operation, query: SchemaOf) -> Operation {
    Operation { query: Some(query), ..operation }
}

use Content::{Answer, Events, Json, Nothing, Text};

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const OPERATIONS: &[Operation] = &[
    post("/api/web/session", "Sign a browser in with a token", Some(token), Json(profile)),
    get("/api/web/session", "Who asks", Json(profile)),
    Operation { method: "delete", path: "/api/web/session", summary: "Sign out, here or everywhere", query: Some(inline::<session::SignOut>), body: None, answer: Nothing },
    with_query(get("/api/web/jobs", "The queue, or what of it changed", Json(of::<job_rows::Rows>)), inline::<job_rows::RowsQuery>),
    with_query(get("/api/web/history", "Jobs that have ended, the newest first", Json(of::<history::History>)), inline::<history::HistoryQuery>),
    get("/api/web/jobs/{job}", "A job with its allocation, why it waits, or why it ended", Json(of::<job::JobPage>)),
    get("/api/web/jobs/{job}/usage", "What a job uses, and its load until now", Answer),
    get("/api/web/jobs/{job}/script", "A job's script, for its owner", Json(script)),
    get("/api/web/jobs/{job}/attempts", "The attempts of a job, from the books too", Answer),
    get("/api/web/jobs/{job}/tasks", "The tasks of an array: how many are in each state, and each", Json(of::<array_tasks::ArrayTasks>)),
    post("/api/web/jobs/{job}/shell", "A ticket for a shell in a job, good once", Some(ticket), Answer),
    post("/api/web/jobs/{job}/{change}", "Cancel, hold, release or requeue a job", None, Nothing),
    with_query(get("/api/web/logs", "A job's output", Text), inline::<LogsQuery>),
    get("/api/web/nodes", "Nodes, with who holds each GPU", Json(of::<nodes::Nodes>)),
    get("/api/web/load", "How much of the cluster was in use", Answer),
    get("/api/web/timeline", "Jobs on their nodes over time", Json(of::<timeline::Timeline>)),
    with_query(get("/api/web/usage", "Hours of CPUs and GPUs by account and user", Json(of::<usage::Usage>)), inline::<usage::Period>),
    get("/api/web/lists/{list}", "What else the cluster has, by the name of the list", Answer),
    post("/api/web/check", "What is wrong with a script, or when it would start", Some(of::<Pasted>), Json(of::<Checked>)),
    post("/api/web/submit", "Submit a batch script or a configuration of dstack", Some(of::<Pasted>), Json(submitted)),
    post("/api/web/call", "Any call that commands make", Some(call), Answer),
    get("/api/web/events", "What changes, as it changes", Events),
    get("/api/web/oidc", "Whether browsers sign in at an identity provider", Answer),
    get("/api/web/oidc/start", "Send a browser to the identity provider", Text),
    get("/api/web/oidc/callback", "A browser comes back from there", Text),
    post("/api/v1/call", "The calls of commands", Some(call), Answer),
    get("/api/v1/hold", "Hold an allocation while the connection lasts", Text),
    with_query(get("/api/v1/logs", "A job's output", Text), inline::<LogsQuery>),
    get("/api/v1/step", "The streams of a step", Text),
    get("/api/v1/backup", "A backup of the whole state", Text),
];

/// Made once: types do not change while the program runs.
pub async fn document() -> Response {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    let text = DOCUMENT.get_or_init(|| made().to_string()).clone();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

fn made() -> Value {
    let settings =
        || SchemaSettings::draft2020_12().with(|made| made.definitions_path = DEFINITIONS.into());
    let mut asked = settings().for_deserialize().into_generator();
    let mut answered = settings().for_serialize().into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for operation in OPERATIONS {
        let value = described(operation, &mut asked, &mut answered);
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = value;
    }
    let mut schemas = asked.take_definitions(true);
    schemas.extend(answered.take_definitions(true));
    let line = json!({"type": "string", "description": "One line for a person."});
    let refusal = json!({"type": "object", "properties": { "error": line }, "required": ["error"]});
    schemas.insert("Refusal".to_owned(), refusal);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sluice",
            "version": wire::version::program(),
            "description": "The server's own API. Times are milliseconds since 1970.",
            "license": { "name": "Apache-2.0" },
        },
        "security": [{ "token": [] }, { "session": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": SESSION.name(false),
                    "description": format!("On the server's own machine: `{}`.", SESSION.name(true)),
                },
            },
        },
    })
}

fn described(
    operation: &Operation,
    asked: &mut SchemaGenerator,
    answered: &mut SchemaGenerator,
) -> Value {
    let mut parameters: Vec<Value> = in_path(operation.path).collect();
    if let Some(query) = operation.query {
        parameters.extend(in_query(&query(asked)));
    }
    let good = match &operation.answer {
        Json(schema) => content("application/json", schema(answered)),
        Answer => content("application/json", json!({})),
        Nothing => content("application/json", json!({ "type": "object" })),
        Text => content("application/octet-stream", json!({ "type": "string" })),
        Events => content("text/event-stream", json!({ "type": "string" })),
    };
    let refused = refusal(operation.path);
    let mut value = json!({
        "operationId": operation_id(operation),
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            "200": { "description": "It is done.", "content": good },
            "default": { "description": "It is refused, and why.", "content": refused },
        },
    });
    if let Some(body) = operation.body {
        let content = content("application/json", body(asked));
        value["requestBody"] = json!({"required": true, "content": content});
    }
    value
}

/// How a path refuses: what commands call in a line of text; where a browser is itself, with a page.
fn refusal(path: &str) -> Value {
    let text = json!({ "type": "string" });
    if path.starts_with("/api/v1/") {
        content("text/plain", text)
    } else if path.starts_with("/api/web/oidc/") {
        content("text/html", text)
    } else {
        content("application/json", json!({"$ref": format!("#{DEFINITIONS}/Refusal")}))
    }
}

fn content(kind: &str, schema: Value) -> Value {
    json!({ kind: { "schema": schema } })
}

/// `get_api_web_jobs_job`: no two operations have the same.
fn operation_id(operation: &Operation) -> String {
    let words = operation.path.split(['/', '{', '}']).filter(|word| !word.is_empty());
    let words: Vec<&str> = std::iter::once(operation.method).chain(words).collect();
    words.join("_")
}

/// The parameters between braces.
fn in_path(path: &str) -> impl Iterator<Item = Value> {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    names.map(|(name, _)| {
        let mut schema = json!({ "type": "string" });
        if name == "job" {
            schema["description"] = "12, or 12_3 for a task of an array; 12_* is all of it".into();
        }
        json!({"name": name, "in": "path", "required": true, "schema": schema})
    })
}

/// The fields of a type as parameters behind the question mark.
fn in_query(schema: &Value) -> Vec<Value> {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields = schema["properties"].as_object().into_iter().flatten();
    let parameter = |(name, schema): (&String, &Value)| {
        let required = required.iter().any(|word| word == name.as_str());
        json!({"name": name, "in": "query", "required": required, "schema": schema})
    };
    fields.map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::route::Route;
    use crate::web::tests::Browser;
    use crate::web::{ROUTES, oidc};
    use axum::http::StatusCode;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_is_in_the_document_and_no_other() {
        let document = made();
        let described: BTreeSet<&str> =
            document["paths"].as_object().expect("paths").keys().map(String::as_str).collect();
        let routes = ROUTES.iter().map(|(path, _)| *path).chain(Route::ALL.map(Route::path));
        let routes = routes.chain(oidc::PATHS).chain(["/api/web/events"]);
        let routes: BTreeSet<&str> = routes.collect();
        assert_eq!(described, routes);
    }

    #[test]
    fn schemas_come_from_the_types_and_every_reference_leads_somewhere() {
        let document = made();
        let schemas = &document["components"]["schemas"];
        let row = &schemas["JobRow"]["properties"];
        assert_eq!(row["waiting"]["type"], "boolean", "{row}");
        let items = &schemas["Rows"]["properties"]["rows"]["items"];
        assert_eq!(items["$ref"], "#/components/schemas/JobRow");
        let text = document.to_string();
        let names = text.split("\"#/components/schemas/").skip(1);
        for name in names.filter_map(|rest| rest.split('"').next()) {
            assert!(schemas[name].is_object(), "{name}");
        }
        let jobs = &document["paths"]["/api/web/jobs"]["get"]["parameters"][0];
        assert_eq!((&jobs["name"], &jobs["in"]), (&json!("since"), &json!("query")));
        let refusal = |path: &str, method: &str| {
            let content = &document["paths"][path][method]["responses"]["default"]["content"];
            content.as_object().expect("forms").keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(refusal("/api/web/logs", "get"), ["application/json"]);
        assert_eq!(refusal("/api/v1/call", "post"), ["text/plain"]);
        assert_eq!(refusal("/api/web/oidc/start", "get"), ["text/html"]);
        let mut ids = BTreeSet::new();
        for operation in OPERATIONS {
            assert!(ids.insert(operation_id(operation)), "{}", operation.path);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn document_is_served_to_anybody() {
        let browser = Browser::new().await;
        let answer = browser.get("/openapi.json").await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.json()["openapi"], "3.1.0");
    }
}
