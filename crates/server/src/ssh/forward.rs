//! TCP connections into a job's network and out of it (`ssh -L`, `-D` and `-R`): a step of the job makes and accepts
//! them, and their bytes travel over its input and output. The server itself connects to nothing.

use super::access::Access;
use super::channel_end::{ChannelEnd, ChannelOpen, channel_end};
use super::input_limit::InputLimit;
use super::launch::{Program, SessionRequest, launch};
use super::session::{ClientInput, FromClient};
use super::step_client::{self, FromStep, StepClient, ToStep};
use crate::shared::Shared;
use bytes::Bytes;
use russh::server::{ChannelOpenHandle, Handle, Msg};
use russh::{ChannelMsg, ChannelOpenFailure, ChannelReadHalf, ChannelWriteHalf};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use wire::forward::{DATA_MAX, FromForwarder, PAYLOAD_MAX, ToForwarder, channel};
use wire::frame::{self, Decoder};
use wire::step::OwnProgram;
use wire::stream::{ReceiveWindow, SendCredit};

/// Orders that wait for the step.
const ORDERS_MAX: usize = 32;
/// Addresses that one connection has its step listen at.
const LISTENERS_MAX: usize = 16;
/// Connections from the job that are open, or wait for the client to take them.
const ACCEPTED_MAX: usize = 256;
/// Where a job's own servers are reached.
const LOOPBACK: &str = "localhost";
/// How long the step may take to listen; the whole connection waits for it.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The step of one connection. It ends when this is dropped, whoever still waits for it.
pub struct Forwarder {
    orders: ForwarderOrders,
    _open: ChannelOpen,
}

/// What the step is asked for.
#[derive(Clone)]
pub struct ForwarderOrders {
    orders: mpsc::Sender<Order>,
}

enum Order {
    Connect { host: String, port: u16, made: oneshot::Sender<Option<Connected>> },
    Listen { host: String, port: u16, bound: oneshot::Sender<Option<u16>> },
    StopListening { host: String, port: u16, known: oneshot::Sender<bool> },
    Data { connection: u32, bytes: Bytes },
    End { connection: u32 },
    Close { connection: u32 },
    Consumed { connection: u32, bytes: usize },
}

/// One connection, as its channel sees it.
struct Connected {
    number: u32,
    /// Bounded by the window: who sends beyond it loses the connection.
    incoming: mpsc::UnboundedReceiver<Bytes>,
    outgoing: Arc<SendWindow>,
}

#[derive(Default)]
struct SendWindow {
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

    fn grant(&self, bytes: u32) {
        self.credit.lock().expect("no panic with the credit held").grant(bytes);
        self.more.notify_one();
    }
}

impl Forwarder {
    /// The step starts with this. `client` takes the connections that it accepts in the job; without one it accepts none.
    pub fn start(
        shared: Arc<Shared>,
        access: Access,
        client: Option<(Handle, InputLimit)>,
    ) -> Self {
        let (orders, receiver) = mpsc::channel(ORDERS_MAX);
        let own = orders.downgrade();
        let (open, mut end) = channel_end();
        tokio::spawn(async move {
            let request = SessionRequest {
                program: Program::Own(OwnProgram::Forward),
                terminal: None,
                variables: Vec::new(),
            };
            let launched = launch(&shared, access.job, access.rank, &request);
            let started = match launched {
                Ok(launch) => step_client::start(&shared, access.by, access.job, launch).await,
                Err(why) => Err(why),
            };
            match started {
                Ok(step) => tokio::select! {
                    () = Relay::new(step, own, client).run(receiver) => {}
                    () = end.wait() => {}
                },
                // The receiver of orders is dropped here: a request to forward finds its queue closed and is refused.
                Err(why) => tracing::info!("no forwarding into job {}: {why}", access.job),
            }
        });
        Self { orders: ForwarderOrders { orders }, _open: open }
    }

    pub fn orders(&self) -> ForwarderOrders {
        self.orders.clone()
    }

    /// Whether the step has ended, or never started.
    pub fn has_ended(&self) -> bool {
        self.orders.orders.is_closed()
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
            self.orders.send(Order::Connect { host, port, made }).await.ok()?;
            connected.await.ok().flatten()
        };
        let connected = tokio::select! {
            connected = ask => connected,
            () = end.wait() => return,
        };
        match connected {
            Some(connected) => {
                reply.accept().await;
                relay(&self.orders, connected, input, output, end).await;
            }
            None => reply.reject(ChannelOpenFailure::ConnectFailed).await,
        }
    }

    /// Connects to a port of the job's own loopback address; the connection's bytes.
    pub async fn open(&self, port: u16) -> Option<DuplexStream> {
        let (made, connected) = oneshot::channel();
        let host = LOOPBACK.to_owned();
        self.orders.send(Order::Connect { host, port, made }).await.ok()?;
        let connected = connected.await.ok().flatten()?;
        let (ours, theirs) = tokio::io::duplex(2 * DATA_MAX);
        tokio::spawn(relay_stream(self.orders.clone(), connected, theirs));
        Some(ours)
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
async fn relay(
    orders: &mpsc::Sender<Order>,
    connected: Connected,
    mut input: ClientInput,
    output: ChannelWriteHalf<Msg>,
    mut end: ChannelEnd,
) {
    let Connected { number: connection, mut incoming, outgoing } = connected;
    // Ends when the client has closed the channel.
    let inward = async {
        while let Some((item, _queued)) = input.recv().await {
            let mut bytes = match item {
                FromClient::Bytes(bytes) => bytes,
                FromClient::End => {
                    let _ = orders.send(Order::End { connection }).await;
                    continue;
                }
                FromClient::Resize { .. } | FromClient::Signal(_) => continue,
            };
            while !bytes.is_empty() {
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
            if output.data_bytes(bytes).await.is_err() {
                return;
            }
            let _ = orders.send(Order::Consumed { connection, bytes: length }).await;
        }
        let _ = output.eof().await;
        // The other direction goes on until the client ends it, or the step does.
        orders.closed().await;
    };
    tokio::select! {
        () = inward => {}
        () = outward => {}
        () = end.wait_and_deliver() => {}
    }
    let _ = output.close().await;
    let _ = orders.send(Order::Close { connection }).await;
}

/// The bytes between a stream in the server and one connection in the job, until the job has sent all, or the stream is dropped:
/// who asks by HTTP never ends one direction alone.
async fn relay_stream(orders: mpsc::Sender<Order>, connected: Connected, stream: DuplexStream) {
    let Connected { number: connection, mut incoming, outgoing } = connected;
    let (mut from, mut to) = tokio::io::split(stream);
    let inward = async {
        let mut buffer = vec![0; DATA_MAX];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
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
            if to.write_all(&bytes).await.is_err() {
                return;
            }
            let _ = orders.send(Order::Consumed { connection, bytes: bytes.len() }).await;
        }
        let _ = to.shutdown().await;
    };
    tokio::select! {
        () = inward => {}
        () = outward => {}
    }
    let _ = orders.send(Order::Close { connection }).await;
}

/// A connection in the step.
struct Open {
    /// `None` once the job has sent all.
    to_client: Option<mpsc::UnboundedSender<Bytes>>,
    window: ReceiveWindow,
    outgoing: Arc<SendWindow>,
}

struct Listener {
    host: String,
    /// As the client asked, which it names to end it.
    asked_port: u16,
    port: u16,
    bound: Option<oneshot::Sender<Option<u16>>>,
}

struct Relay {
    step: StepClient,
    decoder: Decoder,
    orders: mpsc::WeakSender<Order>,
    client: Option<(Handle, InputLimit)>,
    next: u32,
    asked: HashMap<u32, oneshot::Sender<Option<Connected>>>,
    open: HashMap<u32, Open>,
    listeners: HashMap<u32, Listener>,
    /// Places for connections from the job.
    places: Arc<Semaphore>,
}

impl Relay {
    fn new(
        step: StepClient,
        orders: mpsc::WeakSender<Order>,
        client: Option<(Handle, InputLimit)>,
    ) -> Self {
        Self {
            step,
            decoder: Decoder::bounded(PAYLOAD_MAX),
            orders,
            client,
            next: 0,
            asked: HashMap::new(),
            open: HashMap::new(),
            listeners: HashMap::new(),
            places: Arc::new(Semaphore::new(ACCEPTED_MAX)),
        }
    }

    async fn run(mut self, mut receiver: mpsc::Receiver<Order>) {
        loop {
            tokio::select! {
                order = receiver.recv() => {
                    let Some(order) = order else { return };
                    if !self.on_order(order).await {
                        return;
                    }
                }
                report = self.step.from.recv() => match report {
                    Some(FromStep::Stdout(bytes)) => {
                        if !self.on_bytes(&bytes).await {
                            return;
                        }
                    }
                    Some(FromStep::Stderr(_)) => {}
                    Some(FromStep::Ended(_)) | None => return,
                },
            }
        }
    }

    async fn say(&self, message: &ToForwarder) -> bool {
        let mut bytes = Vec::new();
        frame::encode_message(channel::CONTROL, message, &mut bytes).is_ok()
            && self.send(bytes).await
    }

    async fn send(&self, bytes: Vec<u8>) -> bool {
        self.step.to.send(ToStep::Input(bytes.into())).await.is_ok()
    }

    fn next_number(&mut self) -> u32 {
        self.next = (self.next + 1) % wire::forward::ACCEPTED_FIRST;
        self.next
    }

    /// False when the step is gone.
    async fn on_order(&mut self, order: Order) -> bool {
        match order {
            Order::Connect { host, port, made } => {
                let connection = self.next_number();
                // Connections whose clients have gone no longer wait for the forwarder's answer.
                self.asked.retain(|_, made| !made.is_closed());
                self.asked.insert(connection, made);
                self.say(&ToForwarder::Connect { connection, host, port }).await
            }
            Order::Listen { host, port, bound } if self.listeners.len() < LISTENERS_MAX => {
                let listener = self.next_number();
                let asked =
                    Listener { host: host.clone(), asked_port: port, port, bound: Some(bound) };
                self.listeners.insert(listener, asked);
                self.say(&ToForwarder::Listen { listener, host, port }).await
            }
            // Dropping the answer refuses it.
            Order::Listen { .. } => true,
            Order::StopListening { host, port, known } => {
                let is_meant = |one: &Listener| {
                    one.host == host && (one.asked_port == port || one.port == port)
                };
                let found = self.listeners.iter().find(|(_, one)| is_meant(one)).map(|(n, _)| *n);
                let _ = known.send(found.is_some());
                match found {
                    Some(listener) => {
                        self.listeners.remove(&listener);
                        self.say(&ToForwarder::StopListening { listener }).await
                    }
                    None => true,
                }
            }
            Order::Data { connection, bytes } => {
                let payload = [&connection.to_le_bytes()[..], &bytes].concat();
                let mut frame = Vec::with_capacity(frame::HEADER + payload.len());
                frame::encode(channel::DATA, &payload, &mut frame).is_ok() && self.send(frame).await
            }
            Order::End { connection } => self.say(&ToForwarder::End { connection }).await,
            Order::Close { connection } => {
                self.open.remove(&connection);
                self.say(&ToForwarder::Close { connection }).await
            }
            Order::Consumed { connection, bytes } => {
                let credit = self.open.get_mut(&connection).and_then(|o| o.window.consumed(bytes));
                match credit {
                    Some(bytes) => self.say(&ToForwarder::Credit { connection, bytes }).await,
                    None => true,
                }
            }
        }
    }

    async fn on_bytes(&mut self, bytes: &[u8]) -> bool {
        self.decoder.push(bytes);
        loop {
            let frame = match self.decoder.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => return true,
                Err(_) => return false,
            };
            if frame.channel == channel::DATA {
                self.on_data(frame.payload);
            } else if let Ok(message) = frame::decode_message(&frame.payload) {
                let unwanted = self.on_message(message);
                if let Some(connection) = unwanted
                    && !self.say(&ToForwarder::Close { connection }).await
                {
                    return false;
                }
            }
        }
    }

    fn on_data(&mut self, payload: Vec<u8>) {
        let Some((number, data)) = payload.split_first_chunk::<4>() else { return };
        let connection = u32::from_le_bytes(*number);
        let Some(open) = self.open.get_mut(&connection) else { return };
        if open.window.received(data.len()).is_err() {
            self.open.remove(&connection);
        } else if let Some(to_client) = &open.to_client {
            // A client that has gone closes the connection itself.
            let _ = to_client.send(Bytes::from(payload).slice(number_bytes()..));
        }
    }

    /// A connection that nobody takes, which the step is to close.
    fn on_message(&mut self, message: FromForwarder) -> Option<u32> {
        match message {
            FromForwarder::Connected { connection } => {
                let is_taken = self.asked.remove(&connection).is_some_and(|made| {
                    let connected = self.opened(connection);
                    made.send(Some(connected)).is_ok()
                });
                if !is_taken {
                    self.open.remove(&connection);
                    return Some(connection);
                }
            }
            FromForwarder::Failed { connection, .. } => {
                if let Some(made) = self.asked.remove(&connection) {
                    let _ = made.send(None);
                }
                self.open.remove(&connection);
            }
            FromForwarder::End { connection } => {
                if let Some(open) = self.open.get_mut(&connection) {
                    open.to_client = None;
                }
            }
            FromForwarder::Credit { connection, bytes } => {
                if let Some(open) = self.open.get(&connection) {
                    open.outgoing.grant(bytes);
                }
            }
            FromForwarder::Listening { listener, port } => {
                if let Some(known) = self.listeners.get_mut(&listener) {
                    known.port = port;
                    if let Some(bound) = known.bound.take() {
                        let _ = bound.send(Some(port));
                    }
                }
            }
            FromForwarder::NotListening { listener, .. } => drop(self.listeners.remove(&listener)),
            FromForwarder::Accepted { listener, connection, host, port } => {
                let is_taken = self.on_accepted(listener, connection, host, port);
                return (!is_taken).then_some(connection);
            }
        }
        None
    }

    fn opened(&mut self, connection: u32) -> Connected {
        let (to_client, incoming) = mpsc::unbounded_channel();
        let outgoing = Arc::<SendWindow>::default();
        let window = ReceiveWindow::default();
        let open = Open { to_client: Some(to_client), window, outgoing: outgoing.clone() };
        self.open.insert(connection, open);
        Connected { number: connection, incoming, outgoing }
    }

    /// A connection from the job, which the client is to take; false where it cannot, or there are too many.
    fn on_accepted(&mut self, listener: u32, connection: u32, host: String, port: u16) -> bool {
        let (Some(known), Some(orders)) = (self.listeners.get(&listener), self.orders.upgrade())
        else {
            return false;
        };
        let Ok(place) = self.places.clone().try_acquire_owned() else { return false };
        let (address, bound) = (known.host.clone(), u32::from(known.port));
        let Some((handle, input)) = self.client.clone() else { return false };
        let connected = self.opened(connection);
        tokio::spawn(async move {
            let _place = place;
            let opened =
                handle.channel_open_forwarded_tcpip(address, bound, host, u32::from(port)).await;
            match opened {
                Ok(channel) => {
                    let (reader, output) = channel.split();
                    let (sender, from_client) = mpsc::unbounded_channel();
                    let (open, end) = channel_end();
                    tokio::spawn(read_channel(reader, sender, input, open));
                    relay(&orders, connected, from_client, output, end).await;
                }
                Err(_) => drop(orders.send(Order::Close { connection }).await),
            }
        });
        true
    }
}

const fn number_bytes() -> usize {
    size_of::<u32>()
}

/// Queues what the client sends on a channel that the server opened.
async fn read_channel(
    mut reader: ChannelReadHalf,
    sender: super::session::ClientSender,
    input: InputLimit,
    _open: ChannelOpen,
) {
    while let Some(message) = reader.wait().await {
        let (item, bytes) = match message {
            ChannelMsg::Data { data } => {
                let bytes = data.len();
                (FromClient::Bytes(data), bytes)
            }
            ChannelMsg::Eof => (FromClient::End, 0),
            ChannelMsg::Close => return,
            _ => continue,
        };
        let Some(queued) = input.add(bytes) else { return };
        if sender.send((item, queued)).is_err() {
            return;
        }
    }
}
