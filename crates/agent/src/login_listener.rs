//! The socket for logins: the PAM module asks here whether a user has a job on this machine, and has its own process
//! moved into that job. Only root is answered, and only the asking process is moved: the kernel tells its pid.

use crate::error::AgentError;
use crate::node::AttemptGroups;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use std::fs;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use wire::login::{LINE_BYTES_MAX, LoginAction, LoginAnswer, LoginRequest, SOCKET};

/// Logins handled at once; further ones wait in the socket's backlog.
const AT_ONCE: usize = 32;
/// How long a login may take from its connection to its answer.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5);

/// An answer, with the namespaces of a job with private folders.
type Entry = (LoginAnswer, Vec<OwnedFd>);

/// A login that waits for the agent's reply.
pub(crate) struct Login {
    pub ask: LoginRequest,
    /// Takes the groups that the user may enter, the newest first.
    pub reply: oneshot::Sender<Vec<AttemptGroups>>,
}

/// Starts to listen for logins. Called only as root: without it the agent has no jobs of other users.
pub(crate) fn listen(state: &Path, logins: mpsc::Sender<Login>) -> Result<(), AgentError> {
    let path = state.join(SOCKET);
    let failed = |e: std::io::Error| AgentError::file("listen at", &path, e);
    match fs::remove_file(&path) {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(Errno::ENOENT as i32) => {}
        Err(e) => return Err(failed(e)),
    }
    let listener = UnixListener::bind(&path).map_err(failed)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    tokio::spawn(accept(listener, logins));
    Ok(())
}

async fn accept(listener: UnixListener, logins: mpsc::Sender<Login>) {
    let groups = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(groups) = groups.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let logins = logins.clone();
                tokio::spawn(async move {
                    // A login without an answer in time is denied by the PAM module.
                    let _ = tokio::time::timeout(LOGIN_TIMEOUT, serve(stream, logins)).await;
                    drop(groups);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a login could not be taken in");
                tokio::time::sleep(LOGIN_TIMEOUT).await;
            }
        }
    }
}

async fn serve(mut stream: UnixStream, logins: mpsc::Sender<Login>) -> std::io::Result<()> {
    let peer = stream.peer_cred()?;
    let mut line = String::new();
    BufReader::new((&mut stream).take(LINE_BYTES_MAX as u64)).read_line(&mut line).await?;
    let (answer, namespaces) = match (line.trim_end().parse(), peer.uid(), peer.pid()) {
        (Ok(ask), 0, Some(pid)) if pid > 0 => answer(ask, pid, &logins).await,
        (Ok(_), 0, _) => failed("the asking process is of another world"),
        (Ok(_), ..) => failed("only root is answered"),
        (Err(error), ..) => failed(&error.to_string()),
    };
    send(&stream, &format!("{answer}\n"), &namespaces).await
}

fn failed(why: &str) -> Entry {
    (LoginAnswer::Failed(why.to_owned()), Vec::new())
}

/// Sends the answer with the namespaces' descriptors: a process can enter a namespace only by itself.
async fn send(stream: &UnixStream, line: &str, namespaces: &[OwnedFd]) -> std::io::Result<()> {
    let fds: Vec<RawFd> = namespaces.iter().map(AsRawFd::as_raw_fd).collect();
    let passed = [ControlMessage::ScmRights(&fds)];
    let passed = if fds.is_empty() { &[][..] } else { &passed };
    let send = || {
        let iov = [IoSlice::new(line.as_bytes())];
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        sendmsg::<UnixAddr>(stream.as_raw_fd(), &iov, passed, flags, None).map_err(Into::into)
    };
    loop {
        // The whole line fits into the empty buffer of a new socket.
        stream.writable().await?;
        match stream.try_io(Interest::WRITABLE, send) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            sent => return sent.map(drop),
        }
    }
}

async fn answer(ask: LoginRequest, pid: i32, logins: &mpsc::Sender<Login>) -> Entry {
    let (reply, groups) = oneshot::channel();
    let gone = || failed("the agent is ending");
    if logins.send(Login { ask, reply }).await.is_err() {
        return gone();
    }
    let Ok(groups) = groups.await else { return gone() };
    match (ask.action, groups.len()) {
        (_, 0) => (LoginAnswer::NoJobs, Vec::new()),
        (LoginAction::Count, count) => (LoginAnswer::Jobs(count as u32), Vec::new()),
        (LoginAction::Enter, _) => {
            let moved = tokio::task::spawn_blocking(move || enter_first(&groups, ask.uid, pid));
            moved.await.unwrap_or_else(|_| gone())
        }
    }
}

/// Enters the first group that can be entered: a job may end or be suspended meanwhile.
fn enter_first(groups: &[AttemptGroups], uid: u32, pid: i32) -> Entry {
    let mut why = String::new();
    for groups in groups {
        match groups.adopt(pid) {
            Ok(namespaces) => {
                let attempt = groups.attempt;
                tracing::info!(uid, pid, %attempt, "a login is now part of a job");
                return (LoginAnswer::Entered(attempt.job), namespaces);
            }
            Err(error) => {
                tracing::warn!(uid, pid, attempt = %groups.attempt, %error, "a login cannot enter a job");
                why = error.to_string();
            }
        }
    }
    failed(&why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    async fn asked(line: &str) -> String {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        let (logins, mut waiting) = mpsc::channel::<Login>(1);
        let agent = tokio::spawn(async move {
            if let Some(login) = waiting.recv().await {
                let _ = login.reply.send(Vec::new());
            }
        });
        let serving = tokio::spawn(serve(server, logins));
        client.write_all(line.as_bytes()).await.expect("write");
        let mut said = String::new();
        // A client that sends too much may be disconnected before the answer.
        let _ = client.read_to_string(&mut said).await;
        serving.await.expect("served").expect("served");
        agent.await.expect("ended");
        said
    }

    #[tokio::test]
    async fn malformed_requests_are_refused() {
        for line in ["\n", "login1 enter me\n", "GET / HTTP/1.1\n", &"x".repeat(4 * LINE_BYTES_MAX)]
        {
            let said = asked(line).await;
            let cut = line.len() > LINE_BYTES_MAX && said.is_empty();
            assert!(cut || said.starts_with("failed "), "{line:?}: {said}");
        }
    }

    #[tokio::test]
    async fn only_root_is_answered() {
        let said = asked("login1 look 1000\n").await;
        if nix::unistd::Uid::effective().is_root() {
            assert_eq!(said, "none\n")
        } else {
            assert_eq!(said, "failed only root is answered\n")
        }
    }
}
