//! Calls that the page's API makes: the same as those of commands, counted and answered as theirs are.

use crate::http::counted_call;
use crate::shared::Shared;
use crate::web::answer::WebRefusal;
use model::principal::Principal;
use std::sync::Arc;
use wire::client::{Answer, Call};

pub async fn ask(shared: &Arc<Shared>, by: &Principal, call: Call) -> Result<Answer, WebRefusal> {
    counted_call::answer(shared, by, call).await.map_err(WebRefusal::from)
}
