//! Streams over the link: logs that are read, and the bytes of steps.

use super::Session;
use crate::agent::Agent;
use crate::error::AgentError;
use crate::reports::Key;
use crate::stream::{Inlet, Piece};
use wire::link::ToServer;
use wire::stream::{STREAMS_MAX, StreamKind};
use wire::supervisor::StepStream;

impl Session {
    pub(super) fn open(
        &mut self,
        agent: &Agent,
        stream: u32,
        key: Key,
        kind: StreamKind,
    ) -> Result<(), AgentError> {
        let pieces = self.pieces_in.clone();
        let inlet = match kind {
            _ if self.streams.len() >= STREAMS_MAX => {
                Err(format!("{STREAMS_MAX} streams are open already"))
            }
            StreamKind::Log { offset, follow } => agent
                .read_log(stream, &key, offset, follow)
                .map(|reader| Inlet::log(reader, pieces)),
            StreamKind::Step { step, role } => agent.step_door(&key).map(|(socket, holder)| {
                Inlet::step(socket, holder, StepStream { step, role, stream }, pieces)
            }),
        };
        match inlet {
            Ok(inlet) => {
                self.streams.insert(stream, (key, inlet));
                Ok(())
            }
            Err(why) => self.link.send(&ToServer::StreamEnd { stream, error: Some(why) }),
        }
    }

    pub(super) fn on_stream_bytes(&mut self, payload: &[u8]) -> Result<(), AgentError> {
        let Some((number, bytes)) = payload.split_first_chunk::<4>() else { return Ok(()) };
        let stream = u32::from_le_bytes(*number);
        // Its end may have crossed these bytes.
        let Some((_, inlet)) = self.streams.get_mut(&stream) else { return Ok(()) };
        match inlet.bytes(bytes) {
            Ok(()) => Ok(()),
            Err(overrun) => {
                self.streams.remove(&stream);
                self.link.send(&ToServer::StreamEnd { stream, error: Some(overrun.to_string()) })
            }
        }
    }

    pub(super) fn on_piece(&mut self, stream: u32, piece: Piece) -> Result<(), AgentError> {
        // The server may have let go of the stream while the piece was on its way.
        let Some((_, inlet)) = self.streams.get_mut(&stream) else { return Ok(()) };
        match piece {
            Piece::Bytes(bytes) => self.link.send_stream(stream, &bytes),
            Piece::Credit(taken) => match inlet.taken(taken as usize) {
                Some(bytes) => self.link.send(&ToServer::Credit { stream, bytes }),
                None => Ok(()),
            },
            Piece::End(error) => {
                self.streams.remove(&stream);
                self.link.send(&ToServer::StreamEnd { stream, error })
            }
        }
    }
}
