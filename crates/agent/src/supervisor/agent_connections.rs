//! The supervisor's connections to agents, and the events that it keeps until they are taken.
//!
//! The first connection comes from the launcher. When it is lost the supervisor listens on `ctl.sock`: a restarted
//! agent connects there and gets every event that no agent has taken.

use crate::error::AgentError;
use crate::spool::{AttemptDir, Claim, Slots, StatusFile};
use crate::wall_clock;
use model::id::{AttemptId, StepId};
use model::load::LiveUsage;
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

/// Connections at once: the agent, one that it replaces, and two spare. A further one closes the oldest.
const CONNECTIONS_MAX: usize = 4;
/// Events kept for an agent. Beyond this many the oldest ends of steps are dropped: the job's own end matters more.
const EVENTS_MAX: usize = 4096;
/// Bytes that wait for an agent that does not read. Beyond it the connection is closed; the next one gets every event
/// again.
const OUT_BYTES_MAX: usize = 4 << 20;
const READ_BYTES: usize = 16 << 10;

/// The descriptor of the first connection, so that a forked child can close its copy.
static AGENT: AtomicI32 = AtomicI32::new(-1);

/// Closes the connection to the agent in a forked child. Otherwise a child that is slow to execute would keep it open
/// after the supervisor's death, which the agent must notice.
pub(super) fn close_in_child() {
    let agent = AGENT.load(Ordering::Relaxed);
    if agent >= 0 {
        // SAFETY: the child executes or exits without using the connection; closing it here does not end it there.
        unsafe { libc::close(agent) };
    }
}

struct AgentConnection {
    stream: UnixStream,
    decoder: Decoder,
    out: Vec<u8>,
    broken: bool,
}

pub(super) struct AgentConnections {
    attempt: AttemptId,
    /// Holds the lock on the attempt for as long as the supervisor lives.
    _claim: Claim,
    path: PathBuf,
    /// `None` while an agent is connected: the socket is made only once the agent is lost.
    listener: Option<UnixListener>,
    connections: Vec<AgentConnection>,
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
        let mut connections = AgentConnections {
            attempt,
            _claim: claim,
            path: dir.control_path(),
            listener: None,
            connections: Vec::new(),
            events: Vec::new(),
            last_number: 0,
            slots: Slots::default(),
        };
        connections.add(agent);
        connections
    }

    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    pub fn has_agent(&self) -> bool {
        !self.connections.is_empty()
    }

    /// No agent is connected, and none can connect: the socket could not be made.
    pub fn is_unreachable(&self) -> bool {
        self.listener.is_none() && self.connections.is_empty()
    }

    /// Listens for the next agent once the last one is lost.
    fn listen(&mut self) {
        if self.is_unreachable() {
            let bound = UnixListener::bind(&self.path);
            let ready = bound.and_then(|l| l.set_nonblocking(true).map(|()| l));
            // The event loop tries again: a full disk may have refused the socket.
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
            AgentConnection { stream, decoder: Decoder::default(), out: Vec::new(), broken: false };
        self.connections.push(connection);
        self.note_first();
        let index = self.connections.len() - 1;
        // Sent at once: by the pid the agent can send SIGCONT to a supervisor that a job of root has stopped.
        let pid = getpid().as_raw();
        let attempt = self.attempt;
        let hello = FromSupervisor::Hello { version: PROTOCOL, attempt, pid, takes_notices: true };
        self.send(index, &hello);
        for event in self.events.clone() {
            self.send(index, &FromSupervisor::Event(event));
        }
        self.flush();
    }

    /// Must follow every change of the connections: a closed descriptor's number may soon be another file's.
    fn note_first(&self) {
        let first = self.connections.first().map_or(-1, |first| first.stream.as_raw_fd());
        AGENT.store(first, Ordering::Relaxed);
    }

    fn drop_broken(&mut self) {
        self.connections.retain(|connection| !connection.broken);
        self.note_first();
    }

    /// Keeps an event until it is taken, and sends it to every connected agent.
    pub fn report(&mut self, event: ReportEvent) {
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

    /// Acknowledges a step's order. It is not kept: an order that is not acknowledged comes again and is ignored.
    pub fn step_taken(&mut self, step: StepId) {
        for index in 0..self.connections.len() {
            self.send(index, &FromSupervisor::StepAccepted { step });
        }
    }

    /// Sends the answer to every agent: only the one that asked knows the number.
    pub fn measured(&mut self, ask: u64, used: LiveUsage) {
        let answer = FromSupervisor::Measured { request: ask, used };
        for index in 0..self.connections.len() {
            self.send(index, &answer);
        }
    }

    pub fn report_refusal(&mut self, why: String) {
        for index in 0..self.connections.len() {
            self.send(index, &FromSupervisor::Refused { why: why.clone() });
        }
    }

    /// Drops events that the server has on disk. Only ends of steps are dropped: the others are few.
    pub fn drop_taken(&mut self, number: u64) {
        let step = |e: &SupervisorEvent| matches!(e.event, ReportEvent::StepEnded { .. });
        self.events.retain(|event| event.number > number || !step(event));
    }

    /// Writes every event that no agent has taken to the spool, for the next agent.
    pub fn write_status(&mut self, dir: &AttemptDir) -> Result<(), AgentError> {
        let events = self.events.clone();
        let status = StatusFile { version: PROTOCOL, at: wall_clock::now(), events };
        dir.write_status(&status, &mut self.slots)
    }

    fn send(&mut self, index: usize, message: &FromSupervisor) {
        let connection = &mut self.connections[index];
        let encoded = frame::encode_message(CHANNEL, message, &mut connection.out);
        connection.broken |= encoded.is_err() || connection.out.len() > OUT_BYTES_MAX;
    }

    /// Writes what the sockets take now, and closes broken connections.
    pub fn flush(&mut self) {
        for connection in &mut self.connections {
            connection.flush();
        }
        self.drop_broken();
        self.listen();
    }

    /// Reads every message that the connected agents have sent.
    pub fn read(&mut self) -> Vec<ToSupervisor> {
        let mut messages = Vec::new();
        for connection in &mut self.connections {
            connection.read(&mut messages);
        }
        self.drop_broken();
        messages
    }
}

impl AgentConnection {
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
