//! What dstack's client sends, and dstack's grammar, against what is made of them here.

use dstack::configuration::{from_json, parse};
use dstack::effective::{client_form, effective, for_client, profile_for_client};
use serde_json::{Value, json};

fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn configurations_of_the_client_are_shown_and_completed_as_dstack_does() {
    for row in fixture("configurations.json").as_array().unwrap() {
        let name = &row["scenario"];
        let loaded = from_json(&row["sent"], Some(&row["profile"]))
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(for_client(&loaded.value, None), row["shown"], "{name}");
        let completed = effective(loaded.value.clone());
        assert_eq!(for_client(&completed, None), row["effective"], "{name}");
        assert_eq!(client_form(completed).to_json(), row["effective"], "{name}");
        // What was written out stays as it is.
        let again = from_json(&row["shown"], None).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(again.value, loaded.value, "{name}");
    }
}

/// Clients before 0.20.14 read no fleet in another form.
#[test]
fn fleets_of_a_run_are_texts_to_clients_of_every_version() {
    let fleets = json!([{ "name": "a" }, { "project": "p", "name": "b" }, "c", "p/d"]);
    let sent = json!({ "type": "task", "commands": ["x"], "fleets": fleets });
    let loaded = from_json(&sent, None).unwrap();
    let texts = json!(["a", "p/b", "c", "p/d"]);
    assert_eq!(for_client(&loaded.value, None)["fleets"], texts);
    assert_eq!(profile_for_client(json!({ "fleets": fleets }))["fleets"], texts);
    let shown = client_form(loaded.value.clone()).to_json();
    assert_eq!(shown["fleets"], texts);
    let again = from_json(&shown, None).unwrap();
    assert_eq!(again.value, loaded.value);
}

/// Values that dstack takes by mistake, and that are refused here: nothing could be granted for them, or run.
const MISTAKES: &[(&str, &str)] = &[
    ("GPU", "-1"),
    ("GPU", "true"),
    ("CPU", "0"),
    ("memory (Range[Memory])", "-4"),
    ("Duration", "90.5"),
    ("Duration", "-5"),
    ("max_duration (OptionalOffable)", "0"),
    ("idle_duration", "-5"),
];

/// The configuration that has the value in its place, and the path to what is made of it.
fn place(section: &str, value: &Value) -> (Value, &'static str) {
    let task = |key: &str, value: Value| {
        let mut task = json!({ "type": "task", "commands": ["x"] });
        task[key] = value;
        task
    };
    let service = |key: &str, value: Value| {
        let scaling = json!({ "metric": "rps", "target": 1 });
        let mut service =
            json!({ "type": "service", "commands": ["x"], "port": 80, "scaling": scaling });
        service[key] = value;
        service
    };
    match section {
        "GPU" => (task("resources", json!({ "gpu": value })), "/resources/gpu"),
        "CPU" => (task("resources", json!({ "cpu": value })), "/resources/cpu"),
        "memory (Range[Memory])" => {
            (task("resources", json!({ "memory": value })), "/resources/memory")
        }
        "disk" => (task("resources", json!({ "disk": value })), "/resources/disk"),
        "shm_size" => (task("resources", json!({ "shm_size": value })), "/resources/shm_size"),
        "Duration" => (task("retry", json!({ "duration": value })), "/retry/duration"),
        "max_duration (OptionalOffable)" => (task("max_duration", value.clone()), "/max_duration"),
        "idle_duration" => (task("idle_duration", value.clone()), "/idle_duration"),
        "env" => (task("env", value.clone()), "/env"),
        "ports" => (task("ports", json!([value])), "/ports/0"),
        "mount obj" => (task("volumes", json!([value])), "/volumes/0"),
        "files" => (task("files", json!([value])), "/files/0"),
        "repos" => (task("repos", json!([value])), "/repos/0"),
        "schedule" => (task("schedule", value.clone()), "/schedule"),
        "replicas" => (service("replicas", value.clone()), "/replicas"),
        "retry" => {
            let mut all = json!({ "type": "task", "commands": ["x"] });
            all.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
            (all, "")
        }
        "fleet nodes" => {
            let mut fleet = json!({ "type": "fleet" });
            fleet.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
            (fleet, "")
        }
        other => panic!("{other}"),
    }
}

/// Whether all that was expected is there; nulls may be left out of what is expected.
fn has(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => expected
            .iter()
            .all(|(key, value)| found.get(key).is_some_and(|found| has(found, value))),
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len() && found.iter().zip(expected).all(|(f, e)| has(f, e))
        }
        _ => found == expected,
    }
}

#[test]
fn grammar_is_dstacks_but_for_its_mistakes() {
    let mut wrong = Vec::new();
    for row in fixture("grammar.json").as_array().unwrap() {
        let (section, input) = (row["section"].as_str().unwrap(), &row["in"]);
        let (configuration, path) = place(section, input);
        // A plain null in JSON says nothing, in dstack as here; in these cases it was the value itself. A key that is not
        // known is refused in a file only, and one replica has nothing to scale.
        let other_rule = (section == "GPU" && input == &json!({ "foo": 1 }))
            || (section == "replicas" && input == &json!(1));
        if input.is_null() || other_rule {
            continue;
        }
        let taken = from_json(&configuration, None).map(|loaded| loaded.value.to_json());
        let mistake = MISTAKES.contains(&(section, input.to_string().as_str()));
        let expected = row["ok"].as_bool().unwrap() && !mistake;
        match taken {
            Ok(value) if expected => {
                let found = value.pointer(path).unwrap_or(&Value::Null);
                if !has(found, &row["out"]) {
                    wrong.push(format!("{section} {input}: {found}, not {}", row["out"]));
                }
            }
            Err(fault) if !expected => {
                let line = fault.to_string();
                assert!(!line.contains('\n'), "{section} {input}: {line}");
            }
            Ok(value) => wrong.push(format!("{section} {input}: taken as {value}")),
            Err(fault) => wrong.push(format!("{section} {input}: {fault}")),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn yaml_and_json_of_the_same_configuration_are_read_alike() {
    let yaml = "type: task\nnodes: 2..4\ncommands: [a]\nresources: {gpu: 'H100:2', memory: 16GB..}\nenv: {A: '1'}\n";
    let json = json!({ "type": "task", "nodes": "2..4", "commands": ["a"],
        "resources": { "gpu": "H100:2", "memory": "16GB.." }, "env": { "A": "1" } });
    let (one, other) = (parse("t", yaml.as_bytes()).unwrap(), from_json(&json, None).unwrap());
    assert_eq!((one.value.clone(), one.configuration), (other.value, other.configuration));
    assert_eq!(for_client(&one.value, None)["nodes"], 2);
    assert_eq!(for_client(&one.value, Some(3))["nodes"], 3);
    assert_eq!(client_form(one.value).to_json()["nodes"], 2);
}

/// A client that cannot read one run shows none of its project.
#[test]
fn what_the_client_refuses_beside_groups_is_said_by_each_group() {
    let task = "type: task\ncommands: [a]\nports: [80]\ngroups: [{name: one}, {name: two, commands: [b]}]\n";
    let service = "type: service\nport: 80\ncommands: [a]\nimage: of-all\nspot_policy: spot\nprivileged: true\n\
        groups: [{replicas: 1, image: own}, {replicas: 1, privileged: false}]\n";
    for (text, whole, first, second) in [
        (
            task,
            json!({"commands": [], "ports": []}),
            json!({"commands": ["a"], "ports": [{"local_port": 80, "container_port": 80}]}),
            json!({"commands": ["b"]}),
        ),
        (
            service,
            // What no group says stays where it is.
            json!({"commands": [], "image": null, "privileged": false, "spot_policy": "spot"}),
            json!({"commands": ["a"], "image": "own", "privileged": true, "spot_policy": null}),
            json!({"commands": ["a"], "image": "of-all", "privileged": false}),
        ),
    ] {
        let loaded = parse("t", text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"));
        let shown = for_client(&loaded.value, None);
        for (found, expected) in
            [(&shown, whole), (&shown["groups"][0], first), (&shown["groups"][1], second)]
        {
            for (name, value) in expected.as_object().unwrap() {
                assert_eq!(&found[name], value, "{text}{name}");
            }
        }
        assert_eq!(client_form(loaded.value).to_json(), shown);
        let again = from_json(&shown, None).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(for_client(&again.value, None), shown);
    }
}

#[test]
fn what_a_newer_client_sends_is_left_out_and_hostile_json_is_bounded() {
    let newer = json!({ "type": "task", "commands": ["a"], "brand_new": null, "other": [1] });
    let loaded = from_json(&newer, None).unwrap();
    let said: Vec<String> = loaded.notices.iter().map(|n| n.to_string()).collect();
    assert_eq!(said, ["`other`: is not known here and has no effect"]);
    let mut deep = json!(1);
    for _ in 0..60 {
        deep = json!([deep]);
    }
    let many = json!({ "type": "task", "commands": vec!["x"; 30_000] });
    let cases = [
        (json!({ "type": "task", "commands": deep }), "nested too deep"),
        (many, "too many values"),
        (json!([1]), "not YAML"),
        (json!({ "type": "task", "commands": "x" }), "`commands`: invalid \"x\""),
    ];
    for (value, expected) in cases {
        let line = from_json(&value, None).unwrap_err().to_string();
        assert!(line.starts_with(expected), "{line}");
    }
}

/// Whole configurations as dstack's parser was seen to take or refuse them, with a word that our line must have.
const CONFIGURATIONS: &[(&str, Option<&str>)] = &[
    (r#"{"type": "task"}"#, Some("commands")),
    (r#"{"type": "task", "commands": ["x"], "foo": 1}"#, Some("foo")),
    (r#"{"type": "tsk"}"#, Some("tsk")),
    ("{}", Some("type")),
    (r#"{"type": "task", "commands": ["x"], "nodes": 0}"#, Some("nodes")),
    (
        r#"{"type": "task", "commands": ["x"], "nodes": 2, "groups": [{"nodes": 1}]}"#,
        Some("groups"),
    ),
    (r#"{"type": "service", "commands": ["x"]}"#, Some("port")),
    (r#"{"type": "service", "commands": ["x"], "port": 80, "replicas": "1..2"}"#, Some("scaling")),
    (
        r#"{"type": "service", "commands": ["x"], "port": 80, "replicas": 2, "scaling": {"metric": "rps", "target": 1}}"#,
        Some("replicas"),
    ),
    (
        r#"{"type": "service", "commands": ["x"], "port": 80, "replicas": "0..2", "scaling": {"metric": "rps", "target": 1, "window": "45s"}}"#,
        Some("window"),
    ),
    (r#"{"type": "dev-environment", "ide": "emacs"}"#, Some("ide")),
    (r#"{"type": "volume", "backend": "local", "name": "x"}"#, Some("backend")),
    (r#"{"type": "volume", "backend": "aws", "region": "us", "size": "10GB"}"#, None),
    (r#"{"type": "task", "commands": ["x"], "priority": 101}"#, Some("priority")),
    (r#"{"type": "task", "commands": ["x"], "python": "3.7"}"#, Some("python")),
    (r#"{"type": "task", "commands": ["x"], "image": "a", "python": "3.11"}"#, Some("python")),
    (r#"{"type": "task", "commands": ["x"], "resources": {"gpu": "A100:H100"}}"#, Some("gpu")),
    (r#"{"type": "task", "commands": ["x"], "shell": "zsh"}"#, Some("shell")),
    (r#"{"type": "task", "commands": ["x"], "user": "a:b:c"}"#, Some("user")),
    (r#"{"type": "preset", "base": "x/y"}"#, None),
    (r#"{"type": "preset", "model": {"repo": "x/y"}, "trials": 3}"#, None),
    (r#"{"type": "preset"}"#, Some("model")),
    (r#"{"type": "preset", "base": "x/y", "trials": 0}"#, Some("trials")),
    (r#"{"type": "preset", "base": "x/y", "prompt": []}"#, Some("prompt")),
    (r#"{"type": "fleet", "nodes": 1, "resources": {"gpu": "24GB"}}"#, None),
    (r#"{"type": "gateway", "backend": "aws", "region": "x", "domain": "a.b"}"#, None),
    // Mounts as text.
    (r#"{"type": "task", "commands": ["x"], "volumes": ["vol:/data"]}"#, None),
    (r#"{"type": "task", "commands": ["x"], "volumes": ["/host/p:/data"]}"#, None),
    (r#"{"type": "task", "commands": ["x"], "volumes": ["~/x:/data"]}"#, Some("volumes")),
    (r#"{"type": "task", "commands": ["x"], "volumes": ["./rel:/data"]}"#, Some("volumes")),
    (r#"{"type": "task", "commands": ["x"], "volumes": ["vol:data"]}"#, Some("volumes")),
    (r#"{"type": "task", "commands": ["x"], "volumes": ["vol:/a/../b"]}"#, Some("volumes")),
    (r#"{"type": "task", "commands": ["x"], "volumes": ["vol"]}"#, Some("volumes")),
    (r#"{"type": "task", "commands": ["x"], "volumes": ["vol:/data:ro"]}"#, Some("volumes")),
    (r#"{"type": "task", "commands": ["x"], "volumes": ["a/b:/c"]}"#, Some("volumes")),
];

#[test]
fn whole_configurations_are_taken_and_refused_as_by_dstack() {
    for (text, refused) in CONFIGURATIONS {
        // JSON is YAML: read as a file, where every error has its place.
        match (parse("x.dstack.yml", text.as_bytes()), refused) {
            (Ok(_), None) => {}
            (Ok(_), Some(_)) => panic!("{text}: it was taken"),
            (Err(error), None) => panic!("{text}: {error}"),
            (Err(error), Some(word)) => {
                let line = error.to_string();
                assert!(line.starts_with("x.dstack.yml:1:"), "{text}: {line}");
                assert!(line.contains(word) && !line.contains('\n'), "{text}: {line}");
            }
        }
    }
}
