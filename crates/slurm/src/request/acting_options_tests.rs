//! Every option of `sbatch`, `srun` and `salloc` that is said to act changes what is sent to the server, or is one of those that
//! the command itself carries out.

use super::step::{self, Endpoint, StepAllocation};
use super::tests::{caller, submitter};
use super::{allocation, batch};
use crate::option::Command;
use crate::option::OptionKey as K;
use crate::option::invocation::{self, Invocation};
use crate::option::table::{self, Arg, OptionSpec, Verdict, verdict};
use serde_json::Value;
use wire::step::StepInput;

/// Options that the command itself carries out, with tests of their own; the server is sent nothing of them.
const OF_THE_COMMAND: &[K] = &[
    // What is printed, and when the command returns.
    K::Quiet,
    K::Verbose,
    K::Parsable,
    K::TestOnly,
    K::Wait,
    K::Bell,
    K::NoBell,
    K::NoShell,
    K::KillCommand,
    K::IgnorePbs,
    K::Clusters,
    // Which allocation a step is in, and which component of it.
    K::JobId,
    K::HetGroup,
    // What `srun` does with streams, signals and programs of its own.
    K::Label,
    K::Unbuffered,
    K::KillOnBadExit,
    K::DisableStatus,
    K::QuitOnInterrupt,
    K::Prolog,
    K::Epilog,
    K::MultiProg,
    K::Mpi,
    K::Bcast,
    // What the command reads before it sends anything, and whom it submits for.
    K::Uid,
    K::Gid,
    K::Nodefile,
    K::Wrap,
    K::ExportFile,
    // About the command.
    K::Help,
    K::Usage,
    K::Version,
];

/// Options whose effect needs another beside them.
const NEEDS: &[(K, &[&str])] = &[
    (K::CpusPerGpu, &["--gpus=2"]),
    (K::MemPerGpu, &["--gpus=2"]),
    (K::NtasksPerGpu, &["--gpus=2"]),
    (K::GpusPerSocket, &["--sockets-per-node=1"]),
    (K::GpusPerTask, &["-n2"]),
    (K::TresPerTask, &["-n2"]),
    (K::GpuBind, &["--gpus=2"]),
    (K::TresBind, &["--gpus=2"]),
    (K::GresFlags, &["--gpus=2"]),
    (K::MailUser, &["--mail-type=END"]),
    (K::UseMinNodes, &["-N1-2"]),
    (K::ContainerEntrypoint, &["--container-image=alpine"]),
    (K::NoContainerEntrypoint, &["--container-image=alpine", "--container-entrypoint"]),
    (K::ContainerEnv, &["--container-image=alpine"]),
    (K::ContainerMountHome, &["--container-image=alpine"]),
    (K::NoContainerMountHome, &["--container-image=alpine"]),
    (K::ContainerMounts, &["--container-image=alpine"]),
    (K::ContainerName, &["--container-image=alpine"]),
    (K::ContainerReadonly, &["--container-image=alpine"]),
    (K::ContainerRemapRoot, &["--container-image=alpine"]),
    (K::NoContainerRemapRoot, &["--container-image=alpine", "--container-remap-root"]),
    (K::ContainerSave, &["--container-image=alpine"]),
    (K::ContainerWorkdir, &["--container-image=alpine"]),
    (K::ContainerWritable, &["--container-image=alpine", "--container-readonly"]),
];

/// A value that is not the default.
fn sample(key: K) -> &'static str {
    match key {
        K::AcctgFreq => "task=7",
        K::Array => "0-3",
        K::Begin => "now+1hour",
        K::Container | K::ContainerImage => "alpine",
        K::ContainerMounts => "/data:/data",
        K::ContainerWorkdir | K::ContainerSave | K::Chdir => "/srv",
        K::CpuFreq => "high",
        K::CpuBind => "cores",
        K::Deadline => "now+2hours",
        K::Dependency => "afterok:12",
        K::Distribution => "cyclic",
        K::Exclude | K::Nodelist => "node7",
        K::Exclusive => "user",
        K::Export => "NONE",
        K::ExtraNodeInfo => "2:4:1",
        K::Gpus | K::GpusPerNode | K::GpusPerSocket | K::GpusPerTask => "1",
        K::GpuBind => "single:1",
        K::Gres => "gpu:1",
        K::GetUserEnv => "10L",
        K::GresFlags => "enforce-binding",
        K::Hint => "nomultithread",
        K::KillOnInvalidDep => "yes",
        K::Licenses => "matlab:2",
        K::MailType => "END",
        K::Mem | K::MemPerCpu | K::MemPerGpu | K::Tmp => "3G",
        K::MemBind => "local",
        K::Nodes => "2",
        K::OpenMode => "append",
        K::Propagate => "NONE",
        K::Secret => "token=TOKEN",
        K::Service => "8000",
        K::Signal => "USR1@60",
        K::Switches => "1@10",
        K::Time => "7",
        K::TimeMin => "3",
        K::TresBind => "gres/gpu:single:1",
        K::TresPerTask => "cpu=2,gres/gpu=1",
        K::Volume => "data:/data",
        K::Uid | K::Gid => "root",
        K::Priority => "77",
        K::Nice => "5",
        K::Immediate => "30",
        K::CoresPerSocket
        | K::CpusPerGpu
        | K::CpusPerTask
        | K::Mincpus
        | K::Ntasks
        | K::NtasksPerCore
        | K::NtasksPerGpu
        | K::NtasksPerNode
        | K::NtasksPerSocket
        | K::SocketsPerNode
        | K::ThreadsPerCore
        | K::Segment
        | K::Relative => "2",
        _ => "other",
    }
}

fn sent(command: Command, words: &[String]) -> Result<Value, String> {
    drafted(command, words).map(|(sent, _)| sent)
}

/// What is sent, and the lines that the user is told.
fn drafted(command: Command, words: &[String]) -> Result<(Value, Vec<String>), String> {
    let failed = |error: crate::option::OptionError| error.to_string();
    if command == Command::Sbatch {
        let words = [words, &["--wrap=true".to_owned()]].concat();
        let Invocation::Submission(read) = invocation::batch(&words, &caller()).map_err(failed)?
        else {
            return Err("a question".into());
        };
        let draft = batch(&read, &submitter(command)).map_err(failed)?;
        return Ok((serde_json::to_value(draft.submission).expect("JSON"), draft.notes));
    }
    let words = [words, &["true".to_owned()]].concat();
    let Invocation::Submission(read) =
        invocation::launch(command, &words, &caller()).map_err(failed)?
    else {
        return Err("a question".into());
    };
    let (options, argv) = &read.components[0];
    let own = submitter(command);
    let job = allocation(options, argv, &own).map_err(failed)?;
    let mut whole = vec![serde_json::to_value(job.submission).expect("JSON")];
    if command == Command::Salloc {
        let mut env = crate::environment::Environment::new();
        super::set_step_variables(&mut env, options);
        whole.push(env.to_block().into());
    }
    if command == Command::Srun {
        for within in [StepAllocation::Own, StepAllocation::Existing] {
            let endpoint =
                Endpoint { listen: Vec::new(), network_stack: None, key: String::new(), ticket: 1 };
            let (launch, _) = step::launch(options, argv, &own, within, endpoint, StepInput::All);
            whole.push(serde_json::to_value(launch).expect("JSON"));
        }
    }
    Ok((Value::Array(whole), job.notes))
}

fn word(spec: &OptionSpec) -> String {
    match spec.arg {
        Arg::None => format!("--{}", spec.long),
        Arg::Required(_) | Arg::Optional(_) => format!("--{}={}", spec.long, sample(spec.key)),
    }
}

#[test]
fn every_option_that_is_said_to_act_changes_what_is_sent() {
    let mut idle = Vec::new();
    for command in [Command::Sbatch, Command::Srun, Command::Salloc] {
        for spec in table::options(command).filter(|spec| !spec.long.is_empty()) {
            let acts = verdict(command, spec.key) == Verdict::Acts;
            // `srun` itself opens the files of its streams.
            let is_stream = command == Command::Srun
                && matches!(spec.key, K::Output | K::Error | K::Input | K::OpenMode);
            if !acts || is_stream || OF_THE_COMMAND.contains(&spec.key) {
                continue;
            }
            let needs = NEEDS.iter().find(|(key, _)| *key == spec.key).map_or(&[][..], |(_, n)| n);
            let base: Vec<String> = needs.iter().map(|word| (*word).to_owned()).collect();
            let with = [&base[..], &[word(spec)]].concat();
            match (sent(command, &base), sent(command, &with)) {
                (Ok(without), Ok(with)) if without != with => {}
                (Ok(_), Ok(_)) => idle.push(format!("{} {}", command.name(), word(spec))),
                (_, Err(why)) | (Err(why), _) => {
                    idle.push(format!("{} {}: {why}", command.name(), word(spec)));
                }
            }
        }
    }
    assert!(idle.is_empty(), "said to act, and change nothing:\n{}", idle.join("\n"));
}

#[test]
fn mail_about_burst_buffers_is_noted_where_it_is_named() {
    for (types, is_noted) in [("STAGE_OUT", true), ("END,stage_out", true), ("ALL", false)] {
        let word = format!("--mail-type={types}");
        let (_, notes) = drafted(Command::Sbatch, &[word]).expect("it is taken");
        let has_it = notes.iter().any(|note| note.contains("--mail-type=STAGE_OUT"));
        assert_eq!(has_it, is_noted, "{types}: {notes:?}");
    }
}

#[test]
fn every_option_without_meaning_is_taken_and_noted() {
    for command in [Command::Sbatch, Command::Srun, Command::Salloc] {
        for spec in table::options(command).filter(|spec| !spec.long.is_empty()) {
            if !matches!(verdict(command, spec.key), Verdict::NoMeaning(_)) {
                continue;
            }
            let value = match spec.key {
                K::GpuFreq => "low",
                K::Profile => "task",
                K::AccelBind => "g",
                K::SendLibs => "yes",
                K::WaitAllNodes
                | K::DelayBoot
                | K::CoreSpec
                | K::ThreadSpec
                | K::MsgTimeout
                | K::OomKillStep
                | K::Threads
                | K::ResvPorts
                | K::NtasksPerTres => "1",
                K::NoKill | K::Compress | K::GetUserEnv => "",
                key => sample(key),
            };
            let word = match spec.arg {
                Arg::None => format!("--{}", spec.long),
                _ if value.is_empty() => format!("--{}", spec.long),
                _ => format!("--{}={value}", spec.long),
            };
            let taken = drafted(command, std::slice::from_ref(&word));
            let (_, notes) = taken.unwrap_or_else(|why| panic!("{} {word}: {why}", command.name()));
            // Slurm's own line is printed for a few.
            let Some(note) = table::note(command, spec.key) else { continue };
            assert!(notes.contains(&note), "{} {word}: {notes:?}", command.name());
        }
    }
}
