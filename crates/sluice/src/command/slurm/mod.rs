//! Slurm's commands: options are read, the server is asked, and the answer is printed in Slurm's words.
//!
//! - one file or folder for each command
//! - `step/`: the client's side of a running step, for `srun`, `sattach` and `sbcast`
//! - `submit/`: what `sbatch`, `salloc` and `srun` share
//! - `query/`: what the other commands share
//! - `pollable_channel`: a channel that can be waited for with `poll`

mod pollable_channel;
pub mod query;
mod sacct;
mod sacctmgr;
mod salloc;
mod sattach;
pub mod sbatch;
mod sbcast;
mod scancel;
mod scontrol;
mod sdiag;
mod seff;
mod sinfo;
mod sprio;
mod squeue;
mod sreport;
mod srun;
mod sshare;
mod sstat;
mod step;
mod strigger;
pub mod submit;

use ::slurm::option::Command;
use std::process::ExitCode;

pub fn run(command: Command, args: &[String]) -> ExitCode {
    match command {
        Command::Sbatch => sbatch::run(args),
        Command::Srun => srun::run(args),
        Command::Salloc => salloc::run(args),
        Command::Scancel => scancel::run(args),
        Command::Squeue => squeue::run(args),
        Command::Sinfo => sinfo::run(args),
        Command::Scontrol => scontrol::run(args),
        Command::Sacct => sacct::run(args),
        Command::Sacctmgr => sacctmgr::run(args),
        Command::Sattach => sattach::run(args),
        Command::Sbcast => sbcast::run(args),
        Command::Sprio => sprio::run(args),
        Command::Sshare => sshare::run(args),
        Command::Sstat => sstat::run(args),
        Command::Sdiag => sdiag::run(args),
        Command::Seff => seff::run(args),
        Command::Sreport => sreport::run(args),
        Command::Strigger => strigger::run(args),
    }
}
