//! Whole command lines, and the options that they give.

use model::container::ContainerUser;
use std::io;

use jiff::tz::TimeZone;
use model::amount::Bytes;
use model::range::Range;
use model::time::{TimeLimit, Timestamp};

use super::*;
use crate::option::job_options::{Exclusive, OpenMode};

struct TestContext {
    root: bool,
    zone: TimeZone,
}

impl ValueContext for TestContext {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1_800_000_000)
    }
    fn time_zone(&self) -> &TimeZone {
        &self.zone
    }
    fn is_root(&self) -> bool {
        self.root
    }
    fn user_id(&self, name: &str) -> Option<u32> {
        (name == "bob").then_some(1002)
    }
    fn group_id(&self, name: &str) -> Option<u32> {
        (name == "users").then_some(100)
    }
    fn read_file(&self, path: &str) -> io::Result<String> {
        match path {
            "/hosts" => Ok("n1 n[2-3]\nn7\n".to_owned()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

const HDR: &str = "#!/bin/sh\n#SBATCH -J hdr -t 9 --mem=100\n#SBATCH --ntasks=2\ntrue\n";

const COMPONENTS: &str = "#!/bin/sh\n#SBATCH -t 7 --mem=100M -J a --nice=5\n#SBATCH hetjob\n#SBATCH -t 8 -J b\n\
                     #SBATCH hetjob\n#SBATCH -n1\ntrue\n";

fn with_caller<T>(
    root: bool,
    environment: &[(&str, &str)],
    act: impl FnOnce(&Caller<'_>) -> T,
) -> T {
    let context = TestContext { root, zone: TimeZone::UTC };
    let variable = |name: &str| {
        environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    };
    let load = |name: Option<&str>| match name {
        Some("hdr.sh") => Ok(HDR.as_bytes().to_vec()),
        Some("parts.sh") => Ok(COMPONENTS.as_bytes().to_vec()),
        Some("badline.sh") => Ok(b"#!/bin/sh\n\n#SBATCH -n x\n".to_vec()),
        Some(name) => script::load(name),
        None => Ok(b"#!/bin/sh\necho stdin\n".to_vec()),
    };
    act(&Caller { variable: &variable, context: &context, load: &load })
}

fn try_batch(
    root: bool,
    environment: &[(&str, &str)],
    args: &[&str],
) -> Result<Batch, OptionError> {
    with_caller(root, environment, |caller| match batch(args, caller)? {
        Invocation::Submission(batch) => Ok(batch),
        Invocation::Question(question) => panic!("{question:?}"),
    })
}

fn options(environment: &[(&str, &str)], args: &[&str]) -> JobOptions {
    let mut batch =
        try_batch(true, environment, args).unwrap_or_else(|error| panic!("{args:?}: {error}"));
    assert_eq!(batch.components.len(), 1);
    batch.components.remove(0)
}

#[path = "refusal_tests.rs"]
mod refusals;

#[test]
fn command_line_overrides_environment_and_environment_overrides_script() {
    let environment = [("SBATCH_TIMELIMIT", "7"), ("SBATCH_PARTITION", "debug")];
    let found = options(&environment, &["-n5", "hdr.sh"]);
    assert_eq!(found.ntasks, Some(5));
    assert_eq!(found.time, Some(TimeLimit::Minutes(7)));
    assert_eq!(found.partitions, ["debug"]);
    assert_eq!(found.job_name.as_deref(), Some("hdr"));
    assert_eq!(found.mem, Some(Bytes(100 << 20)));
}

#[test]
fn later_options_undo_earlier_ones_that_contradict_them() {
    let wrapped = |args: &[&str]| options(&[], &[args, &["--wrap", "x"]].concat());
    let shared = wrapped(&["--exclusive", "-s"]);
    assert_eq!((shared.exclusive, shared.oversubscribe), (None, true));
    let whole = wrapped(&["-s", "--exclusive=user"]);
    assert_eq!((whole.exclusive, whole.oversubscribe), (Some(Exclusive::OtherUsers), false));
    assert_eq!(wrapped(&["--requeue", "--no-requeue"]).requeue, Some(false));
    assert!(!wrapped(&["--no-kill", "--no-kill=off"]).no_kill);
}

#[test]
fn typed_values_reach_their_fields() {
    let found = options(
        &[],
        &[
            "-A",
            "phys",
            "-a",
            "0-9%2",
            "-b",
            "now+1hour",
            "-c2",
            "-d",
            "afterok:12",
            "-N2-4",
            "-n8",
            "-p",
            "a,b",
            "-t",
            "1-0",
            "-w",
            "n[1-2]",
            "-x",
            "n9",
            "-G",
            "h100:4",
            "--gres=gpu:2",
            "-B",
            "2:*:1",
            "--open-mode=append",
            "--nice",
            "-vv",
            "--mem-bind=local",
            "--network=ib0",
            "--switches=1@5",
            "--wrap",
            "true",
        ],
    );
    assert_eq!(found.account.as_deref(), Some("phys"));
    assert_eq!(found.array.as_ref().and_then(|array| array.throttle), Some(2));
    assert_eq!(found.begin, Some(Timestamp::from_secs(1_800_003_600)));
    assert_eq!(found.cpus_per_task, Some(2));
    assert_eq!(found.dependency.as_ref().map(|dependency| dependency.terms.len()), Some(1));
    assert_eq!(found.nodes, Some(Range::between(2, 4)));
    assert_eq!(found.partitions, ["a", "b"]);
    assert_eq!(found.time, Some(TimeLimit::Minutes(1440)));
    assert_eq!(found.nodelist, ["n1", "n2"]);
    assert_eq!(found.exclude, ["n9"]);
    assert_eq!((found.gpus[0].kind.as_deref(), found.gpus[0].count), (Some("h100"), 4));
    assert_eq!((found.gres[0].kind.as_deref(), found.gres[0].count), (None, 2));
    let levels = (found.sockets_per_node, found.cores_per_socket, found.threads_per_core);
    assert_eq!(levels, (Some(2), None, Some(1)));
    assert_eq!(found.open_mode, Some(OpenMode::Append));
    assert_eq!((found.nice, found.verbose), (Some(100), 2));
    assert_eq!(found.untyped.get(&OptionKey::Network).map(String::as_str), Some("ib0"));
    assert_eq!(options(&[], &["-F", "/hosts", "--wrap", "x"]).nodelist, ["n1", "n2", "n3", "n7"]);
    assert_eq!(options(&[], &["-w", "/hosts", "--wrap", "x"]).nodelist.len(), 4);
}

#[test]
fn mail_types_add_up() {
    use model::mail::MailType::{Begin, End, Fail};
    let asked = ["--mail-type=END", "--mail-type=BEGIN,END", "--mail-type=fail", "--wrap", "x"];
    assert_eq!(options(&[], &asked).mail_types, [Begin, End, Fail]);
}

#[test]
fn gpus_of_tasks_are_taken_with_a_number_of_tasks_of_a_node() {
    let asked = ["-N2", "--ntasks-per-node=2", "--gpus-per-task=1", "--wrap", "x"];
    let found = options(&[], &asked);
    assert_eq!((found.ntasks, found.ntasks_per_node), (None, Some(2)));
}

#[test]
fn options_of_pyxis_describe_one_container() {
    let container = |args: &[&str]| {
        let all = [args, &["--wrap", "x"]].concat();
        options(&[], &all).container
    };
    let image = "--container-image=nvcr.io#nvidia/pytorch:24.01-py3";
    let found = container(&[image, "--container-mounts=/a,/b:/c:ro", "--container-remap-root"]);
    let found = found.expect("a container");
    assert_eq!(found.image.as_deref(), Some("nvcr.io#nvidia/pytorch:24.01-py3"));
    assert_eq!((found.mounts.len(), &found.user), (2, &ContainerUser::Root));
    let pairs = [
        ("--container-remap-root", "--no-container-remap-root"),
        ("--container-entrypoint", "--no-container-entrypoint"),
        ("--container-readonly", "--container-writable"),
    ];
    for (does, undoes) in pairs {
        assert_ne!(container(&[image, does]), container(&[image]), "{does}");
        assert_eq!(container(&[image, does, undoes]), container(&[image]), "{undoes}");
    }
    let last = container(&["--container=/bundle", "--container-image=alpine"]).expect("one");
    assert_eq!(last.image.as_deref(), Some("alpine"), "the last one counts");
}

/// No option is swallowed: with a right value each leaves a trace in the options.
#[test]
fn every_submission_option_changes_something() {
    use crate::option::table::{self, Arg};
    let right = |key| match key {
        OptionKey::Dependency => "singleton",
        OptionKey::KillOnInvalidDep => "yes",
        OptionKey::MailType => "END",
        OptionKey::Signal | OptionKey::KillCommand => "USR1",
        OptionKey::Uid => "bob",
        OptionKey::Gid => "users",
        OptionKey::Begin | OptionKey::Deadline => "now",
        OptionKey::Distribution => "block",
        OptionKey::Exclusive => "user",
        OptionKey::GpuBind => "closest",
        OptionKey::GresFlags => "enforce-binding",
        OptionKey::Gres => "gpu:1",
        OptionKey::Hint => "multithread",
        OptionKey::MemBind => "local",
        OptionKey::CpuBind => "cores",
        OptionKey::Nodefile => "/hosts",
        OptionKey::OpenMode => "append",
        OptionKey::Profile => "all",
        OptionKey::Propagate => "ALL",
        OptionKey::SendLibs => "yes",
        OptionKey::NoKill => "set",
        OptionKey::AccelBind => "g",
        OptionKey::ContainerMounts | OptionKey::ContainerWorkdir => "/data",
        OptionKey::Secret => "token",
        OptionKey::Volume => "data:/data",
        OptionKey::TresBind => "gres/gpu:closest",
        OptionKey::TresPerTask => "cpu=2",
        _ => "1",
    };
    let nothing =
        with_caller(true, &[], |caller| component_options(Command::Srun, &[], &[], &[], caller));
    let nothing = nothing.expect("nothing is right");
    for command in [Command::Sbatch, Command::Srun, Command::Salloc] {
        for spec in table::options(command) {
            if matches!(spec.key, OptionKey::Help | OptionKey::Usage | OptionKey::Version) {
                continue;
            }
            // What is so anyway: they undo another option, which is tested by itself.
            let undoes = matches!(
                spec.key,
                OptionKey::NoContainerEntrypoint
                    | OptionKey::ContainerEntrypointLog
                    | OptionKey::NoContainerRemapRoot
                    | OptionKey::ContainerWritable
                    // Refused by name.
                    | OptionKey::ContainerSave
                    | OptionKey::Reboot
            );
            let is_refused =
                matches!(table::verdict(command, spec.key), table::Verdict::Refused(_));
            if undoes || is_refused {
                continue;
            }
            let arg = match spec.arg {
                Arg::None => format!("--{}", spec.long),
                _ => format!("--{}={}", spec.long, right(spec.key)),
            };
            let parsed = parse::parse(command, &[arg.as_str()]).expect("a right line");
            let found = with_caller(true, &[], |caller| {
                component_options(command, &[], &[], &parsed.values, caller)
            })
            .unwrap_or_else(|error| panic!("{} {arg}: {error}", command.name()));
            assert_ne!(found, nothing, "{} {arg}", command.name());
        }
    }
}

#[test]
fn the_script_comes_from_wrap_a_file_or_standard_input() {
    let wrapped = try_batch(true, &[], &["--wrap", "echo hi"]).expect("right");
    assert_eq!(wrapped.script, script::wrap("echo hi"));
    let file = try_batch(true, &[], &["-n2", "hdr.sh", "-n9", "b"]).expect("right");
    assert_eq!(
        (file.script_name.as_deref(), file.args.join(" ")),
        (Some("hdr.sh"), "-n9 b".into())
    );
    assert_eq!(file.script, HDR.as_bytes());
    let piped = try_batch(true, &[], &[]).expect("right");
    assert_eq!((piped.script_name, piped.script), (None, b"#!/bin/sh\necho stdin\n".to_vec()));
    let both = try_batch(true, &[], &["--wrap", "true", "hdr.sh"]).expect_err("one of them");
    assert_eq!(
        both.render(Command::Sbatch),
        "sbatch: error: Script arguments not permitted with --wrap option\n"
    );
    assert_eq!(both.exit_code(Command::Sbatch), 1);
}

#[test]
fn questions_are_answered_before_anything_is_read() {
    let asked = with_caller(false, &[], |caller| batch(&["-V", "nosuch.sh"], caller));
    assert_eq!(asked, Ok(Invocation::Question(Question::Version)));
    let asked = with_caller(false, &[], |caller| launch(Command::Srun, &["--help"], caller));
    assert_eq!(asked, Ok(Invocation::Question(Question::Help)));
}

#[test]
fn components_of_srun_have_options_and_commands_of_their_own() {
    let environment = [("SLURM_NTASKS", "3"), ("SLURM_LABELIO", "1")];
    let args = ["-n1", "a", "x", ":", "-N2", "b"];
    let found = with_caller(false, &environment, |caller| launch(Command::Srun, &args, caller));
    let Ok(Invocation::Submission(Launch { components })) = found else { panic!("{found:?}") };
    let shown: Vec<_> =
        components.iter().map(|(options, run)| (options.ntasks, run.join(" "))).collect();
    assert_eq!(shown, [(Some(1), "a x".to_owned()), (Some(3), "b".to_owned())]);
    assert!(components.iter().all(|(options, _)| options.step.label));
}

#[test]
fn a_component_without_a_command_runs_the_next_one_and_output_is_inherited() {
    let read = |args: &[&str]| {
        let found = with_caller(false, &[], |caller| launch(Command::Srun, args, caller));
        let Invocation::Submission(Launch { components }) = found? else { panic!("no question") };
        let part = |(options, run): &(JobOptions, Vec<String>)| {
            let output = options.output.clone().unwrap_or_default();
            format!(
                "{} {} {output} {}",
                run.join(" "),
                options.step.label,
                options.ntasks.is_some()
            )
        };
        Ok::<_, OptionError>(components.iter().map(part).collect::<Vec<_>>())
    };
    let shared = read(&["-l", "-n1", "-o", "f", ":", "-o", "g", "a", ":", "b"]).expect("right");
    assert_eq!(shared, ["a true f true", "a true g false", "b true g false"]);
    for args in [&["-n1", "a", ":"][..], &["-n1", "a", ":", "-n1"], &["-n1", ":"], &[]] {
        let error = read(args).expect_err("nothing to run");
        assert_eq!(error.render(Command::Srun), "srun: fatal: No command given to execute.\n");
    }
    read(&["--mpi=list"]).expect("it asks what there is, and runs nothing");
}

#[test]
fn settings_of_a_batch_component_are_inherited_by_later_components() {
    let read = |environment: &[(&str, &str)], args: &[&str]| {
        let batch = try_batch(true, environment, args)?;
        let part = |options: &JobOptions| {
            let time = options.time.map_or("-".to_owned(), |time| format!("{time:?}"));
            let time = time.trim_start_matches("Minutes(").trim_end_matches(')');
            let (name, note) = (options.job_name.as_deref(), options.comment.as_deref());
            format!(
                "{} {} t={time} y={} m={} n={} p={}",
                name.unwrap_or("-"),
                note.unwrap_or("-"),
                options.nice.unwrap_or(0),
                options.mem.map_or(0, |mem| mem.mib()),
                options.ntasks.map_or("-".to_owned(), |n| n.to_string()),
                !options.partitions.is_empty(),
            )
        };
        Ok::<_, OptionError>(batch.components.iter().map(part).collect::<Vec<_>>().join("\n"))
    };
    // As a real sbatch does it.
    let table: [(&[_], &[_], &str); 6] = [
        (
            &[],
            &["parts.sh"],
            "a - t=7 y=5 m=100 n=- p=false\nb - t=8 y=5 m=100 n=- p=false\nb - t=8 y=5 m=100 n=1 p=false",
        ),
        // One command line is for all components of the script.
        (
            &[],
            &["-n2", "-t9", "-pdebug", "parts.sh"],
            "a - t=9 y=5 m=100 n=2 p=true\nb - t=9 y=5 m=100 n=2 p=true\nb - t=9 y=5 m=100 n=2 p=true",
        ),
        // The last command line is for the remaining components; the amounts of the first are its own.
        (
            &[],
            &["-n2", "-t9", "-pdebug", ":", "-n3", "parts.sh"],
            "a - t=9 y=5 m=100 n=2 p=true\nb - t=8 y=5 m=100 n=3 p=false\nb - t=8 y=5 m=100 n=3 p=false",
        ),
        // A name and a comment are also for those before.
        (
            &[],
            &["-n2", ":", "-Jx", ":", "--comment=c", "--mem=5M", "--wrap=true"],
            "x c t=- y=0 m=0 n=2 p=false\nx c t=- y=0 m=0 n=- p=false\nx c t=- y=0 m=5 n=- p=false",
        ),
        (
            &[],
            &["-Jx", "--comment=a", ":", "-Jy", "--comment=b", "--wrap=true"],
            "x a t=- y=0 m=0 n=- p=false\ny b t=- y=0 m=0 n=- p=false",
        ),
        // The environment is asked for each component.
        (
            &[("SBATCH_TIMELIMIT", "11")],
            &["-t9", ":", "-n1", "--wrap=true"],
            "- - t=9 y=0 m=0 n=- p=false\n- - t=11 y=0 m=0 n=1 p=false",
        ),
    ];
    for (environment, args, expected) in table {
        assert_eq!(read(environment, args).as_deref(), Ok(expected), "{args:?}");
    }
    for command in [Command::Salloc, Command::Srun] {
        let args = ["-t9", "-n2", "-D/tmp", "--mem=5M", ":", "-n3", ":", "-t8", "sh"];
        let found = with_caller(false, &[], |caller| launch(command, &args, caller));
        let Ok(Invocation::Submission(Launch { components })) = found else { panic!("{found:?}") };
        let part = |options: &JobOptions| {
            (options.time, options.ntasks, options.chdir.clone(), options.mem.map(|mem| mem.mib()))
        };
        let parts: Vec<_> = components.iter().map(|(options, _)| part(options)).collect();
        let of = |minutes, tasks| {
            (Some(TimeLimit::Minutes(minutes)), tasks, Some("/tmp".to_owned()), Some(5))
        };
        assert_eq!(parts, [of(9, Some(2)), of(9, Some(3)), of(8, None)], "{command:?}");
    }
    let error = read(&[], &["--mem=100", ":", "--mem-per-cpu=5", "--wrap=true"]);
    let words = "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.\n";
    assert_eq!(error.expect_err("two kinds").render(Command::Sbatch), words);
}
