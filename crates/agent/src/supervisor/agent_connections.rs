//! The supervisor's connections to agents, and the events that it keeps until they are taken.
//!
//! The first connection comes from the launcher. When it is lost the supervisor listens on `ctl.sock`: an agent that was
//! restarted finds that, and is told everything that was not taken before.

use crate::error::AgentError;
use crate::spool::{AttemptDir, Claim, Slots, StatusFile};
use crate::wall_clock;
use model::id::{AttemptId, StepId};
use model::usage::LiveStep;
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::{Uid, getpid};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use wire::frame::{self, Decoder};
use wire::report::ReportEvent;
use wire::supervisor::{CHANNEL, FromSupervisor, SupervisorEvent, ToSupervisor};
use wire::version::PROTOCOL;

/// One agent, one that it replaces, and some slack; the oldest gives way.
const CONNECTIONS_MAX: usize = 4;
/// Ends of steps that no agent has taken; the oldest are let go, since the job's own end says what matters.
const EVENTS_MAX: usize = 4096;
/// What may wait for an agent that does not read. Beyond it the connection is cut, and its next one starts anew.
const OUT_BYTES_MAX: usize = 4 << 20;
const READ_BYTES: usize = 16 << 10;

/// The descriptor of the first connection, for the children of this process.
static AGENT: AtomicI32 = AtomicI32::new(-1);

/// For a forked child that is slow to execute: with its parent's end the agent shall see the connection's.
pub(super) fn close_in_child() {
    let agent = AGENT.load(Ordering::Relaxed);
    if agent >= 0 {
        // SAFETY: the child executes or exits without using the connection; closing it here does not end it there.
        unsafe { libc::close(agent) };
    }
}

struct Connection {
    stream: UnixStream,
    decoder: Decoder,
    out: Vec<u8>,
    broken: bool,
}

pub(super) struct AgentConnections {
    attempt: AttemptId,
    /// Never read: it is the hold on the attempt.
    _claim: Claim,
    path: PathBuf,
    /// None while an agent is there: a job is spared the file unless its agent is lost.
    listener: Option<UnixListener>,
    connections: Vec<Connection>,
    events: Vec<SupervisorEvent>,
    last_number: u64,
    slots: Slots,
}

impl AgentConnections {
    pub fn new(
        attempt: AttemptId,
        claim: Claim,
        dir: &AttemptDir,
        agent: UnixStream,
    ) -> AgentConnections {
        let mut control = AgentConnections {
            attempt,
            _claim: claim,
            path: dir.control_path(),
            listener: None,
            connections: Vec::new(),
            events: Vec::new(),
            last_number: 0,
            slots: Slots::default(),
        };
        control.add(agent);
        control
    }

    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// No agent is connected, and none can be: there was no room to listen.
    pub fn is_unreachable(&self) -> bool {
        self.listener.is_none() && self.connections.is_empty()
    }

    /// Once the agent is lost the next one must find us.
    fn listen(&mut self) {
        if self.is_unreachable() {
            let bound = UnixListener::bind(&self.path);
            let ready = bound.and_then(|l| l.set_nonblocking(true).map(|()| l));
            // Tried again until there is room for it.
            self.listener = ready.ok();
        }
    }

    /// Each connection, and whether bytes wait to be written to it.
    pub fn connections(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        self.connections.iter().map(|c| (c.stream.as_fd(), !c.out.is_empty()))
    }

    pub fn accept(&mut self) {
        while let Some(Ok((stream, _))) = self.listener.as_ref().map(UnixListener::accept) {
            let peer = getsockopt(&stream, sockopt::PeerCredentials).map(|peer| peer.uid());
            if peer == Ok(Uid::effective().as_raw()) {
                self.add(stream);
            }
        }
    }

    fn add(&mut self, stream: UnixStream) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            self.connections.remove(0);
        }
        let connection =
            Connection { stream, decoder: Decoder::default(), out: Vec::new(), broken: false };
        self.connections.push(connection);
        self.note_first();
        let index = self.connections.len() - 1;
        // At once: by its number the agent can wake a supervisor that root's own job has stopped.
        let pid = getpid().as_raw();
        self.send(index, &FromSupervisor::Hello { version: PROTOCOL, attempt: self.attempt, pid });
        for event in self.events.clone() {
            self.send(index, &FromSupervisor::Event(event));
        }
        self.flush();
    }

    /// Whenever connections come or go: a number that is no longer theirs may soon be another's.
    fn note_first(&self) {
        let first = self.connections.first().map_or(-1, |first| first.stream.as_raw_fd());
        AGENT.store(first, Ordering::Relaxed);
    }

    fn drop_broken(&mut self) {
        self.connections.retain(|connection| !connection.broken);
        self.note_first();
    }

    /// Keeps an event and tells it to whoever is connected.
    pub fn tell(&mut self, event: ReportEvent) {
        self.last_number += 1;
        let event = SupervisorEvent { number: self.last_number, at: wall_clock::now(), event };
        for index in 0..self.connections.len() {
            self.send(index, &FromSupervisor::Event(event.clone()));
        }
        self.events.push(event);
        if self.events.len() > EVENTS_MAX {
            let is_step = |e: &SupervisorEvent| matches!(e.event, ReportEvent::StepEnded { .. });
            if let Some(oldest) = self.events.iter().position(is_step) {
                self.events.remove(oldest);
            }
        }
    }

    /// Not kept: an order that is thought lost is sent again, and passed over.
    pub fn step_taken(&mut self, step: StepId) {
        for index in 0..self.connections.len() {
            self.send(index, &FromSupervisor::StepAccepted { step });
        }
    }

    /// Answers whoever asked; of several agents only one did, and knows the number.
    pub fn measured(&mut self, ask: u64, steps: Vec<LiveStep>) {
        for index in 0..self.connections.len() {
            self.send(index, &FromSupervisor::Measured { request: ask, steps: steps.clone() });
        }
    }

    pub fn refuse(&mut self, why: String) {
        for index in 0..self.connections.len() {
            self.send(index, &FromSupervisor::Refused { why: why.clone() });
        }
    }

    /// The server has these on disk; only ends of steps are many enough to be worth dropping.
    pub fn taken(&mut self, number: u64) {
        let step = |e: &SupervisorEvent| matches!(e.event, ReportEvent::StepEnded { .. });
        self.events.retain(|event| event.number > number || !step(event));
    }

    /// For an agent that is not there: everything that none has taken.
    pub fn write_down(&mut self, dir: &AttemptDir) -> Result<(), AgentError> {
        let events = self.events.clone();
        let status = StatusFile { version: PROTOCOL, at: wall_clock::now(), events };
        dir.write_status(&status, &mut self.slots)
    }

    fn send(&mut self, index: usize, message: &FromSupervisor) {
        let connection = &mut self.connections[index];
        let encoded = frame::encode_message(CHANNEL, message, &mut connection.out);
        connection.broken |= encoded.is_err() || connection.out.len() > OUT_BYTES_MAX;
    }

    /// Writes what can be written now; drops connections that are of no more use.
    pub fn flush(&mut self) {
        for connection in &mut self.connections {
            connection.flush();
        }
        self.drop_broken();
        self.listen();
    }

    /// Everything that the connected agents have said so far.
    pub fn read(&mut self) -> Vec<ToSupervisor> {
        let mut messages = Vec::new();
        for connection in &mut self.connections {
            connection.read(&mut messages);
        }
        self.drop_broken();
        messages
    }
}

impl Connection {
    fn flush(&mut self) {
        while !self.out.is_empty() && !self.broken {
            match self.stream.write(&self.out) {
                Ok(0) => self.broken = true,
                Ok(written) => drop(self.out.drain(..written)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.broken = true,
            }
        }
    }

    fn read(&mut self, messages: &mut Vec<ToSupervisor>) {
        let mut buffer = [0; READ_BYTES];
        while !self.broken {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.broken = true,
                Ok(length) => self.decoder.push(&buffer[..length]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.broken = true,
            }
        }
        loop {
            match self.decoder.next_frame() {
                Ok(None) => return,
                Ok(Some(frame)) => match frame::decode_message(&frame.payload) {
                    Ok(message) => messages.push(message),
                    Err(_) => self.broken = true,
                },
                Err(_) => {
                    self.broken = true;
                    return;
                }
            }
        }
    }
}
