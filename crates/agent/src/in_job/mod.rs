//! Programs of Sluice's own that run as a step inside a job: as its user, in its groups, its container and its network.
//! They speak with the server's SSH endpoint over their standard input and output.

mod forward;
mod forward_policy;
mod sftp;

use wire::step::OwnProgram;

/// Every one of them, for the program to recognise its verb.
const ALL: [OwnProgram; 2] = [OwnProgram::Sftp, OwnProgram::Forward];

/// Runs the program of this verb; `None` for another word. Returns its exit code.
pub fn run(verb: &str) -> Option<i32> {
    let program = ALL.into_iter().find(|program| program.verb() == verb)?;
    Some(match program {
        OwnProgram::Sftp => sftp::run(),
        OwnProgram::Forward => forward::run(),
    })
}
