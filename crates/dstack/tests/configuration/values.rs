//! The forms that a value has, and what is meant where one is not given.

use crate::{gib, load, refusal_with, resources, task, task_with};
use dstack::configuration::env::Value;
use dstack::configuration::policy::FleetName;
use dstack::configuration::task::Shell;
use model::node::Architecture;
use model::range::Range;
use std::time::Duration;

#[test]
fn a_whole_task_is_read() {
    let task = task(
        r#"
type: task
name: train
nodes: 2
commands:
  - pip list
  - |
    for i in 1 2; do
      echo "$i"
    done
env:
  - HF_TOKEN
  - EPOCHS=3
  - EMPTY=
  - EQ=x=y
resources:
  cpu: x86:4..
  memory: 16GB..32GB
  gpu: H100:80GB:2
  disk: 200GB..
max_duration: 2h
stop_duration: 30s
priority: 70
retry:
  on_events: [no-capacity, error]
  duration: 1d
working_dir: /data
shell: sh
fleets: [lab, other/big]
tags: {team: vision}
backends: [remote]
"#,
    );
    assert_eq!(task.name.as_deref(), Some("train"));
    assert_eq!(task.nodes, Range::exactly(2));
    assert_eq!(task.commands[0], "pip list");
    assert_eq!(task.commands[1], "for i in 1 2; do\n  echo \"$i\"\ndone\n");
    let client = |name: &str| (name == "HF_TOKEN").then(|| "secret".to_owned());
    let env = task.env.resolve(client).unwrap();
    let env: Vec<_> = env.iter().map(|v| format!("{}={}", v.name, v.value)).collect();
    assert_eq!(env, ["HF_TOKEN=secret", "EPOCHS=3", "EMPTY=", "EQ=x=y"]);
    assert!(matches!(task.env.0[0].value, Value::FromClient(_)));
    assert_eq!(task.resources.cpu.architecture, Some(Architecture::X86));
    assert_eq!(task.resources.memory, Range::between(gib(16), gib(32)));
    assert_eq!(
        task.resources.to_string(),
        "cpu=x86:4.. mem=16GB..32GB disk=200GB.. gpu=H100:80GB:2"
    );
    assert_eq!(task.max_duration, Some(Duration::from_secs(7_200)));
    assert_eq!(task.stop_duration, Some(Some(Duration::from_secs(30))));
    assert_eq!(task.priority, 70);
    let retry = task.retry.unwrap();
    assert!(retry.on_no_capacity && !retry.on_interruption && retry.on_error);
    assert_eq!(retry.duration_s, Some(86_400));
    assert_eq!(task.working_dir.as_deref(), Some("/data"));
    assert_eq!(task.shell, Shell("/bin/sh".into()));
    let project = Some("other".to_owned());
    let name = "big".to_owned();
    assert_eq!(task.fleets[1], FleetName { project, name });
    assert_eq!(task.tags["team"], "vision");
}

#[test]
fn missing_properties_have_dstacks_defaults() {
    let task = task("type: task\ncommands:\n- hostname\n");
    let summary = task.resources.to_string();
    assert_eq!(summary, "cpu=2.. mem=8GB.. disk=100GB..");
    assert_eq!(task.resources.gpu, None);
    assert_eq!(task.stop_duration, None);
    assert_eq!((task.nodes, task.priority), (Range::exactly(1), 0));
    assert_eq!((task.retry, task.max_duration, task.shell.0), (None, None, "/bin/bash".into()));
}

#[test]
fn bare_amount_is_exact_and_dots_make_a_range() {
    let cases = [
        ("{cpu: 4}", "cpu=4 mem=8GB.. disk=100GB.."),
        ("{cpu: '4..8'}", "cpu=4..8 mem=8GB.. disk=100GB.."),
        ("{cpu: ..8}", "cpu=0..8 mem=8GB.. disk=100GB.."),
        ("{cpu: arm}", "cpu=arm:2.. mem=8GB.. disk=100GB.."),
        ("{cpu: 'ARM:4'}", "cpu=arm:4 mem=8GB.. disk=100GB.."),
        ("{cpu: {arch: arm, count: 4}}", "cpu=arm:4 mem=8GB.. disk=100GB.."),
        ("{cpu: {min: 2, max: 4}}", "cpu=2..4 mem=8GB.. disk=100GB.."),
        ("{memory: 16}", "cpu=2.. mem=16GB disk=100GB.."),
        ("{memory: 512MB..}", "cpu=2.. mem=512MB.. disk=100GB.."),
        ("{memory: {min: 8}}", "cpu=2.. mem=8GB.. disk=100GB.."),
        ("{disk: {size: 1TB}}", "cpu=2.. mem=8GB.. disk=1024GB"),
        ("{gpu: 0}", "cpu=2.. mem=8GB.. disk=100GB.. gpu=0"),
        ("{gpu: 24GB..}", "cpu=2.. mem=8GB.. disk=100GB.. gpu=24GB..:1.."),
        ("{gpu: 'RTX 4090:2'}", "cpu=2.. mem=8GB.. disk=100GB.. gpu=RTX4090:2"),
        ("{gpu: amd:MI300X:8}", "cpu=2.. mem=8GB.. disk=100GB.. gpu=amd:MI300X:8"),
        (
            "{gpu: {name: [A100, H100], memory: 80GB, count: {min: 1, max: 2}}}",
            "cpu=2.. mem=8GB.. disk=100GB.. gpu=A100,H100:80GB:1..2",
        ),
        ("{gpu: {vendor: tpu}}", "cpu=2.. mem=8GB.. disk=100GB.. gpu=google:1.."),
        ("{shm_size: 8GB}", "cpu=2.. mem=8GB.. shm_size=8GB disk=100GB.."),
    ];
    for (text, expected) in cases {
        assert_eq!(resources(text).to_string(), expected, "{text}");
    }
    let gpu = resources("{gpu: {compute_capability: 8.0, total_memory: 160GB..}}").gpu.unwrap();
    assert_eq!(gpu.compute_capability.map(|version| version.to_string()).as_deref(), Some("8.0"));
    assert_eq!(gpu.total_memory, Some(Range::at_least(gib(160))));
}

#[test]
fn durations_and_retries_can_be_switched_off() {
    let hour = Some(Duration::from_secs(3_600));
    let max = [
        ("off", None),
        ("'off'", None),
        ("false", None),
        ("true", None),
        ("1 h", hour),
        ("3600", hour),
    ];
    for (text, expected) in max {
        let task = task_with(&format!("max_duration: {text}"));
        assert_eq!(task.max_duration, expected, "{text}");
    }
    assert_eq!(task_with("stop_duration: off").stop_duration, Some(None));
    assert_eq!(task_with("retry: false").retry, None);
    assert_eq!(task_with("retry: 'false'").retry, None);
    let retry = task_with("retry: true").retry.unwrap();
    assert!(retry.on_no_capacity && retry.on_interruption && retry.on_error);
    assert_eq!(retry.duration_s, Some(3_600));
    let retry = task_with("retry: {duration: 4h}").retry.unwrap();
    assert!(retry.on_error);
    assert_eq!(retry.duration_s, Some(14_400));
}

#[test]
fn boolean_may_be_a_word_in_quotes_or_a_digit() {
    let cases = [
        ("true", true),
        ("Yes", true),
        ("'true'", true),
        ("\"TRUE\"", true),
        ("'on'", true),
        ("y", true),
        ("1", true),
        ("False", false),
        ("'no'", false),
        ("\"off\"", false),
        ("0", false),
    ];
    for (text, expected) in cases {
        let task = task_with(&format!("image: a\nprivileged: {text}"));
        assert_eq!(task.container.privileged, expected, "{text}");
    }
    for text in ["2", "maybe", "'nope'", "[true]"] {
        let message = refusal_with(&format!("single_branch: {text}"));
        assert!(message.contains("expected true or false"), "{text}: {message}");
    }
}

#[test]
fn a_whole_number_may_have_a_fraction_of_zeros() {
    let task = task_with("priority: 5.0\nnodes: 2.0");
    assert_eq!((task.priority, task.nodes), (5, Range::exactly(2)));
    let fleet = load("type: fleet\nname: lab\nnodes: 2.0\nblocks: 2.0\n").value;
    assert_eq!(fleet.get("blocks").as_integer(), Some(2));
    assert_eq!(fleet.get("nodes").get("max").as_integer(), Some(2));
    assert!(refusal_with("priority: 5.5").starts_with("11: `priority`: invalid \"5.5\""));
}

#[test]
fn every_version_of_python_that_dstack_has_is_taken_as_text_and_as_a_number() {
    let cases = [
        ("'3.9'", "3.9"),
        ("3.10", "3.10"),
        ("'3.10'", "3.10"),
        ("3.1", "3.10"),
        ("3.13", "3.13"),
        ("3.14", "3.14"),
    ];
    for (text, expected) in cases {
        let task = task_with(&format!("python: {text}"));
        assert_eq!(task.python.as_deref(), Some(expected), "{text}");
    }
    assert!(refusal_with("python: '3.7'").contains("expected one of 3.9, 3.10"));
}

#[test]
fn nodes_may_be_a_range_and_what_is_ours_is_read() {
    let task = task_with(
        "nodes: 2..4\ndepends_on: [prepare, 'afterany:12']\narray: 0-9%2\naccount: physics\nqos: high\nruntime: process",
    );
    assert_eq!(task.nodes, Range::between(2, 4));
    assert_eq!(task.depends_on, ["afterok:prepare", "afterany:12"]);
    assert_eq!(task.array.as_deref(), Some("0-9%2"));
    assert_eq!((task.account.as_deref(), task.qos.as_deref()), (Some("physics"), Some("high")));
}
