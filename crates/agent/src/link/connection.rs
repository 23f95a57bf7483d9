//! The TLS connection to the server, which carries frames.

use crate::error::{AgentError, link_fault};
use nix::sys::socket::{setsockopt, sockopt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wire::frame::{self, Decoder, Frame, FrameError};
use wire::link::{CHANNEL_CONTROL, CHANNEL_STREAM, SERVER_NAME, ToServer};
use wire::proxy::{Proxy, ProxyAnswer, ProxyRefusal};

/// How long a server may take to answer a connection or to read what is sent.
const IO_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one address of a server may take, so that the next is tried before the node counts as lost.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;
const READ_BYTES: usize = 64 << 10;

/// A connection that is silent for so long is asked whether its other end is still there, so often, so many times: a server's
/// machine that vanished is noticed within a minute.
const KEEPALIVE_IDLE_S: u32 = 30;
const KEEPALIVE_INTERVAL_S: u32 = 10;
const KEEPALIVE_PROBES: u32 = 3;

pub(crate) struct Link {
    reader: ReadHalf<TlsStream<TcpStream>>,
    writer: WriteHalf<TlsStream<TcpStream>>,
    input: Vec<u8>,
    decoder: Decoder,
    out: Vec<u8>,
}

impl Link {
    pub async fn dial(address: &str, config: Arc<ClientConfig>) -> Result<Link, AgentError> {
        let tls = dial(address, config).await?;
        // A vanished server host must become an error before the server takes this node for dead.
        let timeout = IO_TIMEOUT.as_millis() as u32;
        setsockopt(tls.get_ref().0, sockopt::TcpUserTimeout, &timeout)
            .map_err(|errno| AgentError::Link(errno.desc().into()))?;
        let (reader, writer) = tokio::io::split(tls);
        let input = Vec::with_capacity(READ_BYTES);
        Ok(Link { reader, writer, input, decoder: Decoder::default(), out: Vec::new() })
    }

    pub fn send(&mut self, message: &ToServer) -> Result<(), AgentError> {
        frame::encode_message(CHANNEL_CONTROL, message, &mut self.out)
            .map_err(|e| AgentError::Link(e.to_string()))
    }

    pub fn send_stream(&mut self, stream: u32, bytes: &[u8]) -> Result<(), AgentError> {
        let payload = [&stream.to_le_bytes(), bytes].concat();
        frame::encode(CHANNEL_STREAM, &payload, &mut self.out)
            .map_err(|e| AgentError::Link(e.to_string()))
    }

    /// Sends all queued messages. A server that reads nothing until the timeout is a broken link.
    pub async fn flush(&mut self) -> Result<(), AgentError> {
        if self.out.is_empty() {
            return Ok(());
        }
        let writing = async {
            self.writer.write_all(&self.out).await?;
            self.writer.flush().await
        };
        match timeout(IO_TIMEOUT, writing).await {
            Ok(Ok(())) => {
                self.out.clear();
                Ok(())
            }
            Ok(Err(e)) => Err(AgentError::Link(link_fault(&e))),
            Err(_) => Err(AgentError::Link(format!("the server took nothing for {IO_TIMEOUT:?}"))),
        }
    }

    /// Receives the frames that are whole by what has come: none where a long one is under way. Cancel-safe: no bytes are lost if the
    /// future is dropped.
    pub async fn receive(&mut self) -> Result<Vec<Frame>, AgentError> {
        let frames = self.whole_frames()?;
        if !frames.is_empty() {
            return Ok(frames);
        }
        self.input.clear();
        let read = self.reader.read_buf(&mut self.input).await;
        if read.map_err(|e| AgentError::Link(link_fault(&e)))? == 0 {
            return Err(AgentError::Closed);
        }
        self.decoder.push(&self.input);
        self.whole_frames()
    }

    fn whole_frames(&mut self) -> Result<Vec<Frame>, AgentError> {
        let mut frames = Vec::new();
        let broken = |e: FrameError| AgentError::Link(e.to_string());
        while let Some(frame) = self.decoder.next_frame().map_err(broken)? {
            frames.push(frame);
        }
        Ok(frames)
    }
}

/// Connects to the server's agents port, whose certificate is checked.
pub(crate) async fn dial(
    address: &str,
    config: Arc<ClientConfig>,
) -> Result<TlsStream<TcpStream>, AgentError> {
    let unreachable = |source| AgentError::Unreachable { address: address.to_owned(), source };
    let late = || unreachable(io::ErrorKind::TimedOut.into());
    let stream = connect(address).await.map_err(unreachable)?;
    // Dialling a free local port can connect to itself, which would keep the server from binding the port again.
    if stream.local_addr().ok() == stream.peer_addr().ok() {
        return Err(unreachable(io::ErrorKind::ConnectionRefused.into()));
    }
    stream.set_nodelay(true).map_err(unreachable)?;
    keep_alive(&stream).map_err(|errno| unreachable(errno.into()))?;
    let name = ServerName::try_from(SERVER_NAME).map_err(|e| AgentError::Tls(e.to_string()))?;
    let handshake = TlsConnector::from(config).connect(name, stream);
    timeout(IO_TIMEOUT, handshake).await.map_err(|_| late())?.map_err(unreachable)
}

fn keep_alive(stream: &TcpStream) -> nix::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE_S)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &KEEPALIVE_INTERVAL_S)?;
    setsockopt(stream, sockopt::TcpKeepCount, &KEEPALIVE_PROBES)
}

/// Connects to the server, through the proxy that the environment names for it.
async fn connect(address: &str) -> io::Result<TcpStream> {
    let target = address.rsplit_once(':').and_then(|(host, port)| {
        Some((host.trim_start_matches('[').trim_end_matches(']'), port.parse().ok()?))
    });
    let Some((host, port)) = target else { return connect_directly(address).await };
    let proxy = Proxy::of(host, port, |name| std::env::var(name).ok());
    match proxy.map_err(wrong_setting)? {
        Some(proxy) => timeout(IO_TIMEOUT, connect_through(&proxy, host, port))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
            .map_err(|error| io::Error::new(error.kind(), format!("by proxy {proxy}: {error}"))),
        None => connect_directly(address).await,
    }
}

async fn connect_through(proxy: &Proxy, host: &str, port: u16) -> io::Result<TcpStream> {
    let mut stream = connect_directly(&proxy.to_string()).await?;
    stream.write_all(&proxy.request(host, port).map_err(wrong_setting)?).await?;
    let mut answer = ProxyAnswer::default();
    while !answer.push(stream.read_u8().await?).map_err(refused_by_proxy)? {}
    Ok(stream)
}

/// A setting that no later dial makes right.
fn wrong_setting(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn refused_by_proxy(refusal: ProxyRefusal) -> io::Error {
    let kind = match refusal {
        ProxyRefusal::NoProxy | ProxyRefusal::Refused(_) => io::ErrorKind::PermissionDenied,
        ProxyRefusal::ServerAway(_) => io::ErrorKind::HostUnreachable,
    };
    io::Error::new(kind, refusal)
}

/// Connects to the first address of the name that answers. The name is resolved anew each time: the server may have moved.
async fn connect_directly(address: &str) -> io::Result<TcpStream> {
    let late = || io::Error::from(io::ErrorKind::TimedOut);
    let found = timeout(IO_TIMEOUT, lookup_host(address)).await.map_err(|_| late())??;
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for address in found.take(ADDRESSES_MAX) {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = late(),
        }
    }
    Err(failure)
}

/// Makes a configuration that trusts only this authority, with a client certificate if `identity` is given.
pub(crate) fn client_config(
    authority: &str,
    identity: Option<(&str, &str)>,
) -> Result<Arc<ClientConfig>, AgentError> {
    let tls = |what: &str, e: &dyn std::fmt::Display| AgentError::Tls(format!("{what}: {e}"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        let certificate = certificate.map_err(|e| tls("the authority's certificate", &e))?;
        roots.add(certificate).map_err(|e| tls("the authority's certificate", &e))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| tls("protocol versions", &e))?
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain: Result<Vec<_>, _> =
                CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
            let chain = chain.map_err(|e| tls("this agent's certificate", &e))?;
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                .map_err(|e| tls("this agent's key", &e))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|e| tls("this agent's certificate", &e))?
        }
    };
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    /// A link, and the server's end of it.
    async fn link() -> (Link, tokio_rustls::server::TlsStream<TcpStream>) {
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new(vec![SERVER_NAME.to_owned()])
            .and_then(|params| params.self_signed(&key))
            .expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("a configuration");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let trusted = client_config(&certificate.pem(), None).expect("a configuration");
        let served = async {
            let (stream, _) = listener.accept().await.expect("a connection");
            acceptor.accept(stream).await.expect("a server")
        };
        let (link, server) = tokio::join!(Link::dial(&address, trusted), served);
        (link.expect("a link"), server)
    }

    /// The server's word that it lives comes behind the frame: on a slow line the part is the word.
    #[tokio::test]
    async fn part_of_a_long_frame_is_told_before_it_is_whole() {
        const BYTES: usize = 1 << 20;
        let (mut link, mut server) = link().await;
        let mut bytes = Vec::new();
        frame::encode(CHANNEL_CONTROL, &[7; BYTES], &mut bytes).expect("a frame");
        let (part, rest) = bytes.split_at(BYTES / 100);
        server.write_all(part).await.expect("sent");
        server.flush().await.expect("sent");
        let received = timeout(IO_TIMEOUT, link.receive()).await.expect("a word");
        assert!(received.expect("a link").is_empty());
        let send = async {
            server.write_all(rest).await.expect("sent");
            server.flush().await.expect("sent");
        };
        let receive = async {
            loop {
                let frames = link.receive().await.expect("a link");
                if !frames.is_empty() {
                    return frames;
                }
            }
        };
        let (frames, ()) = tokio::join!(receive, send);
        assert_eq!(frames, [Frame { channel: CHANNEL_CONTROL, payload: vec![7; BYTES] }]);
    }
}
