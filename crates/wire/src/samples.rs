//! Values for the tests of this crate, read from the JSON that travels: what may be left out is left out.

use crate::order::{Action, Order};
use crate::view::JobView;
use model::id::{AttemptId, JobId};
use model::time::Timestamp;
use serde_json::json;

/// A pending job of one task on one node.
pub(crate) fn job_view(id: u32) -> JobView {
    let request = json!({
        "nodes": {"min": 1, "max": 1},
        "cpus_per_task": {"min": 1, "max": 1},
        "memory": "default",
    });
    let job = json!({
        "id": id,
        "name": "sweep",
        "array": {"array": id, "index": 3},
        "spec": {
            "name": "sweep",
            "owner": {"name": "alice", "uid": 1000, "gid": 1000},
            "components": [{"request": request}],
            "launch": {"kind": "batch", "work_dir": "/home/alice"},
            "requeue": true,
        },
        "state": "pending",
        "reason": "resources",
        "partition": "main",
        "account": "physics",
        "qos": "normal",
        "priority": 1,
        "submit": 1,
        "time_limit": {"Minutes": 60},
        "restarts": 0,
        "nodes": {"min": 1, "max": 1},
        "cpus": 1,
        "tasks": 1,
        "tres": {"cpu": 1},
    });
    serde_json::from_value(job).expect("a job as it travels")
}

pub(crate) fn attempt() -> AttemptId {
    AttemptId { job: JobId(12), number: 1 }
}

pub(crate) fn order(action: Action) -> Order {
    Order {
        version: 1,
        term: 2,
        serial: 3,
        node: "n1".into(),
        attempt: attempt(),
        uid: 1000,
        expires: Timestamp(120_000),
        action,
    }
}
