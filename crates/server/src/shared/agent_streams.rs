//! Byte streams over agents' links: logs, and steps whose `srun` or `sattach` the nodes cannot reach.
//!
//! Nothing here holds more than a stream's window: a client that does not read is not sent to, and stalls no other.

use model::id::AttemptId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc};
use wire::link::ToAgent;
use wire::stream::{ReceiveWindow, STREAMS_MAX, SendCredit, StreamKind};

/// Chunks of all streams on their way to one agent; beyond it a stream waits.
pub const DATA_MAX: usize = 32;

/// Streams of a link that one user's clients may have open: a half.
const USER_STREAMS_MAX: usize = STREAMS_MAX / 2;

/// Streams of a link that are kept for the server itself, which collects logs, and for root.
const RESERVED_STREAMS: usize = STREAMS_MAX / 8;

/// The server itself, or root, as the owner of a stream.
pub const SERVER: u32 = 0;

/// A chunk for an agent, with its stream's number.
pub type Data = (u32, Vec<u8>);

/// Every open stream of every link, by its number.
#[derive(Default)]
pub struct StreamTable {
    next: AtomicU32,
    streams: Mutex<HashMap<u32, Stream>>,
}

/// How a stream reaches the agent of its node.
pub struct LinkSender {
    pub number: u64,
    pub outbox: mpsc::Sender<ToAgent>,
    pub data: mpsc::Sender<Data>,
}

struct Stream {
    link: u64,
    owner: u32,
    /// Bounded by the window: a sender that goes beyond its credit loses the stream.
    chunks: mpsc::UnboundedSender<Result<Vec<u8>, String>>,
    window: ReceiveWindow,
    outbox: mpsc::Sender<ToAgent>,
    send_window: Arc<SendWindow>,
}

/// How many bytes may be sent to the agent now.
#[derive(Default)]
struct SendWindow {
    credit: Mutex<SendCredit>,
    more: Notify,
}

/// The reading side of a stream; dropping it closes the stream.
pub struct StreamReader {
    table: Arc<StreamTable>,
    stream: u32,
    chunks: mpsc::UnboundedReceiver<Result<Vec<u8>, String>>,
    outbox: mpsc::Sender<ToAgent>,
    /// Whether dropping it means that the client is gone. It does not when the server stops.
    ends: bool,
}

/// The writing side of a stream.
pub struct StreamWriter {
    stream: u32,
    data: mpsc::Sender<Data>,
    send_window: Arc<SendWindow>,
}

impl StreamReader {
    /// The next chunk; the sender is credited for it only now that it is consumed.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, String>> {
        let chunk = self.chunks.recv().await?;
        if let Ok(data) = &chunk {
            self.table.consumed(self.stream, data.len());
        }
        Some(chunk)
    }

    /// The client is gone and does not come back: the agent is told that the stream ends.
    pub fn client_gone(mut self) {
        self.ends = true;
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let mut streams = self.table.streams();
        let known = streams.remove(&self.stream).is_some();
        if known && self.ends {
            let end = ToAgent::StreamEnd { stream: self.stream, error: None };
            let _ = self.outbox.try_send(end);
        }
    }
}

impl StreamWriter {
    /// Waits until some bytes may be sent; returns how many.
    pub async fn wait_for_credit(&self) -> usize {
        loop {
            let more = self.send_window.more.notified();
            let left =
                self.send_window.credit.lock().expect("no panic with the credit held").left();
            if left > 0 {
                return left;
            }
            more.await;
        }
    }

    /// Sends bytes that there was credit for; false when the link is gone.
    pub async fn send(&self, bytes: &[u8]) -> bool {
        self.send_window.credit.lock().expect("no panic with the credit held").take(bytes.len());
        self.data.send((self.stream, bytes.to_vec())).await.is_ok()
    }
}

impl StreamTable {
    fn streams(&self) -> MutexGuard<'_, HashMap<u32, Stream>> {
        self.streams.lock().expect("no panic with the streams held")
    }

    /// Opens a stream on a link for a client of `owner`; `None` if the link, or this user on it, has as many as it may have,
    /// or if the link is gone.
    pub fn open(
        table: &Arc<Self>,
        link: LinkSender,
        node: &str,
        attempt: AttemptId,
        kind: StreamKind,
        owner: u32,
    ) -> Option<(StreamReader, StreamWriter)> {
        let stream = table.next.fetch_add(1, Ordering::Relaxed);
        let (sender, chunks) = mpsc::unbounded_channel();
        let LinkSender { number, outbox, data } = link;
        let send_window = Arc::<SendWindow>::default();
        let mut streams = table.streams();
        let of_link = || streams.values().filter(|s| s.link == number);
        let of_owner = || of_link().filter(|s| s.owner == owner).count();
        let most = if owner == SERVER { STREAMS_MAX } else { STREAMS_MAX - RESERVED_STREAMS };
        if of_link().count() >= most || (owner != SERVER && of_owner() >= USER_STREAMS_MAX) {
            return None;
        }
        let one = Stream {
            link: number,
            owner,
            chunks: sender,
            window: ReceiveWindow::default(),
            outbox: outbox.clone(),
            send_window: send_window.clone(),
        };
        streams.insert(stream, one);
        drop(streams);
        let ends = matches!(kind, StreamKind::Log { .. } | StreamKind::OutputFile { .. });
        let order = ToAgent::Open { stream, node: node.into(), attempt, kind };
        let reader =
            StreamReader { table: table.clone(), stream, chunks, outbox: outbox.clone(), ends };
        outbox.try_send(order).ok()?;
        Some((reader, StreamWriter { stream, data, send_window }))
    }

    /// A link has ended, and its streams with it.
    pub fn drop_link(&self, link: u64) {
        self.streams().retain(|_, s| s.link != link);
    }

    pub fn received(&self, link: u64, payload: &[u8]) {
        let Some((id, data)) = payload.split_first_chunk::<4>() else { return };
        let id = u32::from_le_bytes(*id);
        let mut streams = self.streams();
        let Some(stream) = streams.get_mut(&id).filter(|s| s.link == link) else { return };
        if stream.window.received(data.len()).is_err() {
            streams.remove(&id);
        } else {
            // A reader that is gone removes the stream itself.
            let _ = stream.chunks.send(Ok(data.to_vec()));
        }
    }

    pub fn credit(&self, link: u64, id: u32, bytes: u32) {
        let streams = self.streams();
        let Some(stream) = streams.get(&id).filter(|s| s.link == link) else { return };
        stream.send_window.credit.lock().expect("no panic with the credit held").grant(bytes);
        stream.send_window.more.notify_one();
    }

    fn consumed(&self, id: u32, bytes: usize) {
        let mut streams = self.streams();
        let Some(stream) = streams.get_mut(&id) else { return };
        if let Some(bytes) = stream.window.consumed(bytes) {
            let _ = stream.outbox.try_send(ToAgent::Credit { stream: id, bytes });
        }
    }

    pub fn end(&self, link: u64, id: u32, error: Option<String>) {
        let mut streams = self.streams();
        if streams.get(&id).is_none_or(|s| s.link != link) {
            return;
        }
        if let (Some(stream), Some(error)) = (streams.remove(&id), error) {
            let _ = stream.chunks.send(Err(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::JobId;

    type Opened = (StreamReader, StreamWriter, mpsc::Receiver<ToAgent>);

    fn open(table: &Arc<StreamTable>) -> Opened {
        open_for(table, SERVER).expect("open")
    }

    fn open_for(table: &Arc<StreamTable>, owner: u32) -> Option<Opened> {
        let (outbox, messages) = mpsc::channel(16);
        let (data, _) = mpsc::channel(1);
        let link = LinkSender { number: 1, outbox, data };
        let attempt = AttemptId { job: JobId(1), number: 1 };
        let kind = StreamKind::Log { offset: 0, follow: false, last: None };
        let (reader, writer) = StreamTable::open(table, link, "n1", attempt, kind, owner)?;
        Some((reader, writer, messages))
    }

    #[tokio::test]
    async fn bytes_of_another_link_are_ignored_and_the_end_closes_the_stream() {
        let table = Arc::<StreamTable>::default();
        let (mut reader, _writer, mut messages) = open(&table);
        assert!(matches!(messages.try_recv(), Ok(ToAgent::Open { stream: 0, .. })));
        table.received(2, b"\0\0\0\0foreign");
        table.received(1, b"\0\0\0\0own");
        assert_eq!(reader.next().await, Some(Ok(b"own".to_vec())));
        table.end(1, 0, Some("gone".into()));
        assert_eq!(reader.next().await, Some(Err("gone".into())));
        assert_eq!(reader.next().await, None);
    }

    #[tokio::test]
    async fn dropping_the_reader_of_a_log_tells_the_agent() {
        let table = Arc::<StreamTable>::default();
        let (reader, _writer, mut messages) = open(&table);
        messages.try_recv().expect("the opening");
        drop(reader);
        assert!(matches!(messages.try_recv(), Ok(ToAgent::StreamEnd { stream: 0, .. })));
    }

    #[tokio::test]
    async fn link_has_a_bounded_number_of_streams() {
        let table = Arc::<StreamTable>::default();
        let open: Vec<_> = std::iter::from_fn(|| open_for(&table, SERVER)).collect();
        table.drop_link(1);
        assert_eq!((open.len(), table.streams().len()), (STREAMS_MAX, 0));
    }

    #[tokio::test]
    async fn user_has_half_of_a_links_streams_and_some_are_kept_for_the_server() {
        let table = Arc::<StreamTable>::default();
        let all_of = |owner| -> Vec<_> { std::iter::from_fn(|| open_for(&table, owner)).collect() };
        let (ada, bob, own) = (all_of(1001), all_of(1002), all_of(SERVER));
        assert_eq!((ada.len(), bob.len()), (USER_STREAMS_MAX, USER_STREAMS_MAX - RESERVED_STREAMS));
        assert_eq!(own.len(), RESERVED_STREAMS);
    }
}
