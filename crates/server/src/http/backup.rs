//! `GET /api/v1/backup`: a backup of the running server, as a stream. The keys are for root on the server's machine alone.

use crate::backup::write::{self, BackupContent};
use crate::http::answer::answer_json;
use crate::shared::Shared;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::Response;
use cluster::authorise::{Act, authorise};
use model::principal::Principal;
use model::reason::Refusal;
use serde::Deserialize;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;
use wire::client::Answer;

#[derive(Deserialize)]
pub struct BackupQuery {
    #[serde(default)]
    keys: bool,
    #[serde(default)]
    logs: bool,
}

/// Pieces on their way to the client, and the size of one: what a backup holds in memory.
const PIECES: usize = 8;
const PIECE_BYTES: usize = 256 << 10;

pub async fn backup(
    State(shared): State<Arc<Shared>>,
    axum::Extension(by): axum::Extension<Principal>,
    Query(BackupQuery { keys, logs }): Query<BackupQuery>,
) -> Response {
    let act = if keys { Act::CopyKeys } else { Act::Administer };
    let allowed = authorise(&shared.read(), &by, act);
    let begun = allowed.and_then(|()| begin(shared, BackupContent { keys, logs }));
    let pieces = match begun {
        Ok(pieces) => pieces,
        Err(why) => return answer_json(&Answer::Refused(why)),
    };
    let stream = futures_util::stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((piece, pieces))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let kind = header::HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

type Piece = io::Result<Vec<u8>>;

/// Begins a backup on a thread of its own. One at a time.
fn begin(shared: Arc<Shared>, content: BackupContent) -> Result<mpsc::Receiver<Piece>, Refusal> {
    if shared.volatile.backup_runs.swap(true, Ordering::AcqRel) {
        return Err(Refusal::Other("a backup is being made already".into()));
    }
    let (sender, pieces) = mpsc::channel(PIECES);
    let for_thread = shared.clone();
    let work = move || {
        let _turn = Turn(&for_thread.volatile.backup_runs);
        let mut out = PieceWriter { sender, piece: Vec::with_capacity(PIECE_BYTES) };
        let written = write::write(&for_thread, content, &mut out);
        match written
            .and_then(|()| out.flush().map_err(|e| crate::ServerError::Other(e.to_string())))
        {
            Ok(()) => tracing::info!("a backup was made"),
            Err(error) => {
                tracing::warn!("no backup was made: {error}");
                // The stream breaks off: it lacks its last line.
                let _ = out.sender.blocking_send(Err(io::Error::other(error.to_string())));
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("backup".into()).spawn(work) {
        shared.volatile.backup_runs.store(false, Ordering::Release);
        return Err(Refusal::Other(format!("no backup was made: {error}")));
    }
    Ok(pieces)
}

/// The only backup under way, until it is dropped.
struct Turn<'a>(&'a AtomicBool);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Sends what is written in pieces; a client that is gone is an error.
struct PieceWriter {
    sender: mpsc::Sender<Piece>,
    piece: Vec<u8>,
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the client is gone");
        self.sender.blocking_send(Ok(piece)).map_err(gone)
    }
}
