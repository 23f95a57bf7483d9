//! Programs of Sluice's own that run as a step inside a job: as its user, in its groups, its container and its network.
//! They speak with the server's SSH endpoint, or with an `sbcast`, over their standard input and output. `ssh_relay` is called
//! by processes of the job.

mod agent_socket;
mod forward;
mod forward_policy;
pub(crate) mod port_owner;
mod receive_file;
mod sftp;
mod ssh_relay;

use wire::step::OwnProgram;

/// Every one of them, for the program to recognise its verb.
const ALL: [OwnProgram; 3] = [OwnProgram::Sftp, OwnProgram::Forward, OwnProgram::ReceiveFile];

pub(crate) use ssh_relay::VERB as SSH_RELAY;

/// Runs the program of the first word, its verb; `None` for another word. Returns its exit code.
pub fn run(words: &[String]) -> Option<i32> {
    let (verb, arguments) = words.split_first()?;
    if verb == SSH_RELAY {
        return Some(ssh_relay::run(arguments));
    }
    let program = ALL.into_iter().find(|program| program.verb() == verb)?;
    Some(match program {
        OwnProgram::Sftp => sftp::run(),
        OwnProgram::Forward => forward::run(),
        OwnProgram::ReceiveFile => receive_file::run(),
    })
}
