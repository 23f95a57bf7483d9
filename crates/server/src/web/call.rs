//! `POST /api/web/call`: any call that commands make, for what the page changes beside jobs.

use crate::http::call_bounds;
use crate::shared::Shared;
use crate::web::answer::{WebRefusal, WebResult, json_answer, read};
use crate::web::ask::{ask, first_refusal};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use model::principal::Principal;
use serde::Deserialize;
use std::sync::Arc;
use wire::client::Call;

#[derive(Deserialize)]
struct Wanted {
    call: Call,
}

pub async fn call(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    body: Bytes,
) -> WebResult {
    call_bounds::check(&body).map_err(|why| WebRefusal::bad(why.to_string()))?;
    let Wanted { call } = read(&body)?;
    // Its answer is made in another form.
    if matches!(call, Call::Jobs(_)) {
        return Err(WebRefusal::bad("the queue is at /api/web/jobs"));
    }
    let answer = ask(&shared, &by, call).await?;
    match first_refusal(&answer) {
        Some(why) => Err(why),
        None => Ok(json_answer(&answer)),
    }
}
