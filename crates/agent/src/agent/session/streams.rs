//! The session's streams: opens them, passes their input on, and sends their output.

use super::Session;
use crate::agent::Agent;
use crate::attempt_key::AttemptKey;
use crate::error::AgentError;
use crate::link::output_file::OutputFileReader;
use crate::link::stream::StreamHandle;
use crate::link::stream_output::StreamOutput;
use wire::link::ToServer;
use wire::stream::{STREAMS_MAX, StreamKind};
use wire::supervisor::StepStream;

impl Session {
    pub(super) fn open(
        &mut self,
        agent: &mut Agent,
        stream: u32,
        key: AttemptKey,
        kind: StreamKind,
    ) -> Result<(), AgentError> {
        let outputs = self.outputs_in.clone();
        let handle = match kind {
            _ if self.streams.len() >= STREAMS_MAX => {
                Err(format!("{STREAMS_MAX} streams are open already"))
            }
            StreamKind::Log { offset, follow, last } => agent
                .read_log(stream, &key, offset, follow)
                .map(|reader| StreamHandle::log(reader.of_last(last), outputs)),
            StreamKind::OutputFile { path, owner, offset, follow, last } => {
                let ended = agent.attempt_end(&key);
                let reader = OutputFileReader { stream, path, owner, offset, follow, last, ended };
                Ok(StreamHandle::output_file(reader, outputs))
            }
            StreamKind::Volume { order } => {
                agent.admit_volume(&order).map(|work| StreamHandle::volume(work, stream, outputs))
            }
            StreamKind::Step { step, role } => agent.step_socket(&key).map(|(socket, folder)| {
                StreamHandle::step(socket, folder, StepStream { step, role, stream }, outputs)
            }),
        };
        match handle {
            Ok(handle) => {
                self.streams.insert(stream, (key, handle));
                Ok(())
            }
            Err(why) => self.link.send(&ToServer::StreamEnd { stream, error: Some(why) }),
        }
    }

    pub(super) fn on_stream_bytes(&mut self, payload: &[u8]) -> Result<(), AgentError> {
        let Some((number, bytes)) = payload.split_first_chunk::<4>() else { return Ok(()) };
        let stream = u32::from_le_bytes(*number);
        // The stream may have ended while these bytes were on their way.
        let Some((_, handle)) = self.streams.get_mut(&stream) else { return Ok(()) };
        match handle.bytes(bytes) {
            Ok(()) => Ok(()),
            Err(overrun) => {
                self.streams.remove(&stream);
                self.link.send(&ToServer::StreamEnd { stream, error: Some(overrun.to_string()) })
            }
        }
    }

    pub(super) fn on_stream_output(
        &mut self,
        stream: u32,
        output: StreamOutput,
    ) -> Result<(), AgentError> {
        // The server may have closed the stream while the output was on its way.
        let Some((_, handle)) = self.streams.get_mut(&stream) else { return Ok(()) };
        match output {
            StreamOutput::Bytes(bytes) => self.link.send_stream(stream, &bytes),
            StreamOutput::Credit(taken) => match handle.taken(taken as usize) {
                Some(bytes) => self.link.send(&ToServer::Credit { stream, bytes }),
                None => Ok(()),
            },
            StreamOutput::End(error) => {
                self.streams.remove(&stream);
                self.link.send(&ToServer::StreamEnd { stream, error })
            }
        }
    }
}
