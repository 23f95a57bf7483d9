//! `GET /api/web/lists/{list}`: what else a cluster has, each list as the call that commands make for it answers.

use crate::shared::Shared;
use crate::web::answer::{WebRefusal, WebResult, json_answer};
use crate::web::ask::ask_held;
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use model::activity::ActivityFilter;
use model::fleet::MAIN_PROJECT;
use model::principal::Principal;
use serde::Deserialize;
use std::sync::Arc;
use wire::client::Call;

/// Makes the call for a list, of this project where a list is of one.
type ListCall = fn(project: String) -> Call;

const LISTS: &[(&str, ListCall)] = &[
    ("accounts", |_| Call::Accounts),
    ("shares", |_| Call::Shares),
    ("projects", |_| Call::Projects),
    ("reservations", |_| Call::Reservations),
    ("licenses", |_| Call::Licenses),
    ("fleets", |_| Call::Fleets),
    ("backends", |_| Call::Machines),
    ("tokens", |_| Call::Tokens),
    ("events", |_| Call::Activities),
    ("audit", |_| Call::ActivityHistory(ActivityFilter::default())),
    ("agents", |_| Call::Agents),
    ("secrets", |project| Call::Secrets { project }),
    ("volumes", |project| Call::Volumes { project }),
];

#[derive(Deserialize)]
pub struct ListQuery {
    project: Option<String>,
}

pub async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(name): Path<String>,
    Query(query): Query<ListQuery>,
) -> WebResult {
    let Some((_, call)) = LISTS.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = LISTS.iter().map(|(known, _)| *known).collect();
        let text = format!("{name}: expected one of {}", known.join(", "));
        return Err(WebRefusal::new(StatusCode::NOT_FOUND, text));
    };
    let project = query.project.unwrap_or_else(|| MAIN_PROJECT.to_owned());
    let found = ask_held(&shared, &by, None, call(project)).await?;
    Ok(found.make(|answer| json_answer(&answer)))
}
