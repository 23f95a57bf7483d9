//! Configurations of other types than a task: services, dev environments, volumes.

use crate::{load, refusal};
use std::time::Duration;

#[test]
fn other_types_are_read_and_refused_at_apply() {
    let cases = [
        (
            "type: service\nport: 80\ncommands: [x]\nmodel: {name: m, format: tgi, chat_template: x}\n",
            "4:46: `model.chat_template`: is not applied here",
        ),
        (
            "type: service\nport: 80\ncommands: [x]\nmodel: {name: m, format: ollama}\n",
            "4:26: `model.format`: invalid \"ollama\": expected one of openai, tgi",
        ),
        (
            "type: service\nport: 80\ncommands: [x]\nreplicas: 0\n",
            "4:11: `replicas`: expected a number from 1 to 1000",
        ),
        (
            "type: service\nport: 80\ncommands: [x]\nreplicas: 1..\nscaling: {metric: rps, target: 1}\n",
            "4:11: `replicas`: expected a number from 1 to 1000, or a range up to one",
        ),
        (
            "type: service\nport: 80\ncommands: [x]\narray: 0-3\n",
            "4:8: `array`: is not for a service",
        ),
        (
            "type: gateway\nbackend: aws\nregion: us\ndomain: a.b\n",
            "1:7: `type`: a gateway is a process: `sluice gateway` starts it",
        ),
        (
            "type: fleet\nname: burst\nnodes: {min: 2, target: 1, max: 4}\n",
            "3:8: `nodes`: invalid mapping: expected `min` not above `target`, and neither above",
        ),
        ("type: preset\nbase: x/y\n", "1:7: `type`: presets are made and read by dstack's own"),
        (
            "type: tsk\n",
            "1:7: `type`: invalid \"tsk\": expected one of task, dev-environment, service",
        ),
        ("name: x\n", "1:1: `type` is missing: expected `type: task`"),
        ("- a\n", "1:1: not YAML"),
        ("~\n", "1:1: the file is empty"),
    ];
    for (text, expected) in cases {
        let message = refusal(text);
        let expected = format!("t.dstack.yml:{expected}");
        assert!(message.starts_with(&expected), "{message}");
    }
}

#[test]
fn list_of_replicas_is_groups_as_in_older_versions_of_dstack() {
    let service = |lines: &str| load(&format!("type: service\nport: 80\nimage: a\n{lines}\n"));
    let older = service(
        "replicas:\n- {name: head, count: 1, commands: [x], router: {type: sglang}}\n\
         - {count: 0..2, scaling: {metric: rps, target: 1}, resources: {gpu: 1}}",
    );
    let newer = service(
        "groups:\n- {name: head, replicas: 1, commands: [x], router: {type: sglang}}\n\
         - {replicas: 0..2, scaling: {metric: rps, target: 1}, resources: {gpu: 1}}",
    );
    assert_eq!(older.value, newer.value);
    assert_eq!(older.configuration, newer.configuration);
    assert!(older.applicable().is_ok(), "{:?}", older.refusals);
    let cases = [
        (
            "type: service\nport: 80\nimage: a\nreplicas: [{count: 1..2}]\n",
            "4:20: `groups[0].replicas`: a range needs `scaling`",
        ),
        (
            "type: service\nport: 80\nimage: a\nreplicas: [{count: 1}]\ngroups: [{replicas: 1}]\n",
            "4:11: `replicas`: invalid list: expected a count or a range",
        ),
        (
            "type: service\nport: 80\nimage: a\nreplicas: [{count: 1, replicas: 2}]\n",
            "4:13: unknown property `groups[0].count`",
        ),
    ];
    for (text, expected) in cases {
        let message = refusal(text);
        assert!(message.starts_with(&format!("t.dstack.yml:{expected}")), "{message}\n{expected}");
    }
}

#[test]
fn dev_environment_runs_init_and_then_waits() {
    let loaded =
        load("type: dev-environment\nide: vscode\ninit: [make]\ninactivity_duration: 2h\n");
    let task = loaded.applicable().expect("applicable").task().expect("a run");
    assert_eq!(task.commands, ["make", "tail -f /dev/null"]);
    let notices: Vec<String> = loaded.notices.iter().map(|notice| notice.in_file("f")).collect();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains("is for the client"), "{notices:?}");
    assert_eq!(task.inactivity, Some(Duration::from_secs(7200)));
    for off in ["off", "false", "'off'", "-1"] {
        let loaded = load(&format!("type: dev-environment\ninactivity_duration: {off}\n"));
        // The client could not read a number for it.
        assert!(loaded.value.get("inactivity_duration").is_null(), "{off}");
    }
}

/// A client that reads no `null` there shows no run of the project.
#[test]
fn rate_limit_without_a_key_is_by_address() {
    let limits = "[{rps: 1}, {prefix: /a, rps: 1, key: {type: header, header: A}}]";
    let text = format!("type: service\nport: 80\ncommands: [x]\nrate_limits: {limits}\n");
    let limits = load(&text).value.to_json()["rate_limits"].clone();
    assert_eq!(limits[0]["key"], serde_json::json!({"type": "ip_address"}));
    assert_eq!(limits[1]["key"]["header"], "A");
}
