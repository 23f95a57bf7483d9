//! Ports of a run on this machine while `sluice apply` is attached to it: `ssh` beside this program.

use super::attach::Login;
use super::port::leads;
use super::port_mapping::LOOPBACK;
use super::verb::VerbError;
use crate::client::Client;
use model::id::JobId;
use std::io::{BufRead, BufReader};
use std::process::Child;

/// The ports are there until this is dropped.
pub struct RunningForward(Child);

impl RunningForward {
    /// Says on standard error which ports lead into the run, once they do.
    pub fn start(
        client: &mut Client,
        job: JobId,
        name: &str,
        ports: &[(u16, u16)],
    ) -> Result<Self, VerbError> {
        let mut login = Login::new(client, Some(job))?;
        login.check()?;
        login.ssh.args(["-N", "-o", "ExitOnForwardFailure=yes"]);
        // A line from `ssh` itself, once it is in.
        login.ssh.args(["-o", "PermitLocalCommand=yes", "-o", "LocalCommand=echo"]);
        login.forward(LOOPBACK, ports);
        let mut ssh = login.spawn(&job.to_string()).map_err(VerbError::file("ssh"))?;
        let said: Vec<String> = ports.iter().map(|ports| leads(ports, name)).collect();
        let output = ssh.stdout.take();
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = output.map(|output| BufReader::new(output).read_line(&mut line));
            // The files with the key are not needed any more.
            drop(login);
            if matches!(read, Some(Ok(length)) if length > 0) {
                said.iter().for_each(|line| eprintln!("{line}"));
            }
        });
        Ok(Self(ssh))
    }

    /// Whether `ssh` has ended by itself: the server or the connection to it was away.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for RunningForward {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
