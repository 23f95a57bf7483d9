//! Calls that another API makes for a client: counted and bounded as those of commands are, and not taken back when the client
//! goes away.

use crate::http::body_limits::HeldRequest;
use crate::http::calls;
use crate::http::carried_out::carried_out;
use crate::shared::Shared;
use crate::shared::long_calls::LongCall;
use model::principal::Principal;
use model::reason::Refusal;
use std::sync::Arc;
use tokio::task::block_in_place;
use wire::client::{Answer, Call};

/// An answer, with the caller's turn where what it holds took one.
pub struct HeldAnswer {
    pub answer: Answer,
    long: Option<LongCall>,
}

impl HeldAnswer {
    /// What is made of the answer. It may be a million records: nobody's next turn begins before it is made, and the connections of
    /// others that are on this thread do not wait.
    pub fn make<T>(self, make: impl FnOnce(Answer) -> T) -> T {
        let Self { answer, long } = self;
        if long.is_some() { block_in_place(|| make(answer)) } else { make(answer) }
    }
}

/// `held` is of the request whose body the call was read from; a request without a body has none to hold.
pub async fn answer(
    shared: &Arc<Shared>,
    by: &Principal,
    held: Option<HeldRequest>,
    call: Call,
) -> Result<Answer, Refusal> {
    held_answer(shared, by, held, call).await.map(|found| found.answer)
}

/// The same for an answer that may be long: its turn lasts until it is made into what is sent.
pub async fn held_answer(
    shared: &Arc<Shared>,
    by: &Principal,
    held: Option<HeldRequest>,
    call: Call,
) -> Result<HeldAnswer, Refusal> {
    let (shared, by, kind) = (shared.clone(), by.clone(), call.kind());
    let answered = carried_out(async move {
        // What the call holds of the request counts until it is done.
        let _held = held;
        let _timer = shared.volatile.counters.begin_call(kind, &by);
        let long = match calls::long_work(&call) {
            Some(work) => Some(calls::begin_long(&shared, &by, work).await?),
            None => None,
        };
        let answer = calls::answer(&shared, by, call).await?;
        Ok::<_, Refusal>(HeldAnswer { answer, long })
    });
    let failed = || Err(Refusal::Other("the server failed; its log says why".into()));
    answered.await.unwrap_or_else(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::long_calls::BOOKS_OF_USER_MAX;
    use crate::testing::{TestServer, user};

    #[tokio::test(flavor = "multi_thread")]
    async fn turn_of_a_long_answer_lasts_until_something_is_made_of_it() {
        let server = TestServer::start().await;
        let ask = |by: Principal| {
            let shared = server.shared.clone();
            async move { held_answer(&shared, &by, None, Call::History(Default::default())).await }
        };
        let mut at_work = Vec::new();
        for _ in 0..BOOKS_OF_USER_MAX {
            at_work.push(ask(user()).await.expect("an answer"));
        }
        let next = tokio::spawn(ask(user()));
        let other = Principal { name: "bob".into(), uid: user().uid + 1, ..user() };
        for _ in 0..20 {
            ask(other.clone()).await.expect("another user's").make(drop);
        }
        assert!(!next.is_finished(), "the answers before are held");
        at_work.pop().expect("an answer").make(drop);
        next.await.expect("no panic").expect("its turn");
    }
}
