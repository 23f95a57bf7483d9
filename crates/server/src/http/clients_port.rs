//! The clients' port: other machines must speak TLS there; connections from loopback may speak plain HTTP.

use crate::connection_limits::{ConnectionLimits, ConnectionSlots, PortConnection};
use crate::http::drain::Drain;
use crate::http::event_loops::{EventLoops, LoopPlace};
use crate::http::peer::Peer;
use crate::http::port_tls::PortTls;
use crate::http::serve::{RequestHandler, refuse, serve};
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout_at};

/// How long a TLS handshake may take; for other machines with the wait for its first byte.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may take to say something once the port is to be given up.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that is silent for so long is asked whether it is still there, so often, so many times: a laptop may have left
/// without a word.
const KEEPALIVE_IDLE_S: u32 = 60;
const KEEPALIVE_INTERVAL_S: u32 = 10;
const KEEPALIVE_PROBES: u32 = 3;

/// The first byte of a TLS connection: a record of the handshake. No method of HTTP begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

const PLAIN_FROM_ELSEWHERE: &str =
    "this port speaks TLS to other machines: use https:// (sluice login https://HOST:PORT)";

/// What a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Tls,
    PlainHttp,
    /// Plain HTTP from another machine.
    Refused,
}

impl Protocol {
    fn of(first_byte: u8, from: IpAddr) -> Self {
        if first_byte == TLS_HANDSHAKE {
            Self::Tls
        } else if is_near(from) {
            Self::PlainHttp
        } else {
            Self::Refused
        }
    }
}

/// Serves the port, where a token must say who asks.
pub struct ClientsPort<H> {
    pub handler: H,
    pub slots: Arc<ConnectionSlots>,
    pub handshakes: Arc<ConnectionSlots>,
    pub limits: ConnectionLimits,
    pub tls: PortTls,
    pub drain: Drain,
    /// Plain HTTP is answered to everybody, as the site chose.
    pub is_plain: bool,
    /// Where its connections run; without any, in the runtime that accepts them.
    pub loops: Option<Arc<EventLoops>>,
}

impl<H: RequestHandler> ClientsPort<H> {
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        let mut drain = self.drain.clone();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = drain.told() => return,
            };
            match accepted {
                Ok((stream, address)) => {
                    let Some(slot) = self.slots.take() else { continue };
                    let (port, from) = (self.clone(), address.ip());
                    match self.loops.as_ref().map(EventLoops::place) {
                        None => drop(tokio::spawn(port.run(stream, from, slot))),
                        Some(place) => port.run_at(place, stream, from, slot),
                    }
                }
                Err(error) => self.slots.pause_after(&error).await,
            }
        }
    }

    /// Runs a connection in one of the loops, which alone knows of it from here on.
    fn run_at(
        self: Arc<Self>,
        place: LoopPlace,
        stream: TcpStream,
        from: IpAddr,
        slot: OwnedSemaphorePermit,
    ) {
        let lost = |error| tracing::debug!("a client's connection is lost: {error}");
        let stream = match stream.into_std() {
            Ok(stream) => stream,
            Err(error) => return lost(error),
        };
        let place = Arc::new(place);
        let held = (slot, place.clone());
        place.spawn(async move {
            match TcpStream::from_std(stream) {
                Ok(stream) => self.run(stream, from, held).await,
                Err(error) => lost(error),
            }
        });
    }

    /// `slot` is held as long as the connection is open.
    async fn run(
        self: Arc<Self>,
        stream: TcpStream,
        from: IpAddr,
        slot: impl Send + Sync + 'static,
    ) {
        if let Err(error) = self.connection(stream, from, slot).await {
            tracing::debug!("a client's connection ended: {error}");
        }
    }

    async fn connection(
        &self,
        mut stream: TcpStream,
        from: IpAddr,
        slot: impl Send + Sync + 'static,
    ) -> io::Result<()> {
        stream.set_nodelay(true)?;
        // Another machine's connection is in a handshake from the first: its silence holds no more than that.
        let mut handshake = None;
        let mut first_byte_end = Instant::now() + self.limits.silence;
        if !is_near(from) {
            let Some(taken) = self.handshakes.take() else { return Ok(()) };
            let end = Instant::now() + HANDSHAKE_TIMEOUT;
            handshake = Some((taken, end));
            first_byte_end = first_byte_end.min(end);
        }
        let mut first = [0];
        let mut drain = self.drain.clone();
        let silent_at_the_end = async {
            drain.told().await;
            sleep(FIRST_BYTE_TIMEOUT).await;
        };
        let peeked = tokio::select! {
            peeked = timeout_at(first_byte_end, stream.peek(&mut first)) => peeked,
            () = silent_at_the_end => return Ok(()),
        };
        if peeked.map_err(|_| late())?? == 0 {
            return Ok(());
        }
        let protocol =
            if self.is_plain { Protocol::PlainHttp } else { Protocol::of(first[0], from) };
        let connection = PortConnection::new(self.slots.clone()).by_tls(protocol == Protocol::Tls);
        let is_loopback = is_near(from);
        let who = move || Peer::Port { connection: connection.clone(), from, is_loopback };
        match protocol {
            Protocol::PlainHttp => {
                serve(&self.handler, stream, who, slot, &self.limits, self.drain.clone())
            }
            Protocol::Refused => refuse(&mut stream, PLAIN_FROM_ELSEWHERE).await,
            Protocol::Tls => {
                setsockopt(&stream, sockopt::KeepAlive, &true)?;
                setsockopt(&stream, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE_S)?;
                setsockopt(&stream, sockopt::TcpKeepInterval, &KEEPALIVE_INTERVAL_S)?;
                setsockopt(&stream, sockopt::TcpKeepCount, &KEEPALIVE_PROBES)?;
                let begin = || Some((self.handshakes.take()?, Instant::now() + HANDSHAKE_TIMEOUT));
                let Some((_handshake, end)) = handshake.or_else(begin) else { return Ok(()) };
                let accepted = async {
                    let acceptor = self.tls.acceptor().await.ok_or_else(no_certificate)?;
                    acceptor.accept(stream).await
                };
                let stream = timeout_at(end, accepted).await.map_err(|_| late())??;
                serve(&self.handler, stream, who, slot, &self.limits, self.drain.clone());
            }
        }
        Ok(())
    }
}

/// Whether a connection comes from this machine.
fn is_near(from: IpAddr) -> bool {
    from.to_canonical().is_loopback()
}

fn no_certificate() -> io::Error {
    io::Error::other("the port has no certificate that can be used")
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the client says nothing")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_limits::ListenerSlots;
    use crate::http::body_limits::BodyLimits;
    use crate::http::router;
    use crate::testing::TestServer;
    use axum::Router;
    use futures_util::future::join_all;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A port with slots for a process of 1024 descriptors: 192, of which 48 may be in a handshake.
    fn port_of(server: &TestServer) -> Arc<ClientsPort<Router>> {
        let limits = ConnectionLimits::default();
        let slots = ListenerSlots::new(1024, &limits);
        Arc::new(ClientsPort {
            handler: router(server.shared.clone(), BodyLimits::new(server.shared.clone(), &limits)),
            slots: slots.port,
            handshakes: slots.handshakes,
            limits,
            tls: PortTls::start(server.shared.clone()).expect("a thread"),
            drain: Drain::never(),
            is_plain: false,
            loops: None,
        })
    }

    /// Such a port on loopback.
    async fn port(server: &TestServer) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        tokio::spawn(port_of(server).serve(listener));
        address
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn silent_strangers_hold_only_places_of_handshakes() {
        let server = TestServer::start().await;
        let port = port_of(&server);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let (mut clients, mut held) = (Vec::new(), Vec::new());
        for _ in 0..60 {
            clients.push(TcpStream::connect(address).await.expect("connected"));
            let (stream, _) = listener.accept().await.expect("accepted");
            let (port, slot) = (port.clone(), port.slots.take().expect("a slot"));
            held.push(tokio::spawn(async move {
                port.connection(stream, "10.0.0.1".parse().expect("an address"), slot).await
            }));
        }
        // Connections beyond the limit of handshakes are closed at once.
        let closed = clients.iter_mut().map(|stream| async move {
            let read = tokio::time::timeout(Duration::from_secs(2), stream.read(&mut [0])).await;
            usize::from(read.is_ok())
        });
        let closed: usize = join_all(closed).await.into_iter().sum();
        assert_eq!(closed, 60 - 48);
        held.iter().for_each(|one| one.abort());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn unfinished_handshakes_leave_the_rest_of_the_port_to_others() {
        let server = TestServer::start().await;
        let address = port(&server).await;
        let begin = |_| async move {
            let mut stream = TcpStream::connect(address).await.expect("connected");
            stream.write_all(&[TLS_HANDSHAKE]).await.expect("written");
            stream
        };
        let mut begun = join_all((0..60).map(begin)).await;
        let closed = begun.iter_mut().map(|stream| async move {
            // One that may go on is not answered before the rest of its greeting.
            let read = tokio::time::timeout(Duration::from_secs(2), stream.read(&mut [0])).await;
            usize::from(read.is_ok())
        });
        let closed: usize = join_all(closed).await.into_iter().sum();
        assert_eq!(closed, 60 - 48);
        let mut plain = TcpStream::connect(address).await.expect("connected");
        let request = b"GET /healthz HTTP/1.1\r\nHost: sluice\r\nConnection: close\r\n\r\n";
        plain.write_all(request).await.expect("written");
        let mut answer = String::new();
        plain.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }

    #[test]
    fn only_loopback_may_speak_plain_http() {
        let protocol =
            |first_byte, from: &str| Protocol::of(first_byte, from.parse().expect("an address"));
        for near in ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(protocol(b'G', near), Protocol::PlainHttp, "{near}");
            assert_eq!(protocol(TLS_HANDSHAKE, near), Protocol::Tls, "{near}");
        }
        for far in ["10.0.0.1", "0.0.0.0", "2001:db8::1", "::ffff:10.0.0.1"] {
            assert_eq!(protocol(b'G', far), Protocol::Refused, "{far}");
            assert_eq!(protocol(TLS_HANDSHAKE, far), Protocol::Tls, "{far}");
        }
    }
}
