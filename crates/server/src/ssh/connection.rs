//! One client's connection: it authenticates by a key, and opens channels into one job.

use super::access::{self, Access, upstream_id};
use super::channel_end::{ChannelEnd, ChannelOpen, ServedChannels, channel_end};
use super::entry::Entry;
use super::forward::Forwarder;
use super::forward_step::ForwardClient;
use super::input_limit::{CHANNELS_MAX, InputLimit, TRICKLE_PAUSE};
use super::launch::{Program, SessionRequest, Terminal, is_client_variable};
use super::session::{self, ClientInput, ClientSender, FromClient, Output, signal_number};
use super::tunnel::{ForwarderOrders, Tunnels};
use super::{log_socket, nested};
use crate::connection_limits::PortConnection;
use crate::shared::Shared;
use bytes::Bytes;
use cluster::authorise::{Act, authorise};
use russh::keys::{Algorithm, PublicKey};
use russh::server::Config;
use russh::server::{
    Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey,
};
use russh::{Channel, ChannelId, ChannelOpenFailure, ChannelWriteHalf, Pty, Sig};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use wire::step::OwnProgram;

/// Variables that one session may set, and the longest value.
const VARIABLES_MAX: usize = 64;
const VARIABLE_BYTES_MAX: usize = 1024;
/// The longest command, and the longest name of a terminal.
const COMMAND_BYTES_MAX: usize = 128 << 10;
const TERMINAL_NAME_BYTES_MAX: usize = 64;
/// The only subsystem.
const SFTP: &str = "sftp";

pub struct Connection {
    shared: Arc<Shared>,
    slot: PortConnection,
    input: InputLimit,
    entry: Option<Entry>,
    /// Set where the job is chosen before the client says a login name, which then says nothing: in a connection inside
    /// another one, whose key is asked for once more, and in one from another node of the run.
    destination: Option<String>,
    /// A connection inside another one has none inside it.
    is_nested: bool,
    /// Told once, who came in.
    admitted: Option<oneshot::Sender<Entry>>,
    channels: HashMap<ChannelId, OpenChannel>,
    /// Places for channels, of this connection and those inside it together.
    places: Arc<Semaphore>,
    served: ServedChannels,
    forwarder: Option<Forwarder>,
    /// For connections inside this one.
    config: Arc<Config>,
    /// How long a connection into the job may be without a byte.
    tunnel_idle: Duration,
}

struct OpenChannel {
    state: ChannelState,
    _place: OwnedSemaphorePermit,
}

enum ChannelState {
    /// A session that runs nothing yet.
    Asked(Box<AskedSession>),
    Running {
        sender: ClientSender,
        _open: ChannelOpen,
    },
}

impl OpenChannel {
    fn asked(&mut self) -> Option<&mut AskedSession> {
        match &mut self.state {
            ChannelState::Asked(asked) => Some(asked),
            ChannelState::Running { .. } => None,
        }
    }

    /// Whether nobody serves it any more: the open was refused, or what ran has ended.
    fn is_over(&self) -> bool {
        matches!(&self.state, ChannelState::Running { sender, .. } if sender.is_closed())
    }
}

/// What serves a channel gets of it.
fn running(served: &ServedChannels) -> (ChannelState, ClientInput, ChannelEnd) {
    let (sender, input) = mpsc::unbounded_channel();
    let (open, end) = channel_end(served);
    (ChannelState::Running { sender, _open: open }, input, end)
}

struct AskedSession {
    output: ChannelWriteHalf<Msg>,
    terminal: Option<Terminal>,
    variables: Vec<(String, String)>,
    /// The client forwards its agent of keys: only where it was asked to (`ssh -A`).
    forwards_agent: bool,
}

impl Connection {
    pub fn new(
        shared: Arc<Shared>,
        slot: PortConnection,
        input: InputLimit,
        admitted: oneshot::Sender<Entry>,
        config: Arc<Config>,
        destination: Option<String>,
        tunnel_idle: Duration,
    ) -> Self {
        Self {
            shared,
            slot,
            input,
            entry: None,
            destination,
            is_nested: false,
            admitted: Some(admitted),
            channels: HashMap::new(),
            places: Arc::new(Semaphore::new(CHANNELS_MAX)),
            served: ServedChannels::default(),
            forwarder: None,
            config,
            tunnel_idle,
        }
    }

    /// The channels of this connection and those inside it that somebody serves.
    pub fn served(&self) -> ServedChannels {
        self.served.clone()
    }

    /// A connection inside this one, to the same job.
    fn within(&self, access: &Access, admitted: oneshot::Sender<Entry>) -> Self {
        Self {
            shared: self.shared.clone(),
            slot: self.slot.clone(),
            input: self.input.clone(),
            entry: None,
            destination: Some(upstream_id(access.job, access.rank)),
            is_nested: true,
            admitted: Some(admitted),
            channels: HashMap::new(),
            places: self.places.clone(),
            served: self.served.clone(),
            forwarder: None,
            config: self.config.clone(),
            tunnel_idle: self.tunnel_idle,
        }
    }

    fn find(&self, login: &str, key: &PublicKey) -> Option<Access> {
        match &self.destination {
            Some(node) if !self.is_nested => access::find_node_of_run(&self.shared, node, key),
            destination => access::find(&self.shared, destination.as_deref().unwrap_or(login), key),
        }
    }

    /// Who is in, looked up anew for everything that is opened or started: a key that was removed or renewed meanwhile
    /// does nothing more.
    fn access_now(&mut self) -> Option<Access> {
        let access = self.entry.as_ref()?.access_now(&self.shared);
        if access.is_none() {
            self.entry = None;
        }
        access
    }

    /// A place for one more channel. Those that are over have theirs given back first.
    fn take_place(&mut self) -> Option<OwnedSemaphorePermit> {
        self.channels.retain(|_, channel| !channel.is_over());
        self.places.clone().try_acquire_owned().ok()
    }

    /// Queues what the client sent on a channel; an error for a client that does not keep to its windows.
    fn send(&self, channel: ChannelId, item: FromClient) -> Result<(), russh::Error> {
        let bytes = if let FromClient::Bytes(bytes) = &item { bytes.len() } else { 0 };
        let queued = self.input.add(bytes).ok_or(russh::Error::Inconsistent)?;
        let state = self.channels.get(&channel).map(|open| &open.state);
        if let Some(ChannelState::Running { sender, .. }) = state {
            // A step that has ended takes nothing.
            let _ = sender.send((item, queued));
        }
        Ok(())
    }

    /// Starts what the session asks for; false if it runs already, or nobody has come in.
    fn start(&mut self, channel: ChannelId, program: Program, session: &Session) -> bool {
        let Some(access) = self.access_now() else { return false };
        let Some(open) = self.channels.get_mut(&channel) else { return false };
        if open.asked().is_none() {
            return false;
        }
        let (state, input, end) = running(&self.served);
        let ChannelState::Asked(asked) = std::mem::replace(&mut open.state, state) else {
            return false;
        };
        let AskedSession { output, terminal, variables, forwards_agent } = *asked;
        let agent = forwards_agent.then(|| {
            let orders = self.forwarder(access.clone(), session);
            async move { orders.listen_for_agent().await }
        });
        let request = SessionRequest { program, terminal, variables };
        let output = Output { half: output, handle: session.handle() };
        tokio::spawn(session::run(self.shared.clone(), access, request, agent, input, output, end));
        true
    }

    /// Takes a channel for a connection into the job; `None` where there are too many.
    fn take_channel(
        &mut self,
        channel: Channel<Msg>,
    ) -> Option<(ClientInput, ChannelWriteHalf<Msg>, ChannelEnd)> {
        let place = self.take_place()?;
        let (state, input, end) = running(&self.served);
        self.channels.insert(channel.id(), OpenChannel { state, _place: place });
        Some((input, channel.split().1, end))
    }

    /// The forwarder, started anew where it has ended.
    fn forwarder(&mut self, access: Access, session: &Session) -> ForwarderOrders {
        let (shared, handle, input) = (&self.shared, session.handle(), &self.input);
        let tunnels = Tunnels { idle: self.tunnel_idle, served: self.served.clone() };
        let running = self.forwarder.take().filter(|running| !running.has_ended());
        let entry = self.entry.clone();
        let start = || {
            let (shared, input) = (shared.clone(), input.clone());
            let of_entry = |entry| ForwardClient { handle, input, entry, shared: shared.clone() };
            let client = entry.map(of_entry);
            Forwarder::start(shared, access, client, tunnels)
        };
        self.forwarder.insert(running.unwrap_or_else(start)).orders()
    }

    fn answer(
        session: &mut Session,
        channel: ChannelId,
        is_done: bool,
    ) -> Result<(), russh::Error> {
        if is_done { session.channel_success(channel) } else { session.channel_failure(channel) }
    }
}

/// How large a terminal of so many cells is.
fn size(columns: u32, rows: u32) -> (u16, u16) {
    let cells = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
    (cells(rows), cells(columns))
}

/// Signatures with SHA-1 can be forged.
fn is_taken(algorithm: &Algorithm) -> bool {
    !matches!(algorithm, Algorithm::Rsa { hash: None })
}

impl Handler for Connection {
    type Error = russh::Error;

    /// Nothing is looked up before the client has proved that the key is its own: the answer says nothing of who may come.
    async fn auth_publickey_offered(
        &mut self,
        _user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, Self::Error> {
        Ok(if is_taken(offer.algorithm) { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_publickey(
        &mut self,
        user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, Self::Error> {
        let found = is_taken(key.algorithm).then(|| self.find(user, key.public_key)).flatten();
        let Some(access) = found else {
            return Ok(Auth::reject());
        };
        let by = access.by.clone();
        let is_operator = || authorise(&self.shared.read(), &by, Act::Operate).is_ok();
        if !self.slot.identify(by.uid, is_operator) {
            return Ok(Auth::reject());
        }
        tracing::info!("{} came in by ssh to job {}", by.name, access.job);
        let entry = Entry { access, key: key.public_key.clone() };
        if let Some(admitted) = self.admitted.take() {
            // The endpoint has given the connection up.
            let _ = admitted.send(entry.clone());
        }
        self.entry = Some(entry);
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        if self.access_now().is_none() {
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        }
        let Some(place) = self.take_place() else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        let id = channel.id();
        let asked = AskedSession {
            output: channel.split().1,
            terminal: None,
            variables: Vec::new(),
            forwards_agent: false,
        };
        let state = ChannelState::Asked(Box::new(asked));
        self.channels.insert(id, OpenChannel { state, _place: place });
        reply.accept().await;
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _originator: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let (Some(access), Ok(port)) = (self.access_now(), u16::try_from(port)) else {
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
            return Ok(());
        };
        let Some((input, output, end)) = self.take_channel(channel) else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        if log_socket::is_meant(host, port) {
            reply.accept().await;
            tokio::spawn(log_socket::serve(self.shared.clone(), access, input, output, end));
            return Ok(());
        }
        if nested::is_meant(host, port) && !self.is_nested {
            reply.accept().await;
            let (admitted, entered) = oneshot::channel();
            let inner = self.within(&access, admitted);
            let shared = self.shared.clone();
            let shut_out = async move {
                match entered.await {
                    Ok(entry) => Entry::shut_out(&entry, shared).await,
                    // It ends without having let anybody in.
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::spawn(nested::serve(self.config.clone(), inner, input, output, end, shut_out));
            return Ok(());
        }
        let host = host.to_owned();
        let orders = self.forwarder(access, session);
        tokio::spawn(async move { orders.connect(host, port, input, output, reply, end).await });
        Ok(())
    }

    async fn tcpip_forward(
        &mut self,
        address: &str,
        port: &mut u32,
        session: &mut Session,
    ) -> Result<bool, Self::Error> {
        let (Some(access), Ok(wanted)) = (self.access_now(), u16::try_from(*port)) else {
            return Ok(false);
        };
        let orders = self.forwarder(access, session);
        let Some(bound) = orders.listen(address.to_owned(), wanted).await else {
            return Ok(false);
        };
        *port = u32::from(bound);
        Ok(true)
    }

    async fn cancel_tcpip_forward(
        &mut self,
        address: &str,
        port: u32,
        _session: &mut Session,
    ) -> Result<bool, Self::Error> {
        let orders = self.forwarder.as_ref().map(Forwarder::orders);
        let (Some(orders), Ok(port)) = (orders, u16::try_from(port)) else {
            return Ok(false);
        };
        Ok(orders.stop_listening(address.to_owned(), port).await)
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        columns: u32,
        rows: u32,
        _pixels_wide: u32,
        _pixels_high: u32,
        _modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let is_name = name.len() <= TERMINAL_NAME_BYTES_MAX && !name.contains(['\0', '\n']);
        let (rows, columns) = size(columns, rows);
        let is_done = match self.channels.get_mut(&channel).and_then(OpenChannel::asked) {
            Some(asked) if is_name => {
                asked.terminal = Some(Terminal { name: name.to_owned(), rows, columns });
                true
            }
            _ => false,
        };
        Self::answer(session, channel, is_done)
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let fits = |text: &str| text.len() <= VARIABLE_BYTES_MAX && !text.contains('\0');
        let is_good = is_client_variable(name) && fits(name) && fits(value) && !name.contains('=');
        let is_done = match self.channels.get_mut(&channel).and_then(OpenChannel::asked) {
            Some(asked) if is_good && asked.variables.len() < VARIABLES_MAX => {
                asked.variables.push((name.to_owned(), value.to_owned()));
                true
            }
            _ => false,
        };
        Self::answer(session, channel, is_done)
    }

    /// The library answers the client.
    async fn agent_request(
        &mut self,
        channel: ChannelId,
        _session: &mut Session,
    ) -> Result<bool, Self::Error> {
        let asked = self.channels.get_mut(&channel).and_then(OpenChannel::asked);
        Ok(asked.map(|asked| asked.forwards_agent = true).is_some())
    }

    async fn shell_request(
        &mut self,
        channel: ChannelId,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let is_done = self.start(channel, Program::Shell, session);
        Self::answer(session, channel, is_done)
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let text = std::str::from_utf8(command).ok();
        let text = text.filter(|text| text.len() <= COMMAND_BYTES_MAX && !text.contains('\0'));
        let is_done = text
            .is_some_and(|text| self.start(channel, Program::Command(text.to_owned()), session));
        Self::answer(session, channel, is_done)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let program = Program::Own(OwnProgram::Sftp);
        let is_done = name == SFTP && self.start(channel, program, session);
        Self::answer(session, channel, is_done)
    }

    async fn window_change_request(
        &mut self,
        channel: ChannelId,
        columns: u32,
        rows: u32,
        _pixels_wide: u32,
        _pixels_high: u32,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        let (rows, columns) = size(columns, rows);
        self.send(channel, FromClient::Resize { rows, columns })
    }

    async fn signal(
        &mut self,
        channel: ChannelId,
        signal: Sig,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        let number = signal_number(&signal);
        number.map_or(Ok(()), |number| self.send(channel, FromClient::Signal(number)))
    }

    async fn data(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.send(channel, FromClient::Bytes(Bytes::copy_from_slice(data)))?;
        if self.input.is_past_mark() {
            tokio::time::sleep(TRICKLE_PAUSE).await;
        }
        Ok(())
    }

    fn adjust_window(&mut self, _channel: ChannelId, _current: u32) -> u32 {
        self.input.window()
    }

    async fn channel_eof(
        &mut self,
        channel: ChannelId,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.send(channel, FromClient::End)
    }

    async fn channel_close(
        &mut self,
        channel: ChannelId,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.channels.remove(&channel);
        Ok(())
    }
}
