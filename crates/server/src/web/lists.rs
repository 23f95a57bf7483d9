//! `GET /api/web/lists/{list}`: what else a cluster has, each list as the call that commands make for it answers.

use crate::shared::Shared;
use crate::web::answer::{WebRefusal, WebResult, json_answer};
use crate::web::ask::ask;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use model::fleet::MAIN_PROJECT;
use model::principal::Principal;
use std::sync::Arc;
use wire::client::Call;

/// Makes the call for a list.
type ListCall = fn() -> Call;

const LISTS: &[(&str, ListCall)] = &[
    ("accounts", || Call::Accounts),
    ("shares", || Call::Shares),
    ("projects", || Call::Projects),
    ("reservations", || Call::Reservations),
    ("licenses", || Call::Licenses),
    ("fleets", || Call::Fleets),
    ("tokens", || Call::Tokens),
    ("events", || Call::Activities),
    ("agents", || Call::Agents),
    ("secrets", || Call::Secrets { project: MAIN_PROJECT.to_owned() }),
];

pub async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(name): Path<String>,
) -> WebResult {
    let Some((_, call)) = LISTS.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = LISTS.iter().map(|(known, _)| *known).collect();
        let text = format!("{name}: expected one of {}", known.join(", "));
        return Err(WebRefusal::new(StatusCode::NOT_FOUND, text));
    };
    Ok(json_answer(&ask(&shared, &by, call()).await?))
}
