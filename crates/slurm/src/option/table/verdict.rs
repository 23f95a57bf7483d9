//! What becomes of each option: it acts, is so anyway, has no meaning here and a note says so, or is refused. Options without a row
//! act.

use crate::option::command::{Command, Commands};
use crate::option::key::{OptionKey as K, TriggerEvent as E};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Acts,
    /// What it asks for is so without it.
    AlwaysSo(&'static str),
    /// It changes nothing, and a note says so; why nothing is missed.
    NoMeaning(&'static str),
    /// The command is refused; what to do instead.
    Refused(&'static str),
}

impl Verdict {
    /// The word of docs/slurm-options.md.
    pub fn word(self) -> &'static str {
        match self {
            Self::Acts => "acts",
            Self::AlwaysSo(_) => "is so anyway",
            Self::NoMeaning(_) => "no meaning here",
            Self::Refused(_) => "refused",
        }
    }

    pub fn why(self) -> &'static str {
        match self {
            Self::Acts => "",
            Self::AlwaysSo(why) | Self::NoMeaning(why) | Self::Refused(why) => why,
        }
    }
}

use Verdict::{AlwaysSo, NoMeaning, Refused};

const BATCH: Commands = Commands::only(Command::Sbatch);
const RUN: Commands = Commands::only(Command::Srun);
const ALLOC: Commands = Commands::only(Command::Salloc);
const SUBMIT: Commands = BATCH.and(RUN).and(ALLOC);
const BCAST: Commands = Commands::only(Command::Sbcast);
const REPORT: Commands = Commands::only(Command::Sreport);
const MGR: Commands = Commands::only(Command::Sacctmgr);
const TRIGGER: Commands = Commands::only(Command::Strigger);
const CANCEL: Commands = Commands::only(Command::Scancel);
const CONTROL: Commands = Commands::only(Command::Scontrol);
const ACCT: Commands = Commands::only(Command::Sacct);
const QUEUE_INFO: Commands = Commands::only(Command::Squeue).and(Commands::only(Command::Sinfo));
const LISTS: Commands = Commands::only(Command::Squeue)
    .and(Commands::only(Command::Sinfo))
    .and(Commands::only(Command::Sprio))
    .and(Commands::only(Command::Sshare))
    .and(Commands::only(Command::Sstat))
    .and(Commands::only(Command::Sacct))
    .and(Commands::only(Command::Sattach))
    .and(MGR)
    .and(CONTROL)
    .and(REPORT)
    .and(TRIGGER);

const THIS_CLUSTER: &str = "there is one cluster, this one";
const ONE_CLUSTER: Verdict = NoMeaning(THIS_CLUSTER);
const NOT_HIDDEN: &str = "partitions are hidden from nobody";
const PROGRAM_ALONE: Verdict = NoMeaning("--bcast copies the program and not its libraries");
const OF_STEPS: Verdict =
    NoMeaning("the command of salloc runs beside the allocation: give it to srun");
const NO_LIBRARIES: Verdict = Refused("libraries are not sent along; copy each of them");

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const ROWS: &[(Commands, K, Verdict)] = &[
    // Jobs.
    (SUBMIT, K::Batch, NoMeaning("the script runs on the first node")),
    (SUBMIT, K::BurstBuffer, NoMeaning("there are no burst buffers")),
    (SUBMIT, K::BurstBufferFile, NoMeaning("there are no burst buffers")),
    (SUBMIT, K::ClusterConstraint, ONE_CLUSTER),
    (SUBMIT, K::ContainerEntrypointLog, NoMeaning("what an entrypoint prints is in the job's output")),
    (SUBMIT, K::ContainerId, NoMeaning("containers are known by their jobs and steps")),
    (SUBMIT, K::Context, NoMeaning("SELinux contexts are not set")),
    (SUBMIT, K::CoreSpec, NoMeaning("AllowSpecResourcesUsage is off")),
    (SUBMIT, K::ThreadSpec, NoMeaning("AllowSpecResourcesUsage is off")),
    (SUBMIT, K::DelayBoot, NoMeaning("nodes are not rebooted for features")),
    (SUBMIT, K::Extra, NoMeaning("nodes have no such text; --constraint chooses nodes by their features")),
    (ALLOC, K::GetUserEnv, NoMeaning("the command of salloc runs where it is called, in the environment that is there")),
    (SUBMIT, K::GpuFreq, NoMeaning("GPUs keep the frequencies of their driver")),
    (SUBMIT, K::McsLabel, NoMeaning("there are no MCS labels")),
    (SUBMIT, K::Network, NoMeaning("jobs have the networks of their nodes; there is no switch plugin")),
    (SUBMIT, K::NoKill, NoMeaning("a job is requeued or ends when one of its nodes fails")),
    (SUBMIT, K::NtasksPerTres, NoMeaning("--ntasks-per-gpu says it")),
    (SUBMIT, K::OomKillStep, NoMeaning("the process that ran out of memory is killed; `srun --kill-on-bad-exit` then ends its step")),
    (SUBMIT, K::Power, NoMeaning("power is managed for nodes and not for jobs")),
    (SUBMIT, K::Profile, NoMeaning("profiles are not recorded; sstat and sacct have what was used")),
    (SUBMIT, K::Reboot, Refused("nodes are rebooted by `scontrol reboot`")),
    (SUBMIT, K::ResvPorts, NoMeaning("no ports are reserved: no MPI here asks for them")),
    (SUBMIT, K::Stepmgr, NoMeaning("the server makes the steps of all jobs")),
    (BATCH.and(ALLOC), K::WaitAllNodes, AlwaysSo("a job begins when all its nodes are ready")),
    (RUN.and(ALLOC), K::X11, Refused("X11 is not forwarded; `ssh -X` into the job is not either")),
    (ALLOC, K::Container, OF_STEPS),
    (ALLOC, K::ContainerEntrypoint, OF_STEPS),
    (ALLOC, K::NoContainerEntrypoint, OF_STEPS),
    (ALLOC, K::ContainerEnv, OF_STEPS),
    (ALLOC, K::ContainerImage, OF_STEPS),
    (ALLOC, K::ContainerMountHome, OF_STEPS),
    (ALLOC, K::NoContainerMountHome, OF_STEPS),
    (ALLOC, K::ContainerMounts, OF_STEPS),
    (ALLOC, K::ContainerName, OF_STEPS),
    (ALLOC, K::ContainerReadonly, OF_STEPS),
    (ALLOC, K::ContainerRemapRoot, OF_STEPS),
    (ALLOC, K::NoContainerRemapRoot, OF_STEPS),
    (ALLOC, K::ContainerWorkdir, OF_STEPS),
    (ALLOC, K::ContainerWritable, OF_STEPS),
    // Steps.
    (RUN, K::AccelBind, NoMeaning("--gpu-bind says how tasks are bound to GPUs")),
    (RUN, K::BcastExclude, PROGRAM_ALONE),
    (RUN, K::Compress, NoMeaning("what is sent is not compressed")),
    (RUN, K::SendLibs, PROGRAM_ALONE),
    (RUN, K::DebuggerTest, NoMeaning("debuggers are not waited for")),
    (RUN, K::Gid, Refused("a step runs as its job's owner")),
    (RUN, K::Interactive, NoMeaning("salloc makes that step by itself")),
    (RUN, K::MsgTimeout, NoMeaning("srun waits for nodes for as long as the server does")),
    (RUN, K::NoAllocate, Refused("processes run in allocations alone")),
    (RUN, K::PreserveEnv, Refused("options of the command line win over the environment")),
    (RUN, K::SlurmdDebug, NoMeaning("SLUICE_LOG sets how much an agent says")),
    (RUN, K::Threads, NoMeaning("the server launches steps, on all nodes at once")),
    (RUN, K::Whole, AlwaysSo("a step has the whole of its job's nodes unless --exact says otherwise")),
    // Lists.
    (MGR, K::Oneliner, AlwaysSo("a record is one line")),
    (REPORT, K::Immediate, NoMeaning("a report changes nothing")),
    (REPORT, K::Quiet, AlwaysSo("nothing is said that --quiet would leave out")),
    (LISTS.and(CANCEL), K::Clusters, ONE_CLUSTER),
    (LISTS.and(CANCEL), K::Federation, AlwaysSo(THIS_CLUSTER)),
    (LISTS.and(CANCEL), K::Local, AlwaysSo(THIS_CLUSTER)),
    (LISTS.and(CANCEL), K::Sibling, ONE_CLUSTER),
    (LISTS, K::AllClusters, AlwaysSo(THIS_CLUSTER)),
    (LISTS, K::Hide, NoMeaning(NOT_HIDDEN)),
    (LISTS, K::Noconvert, AlwaysSo("units are not converted")),
    (LISTS, K::Verbose, NoMeaning("nothing more is said")),
    (Commands::only(Command::Squeue), K::All, AlwaysSo(NOT_HIDDEN)),
    (CONTROL, K::All, AlwaysSo(NOT_HIDDEN)),
    (Commands::only(Command::Sdiag), K::All, AlwaysSo("all is shown")),
    (Commands::only(Command::Squeue), K::ArrayUnique, AlwaysSo("the waiting tasks of an array are one line")),
    (ACCT, K::Associations, Refused("-A, -u and -r name accounts, users and partitions")),
    (ACCT, K::Completion, Refused("there is no completion log: the books have all jobs")),
    (ACCT, K::File, Refused("there is no completion log: the books have all jobs")),
    (ACCT, K::Flags, Refused("how a job was scheduled is not recorded")),
    (ACCT, K::Yaml, Refused("--json prints the same")),
    (QUEUE_INFO, K::Yaml, Refused("--json prints the same")),
    (ACCT, K::UseLocalUid, AlwaysSo("users are known by their names")),
    (Commands::only(Command::Sattach), K::Quiet, AlwaysSo("nothing is said that --quiet would leave out")),
    (Commands::only(Command::Sattach), K::DebuggerTest, NoMeaning("debuggers are not waited for")),
    (CANCEL, K::Wckey, Refused("name the jobs, or filter otherwise")),
    (CANCEL, K::Ctld, AlwaysSo("signals always go through the server")),
    (CANCEL, K::Hurry, NoMeaning("there are no burst buffers to stage out")),
    (CONTROL, K::Future, NoMeaning("nodes of State=FUTURE are shown by `scontrol show node NAME`")),
    (CONTROL, K::AsUser, NoMeaning("a change is made as whoever calls")),
    (CONTROL, K::Quiet, AlwaysSo("nothing is said that --quiet would leave out")),
    (TRIGGER, K::Quiet, AlwaysSo("nothing is said that --quiet would leave out")),
    // sbcast.
    (BCAST, K::Compress, NoMeaning("what is sent is not compressed")),
    (BCAST, K::BcastExclude, NO_LIBRARIES),
    (BCAST, K::Fanout, NoMeaning("each node has a link of its own")),
    (BCAST, K::SendLibs, NO_LIBRARIES),
    (BCAST, K::BlockSize, NoMeaning("blocks are as large as the nodes can take")),
    (BCAST, K::Timeout, NoMeaning("nodes are waited for as long as they answer")),
    (BCAST, K::Verbose, NoMeaning("nothing more is said")),
    // Events that no trigger is set for.
    (TRIGGER, K::TriggerEvent(E::BurstBuffer), Refused("there are no burst buffers")),
    (TRIGGER, K::TriggerEvent(E::FrontEnd), Refused("there are no front ends")),
    (TRIGGER, K::TriggerEvent(E::PrimarySlurmctldFailure), Refused("a server that failed runs no program; its service manager does")),
    (TRIGGER, K::TriggerEvent(E::PrimarySlurmctldResumedOperation), Refused("the service manager knows")),
    (TRIGGER, K::TriggerEvent(E::PrimarySlurmctldResumedControl), Refused("there is one server")),
    (TRIGGER, K::TriggerEvent(E::PrimarySlurmctldAcctBufferFull), Refused("/metrics has the books' backlog")),
    (TRIGGER, K::TriggerEvent(E::BackupSlurmctldFailure), Refused("there is one server")),
    (TRIGGER, K::TriggerEvent(E::BackupSlurmctldResumedOperation), Refused("there is one server")),
    (TRIGGER, K::TriggerEvent(E::BackupSlurmctldAssumedControl), Refused("there is one server")),
    (TRIGGER, K::TriggerEvent(E::PrimarySlurmdbdFailure), Refused("the books are a part of the server")),
    (TRIGGER, K::TriggerEvent(E::PrimarySlurmdbdResumedOperation), Refused("the books are a part of the server")),
    (TRIGGER, K::TriggerEvent(E::PrimaryDatabaseFailure), Refused("the books are a part of the server")),
    (TRIGGER, K::TriggerEvent(E::PrimaryDatabaseResumedOperation), Refused("the books are a part of the server")),
    (TRIGGER, K::TriggerEvent(E::Reconfig), Refused("the log says `configuration changed`")),
];

/// What becomes of this option of this command.
pub fn verdict(command: Command, key: K) -> Verdict {
    let row = ROWS.iter().find(|(commands, of, _)| *of == key && commands.contains(command));
    row.map_or(Verdict::Acts, |(_, _, verdict)| *verdict)
}

/// `--gpu-freq has no meaning here: …`; `None` for an option that acts or is refused, or whose own words say it.
pub fn note(command: Command, key: K) -> Option<String> {
    // Slurm has a line for the first two, which is printed instead; to ask for more words changes nothing else.
    if matches!(key, K::CoreSpec | K::ThreadSpec | K::Verbose) {
        return None;
    }
    match verdict(command, key) {
        Verdict::NoMeaning(why) => {
            let name = super::long_name(command, key);
            Some(format!("note: --{name} has no meaning here: {why}"))
        }
        Verdict::Acts | Verdict::AlwaysSo(_) | Verdict::Refused(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::option::table::options;

    #[test]
    fn every_row_is_about_an_option_of_its_commands() {
        let unknown: Vec<K> = ROWS
            .iter()
            .filter(|(commands, key, _)| {
                let of = Command::ALL.into_iter().filter(|command| commands.contains(*command));
                !of.into_iter().any(|command| options(command).any(|spec| spec.key == *key))
            })
            .map(|(_, key, _)| *key)
            .collect();
        assert_eq!(unknown, []);
    }

    #[test]
    fn an_option_without_meaning_is_named_with_the_reason() {
        assert_eq!(
            note(Command::Sbatch, K::GpuFreq).as_deref(),
            Some("note: --gpu-freq has no meaning here: GPUs keep the frequencies of their driver")
        );
        assert_eq!(note(Command::Sbatch, K::Mem), None);
        assert_eq!(note(Command::Sbatch, K::CoreSpec), None);
    }
}
