//! A relay of TCP connections between two network namespaces. It stands for what is between a laptop and the server: a
//! router with NAT, a long line, or somebody who listens.

use nix::sched::{CloneFlags, setns};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What went through the relay.
#[derive(Default)]
pub struct Traffic {
    pub connections: AtomicU64,
    /// How often the client spoke after the server did, or first.
    pub turns: AtomicU64,
    pub bytes_down: AtomicU64,
    /// Whether the last bytes went up, to the server.
    last_was_up: Mutex<bool>,
}

impl Traffic {
    fn note(&self, is_up: bool, bytes: usize) {
        let mut last_was_up = self.last_was_up.lock().unwrap();
        if is_up && !*last_was_up {
            self.turns.fetch_add(1, Ordering::SeqCst);
        }
        *last_was_up = is_up;
        if !is_up {
            self.bytes_down.fetch_add(bytes as u64, Ordering::SeqCst);
        }
    }

    /// Counts from zero again.
    pub fn reset(&self) {
        *self.last_was_up.lock().unwrap() = false;
        for counter in [&self.connections, &self.turns, &self.bytes_down] {
            counter.store(0, Ordering::SeqCst);
        }
    }

    pub fn get(&self) -> (u64, u64, u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        (get(&self.connections), get(&self.turns), get(&self.bytes_down))
    }
}

pub struct Relay {
    pub traffic: Arc<Traffic>,
    /// Each direction takes this long, in milliseconds.
    pub delay_ms: Arc<AtomicU64>,
    interceptor: Arc<Mutex<Option<Interceptor>>>,
}

/// Somebody in between: ends TLS with a certificate of his own, and reads what he is sent.
#[derive(Clone)]
pub struct Interceptor {
    tls: Arc<rustls::ServerConfig>,
    /// How many connections came, and the decrypted bytes of all.
    pub seen: Arc<Mutex<(u64, Vec<u8>)>>,
    /// The certificate of his authority, as PEM.
    pub authority: String,
}

impl Interceptor {
    /// One with a certificate for these names, of an authority of his own.
    pub fn new(names: &[&str]) -> Self {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let signed = authority.self_signed(&authority_key).unwrap();
        let issuer = Issuer::from_params(&authority, &authority_key);
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let own = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![own.der().clone(), signed.der().clone()],
                key.serialize_der().try_into().unwrap(),
            )
            .unwrap();
        Self { tls: Arc::new(tls), seen: Arc::default(), authority: signed.pem() }
    }

    fn serve(&self, mut client: TcpStream) {
        self.seen.lock().unwrap().0 += 1;
        let Ok(mut session) = rustls::ServerConnection::new(self.tls.clone()) else { return };
        let mut stream = rustls::Stream::new(&mut session, &mut client);
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            self.seen.lock().unwrap().1.extend_from_slice(&buffer[..length]);
        }
    }
}

/// Runs `work` in a thread of this network namespace, and waits for it.
pub fn in_namespace<T: Send>(namespace: &Path, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let file = std::fs::File::open(namespace).expect("a namespace");
                setns(file, CloneFlags::CLONE_NEWNET).expect("root may enter it");
                work()
            })
            .join()
            .expect("no panic in the namespace")
    })
}

impl Relay {
    /// Listens at `at` in one namespace and connects to `to` in another, until the test's process ends.
    pub fn start(from: &Path, at: &str, through: &Path, to: &str) -> Self {
        let listener = in_namespace(from, || TcpListener::bind(at).expect("the relay listens"));
        let traffic = Arc::new(Traffic::default());
        let delay_ms = Arc::new(AtomicU64::new(0));
        let (through, to) = (through.to_path_buf(), to.to_owned());
        let interceptor: Arc<Mutex<Option<Interceptor>>> = Arc::default();
        let relay = Self {
            traffic: traffic.clone(),
            delay_ms: delay_ms.clone(),
            interceptor: interceptor.clone(),
        };
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                let in_between = interceptor.lock().unwrap().clone();
                if let Some(in_between) = in_between {
                    std::thread::spawn(move || in_between.serve(client));
                    continue;
                }
                let connected = in_namespace(&through, || TcpStream::connect(to.as_str()));
                let Ok(server) = connected else { continue };
                traffic.connections.fetch_add(1, Ordering::SeqCst);
                carry(&client, &server, true, &traffic, &delay_ms);
                carry(&server, &client, false, &traffic, &delay_ms);
            }
        });
        relay
    }

    /// From now on every connection ends at this one; none reaches the server.
    pub fn intercept(&self, interceptor: &Interceptor) {
        *self.interceptor.lock().unwrap() = Some(interceptor.clone());
    }
}

/// Carries the bytes of one direction, each piece when its delay is over.
fn carry(
    from: &TcpStream,
    to: &TcpStream,
    is_up: bool,
    traffic: &Arc<Traffic>,
    delay_ms: &Arc<AtomicU64>,
) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    let (traffic, delay_ms) = (traffic.clone(), delay_ms.clone());
    let _ = to.set_nodelay(true);
    type Piece = (Instant, Vec<u8>);
    let (sender, receiver): (Sender<Piece>, Receiver<Piece>) = channel();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            traffic.note(is_up, length);
            let due = Instant::now() + Duration::from_millis(delay_ms.load(Ordering::SeqCst));
            if sender.send((due, buffer[..length].to_vec())).is_err() {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        for (due, piece) in receiver {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
