//! Carries an SSH connection of a process in a job to the socket of its node: what OpenSSH's client calls as `ProxyCommand` for
//! another node of the run.

use crate::socket_folder::{self, SOCKET};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use wire::ssh::INTERNODE_PREFIX;

pub const VERB: &str = "ssh-relay";

const STATE_VARIABLE: &str = "SLUICE_STATE";
const CHUNK_BYTES: usize = 32 << 10;

/// `arguments` are the login of the node that is meant.
pub fn run(arguments: &[String]) -> i32 {
    match carry(arguments) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("sluice: {why}");
            1
        }
    }
}

fn carry(arguments: &[String]) -> Result<(), String> {
    let [login] = arguments else { return Err("expected the login of a node".into()) };
    let state = std::env::var(STATE_VARIABLE)
        .map_err(|_| format!("{STATE_VARIABLE} is not set: this is for processes in a job"))?;
    let path = format!("{}/{SOCKET}", socket_folder::of_state(&state));
    let failed = |e: io::Error| format!("{path}: {e}");
    let mut socket = UnixStream::connect(&path).map_err(failed)?;
    socket.write_all(format!("{INTERNODE_PREFIX}{login}\n").as_bytes()).map_err(failed)?;
    let mut to_server = socket.try_clone().map_err(failed)?;
    // It ends with the process: nothing waits for a client that says no more and reads on.
    std::thread::spawn(move || {
        copy(&mut io::stdin().lock(), &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    copy(&mut socket, &mut io::stdout().lock());
    Ok(())
}

/// Copies until either end is gone, each piece as soon as it is there.
fn copy(from: &mut impl Read, to: &mut impl Write) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(length @ 1..) => {
                if to.write_all(&buffer[..length]).and_then(|()| to.flush()).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return,
        }
    }
}
