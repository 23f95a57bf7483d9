//! `GET /api/web/load`: how much of the cluster was in use over the last hours.

use crate::clock;
use crate::shared::Shared;
use crate::web::answer::{WebResult, json_answer};
use axum::Extension;
use axum::extract::{Query, State};
use cluster::visibility::Viewer;
use model::principal::Principal;
use model::private_data::PrivateKind;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// As many as a chart has room for.
const POINTS_MAX: usize = 240;
const HOURS_MAX: u32 = 7 * 24;

#[derive(Deserialize)]
pub struct LoadQuery {
    hours: u32,
}

pub async fn load(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Query(query): Query<LoadQuery>,
) -> WebResult {
    let now = clock::now();
    let hours = query.hours.clamp(1, HOURS_MAX);
    let from = now - Duration::from_secs(3600 * u64::from(hours));
    let is_hidden = {
        let state = shared.read();
        let viewer = Viewer::new(&state, &by);
        [PrivateKind::Nodes, PrivateKind::Usage].iter().any(|kind| viewer.is_denied(*kind))
    };
    let samples =
        if is_hidden { Vec::new() } else { shared.volatile.load_history.since(from, POINTS_MAX) };
    Ok(json_answer(&json!({ "now": now, "samples": samples })))
}
