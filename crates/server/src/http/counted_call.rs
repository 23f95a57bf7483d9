//! Calls that another API makes for a client: counted and bounded as those of commands are, and not taken back when the client
//! goes away.

use crate::http::body_limits::HeldRequest;
use crate::http::calls;
use crate::shared::Shared;
use model::principal::Principal;
use model::reason::Refusal;
use std::sync::Arc;
use wire::client::{Answer, Call};

/// `held` is of the request whose body the call was read from; a request without a body has none to hold.
pub async fn answer(
    shared: &Arc<Shared>,
    by: &Principal,
    held: Option<HeldRequest>,
    call: Call,
) -> Result<Answer, Refusal> {
    let (shared, by, kind) = (shared.clone(), by.clone(), call.kind());
    let answered = tokio::spawn(async move {
        // What the call holds of the request counts until it is done.
        let _held = held;
        let _timer = shared.volatile.counters.begin_call(kind, &by);
        let _long = match calls::long_work(&call) {
            Some(work) => Some(calls::begin_long(&shared, &by, work).await?),
            None => None,
        };
        calls::answer(&shared, by, call).await
    });
    let failed = |_| Err(Refusal::Other("the server failed; its log says why".into()));
    answered.await.unwrap_or_else(failed)
}
