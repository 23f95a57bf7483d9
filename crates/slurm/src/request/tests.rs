use super::*;
use crate::option::ValueContext;
use crate::option::invocation::{self, Caller, Invocation};
use jiff::tz::TimeZone;
use model::request::{Memory, Per, Request, Sharing, WaitPolicy};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

struct TestContext;

impl ValueContext for TestContext {
    fn now(&self) -> Timestamp {
        NOW
    }
    fn time_zone(&self) -> &TimeZone {
        const { &TimeZone::UTC }
    }
    fn is_root(&self) -> bool {
        true
    }
    fn user_id(&self, _: &str) -> Option<u32> {
        Some(1001)
    }
    fn group_id(&self, _: &str) -> Option<u32> {
        Some(1001)
    }
    fn read_file(&self, _: &str) -> std::io::Result<String> {
        Err(std::io::ErrorKind::NotFound.into())
    }
}

pub(super) fn caller() -> Caller<'static> {
    Caller {
        variable: &|_| None,
        context: &TestContext,
        load: &|_| Ok(b"#!/bin/sh\n#SBATCH -J header\ntrue\n".to_vec()),
    }
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub(super) fn submitter(command: Command) -> Submitter {
    let owner = Principal {
        name: String::new(),
        uid: 1001,
        gid: 1001,
        group: String::new(),
        groups: Vec::new(),
        role: Default::default(),
        token_limit: None,
    };
    Submitter {
        command,
        words: vec!["sbatch".into(), "job.sh".into()],
        owner,
        work_dir: "/home/alice/run".into(),
        host: "login1".into(),
        session: 7,
        umask: 0o027,
        nice: 0,
        rlimits: vec![("NOFILE".into(), 1024), ("CORE".into(), 0)],
        variables: pairs(&[
            ("PATH", "/opt/bin"),
            ("FOO", "1"),
            ("SLURM_X", "2"),
            ("HOME", "/h"),
            ("SLUICE_STATE", "/s"),
        ]),
        login: LoginUser {
            name: "alice".into(),
            home: "/home/alice".into(),
            shell: "/bin/sh".into(),
        },
        now: NOW,
    }
}

fn sbatch(args: &[&str]) -> Draft {
    let Ok(Invocation::Submission(read)) = invocation::batch(args, &caller()) else {
        panic!("{args:?} is not read");
    };
    batch(&read, &submitter(Command::Sbatch)).unwrap_or_else(|e| panic!("{args:?}: {e}"))
}

fn asked(args: &[&str]) -> (Request, Vec<String>) {
    let args = [args, &["--wrap", "true"]].concat();
    let draft = sbatch(&args);
    (draft.submission.spec.request().clone(), draft.notes)
}

fn variables(draft: &Draft) -> Vec<&str> {
    let blob = draft.submission.environment.as_deref().expect("a batch job has one");
    assert!(blob.ends_with('\0'), "every variable is ended");
    blob.split_terminator('\0').collect()
}

#[test]
fn nodes_without_a_task_are_taken_away() {
    const FEW: &str = "Warning: can't run 1 processes on 2 nodes, setting nnodes to 1";
    // Arguments; nodes from, to and whether said; tasks; tasks a node; how the remark begins.
    type Row<'a> = (&'a [&'a str], (u32, Option<u32>, bool), Option<u32>, Option<u32>, &'a str);
    let table: &[Row] = &[
        (&[], (1, Some(1), false), None, None, ""),
        (&["-n4"], (1, Some(1), false), Some(4), None, ""),
        (&["-N2"], (2, Some(2), true), None, None, ""),
        (&["-N2-4"], (2, Some(4), true), None, None, ""),
        (&["-N2-8", "-n4"], (2, Some(4), true), Some(4), None, ""),
        (&["-N2", "-n1"], (1, Some(1), true), Some(1), None, FEW),
        (&["-N2", "--ntasks-per-node=3"], (2, Some(2), true), None, Some(3), ""),
        (&["-N2", "-n4", "--ntasks-per-node=3"], (2, Some(2), true), Some(4), Some(3), ""),
        (&["-N2", "-n9", "--ntasks-per-node=3"], (2, Some(2), true), Some(9), Some(3), ""),
    ];
    for (args, (min, max, given), tasks, per_node, note) in table {
        let (request, notes) = asked(args);
        assert_eq!(
            (request.nodes.min, request.nodes.max, request.nodes_given),
            (*min, *max, *given),
            "{args:?}"
        );
        assert_eq!((request.tasks, request.tasks_per_node), (*tasks, *per_node), "{args:?}");
        assert_eq!(notes.is_empty(), note.is_empty(), "{args:?}: {notes:?}");
        assert!(notes.iter().all(|line| line.starts_with(note)), "{args:?}: {notes:?}");
    }
}

#[test]
fn a_node_list_longer_than_the_node_count_is_refused_or_cut() {
    let args = ["-N1", "-w", "node[1-2]", "--wrap", "true"];
    let Ok(Invocation::Submission(read)) = invocation::batch(&args, &caller()) else {
        panic!("it is read");
    };
    let refused = batch(&read, &submitter(Command::Sbatch)).expect_err("too many nodes");
    assert_eq!(refused.to_string(), "invalid number of nodes (-N 2-1)");
    // A step takes the first of them.
    let (request, notes) = resources::request(&read.components[0], NOW);
    assert_eq!(request.node_list, ["node1"]);
    assert!(notes[0].contains("(2 > 1)"), "{notes:?}");
    assert_eq!(asked(&["-w", "node[1-2]"]).0.node_list.len(), 2);
}

#[test]
fn each_memory_option_gives_its_form_of_request() {
    use model::amount::Bytes;
    use model::range::Range;
    let gib = Bytes(1 << 30);
    let table: [(&[&str], Memory); 6] = [
        (&[], Memory::Default),
        (&["--mem=1G"], Memory::PerNode(Range::exactly(gib))),
        (&["--mem-per-cpu=1G"], Memory::PerCpu(gib)),
        (&["--mem-per-gpu=1G", "--gpus=1"], Memory::PerGpu(gib)),
        (&["--mem=0"], Memory::WholeNode),
        (&["--mem-per-cpu=0"], Memory::WholeNode),
    ];
    for (args, memory) in table {
        assert_eq!(asked(args).0.memory, memory, "{args:?}");
    }
}

#[test]
fn generic_resources_are_requested_per_node_job_socket_or_task() {
    type ExpectedGres<'a> = (Per, &'a str, Option<&'a str>, u64);
    let table: [(&[&str], &[ExpectedGres<'_>]); 6] = [
        (
            &["--gres=gpu:h100:2,fpga:1"],
            &[(Per::Node, "gpu", Some("h100"), 2), (Per::Node, "fpga", None, 1)],
        ),
        (&["-G", "4"], &[(Per::Job, "gpu", None, 4)]),
        (&["--gpus-per-node=a100:2"], &[(Per::Node, "gpu", Some("a100"), 2)]),
        (&["--gpus-per-task=1", "-n2"], &[(Per::Task, "gpu", None, 1)]),
        (&["--gpus-per-socket=1", "--sockets-per-node=1"], &[(Per::Socket, "gpu", None, 1)]),
        (&["--gres=gpu:0"], &[]),
    ];
    for (args, wanted) in table {
        let request = asked(args).0;
        let found: Vec<_> = request
            .gres
            .iter()
            .map(|g| (g.per, g.name.as_str(), g.kinds.first().map(String::as_str), g.count.min))
            .collect();
        assert_eq!(found, wanted, "{args:?}");
    }
}

#[test]
fn sharing_and_other_options_reach_the_request() {
    let table: [(&[&str], Sharing); 4] = [
        (&[], Sharing::Share),
        (&["--exclusive"], Sharing::Node),
        (&["--exclusive=user"], Sharing::User),
        (&["-s"], Sharing::Oversubscribe),
    ];
    for (args, sharing) in table {
        assert_eq!(asked(args).0.sharing, sharing, "{args:?}");
    }
    let (request, _) =
        asked(&["-c4", "-p", "a,b", "--begin=now+60", "-L", "matlab:2", "--mincpus=3"]);
    assert_eq!((request.cpus_per_task.min, request.cpus_per_task_given), (4, true));
    assert!(!asked(&[]).0.cpus_per_task_given, "one CPU a task is a default, not a wish");
    assert_eq!(request.partitions, ["a", "b"]);
    assert_eq!(request.begin, Some(Timestamp::from_secs(NOW.secs() + 60)));
    assert_eq!(request.licenses, [("matlab".to_owned(), 2)]);
    assert_eq!(request.cpus_per_node, Some(3));
}

#[test]
fn immediate_waits_not_at_all_or_until_its_seconds_have_passed() {
    let of = |args: &[&str]| {
        let args = [args, &["true"]].concat();
        let Ok(Invocation::Submission(read)) = invocation::launch(Command::Srun, &args, &caller())
        else {
            panic!("{args:?} is not read");
        };
        let (options, argv) = &read.components[0];
        let draft = allocation(options, argv, &submitter(Command::Srun)).expect("well formed");
        draft.submission.spec.request().wait_policy
    };
    assert_eq!(of(&[]), WaitPolicy::Forever);
    assert_eq!(of(&["-I"]), WaitPolicy::Now);
    assert_eq!(of(&["-I30"]), WaitPolicy::Until(Timestamp::from_secs(NOW.secs() + 30)));
}

#[test]
fn a_job_is_named_after_what_it_runs() {
    let table: [(&[&str], &str, Option<&str>); 6] = [
        (&["--wrap", "true"], "wrap", None),
        (&["-J", "mine", "--wrap", "true"], "mine", None),
        (&["dir/job.sh", "a", "b c"], "header", Some("/home/alice/run/dir/job.sh")),
        (&["-J", "mine", "/x/job.sh"], "mine", Some("/x/job.sh")),
        (&["./job.sh"], "header", Some("/home/alice/run/job.sh")),
        (&[], "header", None),
    ];
    for (args, name, command) in table {
        let spec = sbatch(args).submission.spec;
        assert_eq!((&*spec.name, spec.launch.command.as_deref()), (name, command), "{args:?}");
    }
    let options = JobOptions::default();
    let bash = &["/bin/bash".to_owned()][..];
    let table = [
        (Command::Salloc, &[][..], "interactive"),
        (Command::Salloc, bash, "interactive"),
        (Command::Srun, bash, "bash"),
    ];
    for (command, argv, name) in table {
        let draft = allocation(&options, argv, &submitter(command)).expect("well formed");
        assert_eq!(&*draft.submission.spec.name, name);
    }
}

#[test]
fn the_submitters_folder_umask_and_host_are_submitted() {
    let draft =
        sbatch(&["-D", "sub", "-o", "none", "--open-mode=append", "-H", "job.sh", "x", "y z"]);
    let Submission { spec, hold, script, .. } = draft.submission;
    assert_eq!(&*spec.launch.work_dir, "/home/alice/run/sub");
    assert_eq!(spec.launch.stdout.as_deref(), Some("/dev/null"));
    assert_eq!(spec.launch.stderr, None, "the server knows the default");
    assert!(spec.launch.append_output);
    assert_eq!(spec.launch.arguments, ["x", "y z"]);
    assert_eq!((spec.launch.umask, hold), (0o027, Some(Hold::User)));
    assert_eq!(&*spec.submit_line, "sbatch job.sh");
    assert!(script.is_some_and(|text| text.as_bytes().starts_with(b"#!/bin/sh")));
}

#[test]
fn batch_job_has_the_container_that_it_names_and_with_none_it_has_none() {
    let container = |args: &[&str]| {
        let draft = sbatch(&[args, &["--wrap", "true"]].concat());
        draft.submission.spec.launch.container.clone()
    };
    let named = container(&["--container=alpine"]).expect("a container");
    assert_eq!(named.image.as_deref(), Some("alpine"));
    assert_eq!(container(&[]), None);
    // Over a variable of the environment, or a line of the script.
    assert_eq!(container(&["--container=alpine", "--container=none"]), None);
    let notes = |image| sbatch(&["--get-user-env", image, "--wrap", "true"]).notes.len();
    assert_eq!((notes("--container=alpine"), notes("--container=none")), (1, 0));
}

#[test]
fn a_batch_job_is_requeued_unless_told_otherwise_and_an_allocation_never() {
    assert!(sbatch(&["--wrap", "true"]).submission.spec.requeue);
    assert!(!sbatch(&["--no-requeue", "--wrap", "true"]).submission.spec.requeue);
    let held = allocation(&JobOptions::default(), &[], &submitter(Command::Salloc));
    assert!(!held.expect("well formed").submission.spec.requeue);
}

#[test]
fn propagate_chooses_the_limits_that_are_submitted() {
    let table: [(&[&str], &[&str]); 4] = [
        (&[], &["NOFILE", "CORE"]),
        (&["--propagate"], &["NOFILE", "CORE"]),
        (&["--propagate=NOFILE"], &["NOFILE"]),
        (&["--propagate=NONE"], &[]),
    ];
    for (args, names) in table {
        let args = [args, &["--wrap", "true"]].concat();
        let limits = sbatch(&args).submission.spec.launch.rlimits.clone();
        let found: Vec<&str> = limits.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found, names, "{args:?}");
    }
}

#[test]
fn export_chooses_the_submitted_environment() {
    let always = [
        "SLURM_PRIO_PROCESS=0",
        "SLURM_SUBMIT_DIR=/home/alice/run",
        "SLURM_SUBMIT_HOST=login1",
        "SLUICE_STATE=/s",
    ];
    let table: [(&[&str], &[&str], &[&str]); 4] = [
        (&[], &["FOO=1", "HOME=/h", "PATH=/opt/bin"], &["USER=", "SLURM_EXPORT_ENV="]),
        (&["--export=ALL,BAR=3"], &["FOO=1", "BAR=3"], &["USER="]),
        (&["--export=NONE"], &["HOME=/home/alice", "USER=alice"], &["FOO=", "PATH=/opt"]),
        (&["--export=FOO=bar,HOME"], &["FOO=bar", "HOME=/h", "USER=alice"], &["PATH=/opt"]),
    ];
    for (args, present, absent) in table {
        let args = [args, &["--wrap", "true"]].concat();
        let draft = sbatch(&args);
        let found = variables(&draft);
        for wanted in present.iter().chain(&always) {
            assert!(found.contains(wanted), "{args:?}: {wanted} is missing in {found:?}");
        }
        for unwanted in absent {
            assert!(
                !found.iter().any(|v| v.starts_with(unwanted)),
                "{args:?}: {unwanted} in {found:?}"
            );
        }
    }
}

#[test]
fn options_that_steps_read_are_variables_of_the_job() {
    let args = ["--gpus-per-node=h100:2", "--hint=nomultithread", "-d", "afterok:7:8"];
    let draft = sbatch(&[&args[..], &["--wrap", "true"]].concat());
    let given = [
        "SLURM_GPUS_PER_NODE=h100:2",
        "SLURM_HINT=nomultithread",
        "SLURM_JOB_DEPENDENCY=afterok:7,afterok:8",
    ];
    let found = variables(&draft);
    assert!(given.iter().all(|variable| found.contains(variable)), "{found:?}");
    // A job that is submitted inside another has its own.
    let outer = [("SLURM_JOB_ID", "9"), ("SLURM_GPUS_PER_NODE", "4"), ("SLURM_GPU_BIND", "none")];
    let inside = Submitter { variables: pairs(&outer), ..submitter(Command::Sbatch) };
    let Ok(Invocation::Submission(read)) = invocation::batch(&["--wrap", "true"], &caller()) else {
        panic!("it is not read");
    };
    let draft = batch(&read, &inside).expect("it is taken");
    let is_of_outer = |variable: &&str| variable.starts_with("SLURM_GPU");
    assert!(!variables(&draft).iter().any(is_of_outer), "{:?}", variables(&draft));
}

#[test]
fn a_hint_means_the_same_in_any_case() {
    for hint in ["--hint=nomultithread", "--hint=NoMultiThread"] {
        assert_eq!(asked(&[hint]).0.threads_per_core, Some(1), "{hint}");
    }
}

#[test]
fn components_are_named_wrap_if_any_has_a_wrapped_command() {
    let draft = sbatch(&["-n1", ":", "-n2", "--wrap", "true"]);
    assert_eq!(&*draft.submission.spec.name, "wrap");
}

#[test]
fn a_held_component_holds_the_whole_job() {
    for args in [&["-H", ":", "--wrap", "true"][..], &["-n1", ":", "-n2", "-H", "--wrap", "true"]] {
        assert_eq!(sbatch(args).submission.hold, Some(Hold::User), "{args:?}");
    }
    assert_eq!(sbatch(&["-n1", ":", "--wrap", "true"]).submission.hold, None);
}

#[test]
fn a_script_that_is_not_utf_8_is_submitted_as_it_is() {
    let read = Batch {
        components: vec![JobOptions::default()],
        script: b"#!/bin/sh\n# gr\xfcn\n".to_vec(),
        script_name: None,
        args: Vec::new(),
        notes: Vec::new(),
    };
    let draft = batch(&read, &submitter(Command::Sbatch)).expect("a job");
    assert_eq!(draft.submission.script.map(Vec::from), Some(read.script));
}
