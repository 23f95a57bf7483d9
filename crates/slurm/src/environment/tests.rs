//! The environments of steps, what is exported, and the notices, against the captures.

use super::export::{LoginUser, exported};
use super::notice::{self, Cause};
use super::testing::{assert_variables, facts, two_nodes};
use super::*;
use crate::option::job_options::{Export, ExportVariable};
use crate::output::samples::share;
use model::allocation::NodeShare;
use model::container::{Container, ContainerName, NO_CONTAINER};
use model::id::{JobId, StepId};
use std::sync::Arc;
use wire::step::{StepInput, StepLaunch, StepLayout, StepNode};

fn alice_login() -> LoginUser {
    LoginUser { name: "alice".into(), home: "/home/alice".into(), shell: "/bin/bash".into() }
}

#[test]
fn a_step_has_the_captured_variables() {
    let (spec, allocation) = two_nodes();
    let layout = layout();
    let env = step::variables(
        &facts(78, &spec, &allocation),
        &layout,
        &launch("127.0.0.1:34187"),
        0,
        None,
    );
    assert_variables(
        &env,
        &[
            "SLURMD_NODENAME=node1",
            "SLURM_CLUSTER_NAME=lab",
            "SLURM_CONF=/lab/etc/slurm.conf",
            "SLURM_CPUS_ON_NODE=6",
            "SLURM_CPUS_PER_TASK=2",
            "SLURM_DISTRIBUTION=block",
            "SLURM_JOBID=78",
            "SLURM_JOB_ACCOUNT=physics",
            "SLURM_JOB_CPUS_PER_NODE=6,2",
            "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0=6,2",
            "SLURM_JOB_GID=1001",
            "SLURM_JOB_ID=78",
            "SLURM_JOB_NAME=envcap",
            "SLURM_JOB_NODELIST=node[1-2]",
            "SLURM_JOB_NUM_NODES=2",
            "SLURM_JOB_PARTITION=gpu",
            "SLURM_JOB_QOS=normal",
            "SLURM_JOB_UID=1001",
            "SLURM_JOB_USER=alice",
            "SLURM_LAUNCH_NODE_IPADDR=127.0.0.1",
            "SLURM_MEM_PER_NODE=2048",
            "SLURM_NNODES=2",
            "SLURM_NODEID=0",
            "SLURM_NODELIST=node[1-2]",
            "SLURM_NODE_ALIASES=(null)",
            "SLURM_NPROCS=4",
            "SLURM_NTASKS=4",
            "SLURM_PRIO_PROCESS=0",
            "SLURM_SRUN_COMM_HOST=127.0.0.1",
            "SLURM_SRUN_COMM_PORT=34187",
            "SLURM_STEPID=0",
            "SLURM_STEP_ID=0",
            "SLURM_STEP_LAUNCHER_PORT=34187",
            "SLURM_STEP_NODELIST=node[1-2]",
            "SLURM_STEP_NUM_NODES=2",
            "SLURM_STEP_NUM_TASKS=4",
            "SLURM_STEP_TASKS_PER_NODE=2(x2)",
            "SLURM_SUBMIT_DIR=/lab/jobs",
            "SLURM_SUBMIT_HOST=vm",
            "SLURM_TASKS_PER_NODE=2(x2)",
            "SLURM_TOPOLOGY_ADDR=node1",
            "SLURM_TOPOLOGY_ADDR_PATTERN=node",
            "SLURM_UMASK=0022",
        ],
    );
    let second =
        step::variables(&facts(78, &spec, &allocation), &layout, &launch("[::1]:9"), 1, None);
    assert_eq!(second.get("SLURM_NODEID"), Some("1"));
    assert_eq!(second.get("SLURM_SRUN_COMM_HOST"), Some("::1"));
    assert_eq!(second.get("SLURMD_NODENAME"), Some("node2"));
    let filled: Vec<String> = step::process_variables().into_iter().map(|(name, _)| name).collect();
    assert_eq!(filled[..4], ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_TASK_PID", "SLURM_GTIDS"]);
    assert!(filled.iter().any(|name| name == "SLURM_CPU_BIND_LIST"));
}

#[test]
fn a_step_is_told_the_image_that_it_runs_in() {
    let (mut spec, allocation) = two_nodes();
    let container = |image: &str| {
        Some(Box::new(Container { image: Some(image.into()), ..Container::default() }))
    };
    let options = Container { work_dir: Some("/opt".into()), ..Container::default() };
    let named = Container { name: ContainerName::parse("n").ok(), ..options.clone() };
    Arc::make_mut(&mut spec.launch).container = container("/of/job");
    for (own, expected) in [
        (None, Some("/of/job")),
        (container("/own"), Some("/own")),
        (container(NO_CONTAINER), None),
        (Some(Box::new(options)), Some("/of/job")),
        (Some(Box::new(named)), None),
    ] {
        let environment = "A=1\0SLURM_CONTAINER=/of/job\0".to_owned();
        let launch = StepLaunch { container: own, environment, ..launch("[::1]:9") };
        let env = step::variables(&facts(78, &spec, &allocation), &layout(), &launch, 1, None);
        assert_eq!(env.get("SLURM_CONTAINER"), expected);
        let inherited = Environment::from_block(&step::launch_on(&launch, None, None).environment);
        assert_eq!(inherited.get("A"), Some("1"));
        assert_eq!(inherited.get("SLURM_CONTAINER").is_some(), expected.is_some());
    }
}

#[test]
fn a_step_without_gpus_does_not_inherit_what_names_those_of_its_job() {
    let (with, without) = (share("n", 4, 1024, &[0, 1], 1), share("n", 4, 1024, &[], 1));
    let environment = "A=1\0CUDA_VISIBLE_DEVICES=0,1\0SLURM_STEP_GPUS=0,1\0".to_owned();
    let launch = StepLaunch { environment, ..launch("[::1]:9") };
    let inherited = |of_job: &NodeShare, share: &NodeShare| {
        let launch = step::launch_on(&launch, Some(of_job), Some(share));
        let environment = Environment::from_block(&launch.environment);
        ["A", "CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS"].map(|name| environment.get(name).is_some())
    };
    assert_eq!(inherited(&with, &with), [true; 3]);
    assert_eq!(inherited(&with, &without), [true, false, false]);
    assert_eq!(inherited(&without, &without), [true; 3], "a user's own are left alone");
}

fn layout() -> StepLayout {
    let node =
        |name: &str, tasks: &[u32]| StepNode { node: name.into(), tasks: tasks.to_vec(), cpus: 4 };
    StepLayout {
        job: JobId(78),
        step: StepId::Number(0),
        attempt: 1,
        nodes: vec![node("node1", &[0, 1]), node("node2", &[2, 3])],
        cpus_per_task: 2,
        srun_prolog_epilog: Default::default(),
    }
}

fn launch(listen: &str) -> StepLaunch {
    StepLaunch {
        name: "bash".into(),
        argv: vec!["bash".into()],
        environment: String::new(),
        secret_variables: Vec::new(),
        registry_auth: None,
        work_dir: "/lab/jobs".into(),
        tasks: None,
        nodes: None,
        tasks_per_node: None,
        cpus_per_task: None,
        node_list: Vec::new(),
        listen: Vec::new(),
        encrypted_listen: vec![listen.into()],
        network_stack: None,
        key: String::new(),
        umask: 0o022,
        stdin: StepInput::All,
        stdout: None,
        stderr: None,
        submit_line: String::new(),
        overcommit: false,
        pty: false,
        window: None,
        shape: Default::default(),
        distribution: None,
        cpu_bind: Default::default(),
        mem_bind: None,
        cpu_frequency: None,
        rlimits: None,
        gpu_bind: None,
        programs: Vec::new(),
        task_prolog: None,
        task_epilog: None,
        starts: Default::default(),
        time_limit: None,
        container: None,
        joins_script: false,
        own_program: None,
        receives_file: false,
    }
}

#[test]
fn export_passes_all_some_or_no_variables_on() {
    let own: Environment =
        [("HOME", "/home/alice"), ("FOO", "1"), ("SLURM_CONF", "/c"), ("PATH", "/opt")]
            .into_iter()
            .collect();
    let variable = |name: &str, value: Option<&str>| ExportVariable {
        name: name.into(),
        value: value.map(str::to_owned),
    };
    let login = &alice_login();
    let names = |export: Option<&Export>| {
        let env = exported(&own, export, login);
        env.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(None), "FOO=1 HOME=/home/alice PATH=/opt SLURM_CONF=/c");
    let all = Export::All(vec![variable("FOO", Some("2"))]);
    assert_eq!(
        names(Some(&all)),
        "FOO=2 HOME=/home/alice PATH=/opt SLURM_CONF=/c SLURM_EXPORT_ENV=ALL,FOO=2"
    );
    let only = Export::Only(vec![variable("FOO", Some("bar")), variable("HOME", None)]);
    assert_eq!(
        names(Some(&only)),
        "FOO=bar HOME=/home/alice LOGNAME=alice PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games \
         SHELL=/bin/bash SLURM_CONF=/c SLURM_EXPORT_ENV=FOO=bar,HOME SLURM_GET_USER_ENV=1 USER=alice"
    );
    assert!(!names(Some(&Export::None)).contains("FOO"));
    assert_eq!(names(Some(&Export::Nil)), "SLURM_CONF=/c SLURM_EXPORT_ENV=NIL");
}

#[test]
fn an_environment_is_read_back_from_its_block() {
    let env = Environment::from_block("A=1\0B=x=y\0C=\0nothing\0");
    assert_eq!((env.get("B"), env.get("C"), env.get("nothing")), (Some("x=y"), Some(""), None));
    assert_eq!(env.to_block(), "A=1\0B=x=y\0C=\0");
}

#[test]
fn equal_counts_are_compressed() {
    let table: [(&[u32], &str); 5] =
        [(&[1], "1"), (&[2, 2], "2(x2)"), (&[2, 2, 1], "2(x2),1"), (&[6, 2], "6,2"), (&[], "")];
    for (counts, text) in table {
        assert_eq!(compress_counts(counts.iter().copied()), text);
    }
}

/// The captures say `slurmstepd-node1:` because several agents ran on one host.
#[test]
fn notices_have_the_words_of_slurmstepd() {
    let filled =
        |line: String| line.replace("{node}", "node1").replace("{time}", "2026-11-15T00:51:25");
    let table = [
        (
            notice::job(JobId(87), Cause::TimeLimit),
            "JOB 87 ON node1 CANCELLED AT 2026-11-15T00:51:25 DUE TO TIME LIMIT",
        ),
        (
            notice::job(JobId(87), Cause::Cancelled),
            "JOB 87 ON node1 CANCELLED AT 2026-11-15T00:51:25",
        ),
        (
            notice::job(JobId(87), Cause::Preemption),
            "JOB 87 ON node1 CANCELLED AT 2026-11-15T00:51:25 DUE TO PREEMPTION",
        ),
        (
            notice::job(JobId(87), Cause::Requeue),
            "JOB 87 ON node1 CANCELLED AT 2026-11-15T00:51:25 DUE TO JOB REQUEUE",
        ),
        (
            notice::job(JobId(87), Cause::NodeFailure),
            "JOB 87 ON node1 CANCELLED AT 2026-11-15T00:51:25 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS",
        ),
        (
            notice::step(Cause::TimeLimit).replace("{step}", "88.0"),
            "STEP 88.0 ON node1 CANCELLED AT 2026-11-15T00:51:25 DUE TO TIME LIMIT",
        ),
    ];
    for (line, expected) in table {
        assert_eq!(filled(line), format!("slurmstepd: error: *** {expected} ***"));
    }
    let oom = notice::launch_notices(JobId(91)).out_of_memory;
    assert_eq!(
        oom.replace("{count}", "1").replace("{step}", "91.batch"),
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=91.batch. Some of your processes may have been \
         killed by the cgroup out-of-memory handler."
    );
}
