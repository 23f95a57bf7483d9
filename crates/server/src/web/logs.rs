//! `GET /api/web/logs`: a job's output, as `sluice logs` reads it.

use crate::http::logs::{self, LogsQuery};
use crate::shared::Shared;
use crate::web::answer::{WebRefusal, WebResult};
use axum::Extension;
use axum::extract::{Query, State};
use model::principal::Principal;
use std::sync::Arc;

pub async fn logs(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Query(query): Query<LogsQuery>,
) -> WebResult {
    logs::output(&shared, &by, &query).await.map_err(WebRefusal::from)
}
