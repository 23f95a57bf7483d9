//! The Slurm commands by name, and how each treats its command line.

/// One Slurm command. The program is that command when it is called by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Command {
    Sbatch,
    Srun,
    Salloc,
    Squeue,
    Sinfo,
    Scancel,
    Sacct,
    Scontrol,
    Sacctmgr,
    Sreport,
    Sprio,
    Sshare,
    Sdiag,
    Sstat,
    Seff,
    Sattach,
    Sbcast,
    Strigger,
}

/// Where the options of a command line end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ordering {
    /// At the first operand: what follows belongs to the user's own command.
    StopAtOperand,
    /// At `--`: options and operands may be mixed before it.
    Permute,
}

impl Command {
    pub const ALL: [Command; 18] = [
        Command::Sbatch,
        Command::Srun,
        Command::Salloc,
        Command::Squeue,
        Command::Sinfo,
        Command::Scancel,
        Command::Sacct,
        Command::Scontrol,
        Command::Sacctmgr,
        Command::Sreport,
        Command::Sprio,
        Command::Sshare,
        Command::Sdiag,
        Command::Sstat,
        Command::Seff,
        Command::Sattach,
        Command::Sbcast,
        Command::Strigger,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Command::Sbatch => "sbatch",
            Command::Srun => "srun",
            Command::Salloc => "salloc",
            Command::Squeue => "squeue",
            Command::Sinfo => "sinfo",
            Command::Scancel => "scancel",
            Command::Sacct => "sacct",
            Command::Scontrol => "scontrol",
            Command::Sacctmgr => "sacctmgr",
            Command::Sreport => "sreport",
            Command::Sprio => "sprio",
            Command::Sshare => "sshare",
            Command::Sdiag => "sdiag",
            Command::Sstat => "sstat",
            Command::Seff => "seff",
            Command::Sattach => "sattach",
            Command::Sbcast => "sbcast",
            Command::Strigger => "strigger",
        }
    }

    /// The command of this name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Command> {
        Command::ALL.into_iter().find(|command| command.name() == name)
    }

    pub const fn ordering(self) -> Ordering {
        match self {
            Command::Sbatch | Command::Srun | Command::Salloc | Command::Sattach => {
                Ordering::StopAtOperand
            }
            _ => Ordering::Permute,
        }
    }

    /// Whether this command asks for resources, and so takes the options of a submission.
    pub const fn submits(self) -> bool {
        matches!(self, Command::Sbatch | Command::Srun | Command::Salloc)
    }

    /// Whether operands are refused.
    pub const fn refuses_operands(self) -> bool {
        matches!(self, Command::Squeue | Command::Sprio | Command::Strigger)
    }

    /// The exit code for an option that does not exist or lacks its argument.
    pub const fn misuse_code(self) -> i32 {
        if self.submits() { 255 } else { 1 }
    }

    /// Whether misuse is followed by the line that points to `--help`.
    pub const fn points_to_help(self) -> bool {
        !matches!(self, Command::Sacct | Command::Sstat)
    }

    /// The text before the server's refusal of a request.
    pub const fn refusal_prefix(self) -> &'static str {
        match self {
            Command::Srun => "Unable to allocate resources",
            Command::Salloc => "Job submit/allocate failed",
            Command::Sbcast => "Unable to copy the file",
            _ => "Batch job submission failed",
        }
    }
}

/// A set of commands, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commands(u32);

impl Commands {
    pub const fn only(command: Command) -> Commands {
        Commands(1 << command as u32)
    }

    pub const fn and(self, other: Commands) -> Commands {
        Commands(self.0 | other.0)
    }

    pub const fn contains(self, command: Command) -> bool {
        self.0 & (1 << command as u32) != 0
    }
}
