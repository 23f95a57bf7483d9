//! `.dstack.yml` files in, typed tasks or one clear line out.

use dstack::configuration::env::Value;
use dstack::configuration::policy::{FleetName, SpotPolicy, StopCriteria};
use dstack::configuration::resources::Resources;
use dstack::configuration::tables::run::TASK;
use dstack::configuration::task::{Mount, Port, Shell, Task};
use dstack::configuration::{Configuration, Loaded, parse};
use model::amount::Bytes;
use model::node::Architecture;
use model::range::Range;
use std::time::Duration;

fn load(text: &str) -> Loaded {
    parse("t.dstack.yml", text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn task(text: &str) -> Task {
    match load(text).configuration {
        Configuration::Task(task) => *task,
        other => panic!("{other:?}"),
    }
}

/// The task with these lines beside its type and its one command.
fn task_with(lines: &str) -> Task {
    task(&format!("type: task\ncommands: [x]\n{lines}\n"))
}

fn resources(lines: &str) -> Resources {
    task_with(&format!("resources: {lines}")).resources
}

/// Why the configuration is not taken: it is wrong, or something in it is not available yet.
fn refusal(text: &str) -> String {
    match parse("t.dstack.yml", text.as_bytes()) {
        Ok(loaded) => match loaded.applicable() {
            Ok(_) => panic!("accepted: {loaded:?}"),
            Err(fault) => fault.in_file("t.dstack.yml"),
        },
        Err(e) => e.to_string(),
    }
}

/// The error line, without its start, of a task whose third line is this one.
fn refusal_with(line: &str) -> String {
    let text = format!("type: task\ncommands: [x]\n{line}\n");
    let message = refusal(&text);
    assert!(!message.contains('\n'), "{message}");
    let rest = message.strip_prefix("t.dstack.yml:3:");
    rest.unwrap_or_else(|| panic!("{message}")).to_owned()
}

fn gib(n: u64) -> Bytes {
    Bytes::from_gib(n)
}

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
fn env_may_be_a_mapping_and_keeps_the_text_as_written() {
    let task = task_with("env: {A: '1', B: 2, C: 1.50, D: \"yes\", E: \"\"}");
    let env = task.env.resolve(|_| None).unwrap();
    let values: Vec<&str> = env.iter().map(|variable| variable.value.as_str()).collect();
    assert_eq!(values, ["1", "2", "1.50", "yes", ""]);
}

#[test]
fn reference_to_a_secret_stays_until_launch_and_other_texts_are_as_the_run_gets_them() {
    let task = task_with("env: ['A=x-${{ secrets.tok }}-$$', 'B=$$5', 'C=$${{ secrets.x }}', D]");
    let env = task.env.resolve(|_| Some("$$ ${{ secrets.tok }}".into())).unwrap();
    let shown = env.iter().map(|v| (v.name.as_str(), v.value.as_str(), v.has_secrets));
    let expected = [
        ("A", "x-${{ secrets.tok }}-$$", true),
        ("B", "$5", false),
        ("C", "${{ secrets.x }}", false),
        // The client's own value is taken as it is.
        ("D", "$$ ${{ secrets.tok }}", false),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

#[test]
fn variable_missing_at_the_client_is_named_with_its_position() {
    let fault = task_with("env: [A, B]").env.resolve(|_| None).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "3:7: `A` is to be taken from the environment, where it is not set: set it, or write `A=VALUE`"
    );
}

#[test]
fn properties_of_the_client_and_of_the_profile_are_kept() {
    let loaded = load(
        "type: task\ncommands: [x]\nports: [8080, '80:8080', '*:9000']\nspot_policy: auto\nresources: {shm_size: 8GB}\nidle_duration: off\nregions: []\n",
    );
    let said: Vec<String> = loaded.notices.iter().map(|n| n.to_string()).collect();
    assert_eq!(said, [""; 0]);
    let Configuration::Task(task) = loaded.configuration else { panic!("{loaded:?}") };
    let port = |local, of_run| Port { local, of_run };
    let ports = [port(Some(8080), 8080), port(Some(80), 8080), port(None, 9000)];
    assert_eq!(task.ports, ports);
    assert_eq!(task.profile.spot_policy, Some(SpotPolicy::Auto));
    assert_eq!(task.profile.idle_duration, Some(None));
}

#[test]
fn property_that_would_change_what_runs_is_read_and_refused_at_apply() {
    let cases = [
        ("privileged: true", "13: `privileged`: needs an `image`"),
        ("volumes: [{name: [v, W], path: /data}]", "11: `volumes[0]`: "),
        (
            "volumes: ['/host:/data']",
            "11: `volumes[0]`: a run without an `image` finds /host at /host and not at /data",
        ),
        ("repos: [., 'https://h/r']", "8: `repos`: expected one repository at most"),
        (
            "working_dir: /data/../etc\nimage: a",
            "14: `working_dir`: expected a path without `..` and not below /proc, in an `image`",
        ),
        ("runtime: container", "10: `runtime`: `container` needs an `image`"),
    ];
    for (line, expected) in cases {
        let message = refusal_with(line);
        assert!(message.starts_with(expected), "{line}\n  {message}\n  {expected}");
    }
    let optional = "volumes: [{instance_path: /host, path: /data, optional: true}]";
    let loaded = load(&format!("type: task\ncommands: [x]\n{optional}\n"));
    assert!(loaded.applicable().is_ok(), "{:?}", loaded.refusals);
    let notices: Vec<String> = loaded.notices.iter().map(|notice| notice.in_file("f")).collect();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].starts_with("f:3:11: `volumes[0]`: is left out"), "{notices:?}");
    let several = task_with("volumes: [{name: [v, w], path: /data}]");
    let names = vec!["v".to_owned(), "w".to_owned()];
    assert_eq!(several.volumes, [Mount::Volume { names, path: "/data".into() }]);
    let alone = task_with("stop_criteria: master-done");
    assert_eq!(alone.stop_criteria, StopCriteria::MasterDone);
    // A value that asks for nothing changes nothing.
    for line in [
        "image: null",
        "docker: false",
        "files: []",
        "volumes: []",
        "privileged: false",
        "docker: true",
    ] {
        let loaded = load(&format!("type: task\ncommands: [x]\n{line}\n"));
        assert!(loaded.applicable().is_ok(), "{line}");
    }
}

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
fn backend_options_are_those_that_dstack_has_and_change_nothing() {
    let options = "backend_options: [{offer_order: price, min_reliability: 1, min_score: 200}]";
    let fleet = "type: fleet\nname: lab\nnodes: 1\n";
    for text in ["type: task\ncommands: [x]\n", fleet] {
        let loaded = load(&format!("{text}{options}\n"));
        let notices: Vec<String> = loaded.notices.iter().map(|notice| notice.why.clone()).collect();
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert!(notices[0].starts_with("has no effect"), "{notices:?}");
    }
    let message = refusal(&format!("{fleet}backend_options: [{{type: x}}]\n"));
    assert!(message.contains("`backend_options[0].type`: invalid \"x\""), "{message}");
    let cases = [
        ("[{type: x}]", "26: `backend_options[0].type`: invalid \"x\": expected one of vastai"),
        ("[{score: 1}]", "20: unknown property `backend_options[0].score`"),
        ("[{min_reliability: 2}]", "37: `backend_options[0].min_reliability`: invalid \"2\""),
        ("[{min_score: -1}]", "31: `backend_options[0].min_score`: invalid \"-1\""),
        ("[{}, {}]", "23: `backend_options[1]`: invalid mapping: expected one mapping for each"),
    ];
    for (value, expected) in cases {
        let message = refusal_with(&format!("backend_options: {value}"));
        assert!(message.starts_with(expected), "{value}\n  {message}\n  {expected}");
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
        ("type: task\ncommands: []\n", "1:1: `commands` is missing"),
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
fn rules_between_properties_name_the_property_that_is_too_much() {
    let cases = [
        (
            "type: task\ncommands: [x]\nnodes: 2\ngroups: [{nodes: 1}]\n",
            "4:9: `groups`: `nodes` and `groups` exclude each other",
        ),
        (
            "type: task\ncommands: [x]\nimage: a\npython: '3.11'\n",
            "4:9: `python`: `image` and `python` exclude each other",
        ),
        (
            "type: task\ncommands: [x]\nimage: a\nruntime: process\n",
            "4:10: `runtime`: `process` runs without an image",
        ),
        (
            "type: task\nimage: a\nenv: [B=c]\nregistry_auth: {username: u, password: '${{ env.A }}'}\n",
            "4:16: `registry_auth`: `${{ env.A }}`: expected a variable that `env` has",
        ),
        (
            "type: service\nport: 80\nimage: a\nprobes: [{type: http, url: '/${{ env.A }}'}]\n",
            "4:9: `probes`: `${{ env.A }}`: expected a variable that `env` has",
        ),
        ("type: service\ncommands: [x]\n", "1:1: `port` is missing"),
        (
            "type: service\nport: 80\ncommands: [x]\ngroups: [{replicas: 2, router: {}}, {replicas: 1, router: {}}]\n",
            "4:9: `groups`: a service has one group with a `router` at most",
        ),
        (
            "type: service\nport: 80\npython: '3.12'\ngroups: [{replicas: 1, image: a}]\n",
            "4:31: `groups[0].image`: `image` and `python` exclude each other, in a group too",
        ),
        (
            "type: service\nport: 80\ngroups: [{replicas: 1, commands: [x]}]\nscaling: {metric: rps, target: 1}\n",
            "4:10: `scaling`: is not for `groups`",
        ),
        (
            "type: service\ncommands: [x]\nport: 80\nreplicas: 1..2\n",
            "4:11: `replicas`: a range needs `scaling`",
        ),
        (
            "type: service\ncommands: [x]\nport: 80\nreplicas: 2\nscaling: {metric: rps, target: 1}\n",
            "5:10: `scaling`: is for a range of `replicas`",
        ),
        (
            "type: service\ncommands: [x]\nport: 80\nreplicas: 0..2\nscaling: {metric: rps, target: 1, window: 45s}\n",
            "5:43: `scaling.window`: invalid \"45s\": expected one of 30s, 60s and 300s",
        ),
        (
            "type: service\nport: 80\nimage: a\nprobes: [{type: http, url: '${{ env.A }}'}]\nenv: [A=/b]\n",
            "4:28: `probes[0].url`: invalid \"${{ env.A }}\": expected a path such as /health",
        ),
        (
            "type: service\nport: 80\nimage: a\nprobes: [{type: http, method: get, body: x}]\n",
            "4:10: `probes[0]`: `get` takes no `body`",
        ),
        (
            "type: service\nport: 80\nimage: a\nprobes: [{type: http, timeout: 0}]\n",
            "4:32: `probes[0].timeout`: invalid \"0\": expected 1s or more",
        ),
        (
            "type: service\nport: 80\nimage: a\nprobes: [{type: http}, {type: http}]\n",
            "4:9: `probes`: two of them are alike",
        ),
        (
            "type: service\nport: 80\nimage: a\nrate_limits: [{rps: 1}, {prefix: /, rps: 2}]\n",
            "4:14: `rate_limits`: two of them have the same `prefix`",
        ),
        ("type: fleet\nname: lab\n", "1:1: `nodes` is missing"),
        (
            "type: fleet\nssh_config: {hosts: [h], network: 8.8.8.0/24}\n",
            "2:35: `ssh_config.network`: invalid \"8.8.8.0/24\": expected a private network",
        ),
        (
            "type: task\ngroups: [{name: '1', commands: [x]}, {commands: [x]}]\n",
            "2:9: `groups`: two groups have the name 1",
        ),
        (
            "type: task\ngroups: [{name: My_Group, commands: [x]}]\n",
            "2:17: `groups[0].name`: invalid \"My_Group\": expected a name of 1 to 40 lower-case",
        ),
        ("type: dev-environment\nversion: '1.80'\n", "2:10: `version`: is that of an IDE"),
        (
            "type: dev-environment\nide: windsurf\nversion: '1.106.0'\n",
            "3:10: `version`: expected VERSION@COMMIT",
        ),
        (
            "type: dev-environment\ndstack: true\ninactivity_duration: 1h\n",
            "2:9: `dstack`: is not for `inactivity_duration`",
        ),
        ("type: task\nimage: a\nuser: '-5'\n", "3:7: `user`: invalid \"-5\": expected a user"),
        (
            "type: task\nimage: a\ntags: {team: é}\n",
            "3:14: `tags.team`: invalid \"é\": expected a text of up to 256 letters",
        ),
        (
            "type: fleet\nnodes: 1\nssh_config: {hosts: [a]}\n",
            "2:8: `nodes`: is for machines of a cloud",
        ),
        (
            "type: fleet\nssh_config: {hosts: [{hostname: h, internal_ip: 8.8.8.8}]}\n",
            "2:49: `ssh_config.hosts[0].internal_ip`: invalid \"8.8.8.8\": expected a private IP",
        ),
        (
            "type: volume\nbackend: local\nname: xy\n",
            "2:10: `backend`: invalid \"local\": expected one of aws, gcp, runpod",
        ),
        (
            "type: dev-environment\nide: emacs\n",
            "2:6: `ide`: invalid \"emacs\": expected one of vscode, cursor, windsurf, zed",
        ),
    ];
    for (text, expected) in cases {
        let message = refusal(text);
        let expected = format!("t.dstack.yml:{expected}");
        assert!(message.starts_with(&expected), "{message}\n{expected}");
    }
}

#[test]
fn what_is_said_of_machines_in_a_fleet_of_hosts_is_told_to_have_no_effect() {
    let hosts = "type: fleet\nname: lab\nssh_config: {user: ada, hosts: [a]}\nblocks: auto\n";
    assert!(load(hosts).notices.is_empty());
    let more = "resources: {gpu: 8}\nidle_duration: 1h\nspot_policy: spot\nretry: false\n";
    let loaded = load(&format!("{hosts}{more}backends: null\n"));
    let notices: Vec<String> = loaded.notices.iter().map(|notice| notice.in_file("f")).collect();
    let places = ["f:5:12: `resources`", "f:7:14: `spot_policy`", "f:6:16: `idle_duration`"];
    assert_eq!(notices.len(), places.len(), "{notices:?}");
    for place in places {
        let is_told = |notice: &String| notice.starts_with(&format!("{place}: has no effect"));
        assert!(notices.iter().any(is_told), "{place}: {notices:?}");
    }
    assert!(loaded.applicable().is_ok());
    let machines = format!("type: fleet\nname: lab\nnodes: 2\n{more}");
    assert!(load(&machines).notices.is_empty());
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
fn internal_address_of_a_host_is_one_that_dstack_takes_for_private() {
    let fleet = |ip: &str| {
        format!("type: fleet\nssh_config: {{hosts: [{{hostname: h, internal_ip: '{ip}'}}]}}\n")
    };
    for ip in ["10.0.0.1", "172.16.0.1", "192.168.1.1", "198.18.0.4", "192.0.2.4", "fd00::1"] {
        load(&fleet(ip));
    }
    for ip in ["8.8.8.8", "100.64.0.1", "198.20.0.1", "2a00::1", "host"] {
        assert!(refusal(&fleet(ip)).contains("expected a private IP"), "{ip}");
    }
}

#[test]
fn network_of_a_fleet_is_read_and_acts() {
    let fleet = |network: &str| {
        format!("type: fleet\nssh_config: {{user: u, hosts: [h], network: '{network}'}}\n")
    };
    for (given, read) in [
        ("10.88.0.0/24", "10.88.0.0/24"),
        ("10.88.0.7/255.255.0.0", "10.88.0.0/16"),
        ("fd00::/8", "fd00::/8"),
        ("192.168.1.4", "192.168.1.4/32"),
    ] {
        let loaded = load(&fleet(given));
        assert!(loaded.notices.is_empty(), "{given}: {:?}", loaded.notices);
        let Ok(Configuration::Fleet(fleet)) = loaded.applicable() else { panic!("a fleet") };
        assert_eq!(fleet.network.map(|network| network.to_string()).as_deref(), Some(read));
    }
    for wrong in ["10.0.0.0/33", "10.0.0.0/255.0.255.0", "10.0.0.0/0", "lab"] {
        let said = refusal(&fleet(wrong));
        assert!(said.contains("expected a private network such as 10.0.0.0/24"), "{said}");
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

#[test]
fn profile_gives_what_the_configuration_leaves_open() {
    let profiles = b"profiles:\n- name: long\n  max_duration: 2d\n  retry: true\n- name: usual\n  default: true\n";
    let profiles = dstack::configuration::parse_profiles("profiles.yml", profiles).unwrap();
    let long = dstack::configuration::load::select_profile(&profiles, Some("long")).unwrap();
    let text = b"type: task\ncommands: [x]\nmax_duration: 1h\n";
    let loaded =
        dstack::configuration::load::parse_with("t.dstack.yml", text, Some(long), &[]).unwrap();
    let Configuration::Task(task) = loaded.configuration else { panic!() };
    assert_eq!(task.max_duration, Some(Duration::from_secs(3_600)));
    assert!(task.retry.is_some());
    // What a profile says of machines is the run's.
    let cloud =
        dstack::configuration::parse_profiles("p.yml", b"profiles: [{name: c, backends: [aws]}]");
    let loaded =
        dstack::configuration::load::parse_with("t.yml", text, Some(&cloud.unwrap()[0]), &[])
            .unwrap();
    let Configuration::Task(task) = loaded.configuration else { panic!() };
    let choice = task.profile.machine_choice().expect("it says a backend");
    assert_eq!(choice.backends, ["aws"]);
    assert!(!choice.allows_own());
    let usual = dstack::configuration::load::select_profile(&profiles, None).unwrap();
    assert_eq!(usual.get("name").as_text(), Some("usual"));
    let error =
        dstack::configuration::parse_profiles("p.yml", b"profiles: [{max: 1}]").unwrap_err();
    assert_eq!(error.to_string(), "p.yml:1:13: unknown property `profiles[0].max`");
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

#[test]
fn overrides_stand_in_place_of_what_the_file_says() {
    use dstack::configuration::load::{Override, parse_with};
    let set = |path, value| Override { path, value };
    let overrides = [
        set(&["name"], serde_json::json!("other")),
        set(&["resources", "cpu"], serde_json::json!(4)),
        set(&["max_duration"], serde_json::json!("90m")),
    ];
    for text in [
        "type: task\nname: it\ncommands: [a]\nresources: {cpu: 2, memory: 1GB}\n",
        "type: task\ncommands: [a]\n",
        "type: task\ncommands: [a]\nresources:\n",
    ] {
        let loaded = parse_with("t.yml", text.as_bytes(), None, &overrides).expect(text);
        let Configuration::Task(task) = loaded.configuration else { panic!("no task") };
        assert_eq!(task.name.as_deref(), Some("other"));
        assert_eq!(task.resources.cpu.count, Range::exactly(4));
        assert_eq!(task.max_duration, Some(Duration::from_secs(5400)));
    }
    let wrong = [set(&["name"], serde_json::json!("Bad_Name"))];
    let error =
        parse_with("t.yml", b"type: task\ncommands: [a]\n", None, &wrong).expect_err("a name");
    assert!(error.to_string().starts_with("t.yml: `name`: invalid \"Bad_Name\""), "{error}");
}

#[test]
fn variables_of_the_command_line_come_before_those_of_the_file() {
    use dstack::configuration::load::parse_with_env;
    let words = ["A=new".to_owned(), "B=x=y".to_owned(), "C".to_owned()];
    for env in ["env: {A: old, D: kept}\n", "env: [A=old, D=kept]\n", "env: [C=old]\n", ""] {
        let text = format!("type: task\ncommands: [a]\n{env}");
        let loaded = parse_with_env("t.yml", text.as_bytes(), None, &[], &words).expect(env);
        let Configuration::Task(task) = loaded.configuration else { panic!("no task") };
        let client = |name: &str| (name == "C").then(|| "of the client".to_owned());
        let set = task.env.resolve(client).expect("all are known");
        let value = |name: &str| {
            let found = set.iter().find(|variable| variable.name == name);
            found.map(|variable| variable.value.clone())
        };
        assert_eq!(value("A").as_deref(), Some("new"), "{env}");
        assert_eq!(value("B").as_deref(), Some("x=y"), "{env}");
        assert_eq!(value("C").as_deref(), Some("of the client"), "{env}");
        assert_eq!(value("D").is_some(), env.contains("kept"), "{env}");
        // dstack's own form has them too.
        assert_eq!(loaded.value.get("env").get("A").as_text(), Some("new"), "{env}");
    }
    let wrong = ["1A=b".to_owned()];
    let error = parse_with_env("t.yml", b"type: task\ncommands: [a]\n", None, &[], &wrong);
    let error = error.expect_err("a name").to_string();
    assert!(error.starts_with("t.yml: `env`: invalid \"1A\""), "{error}");
}
