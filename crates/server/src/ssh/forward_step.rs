//! The step that makes and accepts connections in the job's network, as the server speaks with it.

use super::channel_end::{ChannelOpen, channel_end};
use super::entry::Entry;
use super::input_limit::InputLimit;
use super::session::{ClientSender, FromClient};
use super::step_client::{FromStep, StepClient, ToStep};
use super::tunnel::{Connected, ForwarderOrders, Order, SendWindow, Tunnels, relay};
use crate::per_user::{CountedUser, UserCounts};
use crate::shared::Shared;
use bytes::Bytes;
use russh::server::Handle;
use russh::{ChannelMsg, ChannelReadHalf};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc, oneshot};
use wire::forward::{FromForwarder, PAYLOAD_MAX, ToForwarder, channel};
use wire::frame::{self, Decoder, FrameError};
use wire::stream::ReceiveWindow;

/// Addresses that one connection has its step listen at.
const LISTENERS_MAX: usize = 16;
/// Connections from the job that are open, or wait for the client to take them.
const ACCEPTED_MAX: usize = 256;
/// No more orders are taken while so many bytes wait for the step to take them.
const OUTGOING_BYTES_MAX: usize = 64 << 10;
/// A step that takes nothing is given up when so many bytes wait for it: each connection of the job that nobody takes adds a few.
const UNTAKEN_BYTES_MAX: usize = 1 << 20;
/// Connections of one user in all jobs: each may hold a window of bytes that nobody reads.
pub const FORWARDED_OF_USER_MAX: usize = 1024;

/// A connection in the step.
struct Open {
    /// `None` once the job has sent all.
    to_client: Option<mpsc::UnboundedSender<Bytes>>,
    window: ReceiveWindow,
    outgoing: Arc<SendWindow>,
    _counted: CountedUser,
}

/// The client that takes the connections from the job.
#[derive(Clone)]
pub struct ForwardClient {
    pub handle: Handle,
    pub input: InputLimit,
    /// Looked up anew for each of them.
    pub entry: Entry,
    pub shared: Arc<Shared>,
}

/// The connections of all jobs that are forwarded, by user, and whose these are.
pub struct Forwarded {
    pub counts: UserCounts,
    pub user: u32,
}

enum Listener {
    Port(PortListener),
    /// For the client's agent of keys.
    Agent(AgentListener),
}

struct PortListener {
    host: String,
    /// As the client asked, which it names to end it.
    asked_port: u16,
    port: u16,
    bound: Option<oneshot::Sender<Option<u16>>>,
}

/// One for all sessions of the connection.
struct AgentListener {
    path: Option<String>,
    asked: Vec<oneshot::Sender<Option<String>>>,
}

/// The step of one connection.
pub struct ForwardStep {
    step: StepClient,
    tunnels: Tunnels,
    decoder: Decoder,
    /// Frames for the step.
    outgoing: Vec<u8>,
    orders: mpsc::WeakSender<Order>,
    client: Option<ForwardClient>,
    forwarded: Forwarded,
    next: u32,
    asked: HashMap<u32, oneshot::Sender<Option<Connected>>>,
    open: HashMap<u32, Open>,
    listeners: HashMap<u32, Listener>,
    /// Places for connections from the job.
    places: Arc<Semaphore>,
}

impl ForwardStep {
    pub fn new(
        step: StepClient,
        orders: mpsc::WeakSender<Order>,
        client: Option<ForwardClient>,
        tunnels: Tunnels,
        forwarded: Forwarded,
    ) -> Self {
        Self {
            step,
            tunnels,
            decoder: Decoder::bounded(PAYLOAD_MAX),
            outgoing: Vec::new(),
            orders,
            client,
            forwarded,
            next: 0,
            asked: HashMap::new(),
            open: HashMap::new(),
            listeners: HashMap::new(),
            places: Arc::new(Semaphore::new(ACCEPTED_MAX)),
        }
    }

    /// What the step says is taken at any time, also while it takes nothing, up to a bound: it says how much more it takes behind what its
    /// connections have sent.
    pub async fn run(mut self, mut receiver: mpsc::Receiver<Order>) {
        let to = self.step.to.clone();
        loop {
            tokio::select! {
                permit = to.reserve(), if !self.outgoing.is_empty() => match permit {
                    Ok(permit) => permit.send(ToStep::Input(std::mem::take(&mut self.outgoing).into())),
                    Err(_) => return,
                },
                order = receiver.recv(), if self.outgoing.len() < OUTGOING_BYTES_MAX => match order {
                    Some(order) => self.on_order(order),
                    None => return,
                },
                report = self.step.from.recv() => match report {
                    Some(FromStep::Stdout(bytes)) => {
                        let is_read = self.on_bytes(&bytes).is_ok();
                        if !is_read || self.outgoing.len() > UNTAKEN_BYTES_MAX {
                            return;
                        }
                    }
                    Some(FromStep::Stderr(_)) => {}
                    Some(FromStep::Ended(_)) | None => return,
                },
            }
        }
    }

    fn say(&mut self, message: &ToForwarder) {
        // Each of these messages fits into a frame.
        let _ = frame::encode_message(channel::CONTROL, message, &mut self.outgoing);
    }

    fn next_number(&mut self) -> u32 {
        self.next = (self.next + 1) % wire::forward::ACCEPTED_FIRST;
        self.next
    }

    fn on_order(&mut self, order: Order) {
        match order {
            Order::Connect { host, port, of_job, made } => {
                let connection = self.next_number();
                // Connections whose clients have gone no longer wait for the forwarder's answer.
                self.asked.retain(|_, made| !made.is_closed());
                self.asked.insert(connection, made);
                self.say(&ToForwarder::Connect { connection, host, port, of_job });
            }
            Order::Listen { host, port, bound } if self.listeners.len() < LISTENERS_MAX => {
                let listener = self.next_number();
                let bound = Some(bound);
                let asked = PortListener { host: host.clone(), asked_port: port, port, bound };
                self.listeners.insert(listener, Listener::Port(asked));
                self.say(&ToForwarder::Listen { listener, host, port });
            }
            // Dropping the answer refuses it.
            Order::Listen { .. } => {}
            Order::ListenForAgent { bound } => self.listen_for_agent(bound),
            Order::StopListening { host, port, known } => {
                let is_meant = |one: &Listener| match one {
                    Listener::Port(one) => {
                        one.host == host && (one.asked_port == port || one.port == port)
                    }
                    Listener::Agent(_) => false,
                };
                let found = self.listeners.iter().find(|(_, one)| is_meant(one)).map(|(n, _)| *n);
                let _ = known.send(found.is_some());
                if let Some(listener) = found {
                    self.listeners.remove(&listener);
                    self.say(&ToForwarder::StopListening { listener });
                }
            }
            Order::Data { connection, bytes } => {
                let payload = [&connection.to_le_bytes()[..], &bytes].concat();
                // A relay sends no more at once than fits into a frame.
                let _ = frame::encode(channel::DATA, &payload, &mut self.outgoing);
            }
            Order::End { connection } => self.say(&ToForwarder::End { connection }),
            Order::Close { connection } => {
                self.open.remove(&connection);
                self.say(&ToForwarder::Close { connection });
            }
            Order::Consumed { connection, bytes } => {
                let credit = self.open.get_mut(&connection).and_then(|o| o.window.consumed(bytes));
                if let Some(bytes) = credit {
                    self.say(&ToForwarder::Credit { connection, bytes });
                }
            }
        }
    }

    fn listen_for_agent(&mut self, bound: oneshot::Sender<Option<String>>) {
        let known = self.listeners.values_mut().find_map(|one| match one {
            Listener::Agent(agent) => Some(agent),
            Listener::Port(_) => None,
        });
        if let Some(agent) = known {
            match &agent.path {
                Some(path) => drop(bound.send(Some(path.clone()))),
                None => {
                    agent.asked.retain(|asked| !asked.is_closed());
                    agent.asked.push(bound);
                }
            }
            return;
        }
        let listener = self.next_number();
        let asked = AgentListener { path: None, asked: vec![bound] };
        self.listeners.insert(listener, Listener::Agent(asked));
        self.say(&ToForwarder::ListenForAgent { listener });
    }

    fn on_bytes(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        self.decoder.push(bytes);
        while let Some(frame) = self.decoder.next_frame()? {
            if frame.channel == channel::DATA {
                self.on_data(frame.payload);
            } else if let Ok(message) = frame::decode_message(&frame.payload)
                && let Some(connection) = self.on_message(message)
            {
                self.say(&ToForwarder::Close { connection });
            }
        }
        Ok(())
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
            FromForwarder::Connected { connection, server } => {
                let is_taken = self.asked.remove(&connection).is_some_and(|made| {
                    let connected =
                        self.opened(connection).map(|opened| Connected { server, ..opened });
                    let is_open = connected.is_some();
                    made.send(connected).is_ok() && is_open
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
                if let Some(Listener::Port(known)) = self.listeners.get_mut(&listener) {
                    known.port = port;
                    if let Some(bound) = known.bound.take() {
                        let _ = bound.send(Some(port));
                    }
                }
            }
            FromForwarder::ListeningForAgent { listener, path } => {
                if let Some(Listener::Agent(known)) = self.listeners.get_mut(&listener) {
                    for asked in known.asked.drain(..) {
                        let _ = asked.send(Some(path.clone()));
                    }
                    known.path = Some(path);
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

    /// `None` where this user has as many connections as one may have.
    fn opened(&mut self, connection: u32) -> Option<Connected> {
        let counted = self.forwarded.counts.enter(self.forwarded.user, FORWARDED_OF_USER_MAX)?;
        let (to_client, incoming) = mpsc::unbounded_channel();
        let outgoing = Arc::<SendWindow>::default();
        let window = ReceiveWindow::default();
        let to_client = Some(to_client);
        let open = Open { to_client, window, outgoing: outgoing.clone(), _counted: counted };
        self.open.insert(connection, open);
        Some(Connected { number: connection, incoming, outgoing, server: None })
    }

    /// A connection from the job, which the client is to take; false where it cannot, or there are too many.
    fn on_accepted(&mut self, listener: u32, connection: u32, host: String, port: u16) -> bool {
        let (Some(known), Some(orders)) = (self.listeners.get(&listener), self.orders.upgrade())
        else {
            return false;
        };
        let Ok(place) = self.places.clone().try_acquire_owned() else { return false };
        let orders = ForwarderOrders { orders, idle: self.tunnels.idle };
        let port_listener = match known {
            Listener::Port(known) => Some((known.host.clone(), u32::from(known.port))),
            Listener::Agent(_) => None,
        };
        let Some(client) = self.client.clone() else { return false };
        let served = self.tunnels.served.clone();
        let Some(connected) = self.opened(connection) else { return false };
        tokio::spawn(async move {
            let _place = place;
            let ForwardClient { handle, input, entry, shared } = client;
            if entry.access_now(&shared).is_none() {
                return drop(orders.orders.send(Order::Close { connection }).await);
            }
            let opened = match port_listener {
                Some((address, bound)) => {
                    let from = u32::from(port);
                    handle.channel_open_forwarded_tcpip(address, bound, host, from).await
                }
                None => handle.channel_open_agent().await,
            };
            match opened {
                Ok(channel) => {
                    let (reader, output) = channel.split();
                    let (sender, from_client) = mpsc::unbounded_channel();
                    let (open, end) = channel_end(&served);
                    tokio::spawn(read_channel(reader, sender, input, open));
                    relay(&orders, connected, from_client, output, end).await;
                }
                Err(_) => drop(orders.orders.send(Order::Close { connection }).await),
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
    sender: ClientSender,
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

#[cfg(test)]
#[path = "forward_step_tests.rs"]
mod tests;
