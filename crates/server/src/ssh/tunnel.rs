//! One TCP connection between a channel of the client and the job, and what the step that makes it is asked for.

use super::channel_end::{ChannelEnd, ServedChannels};
use super::session::{ClientInput, FromClient};
use bytes::Bytes;
use russh::server::{ChannelOpenHandle, Msg};
use russh::{ChannelOpenFailure, ChannelWriteHalf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::timeout;
use wire::forward::{DATA_MAX, OwnServer};
use wire::stream::SendCredit;

/// Where a job's own servers are reached.
const LOOPBACK: &str = "localhost";
/// How long the step may take to listen; the whole connection waits for it.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The bounds and the count of what is forwarded in one connection.
pub struct Tunnels {
    /// A connection without a byte for so long is closed.
    pub idle: Duration,
    pub served: ServedChannels,
}

/// What the step is asked for.
#[derive(Clone)]
pub struct ForwarderOrders {
    pub orders: mpsc::Sender<Order>,
    /// A connection without a byte for so long is closed.
    pub idle: Duration,
}

pub enum Order {
    Connect { host: String, port: u16, of_job: bool, made: oneshot::Sender<Option<Connected>> },
    Listen { host: String, port: u16, bound: oneshot::Sender<Option<u16>> },
    ListenForAgent { bound: oneshot::Sender<Option<String>> },
    StopListening { host: String, port: u16, known: oneshot::Sender<bool> },
    Data { connection: u32, bytes: Bytes },
    End { connection: u32 },
    Close { connection: u32 },
    Consumed { connection: u32, bytes: usize },
}

/// One connection, as its channel sees it.
pub struct Connected {
    pub number: u32,
    /// Bounded by the window: who sends beyond it loses the connection.
    pub incoming: mpsc::UnboundedReceiver<Bytes>,
    pub outgoing: Arc<SendWindow>,
    /// The job's own server that it is to, where only that was asked for.
    pub server: Option<OwnServer>,
}

#[derive(Default)]
pub struct SendWindow {
    credit: Mutex<SendCredit>,
    more: Notify,
}

impl SendWindow {
    async fn take(&self, wanted: usize) -> usize {
        loop {
            let more = self.more.notified();
            let taken = self.credit.lock().expect("no panic with the credit held").take(wanted);
            if taken > 0 {
                return taken;
            }
            more.await;
        }
    }

    pub fn grant(&self, bytes: u32) {
        self.credit.lock().expect("no panic with the credit held").grant(bytes);
        self.more.notify_one();
    }
}

impl ForwarderOrders {
    /// Connects a channel to a port in the job, and passes its bytes on until both directions have ended.
    pub async fn connect(
        &self,
        host: String,
        port: u16,
        input: ClientInput,
        output: ChannelWriteHalf<Msg>,
        reply: ChannelOpenHandle,
        mut end: ChannelEnd,
    ) {
        let (made, connected) = oneshot::channel();
        let ask = async {
            let order = Order::Connect { host, port, of_job: false, made };
            self.orders.send(order).await.ok()?;
            connected.await.ok().flatten()
        };
        let connected = tokio::select! {
            connected = ask => connected,
            () = end.wait() => return,
        };
        match connected {
            Some(connected) => {
                reply.accept().await;
                relay(self, connected, input, output, end).await;
            }
            None => reply.reject(ChannelOpenFailure::ConnectFailed).await,
        }
    }

    /// Connects to a port of the job's own loopback address; the connection's bytes. `of_job`: only if a process of the job listens there,
    /// whose server is said too.
    pub async fn open(&self, port: u16, of_job: bool) -> Option<(DuplexStream, Option<OwnServer>)> {
        let (made, connected) = oneshot::channel();
        let order = Order::Connect { host: LOOPBACK.to_owned(), port, of_job, made };
        self.orders.send(order).await.ok()?;
        let mut connected = connected.await.ok().flatten()?;
        let server = connected.server.take();
        let (ours, theirs) = tokio::io::duplex(2 * DATA_MAX);
        tokio::spawn(relay_stream(self.clone(), connected, theirs));
        Some((ours, server))
    }

    /// Has the step listen; the port that it got.
    pub async fn listen(&self, host: String, port: u16) -> Option<u16> {
        let (bound, answer) = oneshot::channel();
        let ask = async {
            self.orders.send(Order::Listen { host, port, bound }).await.ok()?;
            answer.await.ok().flatten()
        };
        timeout(LISTEN_TIMEOUT, ask).await.ok().flatten()
    }

    /// Has the step listen for the client's agent of keys; the path of the socket.
    pub async fn listen_for_agent(&self) -> Option<String> {
        let (bound, answer) = oneshot::channel();
        let ask = async {
            self.orders.send(Order::ListenForAgent { bound }).await.ok()?;
            answer.await.ok().flatten()
        };
        timeout(LISTEN_TIMEOUT, ask).await.ok().flatten()
    }

    pub async fn stop_listening(&self, host: String, port: u16) -> bool {
        let (known, answer) = oneshot::channel();
        let ask = async {
            self.orders.send(Order::StopListening { host, port, known }).await.ok()?;
            answer.await.ok()
        };
        timeout(LISTEN_TIMEOUT, ask).await.ok().flatten().unwrap_or(false)
    }
}

/// The bytes between a channel of the client and one connection in the job.
pub async fn relay(
    ForwarderOrders { orders, idle }: &ForwarderOrders,
    connected: Connected,
    mut input: ClientInput,
    output: ChannelWriteHalf<Msg>,
    mut end: ChannelEnd,
) {
    let Connected { number: connection, mut incoming, outgoing, .. } = connected;
    let (activity, mut active) = watch::channel(());
    let (has_ended, mut client_ended) = watch::channel(false);
    // Ends when the client has closed the channel.
    let inward = async {
        while let Some((item, _queued)) = input.recv().await {
            let mut bytes = match item {
                FromClient::Bytes(bytes) => bytes,
                FromClient::End => {
                    let _ = orders.send(Order::End { connection }).await;
                    has_ended.send_replace(true);
                    continue;
                }
                FromClient::Resize { .. } | FromClient::Signal(_) => continue,
            };
            while !bytes.is_empty() {
                activity.send_replace(());
                let length = outgoing.take(bytes.len().min(DATA_MAX)).await;
                let bytes = bytes.split_to(length);
                if orders.send(Order::Data { connection, bytes }).await.is_err() {
                    return;
                }
            }
        }
    };
    let outward = async {
        while let Some(bytes) = incoming.recv().await {
            let length = bytes.len();
            activity.send_replace(());
            if output.data_bytes(bytes).await.is_err() {
                return;
            }
            let _ = orders.send(Order::Consumed { connection, bytes: length }).await;
        }
        let _ = output.eof().await;
        // The other direction goes on until the client ends it, or the step does. A channel of which both have ended is closed
        // here: `ssh -W` waits for it.
        tokio::select! {
            () = orders.closed() => {}
            _ = client_ended.wait_for(|ended| *ended) => {}
        }
    };
    let unused = async { while timeout(*idle, active.changed()).await.is_ok() {} };
    tokio::select! {
        () = unused => {}
        () = inward => {}
        () = outward => {}
        () = end.wait_and_deliver() => {}
    }
    let _ = output.close().await;
    let _ = orders.send(Order::Close { connection }).await;
}

/// The bytes between a stream in the server and one connection in the job, until the job has sent all, or the stream is dropped:
/// who asks by HTTP never ends one direction alone.
async fn relay_stream(
    ForwarderOrders { orders, idle }: ForwarderOrders,
    connected: Connected,
    stream: DuplexStream,
) {
    let Connected { number: connection, mut incoming, outgoing, .. } = connected;
    let (activity, mut active) = watch::channel(());
    let (mut from, mut to) = tokio::io::split(stream);
    let inward = async {
        let mut buffer = vec![0; DATA_MAX];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            activity.send_replace(());
            let mut bytes = Bytes::copy_from_slice(&buffer[..length]);
            while !bytes.is_empty() {
                let length = outgoing.take(bytes.len()).await;
                let bytes = bytes.split_to(length);
                if orders.send(Order::Data { connection, bytes }).await.is_err() {
                    return;
                }
            }
        }
    };
    let outward = async {
        while let Some(bytes) = incoming.recv().await {
            activity.send_replace(());
            if to.write_all(&bytes).await.is_err() {
                return;
            }
            let _ = orders.send(Order::Consumed { connection, bytes: bytes.len() }).await;
        }
        let _ = to.shutdown().await;
    };
    let unused = async { while timeout(idle, active.changed()).await.is_ok() {} };
    tokio::select! {
        () = unused => {}
        () = inward => {}
        () = outward => {}
    }
    let _ = orders.send(Order::Close { connection }).await;
}
