//! Calls that another API makes for a client: counted as those of commands are, and not taken back when the client goes away.

use crate::http::calls;
use crate::shared::Shared;
use model::principal::Principal;
use model::reason::Refusal;
use std::sync::Arc;
use wire::client::{Answer, Call};

pub async fn answer(shared: &Arc<Shared>, by: &Principal, call: Call) -> Result<Answer, Refusal> {
    let (shared, by, kind) = (shared.clone(), by.clone(), call.kind());
    let answered = tokio::spawn(async move {
        let _timer = shared.volatile.counters.begin_call(kind, &by);
        calls::answer(&shared, by, call).await
    });
    let failed = |_| Err(Refusal::Other("the server failed; its log says why".into()));
    answered.await.unwrap_or_else(failed)
}
