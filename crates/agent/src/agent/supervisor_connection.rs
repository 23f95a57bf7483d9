//! The agent's side of its connection to one supervisor: a task that passes orders down and updates up.

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

/// Orders that may wait for a supervisor that is busy.
pub(crate) const ORDERS_MAX: usize = 256;
/// Looks for the socket of a supervisor that lives and may be slow: ten seconds of them.
const CONNECT_TRIES_MAX: usize = 500;
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
const READ_BYTES: usize = 16 << 10;

/// What an agent learns about one of its attempts.
#[derive(Debug)]
pub(crate) enum AttemptUpdate {
    Message(FromSupervisor),
    /// The supervisor has gone, having said its last or not.
    Disconnected,
    /// What it left behind is killed; none if there was no group to ask for its usage.
    Cleared(Usage),
}

/// Runs until the supervisor closes or the agent lets go of the attempt.
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
    'talk: while !gone {
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
                // Its last messages may still be under way in the socket.
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
            // A supervisor that cannot be understood is as good as gone.
            let Ok(said) = said else { break 'talk };
            if let FromSupervisor::Hello { pid, .. } = said {
                life = Liveness::of(pid);
            }
            if updates.send((key.clone(), AttemptUpdate::Message(said))).await.is_err() {
                return;
            }
        }
    }
    // Nobody listens any more only when the agent itself ends.
    let _ = updates.send((key, AttemptUpdate::Disconnected)).await;
}

/// What an earlier agent's launch came to.
pub(crate) enum SupervisorSearch {
    Alive(UnixStream),
    /// No supervisor ever claimed the attempt, and none ever will: it is claimed now.
    NeverStarted,
    Gone,
}

/// Finds the supervisor of an attempt that an earlier agent launched.
pub(crate) async fn find_supervisor(dir: &AttemptDir) -> SupervisorSearch {
    let path = dir.control_path();
    for _ in 0..CONNECT_TRIES_MAX {
        match dir.claim_state() {
            // It is ours now: a supervisor that comes later gives up.
            Ok(ClaimState::Unclaimed { .. }) => return SupervisorSearch::NeverStarted,
            Ok(ClaimState::Abandoned) | Err(_) => return SupervisorSearch::Gone,
            Ok(ClaimState::Claimed) => {}
        }
        // It listens as soon as it has noticed that its agent is gone.
        if let Ok(stream) = UnixStream::connect(&path).await {
            // The kernel remembers who made the socket. A child that has yet to execute may hold
            // it open for a supervisor that is dead.
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
