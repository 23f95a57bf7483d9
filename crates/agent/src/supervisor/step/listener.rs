//! The socket (`steps.sock`) for streams that the agent forwards to this attempt's steps.

use crate::error::AgentError;
use crate::spool::{AttemptDir, STEPS};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::Uid;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use wire::frame::{self, Decoder};
use wire::step::{STEP_PAYLOAD_MAX, StepMessage, channel};
use wire::supervisor::StepStream;

/// Connections that have not sent their request yet; a further one closes the oldest.
const PENDING_MAX: usize = 64;
const READ_BYTES: usize = 4 << 10;

struct PendingConnection {
    stream: UnixStream,
    decoder: Decoder,
}

/// A connection that has sent its request. The decoder may already hold frames of the step.
pub(crate) struct StepConnection {
    pub stream: UnixStream,
    pub decoder: Decoder,
    pub ask: StepStream,
}

impl StepConnection {
    /// Refuses the request and closes the connection. `again`: the client may try again later.
    pub fn refuse(mut self, why: &str, again: bool) {
        let mut bytes = Vec::new();
        let refused = StepMessage::Refused { why: why.to_owned(), again };
        if frame::encode_message(channel::CONTROL, &refused, &mut bytes).is_ok() {
            // A new socket's buffer is empty, so this does not block; if it fails, the closed connection is answer
            // enough.
            let _ = self.stream.write(&bytes);
        }
    }
}

#[derive(Default)]
pub(crate) struct StepListener {
    /// `None` before the first step: a job without steps makes no socket.
    listener: Option<UnixListener>,
    pending: Vec<PendingConnection>,
}

impl StepListener {
    /// Listens before the first step starts; later calls do nothing.
    pub fn open(&mut self, dir: &AttemptDir) -> Result<(), AgentError> {
        if self.listener.is_none() {
            let listener = UnixListener::bind(dir.steps_path())
                .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
                .map_err(|e| AgentError::file("listen on", dir.path().join(STEPS), e))?;
            self.listener = Some(listener);
        }
        Ok(())
    }

    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let pending = self.pending.iter().map(|one| one.stream.as_fd());
        self.listener.iter().map(AsFd::as_fd).chain(pending)
    }

    /// Accepts new connections, and returns those that have sent their request.
    pub fn advance(&mut self) -> Vec<StepConnection> {
        while let Some(Ok((stream, _))) = self.listener.as_ref().map(UnixListener::accept) {
            let peer = getsockopt(&stream, sockopt::PeerCredentials).map(|peer| peer.uid());
            if peer == Ok(Uid::effective().as_raw()) && stream.set_nonblocking(true).is_ok() {
                if self.pending.len() >= PENDING_MAX {
                    self.pending.remove(0);
                }
                self.pending.push(PendingConnection {
                    stream,
                    decoder: Decoder::bounded(STEP_PAYLOAD_MAX),
                });
            }
        }
        let mut joined = Vec::new();
        for mut one in std::mem::take(&mut self.pending) {
            match one.read() {
                Ok(Some(ask)) => {
                    joined.push(StepConnection { stream: one.stream, decoder: one.decoder, ask })
                }
                Ok(None) => self.pending.push(one),
                // Disconnected, or not a valid request.
                Err(()) => {}
            }
        }
        joined
    }
}

impl PendingConnection {
    fn read(&mut self) -> Result<Option<StepStream>, ()> {
        let mut buffer = [0; READ_BYTES];
        match self.stream.read(&mut buffer) {
            Ok(length) if length > 0 => self.decoder.push(&buffer[..length]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Ok(_) | Err(_) => return Err(()),
        }
        match self.decoder.next_frame() {
            Ok(Some(frame)) => frame::decode_message(&frame.payload).map(Some).map_err(drop),
            Ok(None) => Ok(None),
            Err(_) => Err(()),
        }
    }
}
