//! TLS to a server on another machine: whom a certificate must be of, and what a refused one means.

use super::host_port::HostPort;
use model::secret::SecretValue;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore,
    SignatureScheme, StreamOwned,
};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wire::proxy::{Proxy, ProxyAnswer};

/// How long one address of the server may take to answer, and each step of the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long one address may take where another follows.
const NEXT_TIMEOUT: Duration = Duration::from_secs(3);

/// A connection that is silent for so long is asked whether it is still there, so often, so many times: before a router in between
/// forgets it, and so that a server that vanished is noticed.
const KEEPALIVE_IDLE_S: u32 = 15;
const KEEPALIVE_INTERVAL_S: u32 = 5;
const KEEPALIVE_PROBES: u32 = 3;

/// How long the server may leave a request unacknowledged, or take nothing of it. A stream has no such bound: what is at its other
/// end may stop reading.
const UNACKNOWLEDGED_MS: u32 = 30_000;

pub type TlsSocket = StreamOwned<ClientConnection, TcpStream>;

/// A server that other machines ask too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpsServer {
    pub address: HostPort,
    /// Where the server may be instead, tried in turn.
    pub others: Vec<HostPort>,
    pub token: SecretValue,
    pub trust: Trust,
}

impl HttpsServer {
    pub fn addresses(&self) -> impl Iterator<Item = &HostPort> {
        std::iter::once(&self.address).chain(&self.others)
    }

    /// Connects to the first address that answers, each step within this time at most. One that answers and is not trusted is an
    /// error, whatever the others are: somebody may be in between.
    pub fn connect(&self, timeout: Duration) -> io::Result<(TlsSocket, &HostPort)> {
        for address in self.addresses().take(self.others.len()) {
            match connect_within(address, &self.trust, timeout.min(NEXT_TIMEOUT)) {
                Err(error) if error.kind() != ErrorKind::PermissionDenied => {}
                result => return result.map(|socket| (socket, address)),
            }
        }
        let last = self.others.last().unwrap_or(&self.address);
        let timeout = timeout.min(CONNECT_TIMEOUT);
        connect_within(last, &self.trust, timeout).map(|socket| (socket, last))
    }
}

/// The certificate authorities that the server's certificate must be issued by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The authorities in this PEM text.
    Authority(String),
    /// The authorities that this machine trusts.
    Machine,
}

impl Trust {
    fn roots(&self) -> io::Result<RootCertStore> {
        let pem = match self {
            Self::Authority(pem) => pem.clone().into_bytes(),
            Self::Machine => image::machine_authorities().unwrap_or_default(),
        };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).flatten());
        match self {
            Self::Authority(_) if roots.is_empty() => {
                Err(io::Error::new(ErrorKind::InvalidData, "no certificate (PEM) of an authority"))
            }
            _ => Ok(roots),
        }
    }
}

/// Connects, and returns when the server has proven that it is the one that is trusted. Nothing was sent to it by then.
pub fn connect(address: &HostPort, trust: &Trust) -> io::Result<TlsSocket> {
    connect_within(address, trust, CONNECT_TIMEOUT)
}

/// TLS to a server that is trusted so.
pub fn client_config(trust: &Trust) -> io::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(builder(provider)?.with_root_certificates(trust.roots()?).with_no_client_auth())
}

/// The configuration of the last connection. A step has several to one server: the machine's authorities are read and parsed for
/// the first alone.
struct ConfigCache(Mutex<Option<(Trust, Arc<ClientConfig>)>>);

impl ConfigCache {
    const fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn get(&self, trust: &Trust) -> io::Result<Arc<ClientConfig>> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, config)) = &*last
            && known == trust
        {
            return Ok(config.clone());
        }
        let config = Arc::new(client_config(trust)?);
        *last = Some((trust.clone(), config.clone()));
        Ok(config)
    }
}

fn connect_within(address: &HostPort, trust: &Trust, timeout: Duration) -> io::Result<TlsSocket> {
    static CONFIG: ConfigCache = ConfigCache::new();
    let config = CONFIG.get(trust)?;
    handshake(address, config, timeout).map_err(|error| explain(error, address, trust))
}

/// The certificates that the first of these addresses shows that answers, the server's own first; or the last address and why it does not.
pub fn shown_by_first<'a>(
    addresses: &[&'a HostPort],
) -> Result<(&'a HostPort, Vec<CertificateDer<'static>>), (&'a HostPort, io::Error)> {
    let (&last, before) = addresses.split_last().expect("a server has an address");
    for &address in before {
        if let Ok(chain) = shown_certificates(address, NEXT_TIMEOUT) {
            return Ok((address, chain));
        }
    }
    match shown_certificates(last, CONNECT_TIMEOUT) {
        Ok(chain) => Ok((last, chain)),
        Err(error) => Err((last, error)),
    }
}

/// The certificates that a server shows. The handshake is broken off: nothing is sent to the server.
fn shown_certificates(
    address: &HostPort,
    timeout: Duration,
) -> io::Result<Vec<CertificateDer<'static>>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let recorder = Arc::new(ChainRecorder { provider: provider.clone(), chain: Mutex::default() });
    let config = builder(provider)?
        .dangerous()
        .with_custom_certificate_verifier(recorder.clone())
        .with_no_client_auth();
    match handshake(address, Arc::new(config), timeout) {
        Err(error) if error.kind() != ErrorKind::InvalidData => return Err(error),
        Ok(_) | Err(_) => {}
    }
    let chain = std::mem::take(&mut *recorder.chain.lock().expect("no panic with it held"));
    if chain.is_empty() {
        return Err(io::Error::new(ErrorKind::InvalidData, "it does not speak TLS 1.3"));
    }
    Ok(chain)
}

fn builder(
    provider: Arc<CryptoProvider>,
) -> io::Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>> {
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)
}

fn handshake(
    address: &HostPort,
    config: Arc<ClientConfig>,
    timeout: Duration,
) -> io::Result<TlsSocket> {
    let name = ServerName::try_from(address.host.clone())
        .map_err(|_| io::Error::new(ErrorKind::InvalidInput, "this is no name of a host"))?;
    let mut session = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut stream = dial(address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    while session.is_handshaking() {
        session.complete_io(&mut stream).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => {
                io::Error::new(ErrorKind::TimedOut, "it does not finish the TLS handshake")
            }
            _ => error,
        })?;
    }
    stream.set_read_timeout(None)?;
    Ok(StreamOwned::new(session, stream))
}

/// A connection to the server, through the proxy that the environment names for it.
fn dial(address: &HostPort, timeout: Duration) -> io::Result<TcpStream> {
    let proxy = Proxy::of(&address.host, address.port, |name| std::env::var(name).ok());
    let Some(proxy) = proxy.map_err(io::Error::other)? else {
        return dial_directly(address, timeout);
    };
    let through = HostPort { host: proxy.host.clone(), port: proxy.port };
    let connected = dial_directly(&through, timeout).and_then(|mut stream| {
        stream.set_read_timeout(Some(timeout))?;
        let request = proxy.request(&address.host, address.port).map_err(io::Error::other)?;
        stream.write_all(&request)?;
        let (mut answer, mut byte) = (ProxyAnswer::default(), [0]);
        loop {
            stream.read_exact(&mut byte)?;
            if answer.push(byte[0]).map_err(io::Error::other)? {
                return Ok(stream);
            }
        }
    });
    connected.map_err(|error| io::Error::new(error.kind(), format!("by proxy {proxy}: {error}")))
}

fn dial_directly(address: &HostPort, timeout: Duration) -> io::Result<TcpStream> {
    let stream = connect_tcp(address, timeout)?;
    set_timeouts(&stream)?;
    Ok(stream)
}

/// A connection to the first address of the host that answers.
pub fn connect_tcp(address: &HostPort, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for at in (address.host.as_str(), address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&at, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn set_timeouts(stream: &TcpStream) -> io::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE_S)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &KEEPALIVE_INTERVAL_S)?;
    setsockopt(stream, sockopt::TcpKeepCount, &KEEPALIVE_PROBES)?;
    setsockopt(stream, sockopt::TcpUserTimeout, &UNACKNOWLEDGED_MS)?;
    Ok(())
}

/// Lets the other end stop reading for as long as it likes, from now on.
pub fn without_write_bound(stream: &TcpStream) -> io::Result<()> {
    setsockopt(stream, sockopt::TcpUserTimeout, &0)?;
    Ok(())
}

/// The error in words that say what to do. A server that is not the trusted one is `PermissionDenied`.
fn explain(error: io::Error, address: &HostPort, trust: &Trust) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let why = match inner {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => format!(
            "its certificate is not for {}: use another name of the server, or add this one to [server] addresses \
             of its sluice.toml",
            address.host
        ),
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => match trust {
            Trust::Authority(_) => "its certificate is not of the authority of this login: somebody is in between, or \
                                    the cluster was set up anew (then: sluice login)"
                .into(),
            Trust::Machine => "its certificate is of no authority that this machine trusts: log in with sluice login, \
                               or name the authority's file in SLUICE_CA"
                .into(),
        },
        Some(rustls::Error::InvalidCertificate(other)) => format!("its certificate: {other:?}"),
        Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS".into(),
        _ => return error,
    };
    io::Error::new(ErrorKind::PermissionDenied, why)
}

/// Records the certificates of a server and trusts none.
#[derive(Debug)]
struct ChainRecorder {
    provider: Arc<CryptoProvider>,
    chain: Mutex<Vec<CertificateDer<'static>>>,
}

impl ServerCertVerifier for ChainRecorder {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        further: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = std::iter::once(own).chain(further).map(|one| one.clone().into_owned());
        *self.chain.lock().expect("no panic with it held") = shown.collect();
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::ServerConfig;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use std::net::TcpListener;

    #[test]
    fn login_looks_at_the_certificates_of_the_first_server_that_answers() {
        let at = |listener: &TcpListener| {
            let address = listener.local_addr().expect("an address").to_string();
            HostPort::parse(&address).expect("an address")
        };
        let frozen = TcpListener::bind("127.0.0.1:0").expect("a port");
        let good = TcpListener::bind("127.0.0.1:0").expect("a port");
        let made =
            rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a pair");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a configuration");
        let addresses = [at(&frozen), at(&good)];
        let served = std::thread::spawn(move || {
            let (mut stream, _) = good.accept().expect("asked");
            let mut session = rustls::ServerConnection::new(Arc::new(config)).expect("a session");
            // The client breaks it off when it has seen the certificate.
            while session.is_handshaking() && session.complete_io(&mut stream).is_ok() {}
        });
        let shown = shown_by_first(&addresses.each_ref());
        let (address, chain) = shown.map_err(|(_, error)| error).expect("one answers");
        assert_eq!((address, chain.len()), (&addresses[1], 1));
        served.join().expect("no panic");
    }

    #[test]
    fn connections_to_one_server_share_what_was_read_for_the_first() {
        let cache = ConfigCache::new();
        let get = |trust: &Trust| cache.get(trust).expect("a configuration");
        let first = get(&Trust::Machine);
        assert!(Arc::ptr_eq(&first, &get(&Trust::Machine)));
        let made = rcgen::generate_simple_self_signed(vec!["head".to_owned()]).expect("a pair");
        let authority = Trust::Authority(made.cert.pem());
        let other = get(&authority);
        assert!(!Arc::ptr_eq(&first, &other), "another server has another authority");
        assert!(cache.get(&Trust::Authority("nothing".to_owned())).is_err());
        assert!(Arc::ptr_eq(&other, &get(&authority)), "a failure is not kept");
    }
}
