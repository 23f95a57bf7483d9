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

/// What is left of a look for the answer, where the connection took all of it.
const LOOK_LEAST: Duration = Duration::from_millis(10);

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

/// Looks after a server while its answer is waited for, and while that comes.
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
        &mut self,
        connection: &mut Connection,
        request: &Request<'_>,
        token: Option<&str>,
    ) -> io::Result<Head> {
        connection.set_read_timeout(self.patience.look)?;
        connection.send(request, token, &mut |connection| self.look(connection))
    }

    /// The body of the response that was begun so.
    pub fn read_body(&mut self, connection: &mut Connection, head: &Head) -> io::Result<Vec<u8>> {
        connection.read_body(head, &mut |connection| self.look(connection))
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

/// Whether a server answers anything in time.
fn is_alive(place: &ServerLocation, timeout: Duration) -> bool {
    let begun = Instant::now();
    let asked = Connection::open(place, timeout).and_then(|mut connection| {
        let left = timeout.saturating_sub(begun.elapsed()).max(LOOK_LEAST);
        connection.set_read_timeout(left)?;
        connection.send(&Request::Get { path: HEALTH_PATH }, None, &mut |_| Err(silence()))
    });
    shows_life(&asked)
}

/// A refusal is of a server that has ended: then the connection that is waited on ends too. A machine that cannot be reached, and one that
/// hangs up, are no sign of a server that will answer.
fn shows_life(asked: &io::Result<Head>) -> bool {
    match asked {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionRefused,
    }
}

/// Nothing came for as long as it was waited for.
pub fn silence() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "it takes the connection and does not answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_lives_that_answers_or_refuses_and_one_that_cannot_be_reached_does_not() {
        let answer =
            super::super::response::parse_head(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n");
        let (head, _) = answer.expect("a head").expect("whole");
        assert!(shows_life(&Ok(head)));
        for (kind, lives) in [
            (ErrorKind::ConnectionRefused, true),
            (ErrorKind::HostUnreachable, false),
            (ErrorKind::NetworkUnreachable, false),
            (ErrorKind::TimedOut, false),
            (ErrorKind::WouldBlock, false),
            (ErrorKind::UnexpectedEof, false),
        ] {
            assert_eq!(shows_life(&Err(kind.into())), lives, "{kind}");
        }
    }
}
