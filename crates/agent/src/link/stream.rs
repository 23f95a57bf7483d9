//! Streams over the link to the server: logs, and the input and output of steps.
//!
//! Each has a task of its own and sends no more than its credit, so that none delays another or the link.

use crate::link::log_reader::LogReader;
use crate::link::output_file::OutputFileReader;
use crate::link::stream_output::{StreamOutput, StreamOutputs};
use crate::volume::VolumeWork;
use std::io::ErrorKind;
use std::path::PathBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc};
use wire::frame;
use wire::step::{StepMessage, channel};
use wire::stream::{CreditOverrun, ReceiveWindow, SendCredit};
use wire::supervisor::{CHANNEL, StepStream};
use wire::volume::CARRIED_OUT;

/// Credits that may wait for a log's reader.
const GRANTS_MAX: usize = 16;
/// The most bytes sent at once, so that one stream does not delay reports.
const OUTPUT_BYTES_MAX: usize = 32 << 10;

/// Input of a step's stream from the server. The window bounds the bytes, and with them the credits.
pub(crate) enum StreamInput {
    Bytes(Vec<u8>),
    Credit(u32),
}

/// The session's handle on one stream. Dropping it ends the stream.
pub(crate) enum StreamHandle {
    Log(mpsc::Sender<u32>),
    Step { ask: StepStream, sender: mpsc::UnboundedSender<StreamInput>, window: ReceiveWindow },
}

/// Volumes that are made and removed at once, and orders about them that wait: a tree of many files, or a server of files that
/// hangs, leaves the agent's other threads alone.
static VOLUME_TURNS: Semaphore = Semaphore::const_new(4);
static VOLUME_ORDERS: Semaphore = Semaphore::const_new(64);

impl StreamHandle {
    /// Starts to send a log.
    pub fn log(reader: LogReader, outputs: StreamOutputs) -> StreamHandle {
        let (grants_in, grants) = mpsc::channel(GRANTS_MAX);
        tokio::spawn(reader.run(grants, outputs));
        StreamHandle::Log(grants_in)
    }

    /// Starts to send a file that a job writes.
    pub fn output_file(reader: OutputFileReader, outputs: StreamOutputs) -> StreamHandle {
        let (grants_in, grants) = mpsc::channel(GRANTS_MAX);
        tokio::spawn(reader.run(grants, outputs));
        StreamHandle::Log(grants_in)
    }

    /// Starts to carry out an order about a volume. It is finished also if nobody waits for it any more.
    pub fn volume(work: VolumeWork, stream: u32, outputs: StreamOutputs) -> StreamHandle {
        let (grants_in, _) = mpsc::channel(GRANTS_MAX);
        tokio::spawn(async move {
            let done = match VOLUME_ORDERS.try_acquire() {
                Ok(_queued) => {
                    let _turn = VOLUME_TURNS.acquire().await;
                    tokio::task::spawn_blocking(|| work.carry_out()).await
                }
                Err(_) => Ok(Err("too many volumes are made and removed on this node".to_owned())),
            };
            let end = match done {
                Ok(Ok(())) => {
                    let said = StreamOutput::Bytes(CARRIED_OUT.to_vec());
                    let _ = outputs.send((stream, said)).await;
                    None
                }
                Ok(Err(why)) => Some(why),
                Err(lost) => Some(lost.to_string()),
            };
            // The session may have ended meanwhile, and the stream with it.
            let _ = outputs.send((stream, StreamOutput::End(end))).await;
        });
        StreamHandle::Log(grants_in)
    }

    /// Starts to forward a step's bytes to and from its supervisor's socket.
    pub fn step(
        socket: PathBuf,
        folder: FolderGuard,
        ask: StepStream,
        outputs: StreamOutputs,
    ) -> StreamHandle {
        let (sender, receiver) = mpsc::unbounded_channel();
        let relay = Relay { stream: ask.stream, receiver, outputs };
        tokio::spawn(relay.run(socket, folder, ask.clone()));
        StreamHandle::Step { ask, sender, window: ReceiveWindow::default() }
    }

    pub fn credit(&mut self, bytes: u32) {
        match self {
            // If the channel is full, the reader has enough credit.
            StreamHandle::Log(grants) => drop(grants.try_send(bytes)),
            // A stream that has ended needs no credit.
            StreamHandle::Step { sender, .. } => {
                drop(sender.send(StreamInput::Credit(bytes)));
            }
        }
    }

    /// Passes bytes from the server on; an error if they exceed its credit.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), CreditOverrun> {
        if let StreamHandle::Step { sender, window, .. } = self {
            window.received(bytes.len())?;
            drop(sender.send(StreamInput::Bytes(bytes.to_vec())));
        }
        Ok(())
    }

    /// The relay has written these bytes. Returns what to credit to the server.
    pub fn taken(&mut self, bytes: usize) -> Option<u32> {
        match self {
            StreamHandle::Step { window, .. } => window.consumed(bytes),
            StreamHandle::Log(_) => None,
        }
    }
}

/// Keeps the folder open that the socket's path refers to by descriptor.
pub(crate) type FolderGuard = Box<dyn Send>;

struct Relay {
    stream: u32,
    receiver: mpsc::UnboundedReceiver<StreamInput>,
    outputs: StreamOutputs,
}

impl Relay {
    async fn run(mut self, socket: PathBuf, folder: FolderGuard, ask: StepStream) {
        let end = match open(socket, folder, &ask).await {
            Ok(supervisor) => {
                self.carry(supervisor).await;
                None
            }
            Err(why) => Some(why),
        };
        // The session may have ended meanwhile, and the stream with it.
        let _ = self.outputs.send((self.stream, StreamOutput::End(end))).await;
    }

    /// Forwards bytes until the supervisor has closed its end and all that it wrote is sent, or the server closes the stream.
    async fn carry(&mut self, supervisor: UnixStream) {
        let (mut reader, mut writer) = supervisor.into_split();
        let mut takes_input = true;
        let mut credit = SendCredit::default();
        let mut buffer = vec![0; OUTPUT_BYTES_MAX];
        let mut unwritten: Vec<u8> = Vec::new();
        loop {
            let sendable = credit.left().min(OUTPUT_BYTES_MAX);
            tokio::select! {
                message = self.receiver.recv() => match message {
                    Some(StreamInput::Credit(bytes)) => credit.grant(bytes),
                    Some(StreamInput::Bytes(bytes)) if takes_input => unwritten.extend(bytes),
                    Some(StreamInput::Bytes(_)) => {}
                    None => return,
                },
                read = reader.read(&mut buffer[..sendable]), if sendable > 0 => {
                    let Ok(length @ 1..) = read else { return };
                    credit.take(length);
                    let output = StreamOutput::Bytes(buffer[..length].to_vec());
                    if self.outputs.send((self.stream, output)).await.is_err() {
                        return;
                    }
                }
                written = writer.write(&unwritten), if !unwritten.is_empty() => {
                    let Ok(length @ 1..) = written else {
                        // A step that has ended takes no input. Its last output may still wait to be read here.
                        takes_input = false;
                        unwritten.clear();
                        continue;
                    };
                    unwritten.drain(..length);
                    let output = StreamOutput::Credit(length as u32);
                    if self.outputs.send((self.stream, output)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// A connection that refuses as a supervisor without steps would: before its first step it has no socket.
async fn no_step_yet() -> Result<UnixStream, String> {
    let (ours, mut theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
    let refused = StepMessage::Refused { why: "no such step runs here".into(), again: true };
    let mut bytes = Vec::new();
    frame::encode_message(channel::CONTROL, &refused, &mut bytes).map_err(|e| e.to_string())?;
    theirs.write_all(&bytes).await.map_err(|e| e.to_string())?;
    Ok(ours)
}

async fn open(
    socket: PathBuf,
    folder: FolderGuard,
    ask: &StepStream,
) -> Result<UnixStream, String> {
    let connected = UnixStream::connect(&socket).await;
    drop(folder);
    let mut supervisor = match connected {
        Err(e) if e.kind() == ErrorKind::NotFound => return no_step_yet().await,
        connected => connected.map_err(|e| format!("the step's supervisor: {e}"))?,
    };
    let mut bytes = Vec::new();
    frame::encode_message(CHANNEL, ask, &mut bytes).map_err(|e| e.to_string())?;
    supervisor.write_all(&bytes).await.map_err(|e| e.to_string())?;
    Ok(supervisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn last_output_of_a_step_is_passed_on_though_it_takes_no_input_any_more() {
        // Whether the failed write or the output is looked at first is a matter of chance.
        for _ in 0..64 {
            let (supervisor, mut step) = UnixStream::pair().expect("a pair");
            step.write_all(b"last words").await.expect("written");
            drop(step);
            let (sender, receiver) = mpsc::unbounded_channel();
            assert!(sender.send(StreamInput::Bytes(b"input".to_vec())).is_ok());
            let (outputs, mut sent) = mpsc::channel(16);
            Relay { stream: 7, receiver, outputs }.carry(supervisor).await;
            let mut passed_on = Vec::new();
            while let Some((7, output)) = sent.recv().await {
                if let StreamOutput::Bytes(bytes) = output {
                    passed_on.extend(bytes);
                }
            }
            assert_eq!(passed_on, b"last words");
        }
    }
}
