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
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use wire::client::Answer;
use wire::frame;
use wire::step::{StepMessage, channel};
use wire::stream::{PROTOCOL_NAME, StepRole, StreamKind};

/// The most bytes that are read from a client at once.
const CHUNK_BYTES: usize = 32 << 10;

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
                        return false;
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
        reader.client_gone();
    }
}

/// The agent's refusal as a frame of the step.
fn refusal(why: String) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A message of one line fits into a frame.
    let refused = StepMessage::Refused { why, again: true };
    let _ = frame::encode_message(channel::CONTROL, &refused, &mut bytes);
    bytes
}
