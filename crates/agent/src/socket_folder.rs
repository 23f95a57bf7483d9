//! The folder in the state folder that has the clients' socket too. A socket that is bound anew is another file: containers mount
//! this folder and not the file, so that their commands reach the server and the agent that were started since.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

pub const SOCKET: &str = "sluice.sock";
/// Its name in the state folder; mode 755.
pub const FOLDER: &str = "socket";

/// Places a socket that was just bound in the folder beside it.
pub fn place(socket: &Path) -> io::Result<()> {
    let Some(state) = socket.parent() else { return Ok(()) };
    let folder = state.join(FOLDER);
    match fs::create_dir(&folder) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let new = folder.join("new");
    match fs::remove_file(&new) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    fs::hard_link(socket, &new)?;
    fs::rename(&new, folder.join(SOCKET))
}

/// The folder to mount for a process whose state folder is `state`. In a container that is this folder already.
pub(crate) fn of_state(state: &str) -> String {
    let state = state.trim_end_matches('/');
    let is_folder = Path::new(state).file_name().is_some_and(|name| name == FOLDER);
    if is_folder { state.to_owned() } else { format!("{state}/{FOLDER}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn socket_that_is_bound_anew_is_reached_by_the_folder() {
        let state = tempfile::tempdir().expect("scratch folder");
        let path = state.path().join(SOCKET);
        let beside = state.path().join(FOLDER).join(SOCKET);
        for _ in 0..2 {
            let _ = fs::remove_file(&path);
            let listener = UnixListener::bind(&path).expect("bound");
            place(&path).expect("placed");
            UnixStream::connect(&beside).expect("connected");
            listener.accept().expect("accepted");
        }
    }

    #[test]
    fn folder_is_found_from_the_state_folder_and_from_itself() {
        assert_eq!(of_state("/var/lib/sluice"), "/var/lib/sluice/socket");
        assert_eq!(of_state("/var/lib/sluice/socket/"), "/var/lib/sluice/socket");
    }
}
