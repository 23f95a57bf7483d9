//! The tables of properties say what the translation really does with each property.

use dstack::configuration::property::{PropertySupport, Table};
use dstack::configuration::tables::profile::RETRY;
use dstack::configuration::tables::resources::{CPU, DISK, GPU, RESOURCES};
use dstack::configuration::tables::run::TASK;
use dstack::configuration::{Configuration, parse};
use dstack::request::{Submitter, draft};
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
    let Ok(Configuration::Task(task)) = loaded.applicable() else { return None };
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
    let draft = draft(task, &submitter).ok()?;
    Some(Translated {
        submission: serde_json::to_string(&draft.submission).expect("JSON"),
        file_notices: loaded.notices.len(),
        draft_notices: draft.notices.len(),
    })
}

/// Lines without and with a property, for every property that is not refused outright.
const EXAMPLES: &[(&Table, &str, &str, &str)] = &[
    (&TASK, "name", "", "name: train"),
    (&TASK, "commands", "", "commands: [make, make test]"),
    (&TASK, "env", "", "env: [A=b]"),
    (&TASK, "image", "", "image: ubuntu"),
    (&TASK, "user", "image: ubuntu", "image: ubuntu\nuser: ada"),
    (&TASK, "entrypoint", "", "entrypoint: python -m app"),
    (&TASK, "docker", "", "docker: true"),
    (&TASK, "instances", "", "instances: [lab-0]"),
    (&TASK, "setup", "", "setup: [make]"),
    (&TASK, "nodes", "", "nodes: 2"),
    (&TASK, "resources", "", "resources: {cpu: 4}"),
    (&TASK, "priority", "", "priority: 7"),
    (&TASK, "retry", "", "retry: true"),
    (&TASK, "max_duration", "", "max_duration: 1h"),
    (&TASK, "stop_duration", "", "stop_duration: 10s"),
    (&TASK, "working_dir", "", "working_dir: /data"),
    (&TASK, "shell", "", "shell: sh"),
    (&TASK, "fleets", "", "fleets: [a]"),
    (&TASK, "tags", "", "tags: {team: a}"),
    (&TASK, "ports", "", "ports: [8080]"),
    (&TASK, "home_dir", "", "home_dir: /home/ada"),
    (&TASK, "python", "", "python: 3.12"),
    (&TASK, "files", "", "files: [a.txt]"),
    (&TASK, "single_branch", "repos: [.]", "repos: [.]\nsingle_branch: true"),
    (&TASK, "dstack", "", "dstack: true"),
    (&TASK, "backends", "", "backends: [aws]"),
    (&TASK, "regions", "", "regions: [eu]"),
    (&TASK, "availability_zones", "", "availability_zones: [a]"),
    (&TASK, "instance_types", "", "instance_types: [p5]"),
    (&TASK, "reservation", "", "reservation: r"),
    (&TASK, "spot_policy", "", "spot_policy: spot"),
    (&TASK, "max_price", "", "max_price: 2.5"),
    (&TASK, "creation_policy", "", "creation_policy: reuse"),
    (&TASK, "idle_duration", "", "idle_duration: 5m"),
    (&TASK, "backend_options", "", "backend_options: [{type: vastai}]"),
    (&TASK, "groups", "", "groups: [{nodes: 1}, {resources: {cpu: 1}}]"),
    (
        &TASK,
        "utilization_policy",
        "",
        "utilization_policy: {min_gpu_utilization: 10, time_window: 10m}",
    ),
    (&TASK, "startup_order", "nodes: 2", "nodes: 2\nstartup_order: master-first"),
    (&TASK, "stop_criteria", "nodes: 2", "nodes: 2\nstop_criteria: master-done"),
    (&RESOURCES, "cpu", "", "resources: {cpu: 4}"),
    (&RESOURCES, "memory", "", "resources: {memory: 1GB}"),
    (&RESOURCES, "gpu", "", "resources: {gpu: 1}"),
    (&RESOURCES, "disk", "", "resources: {disk: 10GB..}"),
    (&RESOURCES, "shm_size", "", "resources: {shm_size: 1GB}"),
    (&CPU, "arch", "resources: {cpu: {count: 4}}", "resources: {cpu: {count: 4, arch: arm}}"),
    (&CPU, "count", "", "resources: {cpu: {count: 4}}"),
    (&DISK, "size", "", "resources: {disk: {size: 10GB..}}"),
    (&GPU, "vendor", "resources: {gpu: {count: 1}}", "resources: {gpu: {count: 1, vendor: amd}}"),
    (&GPU, "name", "resources: {gpu: {count: 1}}", "resources: {gpu: {count: 1, name: H100}}"),
    (&GPU, "count", "resources: {gpu: 1}", "resources: {gpu: {count: 2}}"),
    (&GPU, "memory", "resources: {gpu: 1}", "resources: {gpu: {count: 1, memory: 80GB}}"),
    (&GPU, "total_memory", "resources: {gpu: 1..}", "resources: {gpu: {total_memory: 80GB}}"),
    (
        &GPU,
        "compute_capability",
        "resources: {gpu: 1}",
        "resources: {gpu: {count: 1, compute_capability: 8.0}}",
    ),
    (&RETRY, "on_events", "retry: true", "retry: {on_events: [error]}"),
    (&RETRY, "duration", "retry: true", "retry: {duration: 2h}"),
    (&RETRY, "attempts", "retry: true", "retry: {attempts: 3}"),
    (&TASK, "depends_on", "", "depends_on: afterok:12"),
    (&TASK, "schedule", "", "schedule: {cron: 0 3 * * *}"),
    (&TASK, "array", "", "array: 0-9%2"),
    (&TASK, "account", "", "account: physics"),
    (&TASK, "qos", "", "qos: high"),
];

/// For properties that act in part: lines without the property, with a value that acts or changes nothing because it is
/// what happens anyway, and with a value that is refused or noticed.
const PARTLY: &[(&Table, &str, &str, &str, &str)] = &[
    (
        &TASK,
        "registry_auth",
        "image: ubuntu",
        "image: ubuntu\nregistry_auth: {username: a, password: b}",
        "registry_auth: {username: a, password: b}",
    ),
    (
        &TASK,
        "volumes",
        "image: ubuntu",
        "image: ubuntu\nvolumes: ['/data:/mnt']",
        "volumes: ['/data:/mnt']",
    ),
    (&TASK, "privileged", "image: ubuntu", "image: ubuntu\nprivileged: true", "privileged: true"),
    (&TASK, "nvcc", "", "nvcc: true", "image: ubuntu\nnvcc: true"),
    (&TASK, "repos", "", "repos: [.]", "repos: [., ..]"),
    (&TASK, "runtime", "", "runtime: process", "runtime: container"),
];

fn support(table: &Table, name: &str) -> PropertySupport {
    table.find(name).unwrap_or_else(|| panic!("{name} is not in its table")).support
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
fn every_property_of_a_task_has_an_example_and_none_is_refused() {
    let tables = [&TASK, &RESOURCES, &CPU, &DISK, &GPU, &RETRY];
    for property in tables.into_iter().flat_map(Table::properties) {
        let named = |name: &str| name == property.name;
        match property.support {
            PropertySupport::Refused(_) => panic!("{property:?} has no example"),
            PropertySupport::ActsInPart => {
                assert!(PARTLY.iter().any(|e| named(e.1)), "{property:?}")
            }
            _ if named("type") => {}
            _ => assert!(EXAMPLES.iter().any(|e| named(e.1)), "{property:?}"),
        }
    }
}
