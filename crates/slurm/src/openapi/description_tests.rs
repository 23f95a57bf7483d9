//! The documents of jobs beside Slurm's own description of v0.0.40 to v0.0.42: the same keys in each version, and numbers with flags
//! where Slurm has them. The facts are those that generated clients have (`scripts/python-clients.txt` names one).

use super::field::Context;
use super::tests::JOB_KEYS;
use super::{Version, rest};
use crate::output::samples::{sweep_pending, train};
use model::id::JobId;
use model::time::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const LATER: [Version; 3] = [Version::V40, Version::V41, Version::V42];

/// Keys of a job that v0.0.38 does not have.
#[rustfmt::skip]
const LATER_KEYS: &[&str] = &[
    "allocating_node", "container_id", "cron", "extra", "failed_node", "hold", "job_size_str", "mail_type", "mail_user",
    "maximum_switch_wait_time", "network", "power", "preemptable_time", "scheduled_nodes", "selinux_context",
    "tasks_per_tres",
];

/// Keys that v0.0.40 and v0.0.41 have beside those, and that v0.0.42 has instead. It has no `show_flags` either.
const UNTIL_41: &[&str] = &["exclusive", "minimum_switches", "oversubscribe"];
const SINCE_42: &[&str] = &["priority_by_partition", "required_switches"];

/// Numbers of a job that are `{"set": …, "infinite": …, "number": …}`.
#[rustfmt::skip]
const WITH_FLAGS: &[&str] = &[
    "accrue_time", "array_job_id", "array_max_tasks", "array_task_id", "billable_tres", "cores_per_socket",
    "cpu_frequency_governor", "cpu_frequency_maximum", "cpu_frequency_minimum", "cpus", "cpus_per_task", "deadline",
    "delay_boot", "eligible_time", "end_time", "het_job_id", "het_job_offset", "last_sched_evaluation", "max_cpus",
    "max_nodes", "memory_per_cpu", "memory_per_node", "minimum_cpus_per_node", "minimum_tmp_disk_per_node",
    "node_count", "pre_sus_time", "preempt_time", "preemptable_time", "priority", "resize_time", "sockets_per_node",
    "start_time", "submit_time", "suspend_time", "tasks", "tasks_per_board", "tasks_per_core", "tasks_per_node",
    "tasks_per_socket", "tasks_per_tres", "threads_per_core", "time_limit", "time_minimum",
];

/// Arrays of texts.
#[rustfmt::skip]
const ARRAYS: &[&str] = &["flags", "gres_detail", "job_size_str", "job_state", "mail_type", "profile", "shared"];

fn context(version: Version) -> Context {
    Context { version, cluster: "lab".into(), gres: vec!["gpu".into()], now: Timestamp(0) }
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn set<const N: usize>(names: [&'static str; N]) -> BTreeSet<&'static str> {
    names.into()
}

fn expected_keys(version: Version) -> BTreeSet<&'static str> {
    let of_version = if version < Version::V42 { UNTIL_41 } else { SINCE_42 };
    let all = JOB_KEYS.iter().chain(LATER_KEYS).chain(of_version).copied();
    all.filter(|key| version < Version::V42 || *key != "show_flags").collect()
}

fn listed(version: Version) -> Value {
    let written = rest::jobs(&context(version), &[train(), sweep_pending()]).expect("a document");
    serde_json::from_slice(&written).expect("JSON")
}

#[test]
fn jobs_of_later_versions_have_the_keys_and_forms_of_slurms_description_and_no_other() {
    for version in LATER {
        let document = listed(version);
        let parts = ["errors", "jobs", "last_backfill", "last_update", "meta", "warnings"];
        assert_eq!(keys(&document), set(parts), "{version:?}");
        for job in document["jobs"].as_array().expect("jobs") {
            assert_eq!(keys(job), expected_keys(version), "{version:?}");
            for (key, value) in job.as_object().expect("an object") {
                let has_flags = value.get("number").is_some();
                assert_eq!(has_flags, WITH_FLAGS.contains(&key.as_str()), "{version:?}: {key}");
                if has_flags {
                    assert_eq!(keys(value), set(["infinite", "number", "set"]), "{key}");
                }
                if ARRAYS.contains(&key.as_str()) {
                    let texts = value.as_array().expect(key);
                    assert!(texts.iter().all(Value::is_string), "{version:?}: {key}");
                }
            }
            let exit = keys(&job["exit_code"]);
            assert_eq!(exit, set(["return_code", "signal", "status"]), "{version:?}");
        }
    }
}

#[test]
fn answers_about_one_job_have_the_keys_of_slurms_description() {
    for version in LATER {
        let context = context(version);
        let head = ["errors", "meta", "warnings"];
        let submitted = ["job_id", "step_id", "job_submit_user_msg"];
        let result: &[&str] = if version < Version::V42 { &["result"] } else { &[] };
        let expected: BTreeSet<&str> =
            head.iter().chain(&submitted).chain(result).copied().collect();
        assert_eq!(keys(&rest::submitted(&context, JobId(7))), expected, "{version:?}");
        let cancelled = rest::cancelled(&context, JobId(7));
        if version < Version::V42 {
            assert_eq!(keys(&cancelled), set(head), "{version:?}");
        } else {
            let status = keys(&cancelled["status"][0]);
            assert_eq!(status, set(["error", "federation", "job_id", "step_id"]));
        }
        let error = &rest::refused(&context, "no", 5)["errors"][0];
        assert_eq!(keys(error), set(["description", "error", "error_number", "source"]));
        let meta = &rest::done(&context)["meta"];
        assert_eq!(keys(meta), set(["client", "command", "plugin", "slurm"]));
        assert_eq!(keys(&meta["slurm"]), set(["cluster", "release", "version"]));
    }
    let early = rest::submitted(&context(Version::V38), JobId(7));
    assert_eq!((&early["result"], &early["job_id"]), (&Value::Null, &json!(7)));
}
