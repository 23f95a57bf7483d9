//! Calls that the page's API makes: the same as those of commands, counted and answered as theirs are.

use crate::http::body_limits::HeldRequest;
use crate::http::counted_call::{self, HeldAnswer};
use crate::shared::Shared;
use crate::web::answer::WebRefusal;
use axum::http::StatusCode;
use model::principal::Principal;
use model::reason::Refusal;
use slurm::words;
use std::sync::Arc;
use wire::client::{Answer, Call};

pub async fn ask(shared: &Arc<Shared>, by: &Principal, call: Call) -> Result<Answer, WebRefusal> {
    counted_call::answer(shared, by, None, call).await.map_err(WebRefusal::from)
}

/// The same for a call that was read from the body of a request, which counts until the call is done.
pub async fn ask_of_body(
    shared: &Arc<Shared>,
    by: &Principal,
    held: HeldRequest,
    call: Call,
) -> Result<Answer, WebRefusal> {
    counted_call::answer(shared, by, Some(held), call).await.map_err(WebRefusal::from)
}

/// The same for an answer that may be long.
pub async fn ask_held(
    shared: &Arc<Shared>,
    by: &Principal,
    held: Option<HeldRequest>,
    call: Call,
) -> Result<HeldAnswer, WebRefusal> {
    counted_call::held_answer(shared, by, held, call).await.map_err(WebRefusal::from)
}

/// Why one of several jobs or nodes was not changed, where an answer names each.
pub fn first_refusal(answer: &Answer) -> Option<WebRefusal> {
    let why = match answer {
        Answer::Cancelled(results) => results.iter().find_map(|result| result.refusal.as_ref()),
        Answer::Updated(results) => results.iter().find_map(|(_, result)| result.as_ref().err()),
        _ => None,
    }?;
    if *why == Refusal::AccessDenied {
        return Some(why.clone().into());
    }
    // In the words of `scancel` and `scontrol`.
    Some(WebRefusal::new(StatusCode::CONFLICT, words::refusal::text(why)))
}
