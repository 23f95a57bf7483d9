//! Calls that the page's API makes: the same as those of commands, counted and answered as theirs are.

use crate::http::calls;
use crate::shared::Shared;
use crate::web::answer::WebRefusal;
use model::principal::Principal;
use std::sync::Arc;
use wire::client::{Answer, Call};

pub async fn ask(shared: &Arc<Shared>, by: &Principal, call: Call) -> Result<Answer, WebRefusal> {
    let (shared, by, kind) = (shared.clone(), by.clone(), call.kind());
    // On a task of its own: a browser that goes away does not take back what it asked for.
    let answered = tokio::spawn(async move {
        let _timer = shared.volatile.counters.begin_call(kind, &by);
        calls::answer(&shared, by, call).await
    });
    match answered.await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(why)) => Err(why.into()),
        Err(_) => Err(WebRefusal::unexpected()),
    }
}
