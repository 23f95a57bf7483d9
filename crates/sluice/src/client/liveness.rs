//! Whether a server that has not answered for a while is there at all. The kernel takes connections and requests for a process that is
//! frozen or hangs; one that lives answers another question at once, however long the first one takes it.

use super::connection::{Connection, Request};
use super::location::ServerLocation;
use super::response::Head;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A question that costs a server nothing.
const HEALTH_PATH: &str = "/healthz";

/// How long a server is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How long an answer is waited for before it is looked whether the server lives, and how long it may take to show that.
    pub look: Duration,
    /// How long one may show nothing where there is no other to ask: it may be about to start.
    pub silence_max: Duration,
}

impl Patience {
    /// How long commands wait.
    pub const LONG: Self =
        Self { look: Duration::from_secs(5), silence_max: Duration::from_secs(120) };
    /// How long a caller waits that only asks whether a server answers.
    pub const SHORT: Self =
        Self { look: Duration::from_secs(2), silence_max: Duration::from_secs(5) };
}

/// Looks after a server while its answer is waited for.
pub struct AnswerWatch<'a> {
    location: &'a ServerLocation,
    patience: Patience,
    /// Since when it has shown nothing.
    silent: Option<Instant>,
}

impl<'a> AnswerWatch<'a> {
    pub fn new(location: &'a ServerLocation, patience: Patience) -> Self {
        Self { location, patience, silent: None }
    }

    /// Sends the request and reads the head of the response, for as long as the server shows that it lives.
    pub fn send(
        mut self,
        connection: &mut Connection,
        request: &Request<'_>,
        token: Option<&str>,
    ) -> io::Result<Head> {
        connection.write_request(request, token)?;
        connection.set_read_timeout(self.patience.look)?;
        loop {
            match connection.read_head() {
                Ok(Some(head)) => return connection.clear_read_timeout().map(|()| head),
                Ok(None) => {}
                Err(error) if is_late(&error) => self.look(connection)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Nothing came for the interval from the server of this connection. An error: it is not waited for any more.
    fn look(&mut self, connection: &Connection) -> io::Result<()> {
        let begun = Instant::now();
        if is_alive(&connection.place(self.location), self.patience.look) {
            self.silent = None;
            return Ok(());
        }
        let silent = *self.silent.get_or_insert(begun);
        if self.location.has_others() || silent.elapsed() >= self.patience.silence_max {
            let why = "it takes connections and answers nobody: it hangs, or is frozen";
            return Err(io::Error::new(ErrorKind::TimedOut, why));
        }
        static IS_SAID: AtomicBool = AtomicBool::new(false);
        if self.patience == Patience::LONG && !IS_SAID.swap(true, Ordering::Relaxed) {
            let (place, max) = (self.location, self.patience.silence_max.as_secs());
            eprintln!(
                "sluice: note: the server at {place} takes connections and answers nobody: it starts, hangs, or is frozen; \
                 it is waited for, {max} seconds at most"
            );
        }
        Ok(())
    }
}

/// Whether a server answers anything in time. One that refuses or closes the connection does, or has ended: then the connection that
/// is waited on ends too.
fn is_alive(place: &ServerLocation, timeout: Duration) -> bool {
    let asked = Connection::open(place).and_then(|mut connection| {
        connection.set_read_timeout(timeout)?;
        connection.send(&Request::Get { path: HEALTH_PATH }, None)
    });
    !asked.is_err_and(|error| is_late(&error))
}

/// Whether a read has waited for as long as it may.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
