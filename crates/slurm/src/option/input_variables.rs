//! The environment variables that the commands take options from.

use super::command::Command::{
    self, Sacct, Salloc, Sbatch, Sbcast, Scancel, Scontrol, Sinfo, Sprio, Squeue, Srun,
};
use super::key::OptionKey as K;
use super::setting::{Setting, Source};
use super::table::{self, Arg};

/// The `--secret` of a `salloc`, for each `srun` in it.
pub const SECRETS_VARIABLE: &str = "SLUICE_SECRET";

/// Not formatted by rustfmt: a row is one line. A later row overrides an earlier one of the same key.
#[rustfmt::skip]
const VARIABLES: &[(Command, &str, K)] = &[
    (Sbatch, "SBATCH_ACCOUNT", K::Account),
    (Sbatch, "SBATCH_ACCTG_FREQ", K::AcctgFreq),
    (Sbatch, "SBATCH_ARRAY_INX", K::Array),
    (Sbatch, "SBATCH_BATCH", K::Batch),
    (Sbatch, "SLURM_CLUSTERS", K::Clusters),
    (Sbatch, "SBATCH_CLUSTERS", K::Clusters),
    (Sbatch, "SBATCH_CONSTRAINT", K::Constraint),
    (Sbatch, "SBATCH_CONTAINER", K::Container),
    (Sbatch, "SBATCH_CORE_SPEC", K::CoreSpec),
    (Sbatch, "SBATCH_CPUS_PER_GPU", K::CpusPerGpu),
    (Sbatch, "SBATCH_DEBUG", K::Verbose),
    (Sbatch, "SBATCH_DELAY_BOOT", K::DelayBoot),
    (Sbatch, "SBATCH_DISTRIBUTION", K::Distribution),
    (Sbatch, "SBATCH_ERROR", K::Error),
    (Sbatch, "SBATCH_EXCLUSIVE", K::Exclusive),
    (Sbatch, "SBATCH_EXPORT", K::Export),
    (Sbatch, "SBATCH_GET_USER_ENV", K::GetUserEnv),
    (Sbatch, "SBATCH_GPU_BIND", K::GpuBind),
    (Sbatch, "SBATCH_GPU_FREQ", K::GpuFreq),
    (Sbatch, "SBATCH_GPUS", K::Gpus),
    (Sbatch, "SBATCH_GPUS_PER_NODE", K::GpusPerNode),
    (Sbatch, "SBATCH_GPUS_PER_TASK", K::GpusPerTask),
    (Sbatch, "SBATCH_GRES", K::Gres),
    (Sbatch, "SBATCH_GRES_FLAGS", K::GresFlags),
    (Sbatch, "SLURM_HINT", K::Hint),
    (Sbatch, "SBATCH_HINT", K::Hint),
    (Sbatch, "SBATCH_IGNORE_PBS", K::IgnorePbs),
    (Sbatch, "SBATCH_INPUT", K::Input),
    (Sbatch, "SBATCH_JOB_NAME", K::JobName),
    (Sbatch, "SBATCH_MEM_BIND", K::MemBind),
    (Sbatch, "SBATCH_MEM_PER_CPU", K::MemPerCpu),
    (Sbatch, "SBATCH_MEM_PER_GPU", K::MemPerGpu),
    (Sbatch, "SBATCH_MEM_PER_NODE", K::Mem),
    (Sbatch, "SBATCH_NETWORK", K::Network),
    (Sbatch, "SBATCH_NO_KILL", K::NoKill),
    (Sbatch, "SBATCH_NO_REQUEUE", K::NoRequeue),
    (Sbatch, "SBATCH_OPEN_MODE", K::OpenMode),
    (Sbatch, "SBATCH_OUTPUT", K::Output),
    (Sbatch, "SBATCH_OVERCOMMIT", K::Overcommit),
    (Sbatch, "SBATCH_PARTITION", K::Partition),
    (Sbatch, "SBATCH_POWER", K::Power),
    (Sbatch, "SBATCH_PROFILE", K::Profile),
    (Sbatch, "SBATCH_QOS", K::Qos),
    (Sbatch, "SBATCH_REQ_SWITCH", K::Switches),
    (Sbatch, "SBATCH_REQUEUE", K::Requeue),
    (Sbatch, "SBATCH_RESERVATION", K::Reservation),
    (Sbatch, "SBATCH_SIGNAL", K::Signal),
    (Sbatch, "SBATCH_SPREAD_JOB", K::SpreadJob),
    (Sbatch, "SBATCH_THREAD_SPEC", K::ThreadSpec),
    (Sbatch, "SBATCH_THREADS_PER_CORE", K::ThreadsPerCore),
    (Sbatch, "SBATCH_TIMELIMIT", K::Time),
    (Sbatch, "SBATCH_USE_MIN_NODES", K::UseMinNodes),
    (Sbatch, "SBATCH_WAIT", K::Wait),
    (Sbatch, "SBATCH_WAIT_ALL_NODES", K::WaitAllNodes),
    (Sbatch, "SBATCH_WAIT4SWITCH", K::Wait4Switch),
    (Sbatch, "SBATCH_WCKEY", K::Wckey),
    (Salloc, "SALLOC_ACCOUNT", K::Account),
    (Salloc, "SALLOC_ACCTG_FREQ", K::AcctgFreq),
    (Salloc, "SALLOC_BELL", K::Bell),
    (Salloc, "SALLOC_BURST_BUFFER", K::BurstBuffer),
    (Salloc, "SLURM_CLUSTERS", K::Clusters),
    (Salloc, "SALLOC_CLUSTERS", K::Clusters),
    (Salloc, "SALLOC_CONSTRAINT", K::Constraint),
    (Salloc, "SALLOC_CONTAINER", K::Container),
    (Salloc, "SALLOC_CORE_SPEC", K::CoreSpec),
    (Salloc, "SALLOC_CPUS_PER_GPU", K::CpusPerGpu),
    (Salloc, "SALLOC_DEBUG", K::Verbose),
    (Salloc, "SALLOC_DELAY_BOOT", K::DelayBoot),
    (Salloc, "SALLOC_EXCLUSIVE", K::Exclusive),
    (Salloc, "SALLOC_GPU_BIND", K::GpuBind),
    (Salloc, "SALLOC_GPU_FREQ", K::GpuFreq),
    (Salloc, "SALLOC_GPUS", K::Gpus),
    (Salloc, "SALLOC_GPUS_PER_NODE", K::GpusPerNode),
    (Salloc, "SALLOC_GPUS_PER_TASK", K::GpusPerTask),
    (Salloc, "SALLOC_GRES", K::Gres),
    (Salloc, "SALLOC_GRES_FLAGS", K::GresFlags),
    (Salloc, "SLURM_HINT", K::Hint),
    (Salloc, "SALLOC_HINT", K::Hint),
    (Salloc, "SALLOC_IMMEDIATE", K::Immediate),
    (Salloc, "SALLOC_KILL_CMD", K::KillCommand),
    (Salloc, "SALLOC_MEM_BIND", K::MemBind),
    (Salloc, "SALLOC_MEM_PER_CPU", K::MemPerCpu),
    (Salloc, "SALLOC_MEM_PER_GPU", K::MemPerGpu),
    (Salloc, "SALLOC_MEM_PER_NODE", K::Mem),
    (Salloc, "SALLOC_NETWORK", K::Network),
    (Salloc, "SALLOC_NO_BELL", K::NoBell),
    (Salloc, "SALLOC_NO_KILL", K::NoKill),
    (Salloc, "SALLOC_OVERCOMMIT", K::Overcommit),
    (Salloc, "SALLOC_PARTITION", K::Partition),
    (Salloc, "SALLOC_POWER", K::Power),
    (Salloc, "SALLOC_PROFILE", K::Profile),
    (Salloc, "SALLOC_QOS", K::Qos),
    (Salloc, "SALLOC_REQ_SWITCH", K::Switches),
    (Salloc, "SALLOC_RESERVATION", K::Reservation),
    (Salloc, "SALLOC_SIGNAL", K::Signal),
    (Salloc, "SALLOC_SPREAD_JOB", K::SpreadJob),
    (Salloc, "SALLOC_THREAD_SPEC", K::ThreadSpec),
    (Salloc, "SALLOC_THREADS_PER_CORE", K::ThreadsPerCore),
    (Salloc, "SALLOC_TIMELIMIT", K::Time),
    (Salloc, "SALLOC_USE_MIN_NODES", K::UseMinNodes),
    (Salloc, "SALLOC_WAIT_ALL_NODES", K::WaitAllNodes),
    (Salloc, "SALLOC_WAIT4SWITCH", K::Wait4Switch),
    (Salloc, "SALLOC_WCKEY", K::Wckey),
    (Srun, "SLURM_ACCOUNT", K::Account),
    (Srun, "SLURM_ACCTG_FREQ", K::AcctgFreq),
    (Srun, "SLURM_BCAST", K::Bcast),
    (Srun, "SLURM_BCAST_EXCLUDE", K::BcastExclude),
    (Srun, "SLURM_BURST_BUFFER", K::BurstBuffer),
    (Srun, "SLURM_CLUSTERS", K::Clusters),
    (Srun, "SLURM_COMPRESS", K::Compress),
    (Srun, "SLURM_CONSTRAINT", K::Constraint),
    (Srun, "SLURM_CORE_SPEC", K::CoreSpec),
    (Srun, "SLURM_CPU_BIND", K::CpuBind),
    (Srun, "SLURM_CPU_FREQ_REQ", K::CpuFreq),
    (Srun, "SLURM_CPUS_PER_GPU", K::CpusPerGpu),
    (Srun, "SRUN_CPUS_PER_TASK", K::CpusPerTask),
    (Srun, "SLURM_DEBUG", K::Verbose),
    (Srun, "SLURM_DELAY_BOOT", K::DelayBoot),
    (Srun, "SLURM_DEPENDENCY", K::Dependency),
    (Srun, "SLURM_DISABLE_STATUS", K::DisableStatus),
    (Srun, "SLURM_DISTRIBUTION", K::Distribution),
    (Srun, "SLURM_EPILOG", K::Epilog),
    (Srun, "SLURM_EXACT", K::Exact),
    (Srun, "SLURM_EXCLUSIVE", K::Exclusive),
    (Srun, "SLURM_EXPORT_ENV", K::Export),
    (Srun, "SRUN_EXPORT_ENV", K::Export),
    (Srun, "SLURM_GPU_BIND", K::GpuBind),
    (Srun, "SLURM_GPU_FREQ", K::GpuFreq),
    (Srun, "SLURM_GPUS", K::Gpus),
    (Srun, "SLURM_GPUS_PER_NODE", K::GpusPerNode),
    (Srun, "SLURM_GPUS_PER_TASK", K::GpusPerTask),
    (Srun, "SLURM_GRES", K::Gres),
    (Srun, "SLURM_STEP_GRES", K::Gres),
    (Srun, "SLURM_GRES_FLAGS", K::GresFlags),
    (Srun, "SLURM_HINT", K::Hint),
    (Srun, "SLURM_IMMEDIATE", K::Immediate),
    (Srun, "SLURM_JOB_ID", K::JobId),
    (Srun, "SLURM_JOB_NAME", K::JobName),
    (Srun, "SLURM_NNODES", K::Nodes),
    (Srun, "SLURM_JOB_NUM_NODES", K::Nodes),
    (Srun, "SLURM_KILL_BAD_EXIT", K::KillOnBadExit),
    (Srun, "SLURM_LABELIO", K::Label),
    (Srun, "SLURM_MEM_BIND", K::MemBind),
    (Srun, "SLURM_MEM_PER_CPU", K::MemPerCpu),
    (Srun, "SLURM_MEM_PER_GPU", K::MemPerGpu),
    (Srun, "SLURM_MEM_PER_NODE", K::Mem),
    (Srun, "SLURM_MPI_TYPE", K::Mpi),
    (Srun, "SLURM_NETWORK", K::Network),
    (Srun, "SLURM_NO_KILL", K::NoKill),
    (Srun, "SLURM_NPROCS", K::Ntasks),
    (Srun, "SLURM_NTASKS", K::Ntasks),
    (Srun, "SLURM_NTASKS_PER_CORE", K::NtasksPerCore),
    (Srun, "SLURM_NTASKS_PER_GPU", K::NtasksPerGpu),
    (Srun, "SLURM_NTASKS_PER_NODE", K::NtasksPerNode),
    (Srun, "SLURM_NTASKS_PER_SOCKET", K::NtasksPerSocket),
    (Srun, "SLURM_OPEN_MODE", K::OpenMode),
    (Srun, "SLURM_OVERCOMMIT", K::Overcommit),
    (Srun, "SLURM_OVERLAP", K::Overlap),
    (Srun, "SLURM_PARTITION", K::Partition),
    (Srun, "SLURM_POWER", K::Power),
    (Srun, "SLURM_PROFILE", K::Profile),
    (Srun, "SLURM_PROLOG", K::Prolog),
    (Srun, "SLURM_QOS", K::Qos),
    (Srun, "SLURM_WORKING_DIR", K::Chdir),
    (Srun, "SLURM_REMOTE_CWD", K::Chdir),
    (Srun, "SLURM_REQ_SWITCH", K::Switches),
    (Srun, "SLURM_RESERVATION", K::Reservation),
    (Srun, "SLURM_RESV_PORTS", K::ResvPorts),
    (Srun, "SLURM_SEND_LIBS", K::SendLibs),
    (Srun, SECRETS_VARIABLE, K::Secret),
    (Srun, "SLURM_SIGNAL", K::Signal),
    (Srun, "SLURM_SPREAD_JOB", K::SpreadJob),
    (Srun, "SLURM_STDERRMODE", K::Error),
    (Srun, "SLURM_STDINMODE", K::Input),
    (Srun, "SLURM_STDOUTMODE", K::Output),
    // The same three under the names that Slurm has had for them since 23.02.
    (Srun, "SRUN_ERROR", K::Error),
    (Srun, "SRUN_INPUT", K::Input),
    (Srun, "SRUN_OUTPUT", K::Output),
    (Srun, "SLURM_TASK_EPILOG", K::TaskEpilog),
    (Srun, "SLURM_TASK_PROLOG", K::TaskProlog),
    (Srun, "SLURM_THREAD_SPEC", K::ThreadSpec),
    (Srun, "SLURM_THREADS", K::Threads),
    (Srun, "SLURM_THREADS_PER_CORE", K::ThreadsPerCore),
    (Srun, "SLURM_TIMELIMIT", K::Time),
    (Srun, "SLURM_UNBUFFEREDIO", K::Unbuffered),
    (Srun, "SLURM_USE_MIN_NODES", K::UseMinNodes),
    (Srun, "SLURM_WAIT", K::Wait),
    (Srun, "SLURM_WAIT4SWITCH", K::Wait4Switch),
    (Srun, "SLURM_WCKEY", K::Wckey),
    (Srun, "SLURMD_DEBUG", K::SlurmdDebug),
    (Srun, "SRUN_CONTAINER", K::Container),
    (Squeue, "SLURM_CLUSTERS", K::Clusters),
    (Squeue, "SQUEUE_ACCOUNT", K::Account),
    (Squeue, "SQUEUE_ALL", K::All),
    (Squeue, "SQUEUE_ARRAY", K::ArrayExpanded),
    (Squeue, "SQUEUE_NAMES", K::Name),
    (Squeue, "SQUEUE_FEDERATION", K::Federation),
    (Squeue, "SQUEUE_FORMAT", K::Format),
    (Squeue, "SQUEUE_FORMAT2", K::LongFormat),
    (Squeue, "SQUEUE_LICENSES", K::Licenses),
    (Squeue, "SQUEUE_LOCAL", K::Local),
    (Squeue, "SQUEUE_PARTITION", K::Partition),
    (Squeue, "SQUEUE_PRIORITY", K::ByPriority),
    (Squeue, "SQUEUE_QOS", K::Qos),
    (Squeue, "SQUEUE_SIBLING", K::Sibling),
    (Squeue, "SQUEUE_SORT", K::Sort),
    (Squeue, "SQUEUE_STATES", K::States),
    (Squeue, "SQUEUE_USERS", K::Users),
    (Sinfo, "SLURM_CLUSTERS", K::Clusters),
    (Sinfo, "SINFO_ALL", K::All),
    (Sinfo, "SINFO_FEDERATION", K::Federation),
    (Sinfo, "SINFO_FORMAT", K::Format),
    (Sinfo, "SINFO_LOCAL", K::Local),
    (Sinfo, "SINFO_PARTITION", K::Partition),
    (Sinfo, "SINFO_SORT", K::Sort),
    (Sbcast, "SBCAST_COMPRESS", K::Compress),
    (Sbcast, "SBCAST_EXCLUDE", K::BcastExclude),
    (Sbcast, "SBCAST_FANOUT", K::Fanout),
    (Sbcast, "SBCAST_FORCE", K::Force),
    (Sbcast, "SBCAST_PRESERVE", K::Preserve),
    (Sbcast, "SBCAST_SEND_LIBS", K::SendLibs),
    (Sbcast, "SBCAST_SIZE", K::BlockSize),
    (Sbcast, "SBCAST_TIMEOUT", K::Timeout),
    (Scancel, "SLURM_CLUSTERS", K::Clusters),
    (Scancel, "SCANCEL_ACCOUNT", K::Account),
    (Scancel, "SCANCEL_BATCH", K::BatchOnly),
    (Scancel, "SCANCEL_CTLD", K::Ctld),
    (Scancel, "SCANCEL_FULL", K::Full),
    (Scancel, "SCANCEL_HURRY", K::Hurry),
    (Scancel, "SCANCEL_INTERACTIVE", K::Confirm),
    (Scancel, "SCANCEL_NAME", K::Name),
    (Scancel, "SCANCEL_PARTITION", K::Partition),
    (Scancel, "SCANCEL_QOS", K::Qos),
    (Scancel, "SCANCEL_STATE", K::States),
    (Scancel, "SCANCEL_USER", K::Users),
    (Scancel, "SCANCEL_VERBOSE", K::Verbose),
    (Scancel, "SCANCEL_WCKEY", K::Wckey),
    (Sacct, "SACCT_FEDERATION", K::Federation),
    (Sacct, "SACCT_LOCAL", K::Local),
    (Scontrol, "SLURM_CLUSTERS", K::Clusters),
    (Scontrol, "SCONTROL_ALL", K::All),
    (Scontrol, "SCONTROL_FEDERATION", K::Federation),
    (Scontrol, "SCONTROL_FUTURE", K::Future),
    (Scontrol, "SCONTROL_LOCAL", K::Local),
    (Scontrol, "SCONTROL_SIBLING", K::Sibling),
    (Sprio, "SLURM_CLUSTERS", K::Clusters),
];

/// What the environment sets for `command`. `variable` looks a name up.
pub fn settings(command: Command, variable: impl Fn(&str) -> Option<String>) -> Vec<Setting> {
    VARIABLES
        .iter()
        .filter(|(of, _, _)| *of == command)
        .filter_map(|&(_, name, key)| {
            let mut text = variable(name)?;
            // The size of a plane has a variable of its own.
            if key == K::Distribution && text.eq_ignore_ascii_case("plane") {
                let size = variable("SLURM_DIST_PLANESIZE");
                text.extend(size.into_iter().map(|size| format!("={size}")));
            }
            let value = setting_value(command, key, text)?;
            Some(Setting { key, value, source: Source::Environment(name) })
        })
        .collect()
}

/// The value of the setting; `None` if the variable turns its flag off.
fn setting_value(command: Command, key: K, text: String) -> Option<Option<String>> {
    if key == K::Verbose {
        return Some(Some(text));
    }
    let arg = table::options(command).find(|spec| spec.key == key).map(|spec| spec.arg);
    match arg {
        Some(Arg::None) => turns_on(&text).then_some(None),
        Some(Arg::Optional(_)) if text.is_empty() => Some(None),
        _ => Some(Some(text)),
    }
}

/// Whether the variable of a flag turns it on: it is empty, `yes`, or a number other than zero.
fn turns_on(text: &str) -> bool {
    text.is_empty()
        || text.eq_ignore_ascii_case("yes")
        || text.parse::<i64>().is_ok_and(|number| number != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_names_an_option_of_its_command() {
        for &(command, name, key) in VARIABLES {
            let known = table::options(command).any(|spec| spec.key == key);
            assert!(known || key == K::Wait4Switch, "{name}: {} lacks {key:?}", command.name());
        }
    }

    #[test]
    fn variables_become_settings_with_their_name() {
        let environment = [
            ("SBATCH_TIMELIMIT", "3"),
            ("SBATCH_EXCLUSIVE", ""),
            ("SBATCH_REQUEUE", "1"),
            ("SBATCH_DEBUG", "2"),
            ("SALLOC_TIMELIMIT", "9"),
        ];
        let found = settings(Command::Sbatch, |name| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_owned())
        });
        let shown: Vec<_> = found.iter().map(|s| (s.key, s.value.as_deref())).collect();
        assert_eq!(
            shown,
            [
                (K::Verbose, Some("2")),
                (K::Exclusive, None),
                (K::Requeue, None),
                (K::Time, Some("3")),
            ]
        );
        assert_eq!(found[3].source, Source::Environment("SBATCH_TIMELIMIT"));
        // The later of two names counts.
        let both = |name: &str| match name {
            "SLURM_STDOUTMODE" => Some("old.out".to_owned()),
            "SRUN_OUTPUT" => Some("new.out".to_owned()),
            _ => None,
        };
        let found = settings(Command::Srun, both);
        let last = found.last().map(|setting| (setting.key, setting.text()));
        assert_eq!(last, Some((K::Output, "new.out")));
    }

    #[test]
    fn a_flag_is_on_for_empty_yes_and_numbers_but_zero() {
        let cases = [
            ("", true),
            ("yes", true),
            ("YES", true),
            ("2", true),
            ("-1", true),
            ("0", false),
            ("no", false),
            ("1x", false),
            ("whatever", false),
        ];
        for (value, on) in cases {
            let found = settings(Command::Sbatch, |name| {
                (name == "SBATCH_REQUEUE").then(|| value.to_owned())
            });
            assert_eq!(found.len(), usize::from(on), "SBATCH_REQUEUE={value}");
        }
    }
}
