//! A fake server: real TLS and signatures, and messages that the test chooses.

use super::{NODE, TIMEOUT, TOKEN, UID, now};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::id::AttemptId;
use model::limits::CgroupPolicy;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer,
    KeyPair,
};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::RootCertStore;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use wire::frame::{self, Decoder, Frame};
use wire::link::{
    CHANNEL_CONTROL, CHANNEL_STREAM, Hello, JoinAccepted, JoinFile, NodePolicy, SERVER_NAME,
    ToAgent, ToServer, Welcome,
};
use wire::order::{Action, Order, SignedOrder};

pub struct FakeServer {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    issuer: Issuer<'static, KeyPair>,
    key: Ed25519KeyPair,
    serial: u64,
    pub policy: NodePolicy,
}

/// A connected agent.
pub struct FakeLink {
    stream: TlsStream<TcpStream>,
    decoder: Decoder,
    frames: VecDeque<Frame>,
    pub hello: Hello,
}

impl FakeServer {
    pub async fn start() -> (FakeServer, JoinFile) {
        let authority_key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let authority = params.self_signed(&authority_key).expect("an authority");
        let issuer = Issuer::new(params, authority_key);
        let server_key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new(vec![SERVER_NAME.to_owned()])
            .and_then(|params| params.signed_by(&server_key, &issuer))
            .expect("a certificate");

        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).expect("trusted");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .allow_unauthenticated()
                .build()
                .expect("a verifier");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der()));
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("a configuration");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let join = JoinFile {
            version: 1,
            servers: vec![listener.local_addr().expect("an address").to_string()],
            authority: authority.pem(),
            token: TOKEN.into(),
            nodes: vec![NODE.into()],
            pattern: None,
            cluster: String::new(),
        };
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        let server = FakeServer {
            listener,
            acceptor: TlsAcceptor::from(Arc::new(config)),
            issuer,
            key: Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("the key"),
            serial: 0,
            policy: NodePolicy {
                limits: CgroupPolicy::default(),
                cgroup_plugin: "autodetect".into(),
                cpus: 0,
                site: Default::default(),
            },
        };
        (server, join)
    }

    pub async fn accept(&mut self) -> FakeLink {
        loop {
            let (tcp, _) = self.listener.accept().await.expect("a connection");
            tcp.set_nodelay(true).expect("small messages at once");
            let Ok(stream) = self.acceptor.accept(tcp).await else { continue };
            let known = stream.get_ref().1.peer_certificates().is_some();
            let hello = Hello {
                version: 0,
                program: String::new(),
                nodes: Vec::new(),
                more: false,
                renewals: Vec::new(),
                takes_bytes: false,
                network_stack: None,
                finds_servers: false,
            };
            let mut link =
                FakeLink { stream, decoder: Decoder::default(), frames: VecDeque::new(), hello };
            match link.next().await {
                ToServer::Join(join) if !known => {
                    assert_eq!(join.token, TOKEN);
                    let request =
                        CertificateSigningRequestParams::from_pem(&join.certificate_request);
                    let signed =
                        request.expect("a request").signed_by(&self.issuer).expect("signed");
                    let joined = JoinAccepted {
                        certificate: signed.pem(),
                        order_key: STANDARD.encode(self.key.public_key()),
                        nodes: vec![NODE.into()],
                        expires: None,
                    };
                    link.send(&ToAgent::Joined(joined)).await;
                }
                ToServer::Hello(hello) if known => {
                    link.hello = hello;
                    let welcome = Welcome {
                        version: 1,
                        term: 1,
                        now: now(),
                        heartbeat_interval_ms: 1_000,
                        policies: BTreeMap::from([(NODE.to_owned(), self.policy.clone())]),
                        alive_interval_ms: None,
                        renew: None,
                        refused: Vec::new(),
                    };
                    link.send(&ToAgent::Welcome(welcome)).await;
                    return link;
                }
                other => panic!("with a certificate: {known}; said: {other:?}"),
            }
        }
    }

    pub fn sign(&mut self, attempt: AttemptId, action: Action) -> SignedOrder {
        self.serial += 1;
        let order = Order {
            version: 1,
            term: 1,
            serial: self.serial,
            node: NODE.into(),
            attempt,
            uid: UID,
            expires: now() + TIMEOUT,
            action,
        };
        let body = serde_json::to_string(&order).expect("JSON");
        let signature = STANDARD.encode(self.key.sign(body.as_bytes()));
        SignedOrder { body, signature }
    }
}

impl FakeLink {
    pub async fn send(&mut self, message: &ToAgent) {
        let mut bytes = Vec::new();
        frame::encode_message(CHANNEL_CONTROL, message, &mut bytes).expect("encoded");
        self.stream.write_all(&bytes).await.expect("the agent listens");
        self.stream.flush().await.expect("the agent listens");
    }

    /// The next message that is not a heartbeat.
    pub async fn next(&mut self) -> ToServer {
        loop {
            let frame = self.next_frame().await;
            assert_eq!(frame.channel, CHANNEL_CONTROL);
            match frame::decode_message(&frame.payload).expect("a message") {
                ToServer::Heartbeat { .. } => {}
                message => return message,
            }
        }
    }

    async fn next_frame(&mut self) -> Frame {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return frame;
            }
            while let Some(frame) = self.decoder.next_frame().expect("well formed") {
                self.frames.push_back(frame);
            }
            if self.frames.is_empty() {
                let mut buffer = vec![0; 64 << 10];
                let length = self.stream.read(&mut buffer).await.expect("the agent is there");
                assert!(length > 0, "the agent closed the link");
                self.decoder.push(&buffer[..length]);
            }
        }
    }

    /// The bytes of a stream until it ends; other messages are passed over.
    pub async fn read_stream(&mut self, wanted: u32) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        loop {
            let frame = self.next_frame().await;
            if frame.channel == CHANNEL_STREAM {
                let (stream, data) =
                    frame.payload.split_first_chunk::<4>().expect("a stream's number");
                assert_eq!(u32::from_le_bytes(*stream), wanted);
                bytes.extend_from_slice(data);
                self.send(&ToAgent::Credit { stream: wanted, bytes: data.len() as u32 }).await;
            } else if let Ok(ToServer::StreamEnd { stream, error }) =
                frame::decode_message(&frame.payload)
                && stream == wanted
            {
                return error.map_or(Ok(bytes), Err);
            }
        }
    }
}
