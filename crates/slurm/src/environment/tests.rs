//! The environments against the captures. What the node fills in (ranks and process ids), what `sbatch` itself exports
//! (`SLURM_GPUS_PER_NODE`) and the address of Slurm's own controller are left out of them.

use super::export::{Login, exported, submitted};
use super::job::{ArrayFacts, DeviceNumbering, JobFacts, batch};
use super::notice::{self, Cause};
use super::*;
use crate::option::job_options::{Export, ExportVariable, JobOptions};
use crate::output::samples::{self, alice, gpu_request, share};
use model::allocation::Allocation;
use model::amount::Bytes;
use model::array::IndexSet;
use model::id::{JobId, StepId};
use model::partition::DefaultMemory;
use model::range::Range;
use model::request::{Memory, Per, Request};
use model::run::JobSpec;
use wire::step::{StepInput, StepLaunch, StepLayout, StepNode};

fn spec(request: Request) -> JobSpec {
    JobSpec { submit_host: "vm".into(), ..samples::spec("envcap", alice(), request) }
}

fn facts<'a>(job: u32, spec: &'a JobSpec, allocation: &'a Allocation) -> JobFacts<'a> {
    JobFacts {
        cluster: "lab",
        job: JobId(job),
        array: None,
        spec,
        allocation,
        account: "physics",
        qos: "normal",
        restarts: 0,
        default_memory: Some(DefaultMemory::PerCpu(Bytes::from_mib(1000))),
        conf_file: Some("/lab/etc/slurm.conf"),
        submit_dir: None,
        numbering: DeviceNumbering::Node,
    }
}

#[track_caller]
fn assert_variables(env: &Environment, expected: &[&str]) {
    assert_eq!(env.to_entries(), expected);
}

#[test]
fn a_plain_batch_job() {
    let spec = spec(Request::default());
    let allocation = samples::allocation(vec![share("node1", 1, 1000, &[], 1)]);
    let env = batch(&facts(77, &spec, &allocation), 0, Environment::new());
    assert_variables(
        &env,
        &[
            "ENVIRONMENT=BATCH",
            "HOSTNAME=node1",
            "LOGNAME=alice",
            "SLURMD_NODENAME=node1",
            "SLURM_CLUSTER_NAME=lab",
            "SLURM_CONF=/lab/etc/slurm.conf",
            "SLURM_CPUS_ON_NODE=1",
            "SLURM_GTIDS=0",
            "SLURM_JOBID=77",
            "SLURM_JOB_ACCOUNT=physics",
            "SLURM_JOB_CPUS_PER_NODE=1",
            "SLURM_JOB_GID=1001",
            "SLURM_JOB_ID=77",
            "SLURM_JOB_NAME=envcap",
            "SLURM_JOB_NODELIST=node1",
            "SLURM_JOB_NUM_NODES=1",
            "SLURM_JOB_PARTITION=gpu",
            "SLURM_JOB_QOS=normal",
            "SLURM_JOB_UID=1001",
            "SLURM_JOB_USER=alice",
            "SLURM_LOCALID=0",
            "SLURM_MEM_PER_CPU=1000",
            "SLURM_NNODES=1",
            "SLURM_NODEID=0",
            "SLURM_NODELIST=node1",
            "SLURM_NODE_ALIASES=(null)",
            "SLURM_PRIO_PROCESS=0",
            "SLURM_PROCID=0",
            "SLURM_SUBMIT_DIR=/lab/jobs",
            "SLURM_SUBMIT_HOST=vm",
            "SLURM_TASKS_PER_NODE=1",
            "SLURM_TOPOLOGY_ADDR=node1",
            "SLURM_TOPOLOGY_ADDR_PATTERN=node",
            "TMPDIR=/tmp",
            "USER=alice",
        ],
    );
}

/// `-N2 -n4 -c2 --mem=2G`
fn two_nodes() -> (JobSpec, Allocation) {
    let spec = spec(Request {
        nodes: Range::exactly(2),
        tasks: Some(4),
        cpus_per_task: Range::exactly(2),
        cpus_per_task_given: true,
        memory: Memory::PerNode(Range::exactly(Bytes::from_gib(2))),
        ..Request::default()
    });
    let shares = vec![share("node1", 6, 2048, &[], 3), share("node2", 2, 2048, &[], 1)];
    (spec, samples::allocation(shares))
}

#[test]
fn two_nodes_that_are_not_alike() {
    let (spec, allocation) = two_nodes();
    let env = batch(&facts(78, &spec, &allocation), 0, Environment::new());
    assert_variables(
        &env,
        &[
            "ENVIRONMENT=BATCH",
            "HOSTNAME=node1",
            "LOGNAME=alice",
            "SLURMD_NODENAME=node1",
            "SLURM_CLUSTER_NAME=lab",
            "SLURM_CONF=/lab/etc/slurm.conf",
            "SLURM_CPUS_ON_NODE=6",
            "SLURM_CPUS_PER_TASK=2",
            "SLURM_GTIDS=0",
            "SLURM_JOBID=78",
            "SLURM_JOB_ACCOUNT=physics",
            "SLURM_JOB_CPUS_PER_NODE=6,2",
            "SLURM_JOB_GID=1001",
            "SLURM_JOB_ID=78",
            "SLURM_JOB_NAME=envcap",
            "SLURM_JOB_NODELIST=node[1-2]",
            "SLURM_JOB_NUM_NODES=2",
            "SLURM_JOB_PARTITION=gpu",
            "SLURM_JOB_QOS=normal",
            "SLURM_JOB_UID=1001",
            "SLURM_JOB_USER=alice",
            "SLURM_LOCALID=0",
            "SLURM_MEM_PER_NODE=2048",
            "SLURM_NNODES=2",
            "SLURM_NODEID=0",
            "SLURM_NODELIST=node[1-2]",
            "SLURM_NODE_ALIASES=(null)",
            "SLURM_NPROCS=4",
            "SLURM_NTASKS=4",
            "SLURM_PRIO_PROCESS=0",
            "SLURM_PROCID=0",
            "SLURM_SUBMIT_DIR=/lab/jobs",
            "SLURM_SUBMIT_HOST=vm",
            "SLURM_TASKS_PER_NODE=3,1",
            "SLURM_TOPOLOGY_ADDR=node1",
            "SLURM_TOPOLOGY_ADDR_PATTERN=node",
            "TMPDIR=/tmp",
            "USER=alice",
        ],
    );
}

#[test]
fn tasks_and_gpus_per_node() {
    let spec = spec(Request {
        nodes: Range::exactly(2),
        tasks_per_node: Some(2),
        gres: vec![gpu_request(Per::Node, 2)],
        ..Request::default()
    });
    let shares = ["node1", "node2"].map(|node| share(node, 2, 2000, &[0, 1], 2));
    let allocation = samples::allocation(shares.to_vec());
    let env = batch(&facts(79, &spec, &allocation), 0, Environment::new());
    assert_variables(
        &env,
        &[
            "CUDA_VISIBLE_DEVICES=0,1",
            "ENVIRONMENT=BATCH",
            "GPU_DEVICE_ORDINAL=0,1",
            "HOSTNAME=node1",
            "LOGNAME=alice",
            "ROCR_VISIBLE_DEVICES=0,1",
            "SLURMD_NODENAME=node1",
            "SLURM_CLUSTER_NAME=lab",
            "SLURM_CONF=/lab/etc/slurm.conf",
            "SLURM_CPUS_ON_NODE=2",
            "SLURM_GPUS_ON_NODE=2",
            "SLURM_GTIDS=0",
            "SLURM_JOBID=79",
            "SLURM_JOB_ACCOUNT=physics",
            "SLURM_JOB_CPUS_PER_NODE=2(x2)",
            "SLURM_JOB_GID=1001",
            "SLURM_JOB_GPUS=0,1",
            "SLURM_JOB_ID=79",
            "SLURM_JOB_NAME=envcap",
            "SLURM_JOB_NODELIST=node[1-2]",
            "SLURM_JOB_NUM_NODES=2",
            "SLURM_JOB_PARTITION=gpu",
            "SLURM_JOB_QOS=normal",
            "SLURM_JOB_UID=1001",
            "SLURM_JOB_USER=alice",
            "SLURM_LOCALID=0",
            "SLURM_MEM_PER_CPU=1000",
            "SLURM_NNODES=2",
            "SLURM_NODEID=0",
            "SLURM_NODELIST=node[1-2]",
            "SLURM_NODE_ALIASES=(null)",
            "SLURM_NPROCS=4",
            "SLURM_NTASKS=4",
            "SLURM_NTASKS_PER_NODE=2",
            "SLURM_PRIO_PROCESS=0",
            "SLURM_PROCID=0",
            "SLURM_SUBMIT_DIR=/lab/jobs",
            "SLURM_SUBMIT_HOST=vm",
            "SLURM_TASKS_PER_NODE=2(x2)",
            "SLURM_TOPOLOGY_ADDR=node1",
            "SLURM_TOPOLOGY_ADDR_PATTERN=node",
            "TMPDIR=/tmp",
            "USER=alice",
        ],
    );
}

#[test]
fn a_task_of_an_array() {
    let spec = spec(Request::default());
    let allocation = samples::allocation(vec![share("node1", 1, 1000, &[], 1)]);
    let all = IndexSet::parse("3-7:2", 1000).expect("good indices");
    let facts = JobFacts {
        array: Some(ArrayFacts::new(JobId(80), 3, &all)),
        ..facts(81, &spec, &allocation)
    };
    assert_variables(
        &batch(&facts, 0, Environment::new()),
        &[
            "ENVIRONMENT=BATCH",
            "HOSTNAME=node1",
            "LOGNAME=alice",
            "SLURMD_NODENAME=node1",
            "SLURM_ARRAY_JOB_ID=80",
            "SLURM_ARRAY_TASK_COUNT=3",
            "SLURM_ARRAY_TASK_ID=3",
            "SLURM_ARRAY_TASK_MAX=7",
            "SLURM_ARRAY_TASK_MIN=3",
            "SLURM_ARRAY_TASK_STEP=2",
            "SLURM_CLUSTER_NAME=lab",
            "SLURM_CONF=/lab/etc/slurm.conf",
            "SLURM_CPUS_ON_NODE=1",
            "SLURM_GTIDS=0",
            "SLURM_JOBID=81",
            "SLURM_JOB_ACCOUNT=physics",
            "SLURM_JOB_CPUS_PER_NODE=1",
            "SLURM_JOB_GID=1001",
            "SLURM_JOB_ID=81",
            "SLURM_JOB_NAME=envcap",
            "SLURM_JOB_NODELIST=node1",
            "SLURM_JOB_NUM_NODES=1",
            "SLURM_JOB_PARTITION=gpu",
            "SLURM_JOB_QOS=normal",
            "SLURM_JOB_UID=1001",
            "SLURM_JOB_USER=alice",
            "SLURM_LOCALID=0",
            "SLURM_MEM_PER_CPU=1000",
            "SLURM_NNODES=1",
            "SLURM_NODEID=0",
            "SLURM_NODELIST=node1",
            "SLURM_NODE_ALIASES=(null)",
            "SLURM_PRIO_PROCESS=0",
            "SLURM_PROCID=0",
            "SLURM_SUBMIT_DIR=/lab/jobs",
            "SLURM_SUBMIT_HOST=vm",
            "SLURM_TASKS_PER_NODE=1",
            "SLURM_TOPOLOGY_ADDR=node1",
            "SLURM_TOPOLOGY_ADDR_PATTERN=node",
            "TMPDIR=/tmp",
            "USER=alice",
        ],
    );
}

#[test]
fn gpus_with_memory_by_cpu() {
    let spec = spec(Request {
        cpus_per_task: Range::exactly(8),
        cpus_per_task_given: true,
        memory: Memory::PerCpu(Bytes::from_mib(500)),
        gres: vec![gpu_request(Per::Node, 4)],
        ..Request::default()
    });
    let allocation = samples::allocation(vec![share("node1", 8, 4000, &[0, 1, 2, 3], 1)]);
    let env = batch(&facts(82, &spec, &allocation), 0, Environment::new());
    assert_variables(
        &env,
        &[
            "CUDA_VISIBLE_DEVICES=0,1,2,3",
            "ENVIRONMENT=BATCH",
            "GPU_DEVICE_ORDINAL=0,1,2,3",
            "HOSTNAME=node1",
            "LOGNAME=alice",
            "ROCR_VISIBLE_DEVICES=0,1,2,3",
            "SLURMD_NODENAME=node1",
            "SLURM_CLUSTER_NAME=lab",
            "SLURM_CONF=/lab/etc/slurm.conf",
            "SLURM_CPUS_ON_NODE=8",
            "SLURM_CPUS_PER_TASK=8",
            "SLURM_GPUS_ON_NODE=4",
            "SLURM_GTIDS=0",
            "SLURM_JOBID=82",
            "SLURM_JOB_ACCOUNT=physics",
            "SLURM_JOB_CPUS_PER_NODE=8",
            "SLURM_JOB_GID=1001",
            "SLURM_JOB_GPUS=0,1,2,3",
            "SLURM_JOB_ID=82",
            "SLURM_JOB_NAME=envcap",
            "SLURM_JOB_NODELIST=node1",
            "SLURM_JOB_NUM_NODES=1",
            "SLURM_JOB_PARTITION=gpu",
            "SLURM_JOB_QOS=normal",
            "SLURM_JOB_UID=1001",
            "SLURM_JOB_USER=alice",
            "SLURM_LOCALID=0",
            "SLURM_MEM_PER_CPU=500",
            "SLURM_NNODES=1",
            "SLURM_NODEID=0",
            "SLURM_NODELIST=node1",
            "SLURM_NODE_ALIASES=(null)",
            "SLURM_PRIO_PROCESS=0",
            "SLURM_PROCID=0",
            "SLURM_SUBMIT_DIR=/lab/jobs",
            "SLURM_SUBMIT_HOST=vm",
            "SLURM_TASKS_PER_NODE=1",
            "SLURM_TOPOLOGY_ADDR=node1",
            "SLURM_TOPOLOGY_ADDR_PATTERN=node",
            "TMPDIR=/tmp",
            "USER=alice",
        ],
    );
}

#[test]
fn gpus_by_job_and_task_with_cpus_and_memory_by_gpu() {
    let spec = spec(Request {
        tasks: Some(2),
        cpus_per_gpu: Some(2),
        memory: Memory::PerGpu(Bytes::from_gib(1)),
        gres: vec![gpu_request(Per::Job, 2), gpu_request(Per::Task, 1)],
        ..Request::default()
    });
    let allocation = samples::allocation(vec![share("node2", 4, 2048, &[0, 1], 2)]);
    let env = batch(&facts(83, &spec, &allocation), 0, Environment::new());
    assert_variables(
        &env,
        &[
            "CUDA_VISIBLE_DEVICES=0,1",
            "ENVIRONMENT=BATCH",
            "GPU_DEVICE_ORDINAL=0,1",
            "HOSTNAME=node2",
            "LOGNAME=alice",
            "ROCR_VISIBLE_DEVICES=0,1",
            "SLURMD_NODENAME=node2",
            "SLURM_CLUSTER_NAME=lab",
            "SLURM_CONF=/lab/etc/slurm.conf",
            "SLURM_CPUS_ON_NODE=4",
            "SLURM_CPUS_PER_GPU=2",
            "SLURM_GPUS=2",
            "SLURM_GPUS_ON_NODE=2",
            "SLURM_GPUS_PER_TASK=1",
            "SLURM_GTIDS=0",
            "SLURM_JOBID=83",
            "SLURM_JOB_ACCOUNT=physics",
            "SLURM_JOB_CPUS_PER_NODE=4",
            "SLURM_JOB_GID=1001",
            "SLURM_JOB_GPUS=0,1",
            "SLURM_JOB_ID=83",
            "SLURM_JOB_NAME=envcap",
            "SLURM_JOB_NODELIST=node2",
            "SLURM_JOB_NUM_NODES=1",
            "SLURM_JOB_PARTITION=gpu",
            "SLURM_JOB_QOS=normal",
            "SLURM_JOB_UID=1001",
            "SLURM_JOB_USER=alice",
            "SLURM_LOCALID=0",
            "SLURM_MEM_PER_GPU=1024",
            "SLURM_NNODES=1",
            "SLURM_NODEID=0",
            "SLURM_NODELIST=node2",
            "SLURM_NODE_ALIASES=(null)",
            "SLURM_NPROCS=2",
            "SLURM_NTASKS=2",
            "SLURM_PRIO_PROCESS=0",
            "SLURM_PROCID=0",
            "SLURM_SUBMIT_DIR=/lab/jobs",
            "SLURM_SUBMIT_HOST=vm",
            "SLURM_TASKS_PER_NODE=2",
            "SLURM_TOPOLOGY_ADDR=node2",
            "SLURM_TOPOLOGY_ADDR_PATTERN=node",
            "TMPDIR=/tmp",
            "USER=alice",
        ],
    );
}

#[test]
fn devices_are_counted_from_zero_where_others_cannot_be_seen() {
    let spec = spec(Request { gres: vec![gpu_request(Per::Node, 4)], ..Request::default() });
    let allocation = samples::allocation(vec![share("node1", 4, 4000, &[4, 5, 6, 7], 1)]);
    let seen = |numbering| {
        let facts = JobFacts { numbering, ..facts(85, &spec, &allocation) };
        let env = batch(&facts, 0, Environment::new());
        ["SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"].map(|name| env.get(name).map(str::to_owned))
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(seen(DeviceNumbering::Node), [text("4,5,6,7"), text("4,5,6,7")]);
    assert_eq!(seen(DeviceNumbering::Own), [text("4,5,6,7"), text("0,1,2,3")]);
}

#[test]
fn a_step_is_laid_out_anew() {
    let (spec, allocation) = two_nodes();
    let node =
        |name: &str, tasks: &[u32]| StepNode { node: name.into(), tasks: tasks.to_vec(), cpus: 4 };
    let layout = StepLayout {
        job: JobId(78),
        step: StepId::Number(0),
        attempt: 1,
        nodes: vec![node("node1", &[0, 1]), node("node2", &[2, 3])],
        cpus_per_task: 2,
    };
    let env =
        step::variables(&facts(78, &spec, &allocation), &layout, &launch("127.0.0.1:34187"), 0);
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
    let second = step::variables(&facts(78, &spec, &allocation), &layout, &launch("[::1]:9"), 1);
    assert_eq!(second.get("SLURM_NODEID"), Some("1"));
    assert_eq!(second.get("SLURMD_NODENAME"), Some("node2"));
    let filled: Vec<String> = step::process_variables().into_iter().map(|(name, _)| name).collect();
    assert_eq!(filled, ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_TASK_PID", "SLURM_GTIDS"]);
}

fn launch(listen: &str) -> StepLaunch {
    StepLaunch {
        name: "bash".into(),
        argv: vec!["bash".into()],
        environment: String::new(),
        work_dir: "/lab/jobs".into(),
        tasks: None,
        nodes: None,
        tasks_per_node: None,
        cpus_per_task: None,
        node_list: Vec::new(),
        listen: vec![listen.into()],
        key: String::new(),
        umask: 0o022,
        stdin: StepInput::All,
        stdout: None,
        stderr: None,
        submit_line: String::new(),
        overcommit: false,
        pty: false,
    }
}

#[test]
fn a_job_submitted_within_a_job_has_nothing_of_it() {
    let spec = spec(Request::default());
    let allocation = samples::allocation(vec![share("node1", 1, 1000, &[], 1)]);
    let outer = [
        ("SLURM_JOB_ID", "5"),
        ("SLURM_ARRAY_TASK_ID", "9"),
        ("SLURM_NTASKS", "64"),
        ("CUDA_VISIBLE_DEVICES", "0"),
        ("SLURM_STEP_ID", "0"),
        ("EDITOR", "vi"),
    ];
    let env = batch(&facts(77, &spec, &allocation), 0, outer.into_iter().collect());
    assert_eq!((env.get("SLURM_JOB_ID"), env.get("EDITOR")), (Some("77"), Some("vi")));
    for gone in ["SLURM_ARRAY_TASK_ID", "SLURM_NTASKS", "CUDA_VISIBLE_DEVICES", "SLURM_STEP_ID"] {
        assert_eq!(env.get(gone), None, "{gone}");
    }
}

#[test]
fn export_takes_all_some_or_none() {
    let own: Environment =
        [("HOME", "/home/alice"), ("FOO", "1"), ("SLURM_CONF", "/c"), ("PATH", "/opt")]
            .into_iter()
            .collect();
    let variable = |name: &str, value: Option<&str>| ExportVariable {
        name: name.into(),
        value: value.map(str::to_owned),
    };
    let login = Login { name: "alice", home: "/home/alice", shell: "/bin/bash" };
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
fn options_that_are_no_request_travel_as_variables() {
    let own: Environment = [("SLURM_GPU_BIND", "closest"), ("A", "1")].into_iter().collect();
    let login = Login { name: "alice", home: "/home/alice", shell: "/bin/bash" };
    let gpus_per_node = vec![model::gres::GresCount::new("gpu", Some("h100"), 2)];
    let options = JobOptions { gpus_per_node, ..JobOptions::default() };
    let env = submitted(&own, &options, login);
    assert_variables(&env, &["A=1", "SLURM_GPUS_PER_NODE=h100:2"]);
}

#[test]
fn an_environment_survives_its_block() {
    let env = Environment::from_block("A=1\0B=x=y\0C=\0nothing\0");
    assert_eq!((env.get("B"), env.get("C"), env.get("nothing")), (Some("x=y"), Some(""), None));
    assert_eq!(env.to_block(), "A=1\0B=x=y\0C=\0");
}

#[test]
fn counts_are_written_short() {
    let table: [(&[u32], &str); 5] =
        [(&[1], "1"), (&[2, 2], "2(x2)"), (&[2, 2, 1], "2(x2),1"), (&[6, 2], "6,2"), (&[], "")];
    for (counts, text) in table {
        assert_eq!(compress_counts(counts.iter().copied()), text);
    }
}

/// The captures say `slurmstepd-node1:` because several agents ran on one host.
#[test]
fn notices_are_slurmstepds() {
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
            notice::step(JobId(88), StepId::Number(0), Cause::TimeLimit),
            "STEP 88.0 ON node1 CANCELLED AT 2026-11-15T00:51:25 DUE TO TIME LIMIT",
        ),
    ];
    for (line, expected) in table {
        assert_eq!(filled(line), format!("slurmstepd: error: *** {expected} ***"));
    }
    let oom = notice::of_launch(JobId(91)).out_of_memory;
    assert_eq!(
        oom.replace("{count}", "1").replace("{step}", "91.batch"),
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=91.batch. Some of your processes may have been \
         killed by the cgroup out-of-memory handler."
    );
}
