//! The agent's end of the connection to one supervisor: a task that sends orders and receives events.

use super::liveness::Liveness;
use crate::attempt_key::AttemptKey;
use crate::spool::{AttemptDir, ClaimState};
use model::run::Usage;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use wire::frame::{self, Decoder};
use wire::supervisor::{CHANNEL, FromSupervisor, ToSupervisor};

/// Orders that may wait for a busy supervisor.
pub(crate) const ORDERS_MAX: usize = 256;
/// Tries to connect to a living supervisor that does not listen yet: ten seconds of them.
const CONNECT_TRIES_MAX: usize = 500;
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
const READ_BYTES: usize = 16 << 10;

/// News of one attempt for the agent's loop.
#[derive(Debug)]
pub(crate) enum AttemptUpdate {
    Message(FromSupervisor),
    /// The supervisor has ended, whether or not it reported the attempt's end.
    Disconnected,
    /// The processes of a lost supervisor are killed; their usage, as far as a group counted it.
    Cleared(Usage),
}

/// Runs until the supervisor ends or the agent forgets the attempt.
pub(crate) async fn serve_supervisor(
    key: AttemptKey,
    mut stream: UnixStream,
    mut orders: mpsc::Receiver<ToSupervisor>,
    updates: mpsc::Sender<(AttemptKey, AttemptUpdate)>,
) {
    let mut decoder = Decoder::default();
    let mut input = Vec::with_capacity(READ_BYTES);
    let mut life = Liveness::Unknown;
    let mut gone = false;
    'connection: while !gone {
        input.clear();
        tokio::select! {
            read = stream.read_buf(&mut input) => match read {
                Ok(length) if length > 0 => decoder.push(&input),
                _ => break,
            },
            order = orders.recv() => {
                let Some(order) = order else { return };
                life.send_sigcont();
                let mut bytes = Vec::new();
                if frame::encode_message(CHANNEL, &order, &mut bytes).is_err()
                    || stream.write_all(&bytes).await.is_err()
                {
                    break;
                }
            }
            () = life.ended() => {
                // Its last messages may still be in the socket's buffer.
                while stream.try_read_buf(&mut input).is_ok_and(|length| length > 0) {}
                decoder.push(&input);
                gone = true;
            }
        }
        loop {
            let said = match decoder.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => frame::decode_message::<FromSupervisor>(&frame.payload),
                Err(error) => Err(error),
            };
            // A supervisor that sends malformed messages counts as lost.
            let Ok(said) = said else { break 'connection };
            if let FromSupervisor::Hello { pid, .. } = said {
                life = Liveness::of(pid);
            }
            if updates.send((key.clone(), AttemptUpdate::Message(said))).await.is_err() {
                return;
            }
        }
    }
    // Fails only when the agent itself ends.
    let _ = updates.send((key, AttemptUpdate::Disconnected)).await;
}

/// The state of an attempt that an earlier agent launched.
pub(crate) enum SupervisorSearch {
    Alive(UnixStream),
    /// No supervisor ever claimed the attempt, and none can any more: the agent has claimed it now.
    NeverStarted,
    Gone,
}

/// Finds the supervisor of an attempt that an earlier agent launched.
pub(crate) async fn find_supervisor(dir: &AttemptDir) -> SupervisorSearch {
    let path = dir.control_path();
    for _ in 0..CONNECT_TRIES_MAX {
        match dir.claim_state() {
            // Claimed by this call: a supervisor that starts later gives up.
            Ok(ClaimState::Unclaimed { .. }) => return SupervisorSearch::NeverStarted,
            Ok(ClaimState::Abandoned) | Err(_) => return SupervisorSearch::Gone,
            Ok(ClaimState::Claimed) => {}
        }
        // It listens as soon as it has noticed that its agent has ended.
        if let Ok(stream) = UnixStream::connect(&path).await {
            // The peer is the process that made the socket. It may be dead while a child that has not executed yet
            // holds the socket open.
            let maker = stream.peer_cred().ok().and_then(|peer| peer.pid()).unwrap_or(0);
            return if Liveness::of(maker).has_ended() {
                SupervisorSearch::Gone
            } else {
                SupervisorSearch::Alive(stream)
            };
        }
        tokio::time::sleep(CONNECT_PAUSE).await;
    }
    SupervisorSearch::Gone
}
