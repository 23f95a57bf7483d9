//! Jobs as the tests of explanations have them: one of the server's memory, and an attempt of the books.

use model::hostlist;
use model::id::JobId;
use model::reason::Reason;
use model::record::{JobRecord, RecordState};
use model::run::{ExitStatus, JobState, LaunchKind, Outcome};
use model::time::{TimeLimit, Timestamp};
use model::tres::TresKind;
use serde_json::json;
use wire::view::JobView;

pub(super) const NOW: Timestamp = Timestamp::from_secs(1_794_703_909);

/// A job as it comes over the wire; what the text does not show is left as it may be.
pub(super) fn job(state: JobState) -> JobView {
    let request = model::request::Request::default();
    let owner = json!({
        "name": "alice", "uid": 1001, "gid": 1001, "group": "alice", "groups": [], "role": "user"
    });
    let launch = model::run::Launch::empty(model::run::LaunchKind::Batch);
    let spec = json!({
        "name": "train", "owner": owner, "components": [{"request": request}],
        "launch": launch, "kill_on_invalid_dependency": false, "nice": 0, "requeue": true,
        "submit_line": "", "submit_host": "", "submit_sid": 0
    });
    let view = json!({
        "id": 12, "name": "train", "spec": spec, "state": state, "reason": Reason::None,
        "partition": "gpu", "account": "physics", "qos": "capped", "priority": 1, "submit": NOW,
        "start": NOW, "end": NOW, "time_limit": TimeLimit::Minutes(60), "restarts": 0,
        "nodes": model::range::Range::exactly(1_u32), "cpus": 1, "tasks": 1,
        "tres": model::tres::Tres::new()
    });
    serde_json::from_value(view).expect("a job")
}

pub(super) fn names(list: &str) -> Vec<String> {
    hostlist::expand(list).expect("a host list")
}

/// An attempt that ran for ten minutes on two CPUs with a GiB of memory.
pub(super) fn record(outcome: Outcome, exit: (i32, i32), reason: Reason) -> JobRecord {
    let mut tres = model::tres::Tres::new();
    tres.set(TresKind::Mem, 1024);
    JobRecord {
        job: JobId(12),
        attempt: 1,
        run: model::id::RunId(12),
        array_job: None,
        array_task: None,
        array_pending: None,
        het: None,
        name: "train".into(),
        user: "alice".into(),
        uid: 1001,
        gid: 1001,
        group: "alice".into(),
        account: "physics".into(),
        partition: "gpu".into(),
        qos: "normal".into(),
        state: RecordState::Ended(outcome),
        exit: ExitStatus { code: exit.0, signal: exit.1 },
        derived_exit: ExitStatus::default(),
        submit: NOW,
        eligible: None,
        start: Some(Timestamp::from_secs(NOW.secs() - 600)),
        end: Some(NOW),
        suspended_s: 0,
        time_limit: TimeLimit::Minutes(60),
        nodes: names("n1"),
        node_count: 1,
        cpus: 2,
        tasks: 1,
        req_cpus: 2,
        req_nodes: 1,
        req_mem: model::amount::Bytes::from_mib(1024),
        req_tres: model::tres::Tres::new(),
        alloc_tres: tres,
        priority: 1,
        restarts: 0,
        retry: None,
        work_dir: "/".into(),
        streams: None,
        submit_line: String::new(),
        comment: None,
        wckey: None,
        reservation: None,
        reservation_id: None,
        constraint: None,
        dependency: None,
        container: None,
        reason,
        kind: LaunchKind::Batch,
        script: None,
        environment: None,
        configuration: None,
        blob_bytes: Default::default(),
        memory_limit: None,
        failed_node: None,
        gpus: Vec::new(),
        usage: model::run::Usage {
            cpu_user_us: 300_000_000,
            memory_peak_bytes: 512 << 20,
            ..Default::default()
        },
        steps: Vec::new(),
    }
}
