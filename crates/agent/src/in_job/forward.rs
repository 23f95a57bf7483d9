//! Makes and accepts TCP connections in the job's network for a client of the SSH endpoint; `wire/forward.rs` says how.

use super::agent_socket::AgentSocket;
use super::forward_policy::may_reach;
use super::port_owner::PortOwners;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream, lookup_host};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::timeout;
use wire::forward::{
    ACCEPTED_FIRST, DATA_MAX, FromForwarder, OwnServer, PAYLOAD_MAX, ToForwarder, channel,
};
use wire::frame::{self, Decoder, Frame};
use wire::stream::{ReceiveWindow, SendCredit};

/// Frames each way that wait for their reader.
const FRAMES_MAX: usize = 64;
const READ_BYTES: usize = 64 << 10;
/// Frames that wait are written together, up to so many bytes.
const WRITE_BYTES_MAX: usize = 64 << 10;
/// Connections at the same time.
const CONNECTIONS_MAX: usize = 256;
/// How long the last bytes of a connection may take to be taken.
const LINGER_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

pub fn run() -> i32 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("sluice: {error}");
            return 1;
        }
    };
    // All tasks are dropped with the runtime, and with them the sockets that they listen at.
    runtime.block_on(serve());
    // Name lookups that are under way are not waited for.
    runtime.shutdown_background();
    0
}

/// Where frames for the server go.
type Frames = mpsc::Sender<Vec<u8>>;

/// What the server sends on a connection.
enum FromServer {
    Data(Vec<u8>),
    End,
}

struct Connection {
    /// Bounded by the window that the server keeps to.
    data: mpsc::UnboundedSender<FromServer>,
    credit: Arc<Credit>,
    task: AbortHandle,
}

#[derive(Default)]
struct Credit {
    left: Mutex<SendCredit>,
    more: Notify,
}

impl Credit {
    async fn wait(&self) -> usize {
        loop {
            let more = self.more.notified();
            let left = self.left.lock().expect("no panic with the credit held").left();
            if left > 0 {
                return left;
            }
            more.await;
        }
    }

    fn take(&self, bytes: usize) {
        self.left.lock().expect("no panic with the credit held").take(bytes);
    }

    fn grant(&self, bytes: u32) {
        self.left.lock().expect("no panic with the credit held").grant(bytes);
        self.more.notify_one();
    }
}

/// A connection from the job's side, on its way to the table.
struct Accepted {
    listener: u32,
    stream: AcceptedStream,
    host: String,
    port: u16,
}

enum AcceptedStream {
    Tcp(TcpStream),
    Agent(UnixStream),
}

async fn serve() {
    let (frames_in, mut frames) = mpsc::channel(FRAMES_MAX);
    let (out, out_frames) = mpsc::channel(FRAMES_MAX);
    let (accepted_in, mut accepted) = mpsc::channel(1);
    std::thread::spawn(move || read_frames(&frames_in));
    std::thread::spawn(move || write_frames(out_frames));
    let mut table = Table {
        out,
        accepted: accepted_in,
        connections: HashMap::new(),
        listeners: HashMap::new(),
        next_accepted: ACCEPTED_FIRST,
        owners: Arc::new(PortOwners::of_this_process()),
    };
    // A client that goes hangs up: what was made for it is removed.
    let (Ok(mut hangup), Ok(mut terminate)) =
        (signal(SignalKind::hangup()), signal(SignalKind::terminate()))
    else {
        return;
    };
    loop {
        tokio::select! {
            _ = hangup.recv() => return,
            _ = terminate.recv() => return,
            frame = frames.recv() => match frame {
                Some(frame) => table.on_frame(frame),
                None => return,
            },
            Some(one) = accepted.recv() => table.on_accepted(one),
        }
    }
}

/// Reads standard input until it ends, on a thread of its own: it may be a pipe, a socket or a file.
fn read_frames(frames: &mpsc::Sender<Frame>) {
    let mut decoder = Decoder::bounded(PAYLOAD_MAX);
    let mut buffer = vec![0; READ_BYTES];
    let mut input = std::io::stdin().lock();
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => decoder.push(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    if frames.blocking_send(frame).is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

fn write_frames(mut frames: mpsc::Receiver<Vec<u8>>) {
    let mut output = std::io::stdout().lock();
    while let Some(mut bytes) = frames.blocking_recv() {
        while bytes.len() < WRITE_BYTES_MAX
            && let Ok(more) = frames.try_recv()
        {
            bytes.extend_from_slice(&more);
        }
        if output.write_all(&bytes).and_then(|()| output.flush()).is_err() {
            // Nobody is left to forward for.
            std::process::exit(0);
        }
    }
}

async fn say(out: &Frames, message: &FromForwarder) {
    let mut bytes = Vec::new();
    if frame::encode_message(channel::CONTROL, message, &mut bytes).is_ok() {
        // The writer ends with the program alone.
        let _ = out.send(bytes).await;
    }
}

struct Table {
    out: Frames,
    accepted: mpsc::Sender<Accepted>,
    connections: HashMap<u32, Connection>,
    listeners: HashMap<u32, AbortHandle>,
    next_accepted: u32,
    owners: Arc<PortOwners>,
}

impl Table {
    fn on_frame(&mut self, frame: Frame) {
        if frame.channel == channel::DATA {
            if let Some((number, data)) = frame.payload.split_first_chunk::<4>() {
                let number = u32::from_le_bytes(*number);
                self.pass_on(number, FromServer::Data(data.to_vec()));
            }
            return;
        }
        match frame::decode_message(&frame.payload) {
            Ok(ToForwarder::Connect { connection, host, port, of_job }) => {
                self.connect(connection, host, port, of_job);
            }
            Ok(ToForwarder::Listen { listener, host, port }) => self.listen(listener, host, port),
            Ok(ToForwarder::ListenForAgent { listener }) => self.listen_for_agent(listener),
            Ok(ToForwarder::StopListening { listener }) => {
                self.listeners.remove(&listener).iter().for_each(AbortHandle::abort);
            }
            Ok(ToForwarder::End { connection }) => self.pass_on(connection, FromServer::End),
            Ok(ToForwarder::Close { connection }) => {
                // What the server sent before is still written; its task then finds that no more comes.
                if let Some(Connection { task, data, .. }) = self.connections.remove(&connection) {
                    drop(data);
                    tokio::spawn(async move {
                        tokio::time::sleep(LINGER_TIMEOUT).await;
                        task.abort();
                    });
                }
            }
            Ok(ToForwarder::Credit { connection, bytes }) => {
                if let Some(known) = self.connections.get(&connection) {
                    known.credit.grant(bytes);
                }
            }
            // A newer server may send messages that this version does not know.
            Err(_) => {}
        }
    }

    fn pass_on(&self, connection: u32, item: FromServer) {
        if let Some(known) = self.connections.get(&connection) {
            // A connection that broke has said so.
            let _ = known.data.send(item);
        }
    }

    fn connect(&mut self, connection: u32, host: String, port: u16, of_job: bool) {
        self.connections.retain(|_, known| !known.task.is_finished());
        let out = self.out.clone();
        let owners = of_job.then(|| self.owners.clone());
        if self.connections.len() >= CONNECTIONS_MAX {
            let why = format!("{CONNECTIONS_MAX} connections are open");
            tokio::spawn(async move {
                say(&out, &FromForwarder::Failed { connection, why }).await;
            });
            return;
        }
        self.add(connection, async move {
            match timeout(CONNECT_TIMEOUT, dial(&host, port, owners.as_ref())).await {
                Ok(Ok((stream, server))) => {
                    say(&out, &FromForwarder::Connected { connection, server }).await;
                    Some(stream)
                }
                Ok(Err(why)) => {
                    say(&out, &FromForwarder::Failed { connection, why }).await;
                    None
                }
                Err(_) => {
                    let why = format!("{host}:{port} does not answer");
                    say(&out, &FromForwarder::Failed { connection, why }).await;
                    None
                }
            }
        });
    }

    fn on_accepted(&mut self, accepted: Accepted) {
        let Accepted { listener, stream, host, port } = accepted;
        self.connections.retain(|_, known| !known.task.is_finished());
        if self.connections.len() >= CONNECTIONS_MAX {
            return;
        }
        let connection = self.next_accepted;
        self.next_accepted = self.next_accepted.checked_add(1).unwrap_or(ACCEPTED_FIRST);
        let out = self.out.clone();
        let accepted = async move {
            say(&out, &FromForwarder::Accepted { listener, connection, host, port }).await;
        };
        match stream {
            AcceptedStream::Tcp(stream) => self.add(connection, async {
                accepted.await;
                Some(stream)
            }),
            AcceptedStream::Agent(stream) => self.add(connection, async {
                accepted.await;
                Some(stream)
            }),
        }
    }

    /// Adds a connection whose stream is on its way.
    fn add<S: AsyncRead + AsyncWrite + Send + 'static>(
        &mut self,
        connection: u32,
        stream: impl Future<Output = Option<S>> + Send + 'static,
    ) {
        let (data, from_server) = mpsc::unbounded_channel();
        let credit = Arc::<Credit>::default();
        let (out, own_credit) = (self.out.clone(), credit.clone());
        let task = tokio::spawn(async move {
            if let Some(stream) = stream.await {
                relay(connection, stream, from_server, &own_credit, &out).await;
            }
        });
        self.connections.insert(connection, Connection { data, credit, task: task.abort_handle() });
    }

    fn listen(&mut self, listener: u32, host: String, port: u16) {
        let (out, accepted) = (self.out.clone(), self.accepted.clone());
        let task = tokio::spawn(async move {
            let bound = match bind(&host, port).await {
                Ok(bound) => bound,
                Err(why) => return say(&out, &FromForwarder::NotListening { listener, why }).await,
            };
            let port = bound.local_addr().map_or(port, |address| address.port());
            say(&out, &FromForwarder::Listening { listener, port }).await;
            while let Ok((stream, from)) = bound.accept().await {
                let (host, port) = (from.ip().to_string(), from.port());
                let _ = stream.set_nodelay(true);
                let stream = AcceptedStream::Tcp(stream);
                if accepted.send(Accepted { listener, stream, host, port }).await.is_err() {
                    return;
                }
            }
        });
        self.listeners.insert(listener, task.abort_handle());
    }

    fn listen_for_agent(&mut self, listener: u32) {
        let (out, accepted) = (self.out.clone(), self.accepted.clone());
        let task = tokio::spawn(async move {
            let socket = match AgentSocket::bind() {
                Ok(socket) => socket,
                Err(error) => {
                    let why = error.to_string();
                    return say(&out, &FromForwarder::NotListening { listener, why }).await;
                }
            };
            let path = socket.path();
            say(&out, &FromForwarder::ListeningForAgent { listener, path }).await;
            while let Ok((stream, _)) = socket.listener.accept().await {
                let (stream, host, port) = (AcceptedStream::Agent(stream), String::new(), 0);
                if accepted.send(Accepted { listener, stream, host, port }).await.is_err() {
                    return;
                }
            }
        });
        self.listeners.insert(listener, task.abort_handle());
    }
}

/// Connects to the first address that takes connections. With `owners`, to what processes of this job listen at, and to nothing else: that
/// server is said too.
async fn dial(
    host: &str,
    port: u16,
    owners: Option<&Arc<PortOwners>>,
) -> Result<(TcpStream, Option<OwnServer>), String> {
    let found = lookup_host((host, port)).await.map_err(|error| format!("{host}: {error}"))?;
    let found: Vec<SocketAddr> = found.collect();
    let found = if owners.is_some() { with_v6_loopback(found, port) } else { found };
    let mut why = format!("{host}: no address");
    for address in found {
        if !may_reach(address.ip()) {
            why = format!("{address}: not reached through a job");
            continue;
        }
        let checked = match owners {
            None => None,
            Some(owners) => match ask(owners, move |owners| owners.check(address)).await? {
                Ok(checked) => Some(checked),
                Err(refused) => {
                    why = refused;
                    continue;
                }
            },
        };
        match TcpStream::connect(address).await {
            Ok(stream) => {
                let found = owners.zip(checked.as_deref());
                let server = found.map(|(owners, sockets)| owners.own_server(address, sockets));
                // Somebody else may have taken the port between the check and the connection.
                if let (Some(owners), Some(checked)) = (owners, checked)
                    && !ask(owners, move |owners| owners.holds_still(address, &checked)).await?
                {
                    why = format!("{address}: its server has ended");
                    continue;
                }
                // Small packets of a terminal or a browser do not wait for more.
                let _ = stream.set_nodelay(true);
                return Ok((stream, server));
            }
            Err(error) => why = format!("{address}: {error}"),
        }
    }
    Err(why)
}

/// Who has the connections of a server that listens at all addresses of both families is known at IPv6's alone, whatever addresses a name has.
fn with_v6_loopback(mut found: Vec<SocketAddr>, port: u16) -> Vec<SocketAddr> {
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    let has_v4 = found.contains(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    if has_v4 && !found.contains(&v6) {
        found.push(v6);
    }
    // A server that has a socket of each family is known by that of the family in which most nodes have their addresses.
    found.sort_by_key(SocketAddr::is_ipv6);
    found
}

/// Asks who listens, on a thread of its own: the lists are as long as all users' sockets make them, and other connections go on meanwhile.
async fn ask<T: Send + 'static>(
    owners: &Arc<PortOwners>,
    question: impl FnOnce(&PortOwners) -> T + Send + 'static,
) -> Result<T, String> {
    let owners = owners.clone();
    spawn_blocking(move || question(&owners)).await.map_err(|error| error.to_string())
}

/// Listens where `ssh -R` says: on loopback unless an address is named.
async fn bind(host: &str, port: u16) -> Result<TcpListener, String> {
    let host = match host {
        "" | "localhost" => "127.0.0.1",
        "*" => "0.0.0.0",
        named => named,
    };
    TcpListener::bind((host, port)).await.map_err(|error| format!("{host}:{port}: {error}"))
}

/// Passes bytes both ways until the server closes the connection.
async fn relay<S: AsyncRead + AsyncWrite>(
    connection: u32,
    stream: S,
    mut from_server: mpsc::UnboundedReceiver<FromServer>,
    credit: &Credit,
    out: &Frames,
) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let outward = async {
        let mut buffer = vec![0; DATA_MAX];
        loop {
            let most = credit.wait().await.min(DATA_MAX);
            let length = match reader.read(&mut buffer[..most]).await {
                Ok(length @ 1..) => length,
                Ok(_) | Err(_) => break,
            };
            credit.take(length);
            let payload = [&connection.to_le_bytes()[..], &buffer[..length]].concat();
            let mut bytes = Vec::with_capacity(frame::HEADER + payload.len());
            let encoded = frame::encode(channel::DATA, &payload, &mut bytes).is_ok();
            if !encoded || out.send(bytes).await.is_err() {
                break;
            }
        }
        say(out, &FromForwarder::End { connection }).await;
    };
    let inward = async {
        let mut window = ReceiveWindow::default();
        let mut takes = true;
        while let Some(item) = from_server.recv().await {
            match item {
                // A peer that is gone takes nothing; the server closes the connection in its time.
                FromServer::Data(_) if !takes => {}
                FromServer::Data(data) => {
                    takes = window.received(data.len()).is_ok()
                        && writer.write_all(&data).await.is_ok();
                    if let Some(bytes) = window.consumed(data.len()) {
                        say(out, &FromForwarder::Credit { connection, bytes }).await;
                    }
                }
                FromServer::End => {
                    takes = false;
                    // The peer may be gone already.
                    let _ = writer.shutdown().await;
                }
            }
        }
    };
    let outward = async {
        outward.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = inward => {}
        () = outward => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_address_of_ipv6_is_tried_too_and_after_that_of_ipv4() {
        let [v4, v6, other] = ["127.0.0.1:80", "[::1]:80", "10.0.0.7:80"]
            .map(|address| address.parse::<SocketAddr>().expect("an address"));
        for (found, expected) in [
            (vec![v4], vec![v4, v6]),
            (vec![v6, v4], vec![v4, v6]),
            (vec![v6], vec![v6]),
            (vec![other], vec![other]),
        ] {
            assert_eq!(with_v6_loopback(found, 80), expected);
        }
    }
}
