//! Where streams come in that the agent carries to this attempt's steps: a second socket beside `ctl.sock`.

use crate::error::AgentError;
use crate::spool::{AttemptDir, STEPS};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::Uid;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use wire::frame::{self, Decoder};
use wire::step::{StepMessage, channel};
use wire::supervisor::StepStream;

/// Connections that have not said yet what they are for; the oldest gives way.
const PENDING_MAX: usize = 64;
const READ_BYTES: usize = 4 << 10;

struct PendingConnection {
    stream: UnixStream,
    decoder: Decoder,
}

/// One that has said what it is for. Frames of the step may have come with it.
pub(crate) struct StepConnection {
    pub stream: UnixStream,
    pub decoder: Decoder,
    pub ask: StepStream,
}

impl StepConnection {
    /// Says why not, and hangs up. `again`: what is asked for may come about yet.
    pub fn refuse(mut self, why: &str, again: bool) {
        let mut bytes = Vec::new();
        let refused = StepMessage::Refused { why: why.to_owned(), again };
        if frame::encode_message(channel::CONTROL, &refused, &mut bytes).is_ok() {
            // The first bytes on a new connection find room; if not, the end of it says enough.
            let _ = self.stream.write(&bytes);
        }
    }
}

#[derive(Default)]
pub(crate) struct StepListener {
    /// None before the first step: a job without steps is spared the file.
    listener: Option<UnixListener>,
    pending: Vec<PendingConnection>,
}

impl StepListener {
    /// Before a step; what is open stays so.
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

    /// Lets in who knocks, and gives those that have said what they want.
    pub fn advance(&mut self) -> Vec<StepConnection> {
        while let Some(Ok((stream, _))) = self.listener.as_ref().map(UnixListener::accept) {
            let peer = getsockopt(&stream, sockopt::PeerCredentials).map(|peer| peer.uid());
            if peer == Ok(Uid::effective().as_raw()) && stream.set_nonblocking(true).is_ok() {
                if self.pending.len() >= PENDING_MAX {
                    self.pending.remove(0);
                }
                self.pending.push(PendingConnection { stream, decoder: Decoder::default() });
            }
        }
        let mut joined = Vec::new();
        for mut one in std::mem::take(&mut self.pending) {
            match one.read() {
                Ok(Some(ask)) => {
                    joined.push(StepConnection { stream: one.stream, decoder: one.decoder, ask })
                }
                Ok(None) => self.pending.push(one),
                // Gone, or not one of ours.
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
