//! The HTTP client of every command: calls, streamed bodies and upgrades, over the server's Unix socket, TCP on loopback,
//! or TLS.
//!
//! It blocks: a command that lives two milliseconds does not start a runtime for it.

pub mod call_id;
mod chunked;
mod connection;
mod error;
mod host_port;
mod liveness;
mod location;
pub mod login_file;
mod response;
mod retry;
pub mod server_lock;
pub mod tls;
mod tls_tunnel;

pub use self::connection::UpgradedStream;
pub use self::error::ClientError;
pub use self::host_port::HostPort;
pub use self::liveness::Patience;
pub use self::location::{ServerLocation, default_state_dir};
pub use self::tls::HttpsServer;
pub use self::tls_tunnel::TlsTunnel;

use self::connection::{Connection, Request};
use self::liveness::{AnswerWatch, silence};
use self::response::{FORBIDDEN, Head, INTERNAL_ERROR, OK, SWITCHING_PROTOCOLS, UNAUTHORIZED};
use self::retry::retry;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::client::{Answer, CALL_PATH, Call, Envelope, Submission};

/// What a listing command gets: the lines ready made, or the data to make them from.
pub enum ListingReply {
    Lines(Vec<u8>),
    Answer(Box<Answer>),
}

/// What comes of asking for another protocol.
#[derive(Debug)]
pub enum UpgradeReply {
    Upgraded(UpgradedStream),
    Answer(Box<Answer>),
}

/// Asks the server in turn, over one connection that is kept between calls.
pub struct Client {
    location: ServerLocation,
    connection: Option<Connection>,
    patience: Patience,
}

impl Client {
    pub fn find() -> Result<Self, ClientError> {
        ServerLocation::find().map(Self::at)
    }

    pub fn at(location: ServerLocation) -> Self {
        Self { location, connection: None, patience: Patience::LONG }
    }

    /// Waits for so long from now on for a server that shows nothing.
    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    pub fn location(&self) -> &ServerLocation {
        &self.location
    }

    /// Asks, and waits for the answer.
    pub fn call(&mut self, call: Call) -> Result<Answer, ClientError> {
        let (head, body) = self.exchange(call)?;
        self.parse_answer(head, &body)
    }

    /// As `call`, for what may be answered with lines of text.
    pub fn call_for_lines(&mut self, call: Call) -> Result<ListingReply, ClientError> {
        let (head, body) = self.exchange(call)?;
        if head.status == OK && !head.is_json {
            return Ok(ListingReply::Lines(body));
        }
        self.parse_answer(head, &body).map(Box::new).map(ListingReply::Answer)
    }

    /// As `call`, for questions that may be asked twice: a server that restarts is waited for.
    pub fn call_again(&mut self, call: Call) -> Result<Answer, ClientError> {
        let unreachable = |error: &ClientError| matches!(error, ClientError::Unreachable { .. });
        retry(unreachable, || self.call(call.clone()))
    }

    /// Submits. An answer that is lost, as when another server takes over, is asked for again under the same id for a while: the
    /// job is made once, whichever comes first.
    pub fn submit(&mut self, mut submission: Box<Submission>) -> Result<Answer, ClientError> {
        if !call_id::is_own_of_one_submit() {
            return self.call(Call::Submit(submission));
        }
        submission.is_only_of_call = true;
        match self.call(Call::Submit(submission.clone())) {
            Err(ClientError::Unreachable { was_asked: true, .. }) => {}
            answered => return answered,
        }
        self.call_again(Call::Resubmit(submission))
    }

    /// Asks for a stream of bytes and hands each piece to `take` until it ends or `take` says stop. The answer, if the
    /// server gives one instead of a stream.
    pub fn stream(
        &self,
        path: &str,
        take: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<Answer>, ClientError> {
        let lost = |error| self.lost(error);
        let mut connection = self.open().map_err(lost)?;
        let request = Request::Get { path };
        let mut watch = AnswerWatch::new(&self.location, self.patience);
        let head = watch.send(&mut connection, &request, self.location.token()).map_err(lost)?;
        if head.is_json || head.status != OK {
            let body = watch.read_body(&mut connection, &head).map_err(lost)?;
            return self.parse_answer(head, &body).map(Some);
        }
        // What is followed may say nothing for as long as it likes.
        connection.clear_read_timeout().map_err(lost)?;
        connection.stream_body(&head, &mut |_| Err(silence()), take).map_err(lost)?;
        Ok(None)
    }

    /// Asks for another protocol on a connection of its own. A server that is not there is not waited for: whoever wants
    /// a stream asks again.
    pub fn upgrade(
        &self,
        path: &str,
        protocol: &str,
        timeout: Duration,
    ) -> Result<UpgradeReply, ClientError> {
        let lost = |error| self.lost(error);
        let mut connection = Connection::open(&self.location, timeout).map_err(lost)?;
        connection.set_read_timeout(timeout).map_err(lost)?;
        let request = Request::Upgrade { path, protocol };
        let give_up = &mut |_: &Connection| Err(silence());
        let head = connection.send(&request, self.location.token(), give_up).map_err(lost)?;
        if head.status == SWITCHING_PROTOCOLS {
            return connection.into_upgraded().map(UpgradeReply::Upgraded).map_err(lost);
        }
        let body = connection.read_body(&head, give_up).map_err(lost)?;
        self.parse_answer(head, &body).map(Box::new).map(UpgradeReply::Answer)
    }

    fn open(&self) -> io::Result<Connection> {
        Connection::open_with_retry(&self.location, self.patience.silence_max)
    }

    fn exchange(&mut self, call: Call) -> Result<(Head, Vec<u8>), ClientError> {
        let envelope = Envelope { id: Some(call_id::own().clone()), ..Envelope::new(call) };
        let body =
            serde_json::to_vec(&envelope).map_err(|e| ClientError::Protocol(e.to_string()))?;
        let mut connection = match self.connection.take().filter(Connection::is_idle) {
            Some(connection) => connection,
            None => self.open().map_err(|e| self.lost(e))?,
        };
        let request = Request::Post { path: CALL_PATH, body: &body };
        let mut watch = AnswerWatch::new(&self.location, self.patience);
        let sent = watch.send(&mut connection, &request, self.location.token());
        let replied = sent.and_then(|head| {
            let body = watch.read_body(&mut connection, &head)?;
            Ok((head, body))
        });
        let (head, body) = replied.map_err(|e| self.lost_answer(e))?;
        if head.status == OK {
            self.connection = Some(connection);
        }
        note_standby(&head);
        Ok((head, body))
    }

    fn parse_answer(&self, head: Head, body: &[u8]) -> Result<Answer, ClientError> {
        let place = &self.location;
        if head.is_without_leader() {
            let why = String::from_utf8_lossy(body).trim().to_owned();
            let place = place.to_string();
            return Err(ClientError::Unreachable { place, why, was_asked: true });
        }
        if head.status != OK {
            let text = String::from_utf8_lossy(body);
            let mut text = format!("{place}: {}: {}", head.status, text.trim());
            if head.status == INTERNAL_ERROR {
                text += &format!(" (call={})", call_id::own());
            }
            if head.status == UNAUTHORIZED {
                text +=
                    " (SLUICE_TOKEN or `sluice login` gives one; `sluice token user` makes one)";
            }
            let error = match head.status {
                FORBIDDEN => ClientError::Forbidden(text),
                _ => ClientError::Protocol(text),
            };
            return Err(error);
        }
        serde_json::from_slice(body)
            .map_err(|e| ClientError::Protocol(format!("{place}: the answer cannot be read: {e}")))
    }

    fn lost(&self, error: io::Error) -> ClientError {
        if error.kind() == io::ErrorKind::PermissionDenied && self.location.is_remote() {
            return ClientError::Protocol(format!("{}: {error}", self.location));
        }
        let (place, why) = (self.location.to_string(), error.to_string());
        ClientError::Unreachable { place, why, was_asked: false }
    }

    /// The same after the request was sent.
    fn lost_answer(&self, error: io::Error) -> ClientError {
        match self.lost(error) {
            ClientError::Unreachable { place, why, .. } => {
                ClientError::Unreachable { place, why, was_asked: true }
            }
            other => other,
        }
    }
}

/// A state that is older than this is said to be.
const STANDBY_LAG_SHOWN_MS: u64 = 2000;

/// Says once that a standby has answered from an old state: it does not hear from its database.
fn note_standby(head: &Head) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if let Some(lag) = head.standby_lag_ms.filter(|lag| *lag >= STANDBY_LAG_SHOWN_MS)
        && head.status == OK
        && !IS_SAID.swap(true, Ordering::Relaxed)
    {
        let seconds = lag / 1000;
        eprintln!("sluice: note: a standby answers, with the state of {seconds} seconds ago");
    }
}

#[cfg(test)]
mod tests;
