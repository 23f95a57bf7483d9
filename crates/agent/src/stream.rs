//! Streams of one link to the server: logs going up, and the bytes of steps both ways.
//!
//! Each has a task of its own and moves no more than it was credited, so none holds up another, or the link.

use crate::log_reader::LogReader;
use std::io::ErrorKind;
use std::path::PathBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use wire::frame;
use wire::step::{StepMessage, channel};
use wire::stream::{CreditOverrun, ReceiveWindow, SendCredit};
use wire::supervisor::{CHANNEL, StepStream};

/// Credits of one log that wait for its reader.
const GRANTS_MAX: usize = 16;
/// The largest piece sent at once, so that one stream does not hold up reports.
const PIECE_BYTES: usize = 32 << 10;

/// What a stream has for the server.
#[derive(Debug)]
pub(crate) enum Piece {
    Bytes(Vec<u8>),
    /// So much of what came was taken.
    Credit(u32),
    End(Option<String>),
}

pub(crate) type Pieces = mpsc::Sender<(u32, Piece)>;

/// What the server has for a step's stream. The window bounds the bytes, and with them the credits.
pub(crate) enum FromServer {
    Bytes(Vec<u8>),
    Credit(u32),
}

/// The link's end of one stream. Dropped, it ends the stream.
pub(crate) enum Inlet {
    Log(mpsc::Sender<u32>),
    Step { ask: StepStream, sender: mpsc::UnboundedSender<FromServer>, window: ReceiveWindow },
}

impl Inlet {
    /// Starts to send a log.
    pub fn log(reader: LogReader, pieces: Pieces) -> Inlet {
        let (grants_in, grants) = mpsc::channel(GRANTS_MAX);
        tokio::spawn(reader.run(grants, pieces));
        Inlet::Log(grants_in)
    }

    /// Starts to carry a step's bytes to and from its supervisor's socket.
    pub fn step(socket: PathBuf, holder: Holder, ask: StepStream, pieces: Pieces) -> Inlet {
        let (sender, receiver) = mpsc::unbounded_channel();
        let relay = Relay { stream: ask.stream, receiver, pieces };
        tokio::spawn(relay.run(socket, holder, ask.clone()));
        Inlet::Step { ask, sender, window: ReceiveWindow::default() }
    }

    pub fn credit(&mut self, bytes: u32) {
        match self {
            // A reader with so many credits to its name does not need this one.
            Inlet::Log(grants) => drop(grants.try_send(bytes)),
            // A stream that has ended needs none.
            Inlet::Step { sender, .. } => {
                drop(sender.send(FromServer::Credit(bytes)));
            }
        }
    }

    /// Bytes from the server; an error if it did not wait for its credit.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), CreditOverrun> {
        if let Inlet::Step { sender, window, .. } = self {
            window.received(bytes.len())?;
            drop(sender.send(FromServer::Bytes(bytes.to_vec())));
        }
        Ok(())
    }

    /// The relay has handed bytes on; what to credit the server.
    pub fn taken(&mut self, bytes: usize) -> Option<u32> {
        match self {
            Inlet::Step { window, .. } => window.consumed(bytes),
            Inlet::Log(_) => None,
        }
    }
}

/// Keeps the folder open that the socket's path goes through.
pub(crate) type Holder = Box<dyn Send>;

struct Relay {
    stream: u32,
    receiver: mpsc::UnboundedReceiver<FromServer>,
    pieces: Pieces,
}

impl Relay {
    async fn run(mut self, socket: PathBuf, holder: Holder, ask: StepStream) {
        let end = match open(socket, holder, &ask).await {
            Ok(supervisor) => {
                self.carry(supervisor).await;
                None
            }
            Err(why) => Some(why),
        };
        // The session may have ended meanwhile, and the stream with it.
        let _ = self.pieces.send((self.stream, Piece::End(end))).await;
    }

    /// Until the supervisor hangs up, or the server lets go.
    async fn carry(&mut self, supervisor: UnixStream) {
        let (mut reader, mut writer) = supervisor.into_split();
        let mut credit = SendCredit::default();
        let mut buffer = vec![0; PIECE_BYTES];
        let mut unwritten: Vec<u8> = Vec::new();
        loop {
            let room = credit.left().min(PIECE_BYTES);
            tokio::select! {
                message = self.receiver.recv() => match message {
                    Some(FromServer::Credit(bytes)) => credit.grant(bytes),
                    Some(FromServer::Bytes(bytes)) => unwritten.extend(bytes),
                    None => return,
                },
                read = reader.read(&mut buffer[..room]), if room > 0 => {
                    let Ok(length @ 1..) = read else { return };
                    credit.take(length);
                    let piece = Piece::Bytes(buffer[..length].to_vec());
                    if self.pieces.send((self.stream, piece)).await.is_err() {
                        return;
                    }
                }
                written = writer.write(&unwritten), if !unwritten.is_empty() => {
                    let Ok(length @ 1..) = written else { return };
                    unwritten.drain(..length);
                    let piece = Piece::Credit(length as u32);
                    if self.pieces.send((self.stream, piece)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// What a supervisor would say to which no step was ordered yet: until then it has no socket for them.
async fn no_step_yet() -> Result<UnixStream, String> {
    let (ours, mut theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
    let refused = StepMessage::Refused { why: "no such step runs here".into(), again: true };
    let mut bytes = Vec::new();
    frame::encode_message(channel::CONTROL, &refused, &mut bytes).map_err(|e| e.to_string())?;
    theirs.write_all(&bytes).await.map_err(|e| e.to_string())?;
    Ok(ours)
}

async fn open(socket: PathBuf, holder: Holder, ask: &StepStream) -> Result<UnixStream, String> {
    let connected = UnixStream::connect(&socket).await;
    drop(holder);
    let mut supervisor = match connected {
        Err(e) if e.kind() == ErrorKind::NotFound => return no_step_yet().await,
        connected => connected.map_err(|e| format!("the step's supervisor: {e}"))?,
    };
    let mut bytes = Vec::new();
    frame::encode_message(CHANNEL, ask, &mut bytes).map_err(|e| e.to_string())?;
    supervisor.write_all(&bytes).await.map_err(|e| e.to_string())?;
    Ok(supervisor)
}
