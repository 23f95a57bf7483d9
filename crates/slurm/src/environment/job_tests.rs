//! The environments of batch jobs against the captures.

use super::super::testing::{assert_variables, facts, spec, two_nodes};
use super::*;
use crate::environment::gpu::DeviceNumbering;
use crate::output::samples::{self, gpu_request, share};
use model::amount::Bytes;
use model::range::Range;
use std::sync::Arc;

#[test]
fn a_plain_batch_job_has_the_captured_variables() {
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

#[test]
fn unequal_nodes_have_the_captured_variables() {
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
fn tasks_and_gpus_per_node_have_the_captured_variables() {
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
fn an_array_task_has_the_captured_variables() {
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
fn gpus_with_memory_per_cpu_have_the_captured_variables() {
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

/// dstack's `memory: 8GB..`
#[test]
fn range_of_memory_is_told_as_what_was_granted_of_it() {
    let spec = spec(Request {
        nodes: Range::exactly(2),
        memory: Memory::PerNode(Range::at_least(Bytes::from_mib(100))),
        ..Request::default()
    });
    let told = |first: u64, second: u64| {
        let shares = vec![share("node1", 2, first, &[], 1), share("node2", 2, second, &[], 1)];
        let allocation = samples::allocation(shares);
        let env = batch(&facts(84, &spec, &allocation), 0, Environment::new());
        env.get("SLURM_MEM_PER_NODE").map(str::to_owned)
    };
    assert_eq!(told(2048, 2048).as_deref(), Some("2048"));
    assert_eq!(told(2048, 4096), None, "a step would have less than its job on one node");
    assert_eq!(told(0, 0), None, "memory is not counted");
}

#[test]
fn gpus_per_job_and_task_have_the_captured_variables() {
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
fn devices_are_numbered_from_zero_if_others_cannot_be_seen() {
    let spec = spec(Request { gres: vec![gpu_request(Per::Node, 4)], ..Request::default() });
    let allocation = samples::allocation(vec![share("node1", 4, 4000, &[4, 5, 6, 7], 1)]);
    let seen = |numbering| {
        let gpus = GpuView { numbering, ..GpuView::default() };
        let facts = JobFacts { gpus, ..facts(85, &spec, &allocation) };
        let env = batch(&facts, 0, Environment::new());
        ["SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"].map(|name| env.get(name).map(str::to_owned))
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(seen(DeviceNumbering::Node), [text("4,5,6,7"), text("4,5,6,7")]);
    assert_eq!(seen(DeviceNumbering::Own), [text("4,5,6,7"), text("0,1,2,3")]);
}

#[test]
fn a_job_submitted_inside_a_job_inherits_none_of_its_variables() {
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
fn a_job_knows_when_it_started_and_when_its_limit_ends_it() {
    let spec = spec(Request::default());
    let allocation = samples::allocation(vec![share("node1", 1, 1000, &[], 1)]);
    let (start, end) = (Some(Timestamp::from_secs(60)), Some(Timestamp::from_secs(660)));
    let facts = JobFacts { start, end, ..facts(81, &spec, &allocation) };
    let env = super::allocation(&facts);
    assert_eq!(env.get("SLURM_JOB_START_TIME"), Some("60"));
    assert_eq!(env.get("SLURM_JOB_END_TIME"), Some("660"));
}

#[test]
fn a_job_knows_the_image_of_its_container_and_not_that_of_another_job() {
    let mut spec = spec(Request::default());
    let allocation = samples::allocation(vec![share("node1", 1, 1000, &[], 1)]);
    let outer = || -> Environment {
        [("SLURM_JOB_ID", "5"), ("SLURM_CONTAINER", "/old")].into_iter().collect()
    };
    let env = batch(&facts(82, &spec, &allocation), 0, outer());
    assert_eq!(env.get("SLURM_CONTAINER"), None);
    let container = Container { image: Some("docker://alpine".into()), ..Container::default() };
    Arc::make_mut(&mut spec.launch).container = Some(Box::new(container));
    let env = batch(&facts(82, &spec, &allocation), 0, outer());
    assert_eq!(env.get("SLURM_CONTAINER"), Some("docker://alpine"));
}
