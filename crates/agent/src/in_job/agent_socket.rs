//! The socket at which the job's processes find the agent of keys of an SSH client that forwards it (`ssh -A`). Only the job's
//! user gets to it: it is in a folder of its own.

use nix::unistd::mkdtemp;
use std::io;
use std::path::PathBuf;
use tokio::net::UnixListener;

const FOLDER: &str = "sluice-agent-XXXXXX";
const SOCKET: &str = "agent";

pub struct AgentSocket {
    folder: PathBuf,
    pub listener: UnixListener,
}

impl AgentSocket {
    pub fn bind() -> io::Result<Self> {
        let folder = mkdtemp(&std::env::temp_dir().join(FOLDER))?;
        match UnixListener::bind(folder.join(SOCKET)) {
            Ok(listener) => Ok(Self { folder, listener }),
            Err(error) => {
                let _ = std::fs::remove_dir(folder);
                Err(error)
            }
        }
    }

    pub fn path(&self) -> String {
        self.folder.join(SOCKET).display().to_string()
    }
}

impl Drop for AgentSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.folder.join(SOCKET));
        let _ = std::fs::remove_dir(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn socket_is_its_users_alone_and_removed_with_its_folder() {
        let socket = AgentSocket::bind().expect("a socket");
        let folder = socket.folder.clone();
        let mode = std::fs::metadata(&folder).expect("the folder").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::os::unix::net::UnixStream::connect(socket.path()).expect("connected");
        drop(socket);
        assert!(!folder.exists());
    }
}
