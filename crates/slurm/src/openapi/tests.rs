//! The JSON against facts of the captures: the same keys with the same values.

use super::*;
use crate::output::Moment;
use crate::output::samples::{allocation, busy_node, cluster, node, share, sweep_pending, train};
use model::container::Container;
use std::sync::Arc;

/// The keys of a job and of a node in what Slurm 22.05 prints.
#[rustfmt::skip]
pub(super) const JOB_KEYS: &[&str] = &[
    "account", "accrue_time", "admin_comment", "array_job_id", "array_max_tasks", "array_task_id", "array_task_string",
    "association_id", "batch_features", "batch_flag", "batch_host", "billable_tres", "burst_buffer",
    "burst_buffer_state", "cluster", "cluster_features", "command", "comment", "container", "contiguous", "core_spec",
    "cores_per_socket", "cpu_frequency_governor", "cpu_frequency_maximum", "cpu_frequency_minimum", "cpus",
    "cpus_per_task", "cpus_per_tres", "current_working_directory", "deadline", "delay_boot", "dependency",
    "derived_exit_code", "eligible_time", "end_time", "excluded_nodes", "exit_code", "features", "federation_origin",
    "federation_siblings_active", "federation_siblings_viable", "flags", "gres_detail", "group_id", "group_name",
    "het_job_id", "het_job_id_set", "het_job_offset", "job_id", "job_resources", "job_state", "last_sched_evaluation",
    "licenses", "max_cpus", "max_nodes", "mcs_label", "memory_per_cpu", "memory_per_node", "memory_per_tres",
    "minimum_cpus_per_node", "minimum_tmp_disk_per_node", "name", "nice", "node_count", "nodes", "partition",
    "pre_sus_time", "preempt_time", "prefer", "priority", "profile", "qos", "reboot", "requeue", "required_nodes",
    "resize_time", "restart_cnt", "resv_name", "shared", "show_flags", "sockets_per_board", "sockets_per_node",
    "standard_error", "standard_input", "standard_output", "start_time", "state_description", "state_reason",
    "submit_time", "suspend_time", "system_comment", "tasks", "tasks_per_board", "tasks_per_core", "tasks_per_node",
    "tasks_per_socket", "thread_spec", "threads_per_core", "time_limit", "time_minimum", "tres_alloc_str", "tres_bind",
    "tres_freq", "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task", "tres_req_str", "user_id",
    "user_name", "wckey",
];

#[rustfmt::skip]
const NODE_KEYS: &[&str] = &[
    "active_features", "address", "alloc_cpus", "alloc_memory", "architecture", "boards", "boot_time",
    "burstbuffer_network_address", "comment", "cores", "cpu_binding", "cpu_load", "cpus", "extra", "features",
    "free_memory", "gres", "gres_drained", "gres_used", "hostname", "idle_cpus", "last_busy", "mcs_label", "name",
    "next_state_after_reboot", "next_state_after_reboot_flags", "operating_system", "owner", "partitions", "port",
    "real_memory", "reason", "reason_changed_at", "reason_set_by_user", "slurmd_start_time", "slurmd_version",
    "sockets", "state", "state_flags", "temporary_disk", "threads", "tres", "tres_used", "tres_weighted", "weight",
];

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
fn priority_of_a_run_is_within_slurms_32_bits() {
    let mut run = train();
    run.priority = 90 << 32;
    let mut out = Vec::new();
    jobs(&mut out, "lab", &[run]).expect("memory takes it");
    assert_eq!(parsed(&out)["jobs"][0]["priority"], u32::MAX);
}

#[test]
fn jobs_have_the_captured_keys() {
    let mut out = Vec::new();
    let mut train = train();
    let container = Container { image: Some("docker://alpine".into()), ..Container::default() };
    let launch = &mut Arc::make_mut(&mut train.spec).launch;
    Arc::make_mut(launch).container = Some(Box::new(container));
    jobs(&mut out, "lab", &[train, sweep_pending()]).expect("memory takes it");
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
            "container": "docker://alpine",
        }),
    );
    assert_holds(
        &value["jobs"][1],
        &json!({
            "job_id": 14, "array_job_id": 14, "array_task_string": "16-23", "job_state": "PENDING",
            "nodes": "", "tres_alloc_str": "", "start_time": 0, "memory_per_cpu": 1000, "container": "",
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

#[test]
fn jobs_and_nodes_have_every_key_of_slurms_own_and_no_other() {
    let mut out = Vec::new();
    jobs(&mut out, "lab", &[train()]).expect("memory takes it");
    let job = parsed(&out)["jobs"][0].clone();
    let keys: Vec<&String> = job.as_object().expect("an object").keys().collect();
    assert_eq!(keys, JOB_KEYS);
    let mut out = Vec::new();
    nodes(&mut out, &cluster(vec![busy_node()])).expect("memory takes it");
    let node = parsed(&out)["nodes"][0].clone();
    let keys: Vec<&String> = node.as_object().expect("an object").keys().collect();
    assert_eq!(keys, NODE_KEYS);
}

fn context(version: Version) -> Context {
    Context { version, cluster: "lab".into(), gres: vec!["gpu".into()], now: Timestamp(0) }
}

/// The document of a version, and the objects under its key.
fn rest_document(written: rest::Written, key: &str) -> (Value, Value) {
    let value = parsed(&written.expect("a document"));
    let items = value[key].clone();
    (value, items)
}

/// An answer that may not be whole says so, where the version has a place for it.
#[test]
fn warning_stands_in_documents_of_later_versions() {
    let zone = jiff::tz::TimeZone::UTC;
    let moment = Moment::at(Timestamp(0), &zone);
    for version in Version::ALL {
        let written =
            rest::recorded_jobs(&context(version), moment, &[], Some("too many"), 1 << 20);
        let (document, _) = rest_document(written, "jobs");
        let shown = json!([{"description": "too many", "source": ""}]);
        let expected = if version.is_typed() { shown } else { Value::Null };
        assert_eq!(document["warnings"], expected, "{version:?}");
    }
}

/// The objects of all jobs were held at once, however many there are.
#[test]
fn document_of_recorded_jobs_is_refused_beyond_its_bytes() {
    let zone = jiff::tz::TimeZone::UTC;
    let moment = Moment::at(Timestamp(0), &zone);
    let records = vec![crate::output::sacct::tests::train(false); 3];
    for version in Version::ALL {
        let context = context(version);
        let write = |most: usize| rest::recorded_jobs(&context, moment, &records, None, most);
        let whole = write(usize::MAX).expect("a document");
        assert_eq!(parsed(&whole)["jobs"].as_array().map(Vec::len), Some(3), "{version:?}");
        assert_eq!(write(whole.len()).expect("it fits").len(), whole.len());
        let refused = write(whole.len() - 1).expect_err("one byte too many");
        assert!(refused.is_io(), "{version:?}: {refused}");
    }
}

/// The tasks of an array have their texts in common, and each is listed with all of them.
#[test]
fn long_texts_of_a_list_are_cut_where_they_would_be_too_many() {
    let mut job = train();
    let spec = Arc::make_mut(&mut job.spec);
    spec.comment = Some("x".repeat(1 << 20));
    let shares = (1..=40).map(|length| share(&"n".repeat(length), 1, 1, &[], 1));
    job.allocation = Some(Box::new(allocation(shares.collect())));
    let written = rest::jobs(&context(Version::V42), &vec![job; 100]);
    let (_, jobs) = rest_document(written, "jobs");
    let jobs = jobs.as_array().expect("a list");
    let lengths: Vec<usize> =
        jobs.iter().map(|job| job["comment"].as_str().expect("a text").len()).collect();
    assert_eq!((lengths.len(), lengths[0], lengths[63]), (100, 1 << 20, 1 << 20));
    assert!(lengths[64..].iter().all(|length| *length == 512), "{lengths:?}");
    assert!(jobs[99]["comment"].as_str().is_some_and(|text| text.ends_with("x...")));
    assert_eq!((&jobs[99]["name"], &jobs[99]["job_id"]), (&json!("train"), &json!(3)));
    let nodes = jobs[99]["nodes"].as_str().expect("a list of nodes");
    assert!(nodes.len() > 512 && !nodes.contains("..."), "clients take it apart: {nodes}");
}

#[test]
fn later_versions_have_flags_around_numbers_and_arrays_of_states() {
    for version in [Version::V40, Version::V41, Version::V42] {
        let (document, jobs) = rest_document(rest::jobs(&context(version), &[train()]), "jobs");
        let parser = format!("data_parser/{}", version.name());
        assert_eq!(document["meta"]["plugin"]["data_parser"], parser.as_str());
        assert_eq!((&document["errors"], &document["warnings"]), (&json!([]), &json!([])));
        assert_eq!(document["last_update"]["set"], true);
        let job = &jobs[0];
        assert_holds(
            job,
            &json!({
                "job_id": 3, "name": "train", "job_state": ["RUNNING"], "nice": 0, "hold": false,
                "time_limit": {"set": true, "infinite": false, "number": 10},
                "memory_per_cpu": {"set": false, "infinite": false, "number": 0},
                "cpus": {"set": true, "infinite": false, "number": 4}, "shared": [],
            }),
        );
        assert_eq!(job["exit_code"]["status"], json!(["PENDING"]));
        let nodes = rest::nodes(&context(version), &cluster(vec![busy_node()]));
        let (_, nodes) = rest_document(nodes, "nodes");
        assert_eq!(nodes[0]["state"], json!(["MIXED"]));
        assert_eq!(nodes[0]["features"], json!(["h100", "ib"]));
        assert_eq!(nodes[0]["free_mem"]["number"], 18358);
    }
    let resources = |version| {
        let (_, jobs) = rest_document(rest::jobs(&context(version), &[train()]), "jobs");
        jobs[0]["job_resources"]["nodes"].clone()
    };
    assert_eq!(resources(Version::V40), "node1");
    assert_eq!(resources(Version::V42)["list"], "node1");
}

#[test]
fn partitions_are_flat_first_and_grouped_later() {
    let cluster = cluster(vec![busy_node(), node("node2")]);
    let name = cluster.partitions[0].name.clone();
    let early = rest::partitions(&context(Version::V38), &cluster);
    let (document, early) = rest_document(early, "partitions");
    assert_eq!(document["meta"]["plugin"]["type"], "openapi/v0.0.38");
    assert_eq!(early[0]["name"], name.as_str());
    assert!(early[0]["total_cpus"].is_u64() && early[0]["nodes"].is_string(), "{early}");
    let (_, late) = rest_document(rest::partitions(&context(Version::V42), &cluster), "partitions");
    assert_eq!(late[0]["partition"]["state"], json!([early[0]["state"]]));
    assert_eq!(late[0]["nodes"]["configured"], early[0]["nodes"]);
    assert_eq!(late[0]["cpus"]["total"], early[0]["total_cpus"]);
    assert!(late[0]["maximums"]["time"]["infinite"].is_boolean(), "{late}");
    assert!(late[0]["total_cpus"].is_null());
}

#[test]
fn other_documents_follow_the_version_too() {
    let early = context(Version::V38);
    let late = context(Version::V42);
    assert_eq!(rest::ping(&early, "head")["pings"][0]["ping"], "UP");
    assert_eq!(rest::ping(&late, "head")["pings"][0]["pinged"], "UP");
    let job = model::id::JobId(7);
    assert_eq!(rest::submitted(&early, job)["job_id"], 7);
    assert_eq!(rest::submitted(&context(Version::V41), job)["result"]["job_id"], 7);
    assert_eq!(rest::submitted(&late, job)["job_id"], 7);
    for context in [&early, &late] {
        let error = &rest::refused(context, "no", 5)["errors"][0];
        assert_eq!((&error["error"], &error["error_number"]), (&json!("no"), &json!(5)));
    }
    let counted = wire::diagnostics::DiagnosticsView { running: 3, ..Default::default() };
    let (_, counts) = rest_document(rest::diagnostics(&early, &counted), "statistics");
    assert_eq!((&counts["jobs_running"], &counts["req_time"]), (&json!(3), &json!(0)));
    let (_, counts) = rest_document(rest::diagnostics(&late, &counted), "statistics");
    assert_eq!(counts["req_time"], json!({"set": true, "infinite": false, "number": 0}));
    let license =
        wire::reservation::LicenseView { name: "matlab".into(), total: 4, used: 3, reserved: 1 };
    let (_, one) = rest_document(rest::licenses(&early, &[license]), "licenses");
    assert_holds(&one[0], &json!({"LicenseName": "matlab", "Total": 4, "Used": 3, "Free": 1}));
    let reservation = wire::reservation::ReservationView {
        reservation: model::reservation::Reservation {
            name: "maint".into(),
            start: Timestamp(5_000),
            nodes: vec!["node1".into(), "node2".into()],
            flags: [model::reservation::ReservationFlag::Maint].into(),
            ..Default::default()
        },
        cores: 32,
        cpus: 0,
        active: false,
    };
    let shown = std::slice::from_ref(&reservation);
    let (_, one) = rest_document(rest::reservations(&early, shown), "reservations");
    assert_holds(
        &one[0],
        &json!({"name": "maint", "node_list": "node[1-2]", "start_time": 5, "flags": ["MAINT"]}),
    );
    let (_, one) = rest_document(rest::reservations(&late, shown), "reservations");
    assert_eq!(one[0]["start_time"]["number"], 5);
}

/// An output that counts how often it is written to.
#[derive(Default)]
struct CountedWrites {
    text: Vec<u8>,
    writes: usize,
}

impl io::Write for CountedWrites {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writes += 1;
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn long_document_is_printed_in_large_pieces() {
    let mut out = CountedWrites::default();
    let items: Vec<u32> = (0..100_000).collect();
    document(&mut out, CONTROLLER, "jobs", &items).expect("memory can be written");
    let read: Value = serde_json::from_slice(&out.text).expect("a document");
    assert_eq!(read["jobs"].as_array().map(Vec::len), Some(100_000));
    assert!(out.text.ends_with(b"}\n"));
    assert!(out.writes <= out.text.len() / PIECE_BYTES + 2, "{} writes", out.writes);
}
