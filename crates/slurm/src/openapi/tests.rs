//! The JSON against facts of the captures: the same keys with the same values.

use super::*;
use crate::output::samples::{busy_node, cluster, node, sweep_pending, train};

fn parsed(out: &[u8]) -> Value {
    serde_json::from_slice(out).expect("JSON")
}

#[track_caller]
fn assert_holds(value: &Value, facts: &Value) {
    let facts = facts.as_object().expect("an object of facts");
    for (key, expected) in facts {
        assert_eq!(&value[key], expected, "{key}");
    }
}

#[test]
fn jobs_have_the_captured_keys() {
    let mut out = Vec::new();
    jobs(&mut out, "lab", &[train(), sweep_pending()]).expect("memory takes it");
    let value = parsed(&out);
    assert_eq!(value["meta"]["plugin"]["type"], "openapi/v0.0.38");
    assert_eq!(value["errors"], json!([]));
    assert_holds(
        &value["jobs"][0],
        &json!({
            "job_id": 3, "name": "train", "account": "physics", "job_state": "RUNNING", "state_reason": "None",
            "array_job_id": 0, "array_task_id": null, "array_task_string": "", "batch_host": "node1",
            "cpus": 4, "node_count": 1, "tasks": 1, "partition": "gpu", "priority": 1412, "qos": "normal",
            "memory_per_node": 8192, "memory_per_cpu": null, "nodes": "node1", "nice": null,
            "start_time": 1_794_703_579, "submit_time": 1_794_703_579, "end_time": 1_794_704_179,
            "time_limit": 10, "tres_per_node": "gres:gpu:2", "user_id": 1001, "user_name": "alice",
            "tres_alloc_str": "cpu=4,mem=8G,node=1,billing=4,gres/gpu=2",
            "standard_output": "/lab/jobs/slurm-3.out", "standard_input": "/dev/null",
        }),
    );
    assert_holds(
        &value["jobs"][1],
        &json!({
            "job_id": 14, "array_job_id": 14, "array_task_string": "16-23", "job_state": "PENDING",
            "nodes": "", "tres_alloc_str": "", "start_time": 0, "memory_per_cpu": 1000,
        }),
    );
}

#[test]
fn nodes_have_the_captured_keys() {
    let mut out = Vec::new();
    nodes(&mut out, &cluster(vec![busy_node(), node("node2")])).expect("memory takes it");
    let value = parsed(&out);
    assert_holds(
        &value["nodes"][0],
        &json!({
            "architecture": "x86_64", "boards": 1, "boot_time": 1_794_703_028, "cores": 16, "cpu_load": 101,
            "free_memory": 18358, "cpus": 32, "last_busy": 1_794_703_549, "features": "h100,ib",
            "gres": "gpu:h100:8", "gres_used": "gpu:h100:2(IDX:0-1)", "name": "node1", "state": "mixed",
            "state_flags": [], "partitions": ["gpu", "debug"], "real_memory": 128_000, "reason": "",
            "tres": "cpu=32,mem=125G,billing=32,gres/gpu=8", "alloc_memory": 8192, "alloc_cpus": 4,
            "idle_cpus": 28, "tres_used": "cpu=4,mem=8G,gres/gpu=2", "slurmd_start_time": 1_794_703_495,
        }),
    );
    assert_holds(
        &value["nodes"][1],
        &json!({ "name": "node2", "state": "idle", "tres_used": null }),
    );
}
