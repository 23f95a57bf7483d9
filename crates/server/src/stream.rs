//! Byte streams over agents' links: logs, and steps whose `srun` or onlooker the nodes cannot reach.
//!
//! Nothing here holds more than a stream's window: who does not read is not sent to, and nobody else notices.

use crate::agents::Agents;
use crate::shared::Shared;
use model::id::AttemptId;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, mpsc};
use wire::link::ToAgent;
use wire::stream::{ReceiveWindow, STREAMS_MAX, SendCredit, StreamKind};

/// Pieces of all streams on their way to one agent; a stream waits for its turn beyond it.
pub(crate) const DATA_MAX: usize = 32;

/// A piece for an agent, with its stream's number.
pub(crate) type Data = (u32, Vec<u8>);

pub(crate) struct Stream {
    pub(crate) link: u64,
    /// Bounded by the window: a sender that goes beyond its credit loses the stream.
    chunks: mpsc::UnboundedSender<Result<Vec<u8>, String>>,
    window: ReceiveWindow,
    outbox: mpsc::Sender<ToAgent>,
    sending: Arc<Sending>,
}

/// What may be sent to the agent now.
#[derive(Default)]
struct Sending {
    credit: Mutex<SendCredit>,
    more: Notify,
}

/// The reading side of a stream; dropping it lets go of the stream.
pub struct Reading {
    shared: Arc<Shared>,
    stream: u32,
    chunks: mpsc::UnboundedReceiver<Result<Vec<u8>, String>>,
    outbox: mpsc::Sender<ToAgent>,
    /// Whether letting go means that the client is gone. A server that stops is no such thing.
    ends: bool,
}

/// The writing side.
pub struct Writing {
    stream: u32,
    data: mpsc::Sender<Data>,
    sending: Arc<Sending>,
}

impl Reading {
    /// The next piece; the sender is credited for it only now that it is taken.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, String>> {
        let chunk = self.chunks.recv().await?;
        if let Ok(data) = &chunk {
            self.shared.agents.consumed(self.stream, data.len());
        }
        Some(chunk)
    }

    /// The client has gone, and does not come back.
    pub fn client_gone(mut self) {
        self.ends = true;
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut streams =
            self.shared.agents.streams.lock().expect("no panic with the streams held");
        let known = streams.remove(&self.stream).is_some();
        if known && self.ends {
            let end = ToAgent::StreamEnd { stream: self.stream, error: None };
            let _ = self.outbox.try_send(end);
        }
    }
}

impl Writing {
    /// How many bytes may be sent, once it is any.
    pub async fn room(&self) -> usize {
        loop {
            let more = self.sending.more.notified();
            let left = self.sending.credit.lock().expect("no panic with the credit held").left();
            if left > 0 {
                return left;
            }
            more.await;
        }
    }

    /// Sends what there was room for; false when the link is gone.
    pub async fn send(&self, bytes: &[u8]) -> bool {
        self.sending.credit.lock().expect("no panic with the credit held").take(bytes.len());
        self.data.send((self.stream, bytes.to_vec())).await.is_ok()
    }
}

impl Agents {
    /// Opens a stream to the attempt's part on a node; none if the node's agent is not there.
    /// Whoever calls this has asked `authorise`.
    pub fn open_stream(
        shared: &Arc<Shared>,
        node: &str,
        attempt: AttemptId,
        kind: StreamKind,
    ) -> Option<(Reading, Writing)> {
        let agents = &shared.agents;
        let link = agents.links.lock().expect("no panic with the links held").get(node).cloned()?;
        let stream = agents.next_stream.fetch_add(1, Ordering::Relaxed);
        let (sender, chunks) = mpsc::unbounded_channel();
        let (outbox, sending) = (link.outbox.clone(), Arc::<Sending>::default());
        let mut streams = agents.streams.lock().expect("no panic with the streams held");
        if streams.values().filter(|s| s.link == link.number).count() >= STREAMS_MAX {
            return None;
        }
        let one = Stream {
            link: link.number,
            chunks: sender,
            window: ReceiveWindow::default(),
            outbox: outbox.clone(),
            sending: sending.clone(),
        };
        streams.insert(stream, one);
        drop(streams);
        let ends = matches!(kind, StreamKind::Log { .. });
        let reading = Reading { shared: shared.clone(), stream, chunks, outbox, ends };
        let order = ToAgent::Open { stream, node: node.into(), attempt, kind };
        link.outbox.try_send(order).ok()?;
        Some((reading, Writing { stream, data: link.data, sending }))
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

    pub(crate) fn stream_credit(&self, link: u64, id: u32, bytes: u32) {
        let streams = self.streams.lock().expect("no panic with the streams held");
        let Some(stream) = streams.get(&id).filter(|s| s.link == link) else { return };
        stream.sending.credit.lock().expect("no panic with the credit held").grant(bytes);
        stream.sending.more.notify_one();
    }

    fn consumed(&self, id: u32, bytes: usize) {
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
