//! Properties of jobs that are submitted, and the options that they stand for.

use super::*;
use crate::option::Command;
use crate::option::parse;
use serde_json::json;

#[test]
fn every_property_is_an_option_that_sbatch_has() {
    for (name, option, kind) in PROPERTIES {
        let word = match kind {
            Kind::Flag | Kind::Switch | Kind::Exclusive => format!("--{option}"),
            _ => format!("--{option}=1"),
        };
        let parsed = parse::parse_components(Command::Sbatch, &[word.as_str()]);
        assert!(parsed.is_ok(), "{name}: {parsed:?}");
    }
}

#[test]
fn properties_become_options_and_unknown_ones_are_named() {
    let job = json!({"name": "a b", "nodes": [1, 2], "tasks": 4, "hold": true, "requeue": false, "environment": {"A": "1"}});
    let mut found = options(&job).expect("options");
    found.sort_unstable();
    assert_eq!(found, ["--hold", "--job-name=a b", "--no-requeue", "--nodes=1-2", "--ntasks=4"]);
    assert_eq!(environment(&job), Ok(vec![("A".to_owned(), "1".to_owned())]));
    let array = json!({"environment": ["A=1=2"]});
    assert_eq!(environment(&array), Ok(vec![("A".to_owned(), "1=2".to_owned())]));
    for (bad, word) in [
        (json!({"uid": 0}), "uid"),
        (json!({"user_id": "0"}), "user_id"),
        (json!({"hold": "yes"}), "true or false"),
        (json!({"begin_time": 1.5}), "epoch"),
        (json!({"minimum_nodes": "x"}), "minimum_nodes"),
        (json!({"nodes": [1, 2, 3]}), "nodes"),
        (json!({"name": {"a": 1}}), "name"),
        (json!([]), "object"),
    ] {
        let why = options(&bad).expect_err("refused");
        assert!(why.contains(word) && !why.contains('\n'), "{why}");
    }
    assert!(environment(&json!({"environment": {"A": []}})).is_err());
    assert_eq!((options(&Value::Null), environment(&Value::Null)), (Ok(vec![]), Ok(vec![])));
}

/// Slurm 24.11 describes these properties beside those that are taken. Each stands for no option of `sbatch`, or for one that does
/// nothing here.
#[test]
fn every_other_property_of_slurms_description_is_refused_by_its_name() {
    #[rustfmt::skip]
    const REFUSED: &[&str] = &[
        "admin_comment", "allocation_node_list", "allocation_node_port", "argv", "batch_features", "burst_buffer",
        "cluster_constraint", "clusters", "container_id", "core_specification", "cpu_binding", "cpu_binding_flags",
        "crontab", "delay_boot", "distribution_plane_size", "end_time", "extra", "flags", "group_id",
        "hetjob_group", "immediate", "job_id", "kill_on_node_fail", "kill_warning_flags", "maximum_cpus",
        "mcs_label", "memory_binding", "memory_binding_type", "minimum_boards_per_node", "minimum_cpus",
        "minimum_sockets_per_board", "network", "oom_kill_step", "power_flags", "profile", "reboot",
        "reserve_ports", "resv_mpi_ports", "rlimits", "selinux_context", "shared", "site_factor",
        "spank_environment", "tasks_per_board", "thread_specification", "tres_freq", "user_id",
        "wait_all_nodes", "x11", "x11_magic_cookie", "x11_target_host", "x11_target_port",
    ];
    for name in REFUSED {
        let why = options(&json!({ *name: "1" })).expect_err(name);
        assert!(why.starts_with(name), "{why}");
    }
}

#[test]
fn components_have_the_script_and_environment_of_their_job() {
    let text = "#!/bin/sh\n";
    let first = json!({"script": text, "environment": ["A=1", "B=2"]});
    for same in [
        json!({}),
        json!({"script": "", "environment": []}),
        json!({"script": text, "environment": {"B": "2", "A": "1"}}),
    ] {
        assert_eq!(check_components(text, &[first.clone(), same]), Ok(()));
    }
    for (other, field) in [
        (json!({"script": "#!/bin/bash\n"}), "script: jobs[2]"),
        (json!({"script": 5}), "script: expected"),
        (json!({"environment": ["A=1"]}), "environment: jobs[2]"),
        (json!({"environment": 5}), "environment: 5"),
    ] {
        let jobs = [first.clone(), json!({}), other];
        let why = check_components(text, &jobs).expect_err(field);
        assert!(why.starts_with(field) && !why.contains('\n'), "{why}");
    }
}

#[test]
fn allocation_has_neither_script_nor_environment() {
    let empty = json!({"tasks": 2, "script": "", "environment": []});
    assert_eq!(check_allocation(&[empty.clone(), json!({})]), Ok(()));
    for (name, value) in [("script", json!("#!/bin/sh\n")), ("environment", json!(["A=1"]))] {
        let why = check_allocation(&[empty.clone(), json!({ name: value })]);
        assert!(why.expect_err(name).starts_with(name));
    }
}

/// As generated clients of later versions send them, with the flags around numbers and fields that are not filled.
#[test]
fn properties_of_later_versions_mean_the_same() {
    let set = |number: u64| json!({"set": true, "infinite": false, "number": number});
    let job = json!({
        "time_limit": set(5), "memory_per_node": {"set": false, "infinite": false, "number": 0},
        "minimum_nodes": 1, "maximum_nodes": 2, "required_nodes": ["n1", "n2"], "qos": null,
        "tres_per_node": "gres/gpu:2", "mail_type": ["BEGIN", "END"], "flags": [],
        "exclusive": ["user"], "environment": ["A=1"], "script": "#!/bin/sh\n",
        "kill_warning_signal": "USR1", "kill_warning_delay": set(60),
    });
    let mut found = options(&job).expect("options");
    found.sort_unstable();
    assert_eq!(
        found,
        [
            "--exclusive=user",
            "--gres=gpu:2",
            "--mail-type=BEGIN,END",
            "--nodelist=n1,n2",
            "--nodes=1-2",
            "--signal=USR1@60",
            "--time=5",
        ]
    );
    let endless = json!({"time_limit": {"set": false, "infinite": true, "number": 0}});
    assert_eq!(options(&endless), Ok(vec!["--time=UNLIMITED".to_owned()]));
    let switches = json!({"required_switches": 1, "wait_for_switch": 90});
    assert_eq!(options(&switches), Ok(vec!["--switches=1@1:30".to_owned()]));
    let gpus = json!({"tres_per_job": "gres:gpu:4"});
    assert_eq!(options(&gpus), Ok(vec!["--gpus=4".to_owned()]));
}
