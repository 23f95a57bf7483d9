//! What is wrong, each in a line with its place and what would be right.

use crate::{load, refusal, refusal_with, task_with};
use dstack::configuration::parse;
use dstack::configuration::tables::run::TASK;

#[test]
fn every_property_that_is_read_refuses_a_value_of_the_wrong_shape() {
    for property in TASK.properties().filter(|p| p.name != "type") {
        let text = format!("type: task\ncommands: [x]\n{}: {{x: {{y: []}}}}\n", property.name);
        let text = text.replace("commands: [x]\ncommands", "\ncommands");
        assert!(parse("t.dstack.yml", text.as_bytes()).is_err(), "{}", property.name);
    }
}

#[test]
fn every_bad_value_gets_one_line_with_its_position_and_the_expected_form() {
    let cases = [
        ("comands: [y]", "1: unknown property `comands`: did you mean `commands`?"),
        ("frobnicate: 1", "1: unknown property `frobnicate`"),
        (
            "inactivity_duration: 2h",
            "1: `inactivity_duration` is a property of dev-environment: a task has none",
        ),
        ("commands: [y]", "1: `commands` is given twice: it is already in line 2"),
        ("nodes: 0", "8: `nodes`: invalid \"0\": expected a whole number, 1 or more, or a range"),
        ("nodes: two", "8: `nodes`: invalid \"two\": expected a whole number, 1 or more"),
        ("priority: 101", "11: `priority`: invalid \"101\": expected a whole number from 0 to 100"),
        ("priority: [1]", "11: `priority`: invalid list: expected a whole number from 0 to 100"),
        (
            "name: Bad_Name!",
            "7: `name`: invalid \"Bad_Name!\": expected a name of 2 to 41 lower-case letters",
        ),
        ("shell: zsh", "8: `shell`: invalid \"zsh\": expected sh, bash, or an absolute path"),
        ("working_dir: data", "14: `working_dir`: invalid \"data\": expected an absolute path"),
        ("max_duration: 1h30m", "15: `max_duration`: invalid duration \"1h30m\": expected"),
        (
            "retry: {on_events: [x]}",
            "21: `retry.on_events[0]`: invalid \"x\": expected one of no-capacity, interruption, error",
        ),
        ("retry: {on_events: []}", "20: `retry.on_events`: invalid list: expected at least one of"),
        (
            "retry: {on_event: [error]}",
            "9: unknown property `retry.on_event`: did you mean `on_events`?",
        ),
        ("resources: {gpus: 1}", "13: unknown property `resources.gpus`: did you mean `gpu`?"),
        (
            "resources: {gpu: 'A100:H100'}",
            "18: `resources.gpu`: invalid GPU spec \"A100:H100\": expected one name",
        ),
        ("resources: {gpu: true}", "18: `resources.gpu`: invalid \"true\": expected a count"),
        ("resources: {gpu: {foo: 1}}", "19: unknown property `resources.gpu.foo`"),
        (
            "resources: {gpu: {vendor: acme}}",
            "27: `resources.gpu.vendor`: invalid GPU vendor \"acme\"",
        ),
        (
            "resources: {gpu: {compute_capability: x}}",
            "39: `resources.gpu.compute_capability`: invalid \"x\": expected a version such as 8.0",
        ),
        (
            "resources: {cpu: 'mips:2'}",
            "18: `resources.cpu`: invalid CPU \"mips:2\": expected the architecture x86 or arm",
        ),
        ("resources: {cpu: '4:8'}", "18: `resources.cpu`: invalid CPU \"4:8\": expected one count"),
        (
            "resources: {cpu: 'x86:arm'}",
            "18: `resources.cpu`: invalid CPU \"x86:arm\": expected one architecture",
        ),
        ("resources: {cpu: '8..2'}", "18: `resources.cpu`: invalid CPU count \"8..2\""),
        ("resources: {cpu: -1}", "18: `resources.cpu`: invalid CPU count \"-1\""),
        (
            "resources: {memory: 16G}",
            "21: `resources.memory`: invalid memory size \"16G\": expected a number with MB, GB or TB",
        ),
        ("resources: {memory: ..}", "21: `resources.memory`: invalid size \"..\""),
        (
            "resources: {memory: {min: 8, max: 4}}",
            "21: `resources.memory`: invalid mapping: expected `min` not above `max`",
        ),
        ("resources: {cpu: 0}", "18: `resources.cpu`: invalid \"0\": expected 1 or more"),
        ("resources: {cpu: ..0}", "18: `resources.cpu`: invalid \"..0\": expected 1 or more"),
        (
            "resources: {cpu: {arch: x86, count: 0}}",
            "18: `resources.cpu`: invalid mapping: expected 1 or more",
        ),
        ("resources: {memory: 0}", "21: `resources.memory`: invalid \"0\": expected 1MB or more"),
        (
            "resources: {memory: 0..0GB}",
            "21: `resources.memory`: invalid \"0..0GB\": expected 1MB or more",
        ),
        (
            "resources: {memory: 0.5MB}",
            "21: `resources.memory`: invalid \"0.5MB\": expected 1MB or more",
        ),
        ("resources: {disk: 0}", "19: `resources.disk`: invalid \"0\": expected 1MB or more"),
        (
            "resources: {disk: {size: ..0}}",
            "26: `resources.disk.size`: invalid \"..0\": expected 1MB or more",
        ),
        ("max_duration: 0", "15: `max_duration`: invalid \"0\": expected a duration above 0"),
        ("max_duration: 0h", "15: `max_duration`: invalid \"0h\": expected a duration above 0"),
        (
            "resources: 4",
            "12: `resources`: invalid \"4\": expected a mapping of cpu, memory, shm_size, gpu and disk",
        ),
        ("env: [1A=2]", "7: `env[0]`: invalid \"1A=2\": expected NAME=value or NAME"),
        ("env: [A, A=2]", "10: `env.A` is given twice: it is already in line 3"),
        ("env: {A: yes}", "10: `env.A`: invalid \"yes\": expected text: put the word in quotes"),
        ("env: {A: }", "8: `env.A`: invalid \"\": expected text, or \"\" for an empty value"),
        ("env: {A b: 1}", "7: `env`: invalid \"A b\": expected a name of letters"),
        ("env: {A: '${{ vault.t }}'}", "10: `env.A`: `${{ vault.t }}`: expected secrets.NAME"),
        ("fleets: [a/b/c]", "10: `fleets[0]`: invalid \"a/b/c\": expected NAME or PROJECT/NAME"),
        ("tags: {a b: c}", "8: `tags`: invalid \"a b\": expected a tag of 1 to 60"),
        ("backends: [foo]", "12: `backends[0]`: invalid \"foo\": expected one of amddevcloud, aws"),
        ("max_price: 0", "12: `max_price`: invalid \"0\": expected a number above 0"),
        (
            "image: bad image!!",
            "8: `image`: image \"bad image!!\": a name has lower-case letters, digits",
        ),
        ("image: docker-daemon:a", "8: `image`: image \"docker-daemon:a\": Docker's own images"),
        ("ports: [70000]", "9: `ports[0]`: invalid \"70000\": expected a port"),
        (
            "utilization_policy: {min_gpu_utilization: 10, time_window: 1m}",
            "60: `utilization_policy.time_window`: invalid \"1m\": expected 5m or more",
        ),
        (
            "startup_order: last",
            "16: `startup_order`: invalid \"last\": expected one of any, master-first, workers-first",
        ),
    ];
    for (line, expected) in cases {
        let message = refusal_with(line);
        assert!(message.starts_with(expected), "{line}\n  {message}\n  {expected}");
    }
}

#[test]
fn a_path_in_the_run_has_no_drive_and_no_home_of_another_user() {
    let cases = [
        ("files: ['C:/x']", "9: `files[0]`: invalid \"C:/x\": expected a path in the run without"),
        ("files: [{local_path: a, path: 'C:/x'}]", "31: `files[0].path`: invalid \"C:/x\""),
        ("repos: ['.:~ada/x']", "9: `repos[0]`: invalid \".:~ada/x\": expected a path in the run"),
        ("repos: [{url: u, path: ~ada}]", "24: `repos[0].path`: invalid \"~ada\""),
    ];
    for (line, expected) in cases {
        let message = refusal_with(line);
        assert!(message.starts_with(expected), "{line}\n  {message}\n  {expected}");
    }
    let file = &task_with("files: ['C:/x:~/y']").files[0];
    assert_eq!((file.local_path.as_str(), file.path.as_str()), ("C:/x", "~/y"));
    let repo = &task_with("repos: ['.:~/code']").repos[0];
    assert_eq!((repo.local_path.as_deref(), repo.path.as_str()), (Some("."), "~/code"));
}

#[test]
fn commands_must_be_there_and_be_commands() {
    let cases = [
        (
            "type: task\n",
            "1:1: `commands` is missing: expected a list of one shell command or more",
        ),
        ("type: task\ncommands: []\n", "2:11: `commands` is missing"),
        (
            "type: task\ncommands: echo hi\n",
            "2:11: `commands`: invalid \"echo hi\": expected a list of shell commands",
        ),
        (
            "type: task\ncommands:\n  - echo a: b\n",
            "3:5: `commands[0]`: invalid mapping: expected a shell command: put quotes",
        ),
        (
            "type: task\ncommands:\n  -\n",
            "3:4: `commands[0]`: invalid \"\": expected a shell command",
        ),
    ];
    for (text, expected) in cases {
        let message = refusal(text);
        let expected = format!("t.dstack.yml:{expected}");
        assert!(message.starts_with(&expected), "{message}");
    }
}

#[test]
fn days_of_the_week_that_dstack_counts_otherwise_are_told_of() {
    let text = |cron: &str| format!("type: task\ncommands: [x]\nschedule: {{cron: '{cron}'}}\n");
    let notices = |cron: &str| load(&text(cron)).notices.len();
    let told = ["0 3 * * 1-5", "0 3 * * 0", "0 3 * * mon-fri", "5 3 * * *", "0 3 * * */2"];
    assert_eq!(told.map(notices), [1, 1, 0, 0, 0]);
    let expected = "t.dstack.yml:3:18: `schedule.cron`: invalid \"0 3 * * 7\": expected days";
    let refused = refusal(&text("0 3 * * 7"));
    assert!(refused.starts_with(expected), "{refused}");
}

/// Each place of a file with several faults, in the order of the file.
#[test]
fn every_fault_of_a_file_is_told_at_once() {
    let table: &[(&str, &[&str])] = &[
        (
            "type: task\nname: Bad_Name\ncomands: [a]\nresources:\n  cpu: 4..2\n  memory: 10XB\n  gpus: 1\nports: [0, 8000, x]\nretry: {on_events: [boredom, error]}\nname: again\n",
            &[
                "2:7: `name`: invalid \"Bad_Name\"",
                "3:1: unknown property `comands`: did you mean `commands`?",
                "5:8: `resources.cpu`: invalid CPU count",
                "6:11: `resources.memory`: invalid memory size",
                "7:3: unknown property `resources.gpus`: did you mean `gpu`?",
                "8:9: `ports[0]`: ",
                "8:18: `ports[2]`: ",
                "9:21: `retry.on_events[0]`: invalid \"boredom\"",
                "10:1: `name` is given twice: it is already in line 2",
            ],
        ),
        // The rules between properties are told with what is wrong by itself.
        (
            "type: task\nimage: a\npython: '3.11'\npriority: 101\nnodes: 2\ngroups: [{nodes: 1}]\n",
            &[
                "3:9: `python`: `image` and `python` exclude each other",
                "4:11: `priority`: invalid \"101\"",
                "6:9: `groups`: `nodes` and `groups` exclude each other",
            ],
        ),
        // What is wrong is not missing beside it.
        ("type: task\ncommands: a\n", &["2:11: `commands`: invalid \"a\""]),
        (
            "type: task\nimage: [a]\nprority: 1\n",
            &["2:8: `image`: ", "3:1: unknown property `prority`"],
        ),
        // Without its type nobody knows which properties it has.
        ("type: tusk\nnodes: x\n", &["1:7: `type`: invalid \"tusk\""]),
        (
            "type: fleet\nnodes: x\nblocks: none\n",
            &["2:8: `nodes`", "3:9: `blocks`: invalid \"none\""],
        ),
    ];
    for (text, expected) in table {
        let error = parse("t.yml", text.as_bytes()).expect_err(text);
        let lines = error.lines();
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        for (line, expected) in lines.iter().zip(*expected) {
            assert!(line.starts_with(&format!("t.yml:{expected}")), "{line}, not {expected}");
        }
    }
    let many = "type: task\ncommands: [a]\n".to_owned()
        + &(0..150).map(|n| format!("x{n}: 1\n")).collect::<String>();
    let lines = parse("t.yml", many.as_bytes()).expect_err("faults").lines();
    assert_eq!((lines.len(), lines[100].as_str()), (101, "t.yml: 50 more that are not named here"));
}
