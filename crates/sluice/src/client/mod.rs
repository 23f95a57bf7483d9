//! Finding the server and asking it: over the local socket, or over HTTP with a token.

mod plain;

use self::plain::{Plain, Reply};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use wire::client::{Answer, Call, Envelope};

/// A server that is restarting is waited for this long before the command gives up.
const RETRY_FOR: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no server answers at {place}: {why}")]
    Unreachable { place: String, why: String },
    #[error("{0}")]
    Protocol(String),
}

/// Where the server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Socket(PathBuf),
    Http { address: String, token: String },
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Http { address, .. } => write!(f, "http://{address}"),
        }
    }
}

/// The default state folder: the machine's for root, the user's own otherwise.
pub fn default_state_dir() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return PathBuf::from("/var/lib/sluice");
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_else(|| PathBuf::from("/"));
    home.join(".local/state/sluice")
}

impl Place {
    /// By `SLUICE_SERVER` (with `SLUICE_TOKEN`), then `SLUICE_STATE`, then the default folders.
    pub fn find() -> Result<Self, ClientError> {
        if let Ok(server) = std::env::var("SLUICE_SERVER") {
            let token = std::env::var("SLUICE_TOKEN").unwrap_or_default();
            return Self::with_token(&server, token);
        }
        if let Some(state) = std::env::var_os("SLUICE_STATE") {
            return Ok(Self::in_state(Path::new(&state)));
        }
        let own = default_state_dir();
        let machine = Path::new("/var/lib/sluice");
        let chosen = if own.join("sluice.sock").exists() { own.as_path() } else { machine };
        Ok(Self::in_state(chosen))
    }

    pub fn in_state(state: &Path) -> Self {
        Self::Socket(state.join("sluice.sock"))
    }

    /// A server named on the command line; the token comes from `SLUICE_TOKEN`.
    pub fn from_server(server: &str) -> Result<Self, ClientError> {
        Self::with_token(server, std::env::var("SLUICE_TOKEN").unwrap_or_default())
    }

    fn with_token(server: &str, token: String) -> Result<Self, ClientError> {
        if let Some(path) = server.strip_prefix("unix:") {
            return Ok(Self::Socket(path.into()));
        }
        if server.starts_with('/') {
            return Ok(Self::Socket(server.into()));
        }
        let rest = server.strip_prefix("http://").unwrap_or(server);
        if rest.starts_with("https:") {
            let why =
                format!("SLUICE_SERVER={server}: https is not spoken yet; use http:// on loopback");
            return Err(ClientError::Protocol(why));
        }
        Ok(Self::Http { address: rest.trim_end_matches('/').to_string(), token })
    }
}

/// What came back where lines were wanted.
pub enum Told {
    Lines(Vec<u8>),
    Answer(Box<Answer>),
}

/// One connection to the server; asks in turn.
pub struct Client {
    place: Place,
    connection: Option<Plain>,
}

impl Client {
    pub fn find() -> Result<Self, ClientError> {
        Self::at(Place::find()?)
    }

    pub fn at(place: Place) -> Result<Self, ClientError> {
        Ok(Self { place, connection: None })
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Asks, and waits for the answer.
    pub fn call(&mut self, call: Call) -> Result<Answer, ClientError> {
        let reply = self.exchange(call)?;
        answer_of(&self.place, reply.status, &reply.body)
    }

    /// As `call`, for what may be answered with lines of text.
    pub fn call_for_lines(&mut self, call: Call) -> Result<Told, ClientError> {
        let reply = self.exchange(call)?;
        if reply.status == StatusCode::OK.as_u16() && !reply.json {
            return Ok(Told::Lines(reply.body));
        }
        let answer = answer_of(&self.place, reply.status, &reply.body)?;
        Ok(Told::Answer(Box::new(answer)))
    }

    fn exchange(&mut self, call: Call) -> Result<Reply, ClientError> {
        let envelope = Envelope { version: wire::version::PROTOCOL, call };
        let body =
            serde_json::to_vec(&envelope).map_err(|e| ClientError::Protocol(e.to_string()))?;
        let place = &self.place;
        let kept = self.connection.take().filter(Plain::is_open);
        let mut connection = match kept {
            Some(connection) => connection,
            None => Plain::connect(place).map_err(|e| lost(place, e))?,
        };
        let token = match place {
            Place::Http { token, .. } => Some(token.as_str()),
            Place::Socket(_) => None,
        };
        let reply = connection.post("/api/v1/call", token, &body).map_err(|e| lost(place, e))?;
        if reply.status == StatusCode::OK.as_u16() {
            self.connection = Some(connection);
        }
        Ok(reply)
    }

    /// As `call`, for questions that may be asked twice: a server that restarts is waited for.
    pub fn call_again(&mut self, call: Call) -> Result<Answer, ClientError> {
        let deadline = std::time::Instant::now() + RETRY_FOR;
        loop {
            match self.call(call.clone()) {
                Err(ClientError::Unreachable { .. }) if std::time::Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                answered => return answered,
            }
        }
    }

    /// Asks for a stream of bytes and hands each piece to `take` until it ends or `take` says stop.
    pub fn stream(
        &mut self,
        path: &str,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<Answer>, ClientError> {
        let place = self.place.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|e| ClientError::Protocol(e.to_string()))?.block_on(async {
            let mut sender = connect_patiently(&place).await?;
            let request = request(&place, "GET", path, Vec::new())?;
            let response = sender.send_request(request).await.map_err(|e| lost(&place, e))?;
            if is_json(&response) || response.status() != StatusCode::OK {
                return read_answer(&place, response).await.map(Some);
            }
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|e| lost(&place, e))?;
                if let Ok(data) = frame.into_data()
                    && !take(&data)
                {
                    break;
                }
            }
            Ok(None)
        })
    }
}

fn is_json(response: &Response<Incoming>) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_some_and(|v| v == "application/json")
}

fn lost(place: &Place, error: impl std::fmt::Display) -> ClientError {
    ClientError::Unreachable { place: place.to_string(), why: error.to_string() }
}

fn request(
    place: &Place,
    method: &str,
    path: &str,
    body: Vec<u8>,
) -> Result<Request<Full<Bytes>>, ClientError> {
    let mut builder = Request::builder().method(method).uri(path).header(header::HOST, "sluice");
    if let Place::Http { token, .. } = place {
        builder = builder.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    builder.body(Full::new(body.into())).map_err(|e| ClientError::Protocol(e.to_string()))
}

async fn read_answer(place: &Place, response: Response<Incoming>) -> Result<Answer, ClientError> {
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.map_err(|e| lost(place, e))?.to_bytes();
    answer_of(place, status, &bytes)
}

fn answer_of(place: &Place, status: u16, body: &[u8]) -> Result<Answer, ClientError> {
    if status != StatusCode::OK.as_u16() {
        let text = String::from_utf8_lossy(body);
        return Err(ClientError::Protocol(format!("{place}: {status}: {}", text.trim())));
    }
    serde_json::from_slice(body)
        .map_err(|e| ClientError::Protocol(format!("{place}: the answer cannot be read: {e}")))
}

/// A socket that refuses is a server that restarts: tried again for a while. One that was never
/// there is not.
async fn connect_patiently(place: &Place) -> Result<SendRequest<Full<Bytes>>, ClientError> {
    let deadline = tokio::time::Instant::now() + RETRY_FOR;
    loop {
        match connect(place).await {
            Ok(sender) => return Ok(sender),
            Err(error) => {
                let restarting = error.kind() == std::io::ErrorKind::ConnectionRefused;
                if !restarting || tokio::time::Instant::now() >= deadline {
                    return Err(lost(place, error));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connect(place: &Place) -> std::io::Result<SendRequest<Full<Bytes>>> {
    match place {
        Place::Socket(path) => shake(UnixStream::connect(path).await?).await,
        Place::Http { address, .. } => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            shake(stream).await
        }
    }
}

async fn shake<S>(stream: S) -> std::io::Result<SendRequest<Full<Bytes>>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}
