//! The tables of properties say what the translation really does with each property.

use dstack::request::{Submitter, draft};
use dstack::yaml::configuration::{Configuration, parse};
use dstack::yaml::property::{self, Property, PropertySupport};
use model::time::Timestamp;

/// What became of a configuration: the submission as JSON, and how many notices there were.
#[derive(Debug, PartialEq)]
struct Translated {
    submission: String,
    file_notices: usize,
    draft_notices: usize,
}

/// `None` if the configuration is refused.
fn translate(lines: &str) -> Option<Translated> {
    let text = if lines.contains("commands:") {
        format!("type: task\n{lines}\n")
    } else {
        format!("type: task\ncommands: [make]\n{lines}\n")
    };
    let loaded = parse("task.yml", text.as_bytes()).ok()?;
    let Configuration::Task(task) = loaded.configuration;
    let submitter = Submitter {
        now: Timestamp::from_secs(1_000),
        random: 0,
        work_dir: "/home/ada",
        file: None,
        submit_line: String::new(),
        host: String::new(),
        session: 0,
        umask: 0,
        variable: &|_| None,
    };
    let draft = draft(&task, &submitter).ok()?;
    Some(Translated {
        submission: serde_json::to_string(&draft.submission).expect("JSON"),
        file_notices: loaded.notices.len(),
        draft_notices: draft.notices.len(),
    })
}

/// Lines without and with a property, for every property that is not refused outright.
const EXAMPLES: &[(&[Property], &str, &str, &str)] = &[
    (property::TASK, "name", "", "name: train"),
    (property::TASK, "commands", "", "commands: [make, make test]"),
    (property::TASK, "env", "", "env: [A=b]"),
    (property::TASK, "nodes", "", "nodes: 2"),
    (property::TASK, "resources", "", "resources: {cpu: 4}"),
    (property::TASK, "priority", "", "priority: 7"),
    (property::TASK, "retry", "", "retry: true"),
    (property::TASK, "max_duration", "", "max_duration: 1h"),
    (property::TASK, "stop_duration", "", "stop_duration: 10s"),
    (property::TASK, "working_dir", "", "working_dir: /data"),
    (property::TASK, "shell", "", "shell: sh"),
    (property::TASK, "fleets", "", "fleets: [a]"),
    (property::TASK, "tags", "", "tags: {team: a}"),
    (property::TASK, "ports", "", "ports: [8080]"),
    (property::TASK, "home_dir", "", "home_dir: /home/ada"),
    (property::TASK, "single_branch", "", "single_branch: true"),
    (property::TASK, "dstack", "", "dstack: true"),
    (property::TASK, "regions", "", "regions: [eu]"),
    (property::TASK, "availability_zones", "", "availability_zones: [a]"),
    (property::TASK, "instance_types", "", "instance_types: [p5]"),
    (property::TASK, "reservation", "", "reservation: r"),
    (property::TASK, "spot_policy", "", "spot_policy: spot"),
    (property::TASK, "max_price", "", "max_price: 2.5"),
    (property::TASK, "creation_policy", "", "creation_policy: reuse"),
    (property::TASK, "idle_duration", "", "idle_duration: 5m"),
    (property::TASK, "backend_options", "", "backend_options: [{type: aws}]"),
    (
        property::TASK,
        "utilization_policy",
        "",
        "utilization_policy: {min_gpu_utilization: 10, time_window: 10m}",
    ),
    (property::RESOURCES, "cpu", "", "resources: {cpu: 4}"),
    (property::RESOURCES, "memory", "", "resources: {memory: 1GB}"),
    (property::RESOURCES, "gpu", "", "resources: {gpu: 1}"),
    (property::RESOURCES, "disk", "", "resources: {disk: 10GB..}"),
    (property::RESOURCES, "shm_size", "", "resources: {shm_size: 1GB}"),
    (
        property::CPU,
        "arch",
        "resources: {cpu: {count: 4}}",
        "resources: {cpu: {count: 4, arch: arm}}",
    ),
    (property::CPU, "count", "", "resources: {cpu: {count: 4}}"),
    (property::CPU, "min", "", "resources: {cpu: {min: 4}}"),
    (property::CPU, "max", "", "resources: {cpu: {max: 4}}"),
    (property::RANGE, "min", "", "resources: {memory: {min: 1GB}}"),
    (property::RANGE, "max", "", "resources: {memory: {max: 1GB}}"),
    (property::DISK, "size", "", "resources: {disk: {size: 10GB..}}"),
    (
        property::GPU,
        "vendor",
        "resources: {gpu: {count: 1}}",
        "resources: {gpu: {count: 1, vendor: amd}}",
    ),
    (
        property::GPU,
        "name",
        "resources: {gpu: {count: 1}}",
        "resources: {gpu: {count: 1, name: H100}}",
    ),
    (property::GPU, "count", "resources: {gpu: 1}", "resources: {gpu: {count: 2}}"),
    (property::GPU, "memory", "resources: {gpu: 1}", "resources: {gpu: {count: 1, memory: 80GB}}"),
    (
        property::GPU,
        "compute_capability",
        "resources: {gpu: 1}",
        "resources: {gpu: {count: 1, compute_capability: 8.0}}",
    ),
    (property::RETRY, "on_events", "retry: true", "retry: {on_events: [error]}"),
    (property::RETRY, "duration", "retry: true", "retry: {duration: 2h}"),
];

/// For properties that act in part: lines without the property, with a value that acts or changes nothing because it is
/// what happens anyway, and with a value that is refused or noticed.
const PARTLY: &[(&[Property], &str, &str, &str, &str)] = &[
    (property::TASK, "backends", "", "backends: [remote]", "backends: [aws]"),
    (property::TASK, "startup_order", "", "startup_order: any", "startup_order: master-first"),
    (
        property::TASK,
        "stop_criteria",
        "nodes: 2",
        "nodes: 2\nstop_criteria: all-done",
        "nodes: 2\nstop_criteria: master-done",
    ),
    (
        property::GPU,
        "total_memory",
        "resources: {gpu: 2}",
        "resources: {gpu: {count: 2, total_memory: 80GB}}",
        "resources: {gpu: {count: 1.., total_memory: 80GB}}",
    ),
];

fn support(table: &[Property], name: &str) -> PropertySupport {
    let found = table.iter().find(|property| property.name == name);
    found.unwrap_or_else(|| panic!("{name} is not in its table")).support
}

#[test]
fn property_changes_the_submission_if_and_only_if_its_table_says_that_it_acts() {
    for (table, name, without, with) in EXAMPLES {
        let without = translate(without).unwrap_or_else(|| panic!("{name}: {without} is refused"));
        let with = translate(with).unwrap_or_else(|| panic!("{name}: {with} is refused"));
        let found = (
            with.submission != without.submission,
            with.file_notices - without.file_notices,
            with.draft_notices - without.draft_notices,
        );
        let expected = match support(table, name) {
            PropertySupport::Acts => (true, 0, 0),
            PropertySupport::Notice(_) => (false, 1, 0),
            PropertySupport::NotApplied(_) => (false, 0, 1),
            other => panic!("{name}: {other:?} has no example here"),
        };
        assert_eq!(found, expected, "{name}: changes the submission, notices of file and draft");
    }
}

#[test]
fn property_that_acts_in_part_refuses_or_notices_its_other_values() {
    for (table, name, without, good, other) in PARTLY {
        assert_eq!(support(table, name), PropertySupport::ActsInPart, "{name}");
        let without = translate(without).expect(name);
        let good = translate(good).unwrap_or_else(|| panic!("{name}: {good} is refused"));
        assert_eq!((good.file_notices, good.draft_notices), (0, 0), "{name}: {good:?}");
        if let Some(noticed) = translate(other) {
            let notices = noticed.file_notices + noticed.draft_notices;
            assert_eq!(notices, without.file_notices + without.draft_notices + 1, "{name}");
        }
    }
}

#[test]
fn refused_property_is_refused_and_every_property_has_an_example() {
    let tables = [
        property::TASK,
        property::RESOURCES,
        property::CPU,
        property::RANGE,
        property::DISK,
        property::GPU,
        property::RETRY,
    ];
    for property in tables.into_iter().flatten() {
        let named = |name: &str| name == property.name;
        match property.support {
            PropertySupport::Refused(_) => {
                let line = format!("{}: something", property.name);
                assert_eq!(translate(&line), None, "{line}");
            }
            PropertySupport::ActsInPart => {
                assert!(PARTLY.iter().any(|e| named(e.1)), "{property:?}")
            }
            _ if named("type") => {}
            _ => assert!(EXAMPLES.iter().any(|e| named(e.1)), "{property:?}"),
        }
    }
}
