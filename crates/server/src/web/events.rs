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
use tokio::time::{sleep, timeout};

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
        loop {
            let waited = timeout(KEEP_ALIVE, self.commits.changed()).await;
            if !self.admission.holds(&self.shared) {
                self.is_over = true;
                return Some("event: signed_out\ndata: {}\n\n".to_owned());
            }
            match waited {
                Err(_) => return Some(ALIVE.to_owned()),
                Ok(Err(_)) => return None,
                Ok(Ok(())) => {}
            }
            let now = self.shared.volatile.changes.last();
            if now != seen {
                self.seen = Some(now);
                return Some(event("change", &now, seen.newest()));
            }
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
}
