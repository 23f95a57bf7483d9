//! A server that is only played: real TLS, real signatures, and a test that decides what it says.
#![allow(dead_code, reason = "each test file uses a part of it")]

use agent::{AgentConfig, Launcher};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::allocation::NodeShare;
use model::amount::Bytes;
use model::id::{AttemptId, JobId};
use model::limits::Policy;
use model::run::LaunchKind;
use model::time::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, IsCa, Issuer, KeyPair,
};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::RootCertStore;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use std::collections::{BTreeMap, VecDeque};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use wire::frame::{self, Decoder, Frame};
use wire::link::{
    CHANNEL_CONTROL, CHANNEL_STREAM, Hello, JoinFile, Joined, NodePolicy, SERVER_NAME, ToAgent, ToServer,
    Welcome,
};
use wire::order::{Action, FileNames, JobLaunch, Notices, Order, Output, SignedOrder, UserIds};
use wire::report::{AttemptEnd, Report, ReportEvent};

/// The node of every test.
pub const NODE: &str = "n1";
/// A user without an account: nothing on the machine belongs to it.
pub const UID: u32 = 23_456;
/// Nothing here takes long; what takes this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const TOKEN: &str = "one-time";

pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    Timestamp::from_millis(since.as_millis() as i64)
}

/// A cluster of one node, with a folder that its user can reach.
pub struct Cluster {
    pub folder: TempDir,
    pub runtime: tokio::runtime::Runtime,
    pub server: PlayedServer,
    agent: Option<Pid>,
}

pub struct PlayedServer {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    issuer: Issuer<'static, KeyPair>,
    key: Ed25519KeyPair,
    serial: u64,
    pub policy: NodePolicy,
}

/// A connected agent.
pub struct PlayedLink {
    stream: TlsStream<TcpStream>,
    decoder: Decoder,
    frames: VecDeque<Frame>,
    pub hello: Hello,
}

impl Cluster {
    pub fn start() -> Cluster {
        assert!(nix::unistd::Uid::effective().is_root(), "this test starts jobs of other users: run it as root");
        let folder = tempfile::tempdir().expect("a scratch folder");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("chmod");
        let home = folder.path().join("home");
        std::fs::create_dir(&home).expect("a home");
        std::os::unix::fs::chown(&home, Some(UID), Some(UID)).expect("chown");
        std::fs::create_dir(folder.path().join("state")).expect("a state folder");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (server, join) = runtime.block_on(PlayedServer::start());
        let join = serde_json::to_vec(&join).expect("JSON");
        std::fs::write(folder.path().join("join"), join).expect("a join file");
        let mut cluster = Cluster { folder, runtime, server, agent: None };
        cluster.start_agent();
        cluster
    }

    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub fn spool(&self) -> PathBuf {
        self.state().join("nodes").join(NODE).join("spool")
    }

    /// The agent is a process of its own, so that it can be killed.
    pub fn start_agent(&mut self) {
        let config = AgentConfig {
            state: self.state(),
            join_file: Some(self.folder.path().join("join")),
            servers: Vec::new(),
            nodes: Vec::new(),
        };
        // SAFETY: the child runs the agent and never returns into the test.
        match unsafe { fork() }.expect("fork") {
            ForkResult::Parent { child } => self.agent = Some(child),
            ForkResult::Child => {
                let launcher = Launcher::start().expect("a launcher");
                let ended = agent::run(config, launcher);
                if let Err(error) = &ended {
                    eprintln!("agent: {error}");
                }
                // SAFETY: ends the child without the test's own exit handlers.
                unsafe { libc::_exit(i32::from(ended.is_err())) }
            }
        }
    }

    pub fn kill_agent(&mut self) {
        if let Some(agent) = self.agent.take() {
            kill(agent, Signal::SIGKILL).expect("the agent is there");
            waitpid(agent, None).expect("waited for");
        }
    }

    /// The exit code of an agent that ends by itself.
    pub fn wait_agent(&mut self) -> i32 {
        let agent = self.agent.take().expect("an agent");
        match waitpid(agent, None).expect("waited for") {
            nix::sys::wait::WaitStatus::Exited(_, code) => code,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the agent to join, if it has not, and to greet.
    pub fn connect(&mut self) -> PlayedLink {
        let Cluster { runtime, server, .. } = self;
        runtime.block_on(async { timeout(PATIENCE, server.accept()).await.expect("the agent did not come") })
    }

    /// Signs and sends.
    pub fn order(&mut self, link: &mut PlayedLink, attempt: AttemptId, action: Action) {
        let signed = self.server.sign(attempt, action);
        self.send(link, &ToAgent::Order(signed));
    }

    pub fn send(&self, link: &mut PlayedLink, message: &ToAgent) {
        self.runtime.block_on(link.send(message));
    }

    pub fn next(&self, link: &mut PlayedLink) -> ToServer {
        self.runtime.block_on(async { timeout(PATIENCE, link.next()).await.expect("the agent said nothing") })
    }

    /// The next report, acknowledged.
    pub fn report(&self, link: &mut PlayedLink) -> Report {
        loop {
            if let ToServer::Report(report) = self.next(link) {
                self.send(link, &ToAgent::Ack { serial: report.serial });
                return report;
            }
        }
    }

    pub fn await_started(&self, link: &mut PlayedLink) {
        let report = self.report(link);
        assert_eq!(report.event, ReportEvent::Started);
    }

    /// The attempt's end; what was reported before it does not matter.
    pub fn await_end(&self, link: &mut PlayedLink, attempt: AttemptId) -> AttemptEnd {
        loop {
            let report = self.report(link);
            match report.event {
                ReportEvent::Ended(end) if report.attempt == attempt => return end,
                ReportEvent::LaunchFailed { what } => panic!("launch failed: {what}"),
                _ => {}
            }
        }
    }

    /// Runs a script to its end and lets the node forget it.
    pub fn run(&mut self, link: &mut PlayedLink, job: u32, launch: JobLaunch) -> AttemptEnd {
        let attempt = attempt(job, 1);
        self.order(link, attempt, Action::Launch(Box::new(launch)));
        let end = self.await_end(link, attempt);
        self.order(link, attempt, Action::Forget);
        end
    }

    /// A batch job of the test's user, writing `out` in its home.
    pub fn batch(&self, script: &str) -> JobLaunch {
        let home = self.home().display().to_string();
        JobLaunch {
            kind: LaunchKind::Batch,
            user: UserIds { name: "tester".into(), uid: UID, gid: UID, groups: vec![UID] },
            share: NodeShare {
                node: NODE.into(),
                cpus: "0".parse().expect("a CPU list"),
                memory: Bytes::from_mib(64),
                gres: Vec::new(),
                tasks: 1,
            },
            node_index: 0,
            script: Some(script.to_owned()),
            arguments: Vec::new(),
            environment: vec!["PATH=/usr/bin:/bin".into(), "GREETING=hello".into()],
            process_variables: Vec::new(),
            work_dir: home,
            stdin: "/dev/null".into(),
            stdout: Output::File { pattern: "out".into(), append: false },
            stderr: Output::SameAsStdout,
            umask: 0o027,
            rlimits: Vec::new(),
            name: "test".into(),
            end_limit: None,
            kill_wait_s: 1,
            signal: None,
            names: FileNames { job_id: 12, user: "tester".into(), job_name: "test".into(), ..FileNames::default() },
            first_step: None,
            notices: Notices {
                time_limit: "*** CANCELLED AT {time} DUE TO TIME LIMIT ***".into(),
                out_of_memory: "Detected {count} oom-kill event(s) in StepId={step}.".into(),
                node_failure: String::new(),
                exec_failed: "slurmstepd: error: execve(): {what}: {error}".into(),
                work_dir_failed: String::new(),
            },
        }
    }

    pub fn output(&self, name: &str) -> String {
        std::fs::read_to_string(self.home().join(name)).expect("the job's output")
    }

    /// No control group of this cluster is left anywhere.
    pub fn assert_no_groups(&self) {
        let groups = groups_of(&self.state());
        assert!(groups.is_empty(), "left over: {groups:?}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill_agent();
        // Whatever a failed test left must not outlive it.
        for group in groups_of(&self.state()) {
            let _ = std::fs::write(group.join("cgroup.kill"), "1");
        }
        for root in roots_of(&self.state()) {
            for group in sub_groups(&root) {
                for step in sub_groups(&group) {
                    let _ = std::fs::remove_dir(step);
                }
                let _ = std::fs::remove_dir(group);
            }
            let _ = std::fs::remove_dir(root);
        }
    }
}

fn sub_groups(group: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// The roots of this cluster's groups, in every tree of the machine.
fn roots_of(state: &Path) -> Vec<PathBuf> {
    let state = std::fs::canonicalize(state).expect("the state folder");
    let digest = ring::digest::digest(&ring::digest::SHA256, state.as_os_str().as_encoded_bytes());
    let short: String = digest.as_ref().iter().take(4).map(|b| format!("{b:02x}")).collect();
    let name = format!("sluice-{short}-{NODE}");
    let trees = std::iter::once(PathBuf::from("/sys/fs/cgroup")).chain(sub_groups(Path::new("/sys/fs/cgroup")));
    trees.map(|tree| tree.join(&name)).filter(|root| root.is_dir()).collect()
}

fn groups_of(state: &Path) -> Vec<PathBuf> {
    roots_of(state).iter().flat_map(|root| sub_groups(root)).collect()
}

pub fn attempt(job: u32, number: u32) -> AttemptId {
    AttemptId { job: JobId(job), number }
}

/// Waits until `condition` holds. For what has no descriptor to wait for; bounded.
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::yield_now();
    }
}

impl PlayedServer {
    async fn start() -> (PlayedServer, JoinFile) {
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
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
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
        };
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        let server = PlayedServer {
            listener,
            acceptor: TlsAcceptor::from(Arc::new(config)),
            issuer,
            key: Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("the key"),
            serial: 0,
            policy: NodePolicy {
                limits: Policy::default(),
                cgroup_plugin: "autodetect".into(),
                gres_files: BTreeMap::new(),
            },
        };
        (server, join)
    }

    async fn accept(&mut self) -> PlayedLink {
        loop {
            let (tcp, _) = self.listener.accept().await.expect("a connection");
            tcp.set_nodelay(true).expect("small messages at once");
            let Ok(stream) = self.acceptor.accept(tcp).await else { continue };
            let known = stream.get_ref().1.peer_certificates().is_some();
            let hello = Hello { version: 0, program: String::new(), nodes: Vec::new() };
            let mut link =
                PlayedLink { stream, decoder: Decoder::default(), frames: VecDeque::new(), hello };
            match link.next().await {
                ToServer::Join(join) if !known => {
                    assert_eq!(join.token, TOKEN);
                    let request = CertificateSigningRequestParams::from_pem(&join.certificate_request);
                    let signed = request.expect("a request").signed_by(&self.issuer).expect("signed");
                    let joined = Joined {
                        certificate: signed.pem(),
                        order_key: STANDARD.encode(self.key.public_key()),
                        nodes: vec![NODE.into()],
                    };
                    link.send(&ToAgent::Joined(joined)).await;
                }
                ToServer::Hello(hello) if known => {
                    link.hello = hello;
                    let welcome = Welcome {
                        version: 1,
                        term: 1,
                        now: now(),
                        beat_interval_ms: 1_000,
                        policies: BTreeMap::from([(NODE.to_owned(), self.policy.clone())]),
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
            expires: now() + PATIENCE,
            action,
        };
        let body = serde_json::to_string(&order).expect("JSON");
        let signature = STANDARD.encode(self.key.sign(body.as_bytes()));
        SignedOrder { body, signature }
    }
}

impl PlayedLink {
    async fn send(&mut self, message: &ToAgent) {
        let mut bytes = Vec::new();
        frame::encode_message(CHANNEL_CONTROL, message, &mut bytes).expect("encoded");
        self.stream.write_all(&bytes).await.expect("the agent listens");
        self.stream.flush().await.expect("the agent listens");
    }

    /// The next message that is not a beat.
    async fn next(&mut self) -> ToServer {
        loop {
            let frame = self.next_frame().await;
            assert_eq!(frame.channel, CHANNEL_CONTROL);
            match frame::decode_message(&frame.payload).expect("a message") {
                ToServer::Beat { .. } => {}
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
                let (stream, data) = frame.payload.split_first_chunk::<4>().expect("a stream's number");
                assert_eq!(u32::from_le_bytes(*stream), wanted);
                bytes.extend_from_slice(data);
                self.send(&ToAgent::Credit { stream: wanted, bytes: data.len() as u32 }).await;
            } else if let Ok(ToServer::StreamEnd { stream, error }) = frame::decode_message(&frame.payload)
                && stream == wanted
            {
                return error.map_or(Ok(bytes), Err);
            }
        }
    }
}
