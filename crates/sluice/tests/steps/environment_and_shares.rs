//! Environment, devices and memory of a step's tasks.

use crate::harness::{Cluster, TWO_NODES, sorted_lines};
use std::collections::BTreeSet;

/// Captured from a real Slurm 22.05: `srun -n4 -N2` in a batch job `-N2 --ntasks-per-node=2 --gres=gpu:1`, without
/// `SLURM_CONF` and the controller's address.
const NAMES_INSIDE: &str = "CUDA_VISIBLE_DEVICES GPU_DEVICE_ORDINAL ROCR_VISIBLE_DEVICES SLURMD_NODENAME \
SLURM_CLUSTER_NAME SLURM_CPUS_ON_NODE SLURM_DISTRIBUTION SLURM_GPUS_ON_NODE SLURM_GTIDS SLURM_JOBID \
SLURM_JOB_ACCOUNT SLURM_JOB_CPUS_PER_NODE SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0 SLURM_JOB_GID SLURM_JOB_GPUS \
SLURM_JOB_ID SLURM_JOB_NAME SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES SLURM_JOB_PARTITION SLURM_JOB_QOS SLURM_JOB_UID \
SLURM_JOB_USER SLURM_LAUNCH_NODE_IPADDR SLURM_LOCALID SLURM_MEM_PER_CPU SLURM_NNODES SLURM_NODEID SLURM_NODELIST \
SLURM_NODE_ALIASES SLURM_NPROCS SLURM_NTASKS SLURM_NTASKS_PER_NODE SLURM_PRIO_PROCESS SLURM_PROCID \
SLURM_SRUN_COMM_HOST SLURM_SRUN_COMM_PORT SLURM_STEPID SLURM_STEP_GPUS SLURM_STEP_ID SLURM_STEP_LAUNCHER_PORT \
SLURM_STEP_NODELIST SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE SLURM_SUBMIT_DIR \
SLURM_SUBMIT_HOST SLURM_TASKS_PER_NODE SLURM_TASK_PID SLURM_TOPOLOGY_ADDR SLURM_TOPOLOGY_ADDR_PATTERN SLURM_UMASK";

/// The same for `srun -n4 -N2 -m cyclic` outside of a job.
const NAMES_OUTSIDE: &str = "SLURMD_NODENAME SLURM_CLUSTER_NAME SLURM_CPUS_ON_NODE SLURM_DISTRIBUTION SLURM_GTIDS \
SLURM_JOBID SLURM_JOB_ACCOUNT SLURM_JOB_CPUS_PER_NODE SLURM_JOB_GID SLURM_JOB_ID SLURM_JOB_NAME SLURM_JOB_NODELIST \
SLURM_JOB_NUM_NODES SLURM_JOB_PARTITION SLURM_JOB_QOS SLURM_JOB_UID SLURM_JOB_USER SLURM_LAUNCH_NODE_IPADDR \
SLURM_LOCALID SLURM_NNODES SLURM_NODEID SLURM_NODELIST SLURM_NPROCS SLURM_NTASKS SLURM_PRIO_PROCESS SLURM_PROCID \
SLURM_SRUN_COMM_HOST SLURM_SRUN_COMM_PORT SLURM_STEPID SLURM_STEP_ID SLURM_STEP_LAUNCHER_PORT SLURM_STEP_NODELIST \
SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE SLURM_SUBMIT_DIR SLURM_SUBMIT_HOST \
SLURM_TASKS_PER_NODE SLURM_TASK_PID SLURM_TOPOLOGY_ADDR SLURM_TOPOLOGY_ADDR_PATTERN SLURM_UMASK";

fn variables(text: &str) -> BTreeSet<(String, String)> {
    let ours = |name: &str| {
        let starts = ["SLURM", "CUDA_", "GPU_DEVICE", "ROCR_"];
        starts.iter().any(|start| name.starts_with(start))
    };
    text.lines()
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| ours(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn up_a_task_has_slurms_variables() {
    let cluster = Cluster::up(TWO_NODES);
    let options = ["-N2", "--ntasks-per-node=2", "--gres=gpu:1"];
    let script = "srun -n4 -N2 sh -c 'env > inside.$SLURM_PROCID'\n\
                  srun -c2 -n2 -N2 sh -c 'env > wide.$SLURM_PROCID'\n\
                  srun -n4 -m plane=2 sh -c 'env > plane.$SLURM_PROCID'\n\
                  srun --gres=none -n2 sh -c 'env > none.$SLURM_PROCID'";
    cluster.run_script(&options, script);
    cluster.shell("srun -n4 -N2 -m cyclic sh -c 'env > outside.$SLURM_PROCID'").ok();
    let names = |file: &str| -> String {
        let found = variables(&cluster.read(file)).into_iter().map(|(name, _)| name);
        // The variable of the scratch folder is our own; those of times are of later Slurms than the one that is compared with.
        let others = ["SLURM_TMPDIR", "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME"];
        found.filter(|name| !others.contains(&name.as_str())).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names("inside.3"), NAMES_INSIDE);
    assert_eq!(names("outside.1"), NAMES_OUTSIDE);
    let has = |file: &str, entries: &[&str]| {
        let text = cluster.read(file);
        for entry in entries {
            assert!(text.lines().any(|line| line == *entry), "{file} lacks {entry}:\n{text}");
        }
    };
    let inside = [
        "SLURM_PROCID=3",
        "SLURM_LOCALID=1",
        "SLURM_NODEID=1",
        "SLURM_GTIDS=2,3",
        "SLURM_DISTRIBUTION=block",
        "SLURM_STEP_TASKS_PER_NODE=2(x2)",
        "SLURM_STEP_NODELIST=node[1-2]",
        "SLURM_STEP_GPUS=0",
        "SLURM_UMASK=0022",
    ];
    has("inside.3", &inside);
    has(
        "wide.1",
        &["SLURM_CPUS_PER_TASK=2", "SLURM_DISTRIBUTION=cyclic", "SLURM_TASKS_PER_NODE=1(x2)"],
    );
    has("plane.1", &["SLURM_DISTRIBUTION=plane", "SLURM_DIST_PLANESIZE=2"]);
    has("none.0", &["SLURM_JOB_GPUS=0"]);
    let gone = variables(&cluster.read("none.0"));
    assert!(
        gone.iter().all(|(name, _)| name != "SLURM_STEP_GPUS" && name != "CUDA_VISIBLE_DEVICES")
    );
}

#[test]
fn up_concurrent_steps_have_different_gpus() {
    let cluster = Cluster::up(TWO_NODES);
    let show = "sh -c 'echo $SLURM_STEP_GPUS $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS >> gpus; \
                until [ $(wc -l < gpus) -ge 2 ]; do sleep 0.05; done'";
    let step = format!("srun --exact -n1 --gres=gpu:1 --mem=8 {show}");
    let script = format!(
        "{step} & {step} & wait\n\
         srun --exact -n2 --gpus-per-task=1 --mem=8 sh -c 'echo $SLURM_PROCID $SLURM_STEP_GPUS'"
    );
    let text = cluster.run_script(&["-n4", "--gres=gpu:2"], &script);
    assert_eq!(sorted_lines(&cluster.read("gpus")), ["0 0 0,1", "1 1 0,1"]);
    assert_eq!(sorted_lines(&text), ["0 0", "1 1"]);
}

#[test]
fn root_a_step_has_its_own_memory_limit() {
    let cluster = Cluster::up(TWO_NODES);
    let fill = "sh -c 'head -c 150m /dev/zero | tail | wc -c'";
    let script = format!(
        "srun --exact -n1 --mem=60 {fill}; echo small $?\n\
         srun --exact -n1 --mem=300 {fill}; echo large $?"
    );
    cluster.write("job.sh", &format!("#!/bin/bash\n{script}\n"));
    let id = cluster.submit(&["-n2", "--mem=400", "-o", "job.out", "job.sh"]);
    cluster.await_end(id);
    let text = cluster.read("job.out");
    assert!(text.contains("157286400\nlarge 0\n"), "{text}");
    assert!(!text.contains("157286400\nsmall"), "{text}");
    let steps = cluster.sluice(&["sacct", "-n", "-P", "-j", &id.to_string(), "-o", "JobID,State"]);
    assert!(steps.stdout.contains(&format!("{id}.0|OUT_OF_MEMORY\n")), "{}", steps.stdout);
    assert!(steps.stdout.contains(&format!("{id}.1|COMPLETED\n")), "{}", steps.stdout);
}
