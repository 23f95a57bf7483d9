//! The clients' end of a step's stream: an HTTP connection that becomes the step's frames, both ways.

use crate::http::answer::answer_json;
use crate::http::peer::HeldSlot;
use crate::shared::Shared;
use crate::shared::agent_streams::{StreamReader, StreamWriter};
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use cluster::authorise::{Act, authorise};
use hyper_util::rt::TokioIo;
use model::id::{AttemptId, JobId, StepId};
use model::principal::Principal;
use model::reason::Refusal;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use wire::client::Answer;
use wire::frame;
use wire::step::{StepMessage, channel};
use wire::stream::{PROTOCOL_NAME, StepRole, StreamKind};

/// The most bytes that are read from a client at once.
const CHUNK_BYTES: usize = 32 << 10;

/// How long a client may take to read the end of its stream.
const LINGER: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
pub struct StepQuery {
    job: u32,
    step: String,
    node: String,
    /// The step's own `srun` shows its key, and says how many bytes it has had.
    key: Option<String>,
    #[serde(default)]
    received: u64,
}

/// `GET /api/v1/step` with `Upgrade`: the frames of one step on one node.
pub async fn open(
    State(shared): State<Arc<Shared>>,
    axum::Extension(by): axum::Extension<Principal>,
    Query(query): Query<StepQuery>,
    mut request: Request,
) -> Response {
    let (attempt, step) = match find_step(&shared, &by, &query) {
        Ok(found) => found,
        Err(why) => return answer_json(&Answer::Refused(why)),
    };
    let Some(upgrade) = request.extensions_mut().remove::<hyper::upgrade::OnUpgrade>() else {
        let why = Refusal::Other(format!("a step's stream needs Upgrade: {PROTOCOL_NAME}"));
        return answer_json(&Answer::Refused(why));
    };
    let role = match query.key {
        Some(key) => StepRole::Srun { key, received: query.received },
        None => StepRole::Attached,
    };
    let kind = StreamKind::Step { step, role };
    let Some((reader, writer)) = shared.agents.open_stream(&query.node, attempt, kind, by.uid)
    else {
        let why = Refusal::Other(format!("node {} does not answer", query.node));
        return answer_json(&Answer::Refused(why));
    };
    let slot = request.extensions().get::<HeldSlot>().cloned();
    tokio::spawn(async move {
        let _slot = slot;
        match upgrade.await {
            Ok(client) => relay(TokioIo::new(client), reader, writer).await,
            Err(_) => reader.client_gone(),
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, header::HeaderValue::from_static(PROTOCOL_NAME));
    response
}

/// The attempt and the step that are asked for, if this principal may have them.
fn find_step(
    shared: &Shared,
    by: &Principal,
    query: &StepQuery,
) -> Result<(AttemptId, StepId), Refusal> {
    let id = JobId(query.job);
    let shown = format!("{id}.{}", query.step);
    let unknown = || Refusal::UnknownStep(shown.clone());
    let step: StepId = StepId::parse(&query.step).ok_or_else(unknown)?;
    let state = shared.read();
    let job = state.jobs.get(&id).ok_or_else(|| Refusal::UnknownJob(id.to_string()))?;
    authorise(&state, by, Act::ActAsOwner(job))?;
    let attempt = match job.attempt() {
        Some(attempt) => attempt,
        None if job.has_ended() => return Err(Refusal::JobEnded(id)),
        None => return Err(Refusal::JobNotRunning(id)),
    };
    let known = attempt.steps.iter().find(|s| s.id == step).ok_or_else(unknown)?;
    // An srun may still lack the last bytes of a step that has ended.
    if query.key.is_none() && known.end.is_some() {
        return Err(unknown());
    }
    if !known.nodes.contains(&query.node) {
        return Err(Refusal::UnknownNode(query.node.clone()));
    }
    Ok((AttemptId { job: id, number: attempt.number }, step))
}

async fn relay(
    client: impl AsyncRead + AsyncWrite,
    mut reader: StreamReader,
    writer: StreamWriter,
) {
    let (mut from, mut to) = tokio::io::split(client);
    let down = async {
        while let Some(chunk) = reader.next().await {
            let bytes = chunk.unwrap_or_else(refusal);
            if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
                return true;
            }
        }
        // Only this direction is closed: a client that still sends is not cut off while it reads.
        let _ = to.shutdown().await;
        false
    };
    let up = async {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let credit = writer.wait_for_credit().await.min(CHUNK_BYTES);
            match from.read(&mut buffer[..credit]).await {
                Ok(length @ 1..) => {
                    if !writer.send(&buffer[..length]).await {
                        // The link is gone. What had come over it is still passed on, and then the stream ends.
                        return std::future::pending().await;
                    }
                }
                Ok(_) | Err(_) => return true,
            }
        }
    };
    let client_gone = tokio::select! {
        gone = down => gone,
        gone = up => gone,
    };
    if client_gone {
        return reader.client_gone();
    }
    // A connection that is closed while something is unread is reset, and what was sent last may be lost with it.
    let mut nowhere = tokio::io::sink();
    let unread = tokio::io::copy(&mut from, &mut nowhere);
    let _ = tokio::time::timeout(LINGER, unread).await;
}

/// The agent's refusal as a frame of the step.
fn refusal(why: String) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A message of one line fits into a frame.
    let refused = StepMessage::Refused { why, again: true };
    let _ = frame::encode_message(channel::CONTROL, &refused, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::agent_streams::{LinkSender, StreamTable};
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn what_came_over_a_link_is_passed_on_though_the_link_is_gone() {
        // Which direction is looked at first is a matter of chance.
        for _ in 0..64 {
            let table = Arc::<StreamTable>::default();
            let (outbox, _orders) = mpsc::channel(16);
            let link = LinkSender { number: 1, outbox, data: mpsc::channel(1).0 };
            let attempt = AttemptId { job: JobId(1), number: 1 };
            let kind = StreamKind::Step { step: StepId::Number(0), role: StepRole::Attached };
            let opened = StreamTable::open(&table, link, "n1", attempt, kind, 1000);
            let (reader, writer) = opened.expect("a stream");
            table.received(1, b"\0\0\0\0last words");
            table.end(1, 0, None);
            let (ours, mut client) = tokio::io::duplex(1024);
            client.write_all(b"input").await.expect("written");
            let relayed = tokio::spawn(relay(ours, reader, writer));
            let mut read = Vec::new();
            client.read_to_end(&mut read).await.expect("an end");
            assert_eq!(read, b"last words");
            drop(client);
            relayed.await.expect("it ends with its client");
        }
    }
}
