//! The SSH client of the installer: a login on a host, directly or through another, and commands there.
//!
//! A host's key is pinned when it is first seen: another one later ends the connection before anything is said.

use model::metadata_address::is_no_host;
use model::printable::printable;
use model::ssh_fleet::SshLogin;
use russh::client::{self, Handle};
use russh::keys::ssh_key::HashAlg;
use russh::keys::{PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{ChannelMsg, Disconnect, cipher};
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// For the way to a host as a whole, through another too.
const WAY_TIMEOUT: Duration = Duration::from_secs(90);

/// How many addresses of a name are tried.
const ADDRESSES_MAX: usize = 4;

/// A host that says nothing for so long is asked whether it is there, a few times.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// How much of what a command says is kept.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// One line that says what went wrong.
pub type Failure = String;

/// Why nobody was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginFailure {
    pub why: Failure,
    /// The host answered and refuses the key, or is not the one whose key is pinned: trying again does not change that.
    pub is_refusal: bool,
}

impl LoginFailure {
    fn refusal(why: Failure) -> Self {
        Self { why, is_refusal: true }
    }
}

impl From<Failure> for LoginFailure {
    fn from(why: Failure) -> Self {
        Self { why, is_refusal: false }
    }
}

impl From<LoginFailure> for Failure {
    fn from(failure: LoginFailure) -> Self {
        failure.why
    }
}

/// The keys that hosts showed on the way.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SeenKeys {
    pub host: Option<String>,
    pub jump: Option<String>,
}

/// A login with its private key.
pub struct Login<'a> {
    pub login: &'a SshLogin,
    pub key: PrivateKey,
}

/// A connection with a user who is let in.
pub struct SshClient {
    handle: Handle<KeyCheck>,
    /// The connection that this one goes through lives as long.
    _jump: Option<Box<SshClient>>,
}

/// What a command said, and how it ended; no code: it was killed, or the connection broke.
pub struct Said {
    pub code: Option<u32>,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// The output of a command that went well, else the last line of what it said.
    pub fn ok(self, what: &str) -> Result<String, Failure> {
        if self.code == Some(0) {
            return Ok(self.stdout);
        }
        let mut lines = self.stdout.lines().chain(self.stderr.lines()).map(str::trim);
        let line = lines.rfind(|line| !line.is_empty()).map(|line| printable(line).into_owned());
        let silent = match self.code {
            Some(_) => "it failed without a word",
            None => "the connection broke",
        };
        Err(format!("{what}: {}", line.unwrap_or_else(|| silent.into())))
    }
}

/// Compares the host's key with the one that is pinned, and keeps what it saw.
struct KeyCheck {
    pinned: Option<String>,
    seen: Arc<Mutex<Option<PublicKey>>>,
}

impl client::Handler for KeyCheck {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        shown: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        // Certificates are not asked for.
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else { return Ok(false) };
        let is_it = self.pinned.as_ref().is_none_or(|pinned| *pinned == text_of(key));
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(key.clone());
        Ok(is_it)
    }
}

/// A public key without its comment.
fn text_of(key: &PublicKey) -> String {
    PublicKey::from(key.key_data().clone()).to_openssh().unwrap_or_default()
}

fn fingerprint(key: &PublicKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

fn config(pinned: Option<&str>) -> Arc<client::Config> {
    let mut config = client::Config {
        keepalive_interval: Some(KEEPALIVE),
        nodelay: true,
        ..client::Config::default()
    };
    config.preferred.cipher =
        Cow::Borrowed(&[cipher::AES_256_GCM, cipher::CHACHA20_POLY1305, cipher::AES_256_CTR]);
    // A host has keys of several kinds: the pinned one is asked for.
    let pinned = pinned.and_then(|text| PublicKey::from_openssh(text).ok());
    if let Some(pinned) = pinned {
        let kind = pinned.algorithm();
        let mut kinds = config.preferred.key.to_vec();
        kinds.sort_by_key(|other| other.as_str() != kind.as_str());
        config.preferred.key = Cow::Owned(kinds);
    }
    Arc::new(config)
}

impl SshClient {
    /// Logs in on a host, through another if there is one before it. The keys that were seen come back also when it fails.
    pub async fn connect(
        host: &Login<'_>,
        jump: Option<&Login<'_>>,
        seen: &mut SeenKeys,
    ) -> Result<Self, LoginFailure> {
        let way = tokio::time::timeout(WAY_TIMEOUT, Self::dial_and_log_in(host, jump, seen)).await;
        way.map_err(|_| format!("{} is not reached in time", host.login.shown()))?
    }

    async fn dial_and_log_in(
        host: &Login<'_>,
        jump: Option<&Login<'_>>,
        seen: &mut SeenKeys,
    ) -> Result<Self, LoginFailure> {
        let Some(jump) = jump else {
            let stream = dial(host.login).await?;
            return Self::log_in(host, stream, None, &mut seen.host).await;
        };
        let stream = dial(jump.login).await?;
        let first = Self::log_in(jump, stream, None, &mut seen.jump).await?;
        let (name, port) = (host.login.hostname.clone(), u32::from(host.login.port));
        let opening = first.handle.channel_open_direct_tcpip(name, port, "127.0.0.1", 0);
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, opening).await;
        let (way, shown) = (&jump.login.hostname, host.login.shown());
        let channel = opened
            .map_err(|_| format!("{shown} does not answer through {way}"))?
            .map_err(|error| format!("{shown} is not reached through {way}: {error}"))?;
        let stream = channel.into_stream();
        Self::log_in(host, stream, Some(Box::new(first)), &mut seen.host).await
    }

    async fn log_in(
        login: &Login<'_>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        jump: Option<Box<SshClient>>,
        seen: &mut Option<String>,
    ) -> Result<Self, LoginFailure> {
        let shown = login.login.shown();
        let found = Arc::new(Mutex::new(None));
        let pinned = login.login.host_key.clone();
        let check = KeyCheck { pinned: pinned.clone(), seen: found.clone() };
        let greeting = async {
            let mut handle =
                client::connect_stream(config(pinned.as_deref()), stream, check).await?;
            let hash = handle.best_supported_rsa_hash().await?.flatten();
            let key = PrivateKeyWithHashAlg::new(Arc::new(login.key.clone()), hash);
            let let_in = handle.authenticate_publickey(&login.login.user, key).await?;
            Ok::<_, russh::Error>((handle, let_in.success()))
        };
        let greeted = tokio::time::timeout(LOGIN_TIMEOUT, greeting).await;
        let shows = found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(key) = &shows {
            let text = text_of(key);
            if let Some(pinned) = pinned.filter(|pinned| *pinned != text) {
                let before = PublicKey::from_openssh(&pinned).map(|key| fingerprint(&key));
                return Err(LoginFailure::refusal(format!(
                    "the host key of {} changed: it was {}, and is {} now",
                    login.login.hostname,
                    before.unwrap_or_default(),
                    fingerprint(key)
                )));
            }
            *seen = Some(text);
        }
        match greeted {
            Err(_) => Err(format!("{shown} does not let in: no answer in time").into()),
            Ok(Err(error)) => Err(format!("{shown}: {}", printable(&error.to_string())).into()),
            Ok(Ok((_, false))) => {
                let key = fingerprint(login.key.public_key());
                Err(LoginFailure::refusal(format!("{shown} refuses the key {key}")))
            }
            Ok(Ok((handle, true))) => Ok(Self { handle, _jump: jump }),
        }
    }

    /// Runs a command with this input.
    pub async fn run(
        &self,
        command: &str,
        input: &[u8],
        timeout: Duration,
    ) -> Result<Said, Failure> {
        let mut left = Some(input.to_vec());
        self.feed(command, || Ok(left.take().unwrap_or_default()), timeout).await
    }

    /// Runs a command and gives it what `next` says, until that is nothing.
    pub async fn feed(
        &self,
        command: &str,
        mut next: impl FnMut() -> std::io::Result<Vec<u8>>,
        timeout: Duration,
    ) -> Result<Said, Failure> {
        let broken = |error: russh::Error| format!("the connection broke: {error}");
        let talk = async {
            let channel = self.handle.channel_open_session().await.map_err(broken)?;
            channel.exec(true, command).await.map_err(broken)?;
            let (mut reader, writer) = channel.split();
            // An error is one of reading here.
            let writing = async {
                loop {
                    let chunk = next()?;
                    let is_last = chunk.is_empty();
                    let sent =
                        if is_last { writer.eof().await } else { writer.data_bytes(chunk).await };
                    // A command that ends early takes no more: what it said is what counts.
                    if is_last || sent.is_err() {
                        return Ok::<(), std::io::Error>(());
                    }
                }
            };
            tokio::pin!(writing);
            let mut said = Said { code: None, stdout: String::new(), stderr: String::new() };
            let mut is_written = false;
            loop {
                tokio::select! {
                    written = &mut writing, if !is_written => {
                        written.map_err(|error| format!("what is to be sent cannot be read: {error}"))?;
                        is_written = true;
                    }
                    message = reader.wait() => match message {
                        Some(ChannelMsg::Data { data }) => keep(&mut said.stdout, &data),
                        Some(ChannelMsg::ExtendedData { data, .. }) => keep(&mut said.stderr, &data),
                        Some(ChannelMsg::ExitStatus { exit_status }) => said.code = Some(exit_status),
                        Some(ChannelMsg::ExitSignal { .. }) => keep(&mut said.stderr, b"\nkilled\n"),
                        Some(ChannelMsg::Close) | None => return Ok(said),
                        Some(_) => {}
                    },
                }
            }
        };
        let ended = tokio::time::timeout(timeout, talk).await;
        ended.map_err(|_| format!("no end after {} s", timeout.as_secs()))?
    }

    pub async fn close(self) {
        let _ = self.handle.disconnect(Disconnect::ByApplication, "", "").await;
    }
}

fn keep(text: &mut String, data: &[u8]) {
    let room = OUTPUT_BYTES_MAX.saturating_sub(text.len());
    text.push_str(&String::from_utf8_lossy(&data[..data.len().min(room)]));
}

/// Connects to the first address of the host that answers.
async fn dial(login: &SshLogin) -> Result<TcpStream, Failure> {
    let SshLogin { hostname, port, .. } = login;
    let lookup = tokio::net::lookup_host((hostname.as_str(), *port));
    let found = tokio::time::timeout(CONNECT_TIMEOUT, lookup).await;
    let found = found.map_err(|_| format!("{hostname}: its address is not found in time"))?;
    let found: Vec<SocketAddr> =
        found.map_err(|error| format!("{hostname}: its address is not found: {error}"))?.collect();
    let mut last = format!("{hostname} has no address");
    for address in found.into_iter().take(ADDRESSES_MAX) {
        if let Some(why) = forbidden(address.ip()) {
            last = format!("{hostname}: {}: {why}", address.ip());
            continue;
        }
        match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = format!("{hostname}:{port} is not reached: {error}"),
            Err(_) => last = format!("{hostname}:{port} is not reached: no answer"),
        }
    }
    Err(last)
}

/// Addresses behind which there is no host of a fleet: the server would be made to talk to itself, or to a cloud's own
/// services.
fn forbidden(address: IpAddr) -> Option<&'static str> {
    if address.to_canonical().is_loopback() {
        return Some("is this machine itself: its node is made by slurm.conf or `sluice up`");
    }
    is_no_host(address).then_some("is no address of a host")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::secret::Sealed;
    use russh::keys::ssh_key::private::Ed25519Keypair;
    use russh::server::{self, Auth, ChannelOpenHandle, Msg, Session, VerifiedPublicKey};
    use russh::{Channel, ChannelId};

    #[test]
    fn addresses_of_no_host_are_forbidden() {
        let is_forbidden = |text: &str| forbidden(text.parse().expect("an address")).is_some();
        let bad = [
            "127.0.0.1",
            "127.8.8.8",
            "::1",
            "::ffff:127.0.0.1",
            "169.254.169.254",
            "fe80::1",
            "fd00:ec2::254",
            "168.63.129.16",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
        ];
        for text in bad {
            assert!(is_forbidden(text), "{text}");
        }
        for text in ["10.0.0.1", "192.168.1.7", "2001:db8::1", "fd00::1"] {
            assert!(!is_forbidden(text), "{text}");
        }
    }

    /// A host that takes every command and never ends one, if it lets anybody in.
    struct SilentHost {
        lets_in: bool,
    }

    impl server::Handler for SilentHost {
        type Error = russh::Error;

        async fn auth_publickey(
            &mut self,
            _user: &str,
            _key: VerifiedPublicKey<'_>,
        ) -> Result<Auth, Self::Error> {
            Ok(if self.lets_in { Auth::Accept } else { Auth::reject() })
        }

        async fn channel_open_session(
            &mut self,
            _channel: Channel<Msg>,
            reply: ChannelOpenHandle,
            _session: &mut Session,
        ) -> Result<(), Self::Error> {
            reply.accept().await;
            Ok(())
        }

        async fn exec_request(
            &mut self,
            channel: ChannelId,
            _command: &[u8],
            session: &mut Session,
        ) -> Result<(), Self::Error> {
            session.channel_success(channel)
        }
    }

    fn key(seed: u8) -> PrivateKey {
        PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32]))
    }

    /// A login on a host with the key of seed 7.
    async fn log_in(lets_in: bool, host_key: Option<String>) -> Result<SshClient, LoginFailure> {
        let config = server::Config {
            keys: vec![key(7)],
            auth_rejection_time: Duration::ZERO,
            ..server::Config::default()
        };
        let (near, far) = tokio::io::duplex(64 << 10);
        tokio::spawn(async move {
            let host = SilentHost { lets_in };
            if let Ok(session) = server::run_stream(Arc::new(config), far, host).await {
                let _ = session.await;
            }
        });
        log_in_over(near, host_key).await
    }

    async fn log_in_over(
        stream: tokio::io::DuplexStream,
        host_key: Option<String>,
    ) -> Result<SshClient, LoginFailure> {
        let login = SshLogin {
            hostname: "host".into(),
            port: 22,
            user: "root".into(),
            key: Sealed(String::new()),
            host_key,
        };
        let login = Login { login: &login, key: key(9) };
        SshClient::log_in(&login, stream, None, &mut None).await
    }

    #[tokio::test]
    async fn refused_key_and_changed_host_key_are_refusals_and_a_broken_connection_is_none() {
        let pinned = |seed| Some(text_of(key(seed).public_key()));
        assert!(log_in(true, pinned(7)).await.is_ok());
        let failure = log_in(false, pinned(7)).await.err().expect("it lets nobody in");
        assert!(failure.why.starts_with("root@host:22 refuses the key SHA256:"), "{failure:?}");
        assert!(failure.is_refusal);
        let failure = log_in(true, pinned(8)).await.err().expect("it is another host");
        assert!(failure.why.starts_with("the host key of host changed: "), "{failure:?}");
        assert!(failure.is_refusal);
        let (near, far) = tokio::io::duplex(64 << 10);
        drop(far);
        let failure = log_in_over(near, None).await.err().expect("nobody is there");
        assert!(!failure.is_refusal, "{failure:?}");
    }

    #[tokio::test]
    async fn input_that_cannot_be_read_fails_at_once() {
        let client = log_in(true, None).await.expect("it lets in");
        let next = || Err(std::io::Error::other("bad disk"));
        // It would wait for the command for an hour.
        let failed = client.feed("cat", next, Duration::from_secs(3600)).await;
        assert_eq!(failed.err().as_deref(), Some("what is to be sent cannot be read: bad disk"));
    }

    #[test]
    fn failure_is_the_last_line_that_was_said() {
        let said = |code, stderr: &str| Said {
            code: Some(code),
            stdout: "first\n".into(),
            stderr: stderr.into(),
        };
        assert_eq!(said(0, "a warning").ok("upload"), Ok("first\n".into()));
        let failed = said(1, "cat: write error: No space left on device\n").ok("upload");
        assert_eq!(failed, Err("upload: cat: write error: No space left on device".into()));
        assert_eq!(said(1, "").ok("upload"), Err("upload: first".into()));
    }
}
