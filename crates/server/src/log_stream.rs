//! Logs that travel up agents' links: credited as they are read, ended when nobody reads them.

use crate::agents::Agents;
use crate::shared::Shared;
use model::id::AttemptId;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;
use wire::link::ToAgent;
use wire::stream::{STREAMS_MAX, Window};

pub(crate) struct Stream {
    pub(crate) link: u64,
    /// Bounded by the window: a sender that goes beyond its credit loses the stream.
    chunks: mpsc::UnboundedSender<Result<Vec<u8>, String>>,
    window: Window,
    outbox: mpsc::Sender<ToAgent>,
}

/// The reading side of an attempt's log; dropping it ends the stream.
pub struct LogStream {
    shared: Arc<Shared>,
    stream: u32,
    chunks: mpsc::UnboundedReceiver<Result<Vec<u8>, String>>,
}

impl LogStream {
    /// The next piece; the sender is credited for it only now that it is taken.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, String>> {
        let chunk = self.chunks.recv().await?;
        if let Ok(data) = &chunk {
            self.shared.agents.consumed(self.stream, data.len());
        }
        Some(chunk)
    }
}

impl Drop for LogStream {
    fn drop(&mut self) {
        let mut streams =
            self.shared.agents.streams.lock().expect("no panic with the streams held");
        if let Some(stream) = streams.remove(&self.stream) {
            let end = ToAgent::StreamEnd { stream: self.stream, error: None };
            let _ = stream.outbox.try_send(end);
        }
    }
}

impl Agents {
    /// Opens a stream of an attempt's log. The chunks end with the log, or with an error.
    pub fn read_log(
        shared: &Arc<Shared>,
        node: &str,
        attempt: AttemptId,
        offset: u64,
        follow: bool,
    ) -> Option<LogStream> {
        let agents = &shared.agents;
        let link = agents.links.lock().expect("no panic with the links held").get(node).cloned()?;
        let stream = agents.next_stream.fetch_add(1, Ordering::Relaxed);
        let (sender, chunks) = mpsc::unbounded_channel();
        let outbox = link.outbox.clone();
        let mut streams = agents.streams.lock().expect("no panic with the streams held");
        if streams.len() >= STREAMS_MAX {
            return None;
        }
        let window = Window::default();
        streams.insert(stream, Stream { link: link.number, chunks: sender, window, outbox });
        drop(streams);
        let reader = LogStream { shared: shared.clone(), stream, chunks };
        let order = ToAgent::ReadLog { stream, node: node.into(), attempt, offset, follow };
        link.outbox.try_send(order).ok()?;
        Some(reader)
    }

    pub(crate) fn stream_data(&self, link: u64, payload: &[u8]) {
        let Some((id, data)) = payload.split_first_chunk::<4>() else { return };
        let id = u32::from_le_bytes(*id);
        let mut streams = self.streams.lock().expect("no panic with the streams held");
        let Some(stream) = streams.get_mut(&id).filter(|s| s.link == link) else { return };
        if stream.window.received(data.len()).is_err() {
            streams.remove(&id);
        } else {
            // A reader that is gone removes the stream itself.
            let _ = stream.chunks.send(Ok(data.to_vec()));
        }
    }

    pub(crate) fn consumed(&self, id: u32, bytes: usize) {
        let mut streams = self.streams.lock().expect("no panic with the streams held");
        let Some(stream) = streams.get_mut(&id) else { return };
        if let Some(bytes) = stream.window.consumed(bytes) {
            let _ = stream.outbox.try_send(ToAgent::Credit { stream: id, bytes });
        }
    }

    pub(crate) fn stream_end(&self, link: u64, id: u32, error: Option<String>) {
        let mut streams = self.streams.lock().expect("no panic with the streams held");
        if streams.get(&id).is_none_or(|s| s.link != link) {
            return;
        }
        if let (Some(stream), Some(error)) = (streams.remove(&id), error) {
            let _ = stream.chunks.send(Err(error));
        }
    }
}
