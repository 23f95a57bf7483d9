//! Asks the agent over its socket, within a timeout.

use crate::namespaces::receive;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::fmt;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use wire::login::{LINE_BYTES_MAX, LoginAnswer, LoginRequest, SOCKET};

/// How long the agent may take to answer. Longer than the agent's own timeout of a login.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub enum LoginError {
    Io(io::Error),
    /// The process that listens there is not root, and so not the agent.
    NotRoot(u32),
    Answer(String),
}

impl fmt::Display for LoginError {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            LoginError::Io(error) => write!(out, "the agent does not answer: {error}"),
            LoginError::NotRoot(uid) => {
                write!(out, "user {uid} listens where the agent should: it is not believed")
            }
            LoginError::Answer(line) => {
                write!(out, "the agent's answer is not understood: {line:?}")
            }
        }
    }
}

impl From<io::Error> for LoginError {
    fn from(error: io::Error) -> LoginError {
        LoginError::Io(error)
    }
}

/// The agent's answer, and the namespaces that came with it.
pub type LoginReply = (LoginAnswer, Vec<OwnedFd>);

pub fn ask(state: &Path, ask: LoginRequest) -> Result<LoginReply, LoginError> {
    ask_agent_of(state, ask, 0)
}

/// As [`ask`], for an agent that runs as this user.
fn ask_agent_of(state: &Path, ask: LoginRequest, agent_uid: u32) -> Result<LoginReply, LoginError> {
    let mut stream = UnixStream::connect(state.join(SOCKET))?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
    let uid = getsockopt(&stream, PeerCredentials).map_err(io::Error::from)?.uid();
    if uid != agent_uid {
        return Err(LoginError::NotRoot(uid));
    }
    stream.write_all(format!("{ask}\n").as_bytes())?;
    let (line, namespaces) = read_line(&stream)?;
    let answer = line.parse().map_err(|_| LoginError::Answer(line))?;
    Ok((answer, namespaces))
}

/// Reads one line. A line without its end may be incomplete and is an error.
fn read_line(stream: &UnixStream) -> Result<(String, Vec<OwnedFd>), LoginError> {
    let mut bytes = Vec::new();
    let mut namespaces = Vec::new();
    let mut buffer = [0; LINE_BYTES_MAX];
    while !bytes.contains(&b'\n') {
        match receive(stream, &mut buffer, &mut namespaces) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(length) => bytes.extend(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        if bytes.len() > LINE_BYTES_MAX {
            return Err(LoginError::Answer("too long".into()));
        }
    }
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    Ok((String::from_utf8_lossy(&bytes[..end]).into_owned(), namespaces))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixListener;
    use tempfile::TempDir;
    use wire::login::LoginAction;

    const LOOK: LoginRequest = LoginRequest { action: LoginAction::Count, uid: 1000 };

    fn own_uid() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    /// A state folder whose agent answers every question with these bytes.
    fn agent(answer: &'static [u8]) -> TempDir {
        let state = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(state.path().join("agent")).expect("a folder");
        let listener = UnixListener::bind(state.path().join(SOCKET)).expect("a socket");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a caller");
                let mut line = [0; 64];
                let _ = stream.read(&mut line);
                let _ = stream.write_all(answer);
            }
        });
        state
    }

    #[test]
    fn answer_must_be_one_complete_line() {
        let state = agent(b"jobs 2\n");
        let (answer, namespaces) = ask_agent_of(state.path(), LOOK, own_uid()).expect("an answer");
        assert_eq!((answer, namespaces.len()), (LoginAnswer::Jobs(2), 0));
        for (name, answer) in
            [("cut", &b"jobs 2"[..]), ("odd", b"yes\n"), ("long", &[b'x'; 4096]), ("empty", b"")]
        {
            let state = agent(answer);
            assert!(ask_agent_of(state.path(), LOOK, own_uid()).is_err(), "{name}");
        }
    }

    #[test]
    fn listener_that_is_not_root_is_refused() {
        let state = agent(b"entered 1\n");
        let refused = ask_agent_of(state.path(), LOOK, own_uid() + 1).expect_err("not the agent");
        assert!(matches!(refused, LoginError::NotRoot(uid) if uid == own_uid()), "{refused}");
    }

    #[test]
    fn missing_socket_is_an_error() {
        assert!(ask(Path::new("/nonexistent"), LOOK).is_err());
    }
}
