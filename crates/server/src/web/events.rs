//! `GET /api/web/events`: server-sent events that tell a page what changed, so that it asks for that. An event carries nothing of
//! the cluster itself: what a page is shown is decided when it asks.

use crate::per_user::CountedUser;
use crate::shared::Shared;
use crate::shared::change_log::{ChangeSeq, LastChanges};
use crate::web::answer::{WebRefusal, WebResult};
use crate::web::guard::Admission;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use model::principal::Principal;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

/// Streams of one user; his tabs share one.
const STREAMS_MAX: usize = 16;

/// The least time between two events: what changes meanwhile is in one.
const INTERVAL: Duration = Duration::from_secs(1);

/// Something is sent this often, so that both sides notice a connection that is gone, and that a session has ended.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A page hears it, and by its absence that the server hangs: of a comment a browser tells no script.
const ALIVE: &str = "event: alive\ndata: {}\n\n";

pub async fn events(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Extension(admission): Extension<Admission>,
) -> WebResult {
    let counted = shared.volatile.web_streams.enter(by.uid, STREAMS_MAX).ok_or_else(|| {
        let text = format!("user {} has {STREAMS_MAX} streams of changes open", by.name);
        WebRefusal::new(StatusCode::SERVICE_UNAVAILABLE, text)
    })?;
    let commits = shared.commits.subscribe();
    let stream =
        ChangeStream { shared, admission, commits, seen: None, is_over: false, _counted: counted };
    let stream = futures_util::stream::unfold(stream, ChangeStream::next);
    let mut response = Response::new(Body::from_stream(stream));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// One page's stream. It holds no queue: a page that reads slowly hears of everything at once.
struct ChangeStream {
    shared: Arc<Shared>,
    admission: Admission,
    commits: watch::Receiver<u64>,
    /// What the page was told last.
    seen: Option<LastChanges>,
    is_over: bool,
    _counted: CountedUser,
}

impl ChangeStream {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if self.is_over {
            return None;
        }
        let text = self.text().await?;
        Some((Ok(Bytes::from(text)), self))
    }

    /// The next event, or one that says nothing but that there is a server; nothing when the server stops.
    async fn text(&mut self) -> Option<String> {
        let Some(seen) = self.seen else {
            let now = self.shared.volatile.changes.last();
            self.seen = Some(now);
            return Some(event("hello", &now, now.newest()));
        };
        sleep(INTERVAL).await;
        let (shared, admission, commits) = (&self.shared, &self.admission, &mut self.commits);
        let look = || admission.holds(shared).then(|| shared.volatile.changes.last());
        match hear(commits, Instant::now() + KEEP_ALIVE, seen, look).await {
            Heard::Change(now) => {
                self.seen = Some(now);
                Some(event("change", &now, seen.newest()))
            }
            Heard::Nothing => Some(ALIVE.to_owned()),
            Heard::SignedOut => {
                self.is_over = true;
                Some("event: signed_out\ndata: {}\n\n".to_owned())
            }
            Heard::Stopped => None,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Change(LastChanges),
    Nothing,
    SignedOut,
    Stopped,
}

/// Waits until something has changed since `seen`, or until this time: commits that change nothing of it, as those of sign-ins, do not
/// put that off. `look` says what changed last, and nothing to who is signed out.
async fn hear(
    commits: &mut watch::Receiver<u64>,
    until: Instant,
    seen: LastChanges,
    look: impl Fn() -> Option<LastChanges>,
) -> Heard {
    loop {
        let waited = timeout_at(until, commits.changed()).await;
        let Some(now) = look() else { return Heard::SignedOut };
        match waited {
            Ok(Err(_)) => return Heard::Stopped,
            Ok(Ok(())) if now != seen => return Heard::Change(now),
            Ok(Ok(())) if Instant::now() < until => {}
            Ok(Ok(())) | Err(_) => return Heard::Nothing,
        }
    }
}

/// An event that says which parts changed after `since`.
fn event(name: &str, now: &LastChanges, since: ChangeSeq) -> String {
    let data = json!({
        "seq": now.newest().0,
        "jobs": now.jobs > since,
        "nodes": now.nodes > since,
        "lists": now.lists > since,
    });
    format!("event: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_says_which_parts_changed() {
        let (old, new) = (ChangeSeq(5), ChangeSeq(6));
        let now = LastChanges { jobs: new, nodes: old, lists: old };
        let text = event("change", &now, old);
        let data = text.strip_prefix("event: change\ndata: ").expect("an event");
        let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(data, json!({"seq": 6, "jobs": true, "nodes": false, "lists": false}));
        assert!(text.ends_with("\n\n"));
    }

    #[tokio::test]
    async fn page_hears_that_the_server_lives_however_much_is_committed_that_no_list_has() {
        let place =
            |jobs| LastChanges { jobs: ChangeSeq(jobs), nodes: ChangeSeq(5), lists: ChangeSeq(5) };
        let (sender, mut commits) = watch::channel(0);
        sender.send_modify(|number| *number += 1);
        // Each time that is looked, there is a further commit already.
        let look_at = |changes| {
            sender.send_modify(|number| *number += 1);
            Some(changes)
        };
        let now = Instant::now();
        let heard = hear(&mut commits, now, place(5), || look_at(place(5))).await;
        assert_eq!(heard, Heard::Nothing);
        let heard = hear(&mut commits, now, place(5), || look_at(place(6))).await;
        assert_eq!(heard, Heard::Change(place(6)));
        assert_eq!(hear(&mut commits, now, place(5), || None).await, Heard::SignedOut);
    }
}
