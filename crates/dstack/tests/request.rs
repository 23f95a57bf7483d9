//! From a task's YAML to what the server is asked.

use dstack::configuration::task::Task;
use dstack::configuration::{Configuration, parse};
use dstack::request::{
    Draft, KnownInstances, NamedRun, RequestError, Submitter, draft, for_offers, is_same_run,
    resolve_dependencies, resolve_instances, update_in_place,
};
use dstack::status::RunStatus;
use model::amount::Bytes;
use model::change::JobField;
use model::gpu::{ComputeCapability, GpuVendor};
use model::node::{Architecture, NodeConfig, NodeFacts};
use model::partition::Partition;
use model::publication::{GatewayChoice, HttpsChoice};
use model::replica_group::{GroupRole, RouterKind};
use model::request::WaitPolicy;
use model::run::{Hold, LaunchKind};
use model::service::{Probe, ProbeMethod, RateKey, RateLimit, Scaling, ServedModel, Service};
use model::time::{TimeLimit, Timestamp};
use serde_json::{Value, json};

fn task(lines: &str) -> Task {
    let commands = if lines.contains("commands:") { "" } else { "commands: [make, make test]\n" };
    let text = format!("type: task\n{commands}{lines}\n");
    let loaded = parse("task.yml", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    let Configuration::Task(task) = loaded.configuration else { panic!("no task") };
    *task
}

fn try_drafted(lines: &str, now: Timestamp) -> Result<Draft, RequestError> {
    draft_of(&task(lines), now)
}

fn draft_of(task: &Task, now: Timestamp) -> Result<Draft, RequestError> {
    let variable = |name: &str| match name {
        "HOME" => Some("/home/ada".to_owned()),
        "PATH" => Some("/bin".to_owned()),
        "TOKEN" => Some("of-the-client".to_owned()),
        _ => None,
    };
    let submitter = Submitter {
        now,
        random: 0,
        work_dir: "/home/ada/src",
        file: Some("/home/ada/src/task.yml".into()),
        submit_line: "sluice apply -f task.yml".into(),
        host: "login".into(),
        session: 7,
        umask: 0o027,
        variable: &variable,
    };
    draft(task, &submitter)
}

fn drafted(lines: &str) -> Draft {
    try_drafted(lines, Timestamp::from_secs(1_000)).unwrap_or_else(|e| panic!("{lines}: {e}"))
}

#[test]
fn amounts_are_ranges_and_defaults_are_dstacks() {
    const GIB: u64 = 1 << 30;
    let gpu = |count: Value, kinds: Value| json!([{"per": "node", "name": "gpu", "kinds": kinds, "by_model": true, "count": count}]);
    let table = [
        ("", "/cpus_per_task", json!({"min": 2})),
        ("", "/memory", json!({"per_node": {"min": 8 * GIB}})),
        ("", "/gres", Value::Null),
        ("", "/disk", Value::Null),
        ("", "/nodes", json!({"min": 1, "max": 1})),
        ("", "/tasks_per_node", json!(1)),
        ("", "/grant", json!("offer")),
        ("", "/partitions", Value::Null),
        ("nodes: 2", "/nodes", json!({"min": 2, "max": 2})),
        ("resources: {cpu: 4}", "/cpus_per_task", json!({"min": 4, "max": 4})),
        ("resources: {cpu: 4..8}", "/cpus_per_task", json!({"min": 4, "max": 8})),
        ("resources: {cpu: ..8}", "/cpus_per_task", json!({"min": 1, "max": 8})),
        (
            "resources: {memory: 1GB..2GB}",
            "/memory",
            json!({"per_node": {"min": GIB, "max": 2 * GIB}}),
        ),
        ("resources: {gpu: 'H100:2'}", "/gres", gpu(json!({"min": 2, "max": 2}), json!(["H100"]))),
        (
            "resources: {gpu: 'A100,H100:1..4'}",
            "/gres",
            gpu(json!({"min": 1, "max": 4}), json!(["A100", "H100"])),
        ),
        ("resources: {gpu: 0}", "/gres", Value::Null),
        ("resources: {gpu: 0..4}", "/gres", Value::Null),
        ("resources: {gpu: '24GB..'}", "/gres/0/device_memory", json!({"min": 24 * GIB})),
        (
            "resources: {gpu: {count: 2, total_memory: 80GB..160GB}}",
            "/gres/0/total_memory",
            json!({"min": 80 * GIB, "max": 160 * GIB}),
        ),
        (
            "resources: {gpu: {count: 1.., memory: 24GB, total_memory: 80GB..}}",
            "/gres/0",
            json!({
                "per": "node", "name": "gpu", "by_model": true, "count": {"min": 1},
                "make": {"vendor": "nvidia"},
                "device_memory": {"min": 24 * GIB, "max": 24 * GIB},
                "total_memory": {"min": 80 * GIB},
            }),
        ),
        ("resources: {disk: 10GB..}", "/disk", json!(10 * GIB)),
        ("fleets: [a, main/b]", "/partitions", json!(["a", "b"])),
        ("fleets: [static]", "/partitions", Value::Null),
        ("", "/time_limit", json!("Unlimited")),
        ("max_duration: off", "/time_limit", json!("Unlimited")),
        ("max_duration: 1h", "/time_limit", json!({"Minutes": 60})),
        ("max_duration: 61s", "/time_limit", json!({"Minutes": 2})),
        ("", "/patience", json!("now")),
        ("retry: false", "/patience", json!("now")),
        ("retry: true", "/patience", json!({"until": 4_600_000})),
        ("retry: {on_events: [error]}", "/patience", json!("now")),
        (
            "retry: {on_events: [no-capacity], duration: 2h}",
            "/patience",
            json!({"until": 8_200_000}),
        ),
    ];
    for (lines, pointer, expected) in table {
        let draft = drafted(lines);
        let request = serde_json::to_value(draft.submission.spec.request()).expect("JSON");
        let found = request.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(found, expected, "{lines}: {pointer}");
    }
}

#[test]
fn run_gets_name_folder_priority_and_script_of_the_file() {
    let draft = drafted("name: train\nworking_dir: /data\npriority: 70\ntags: {team: a, x: b}");
    let spec = &draft.submission.spec;
    assert_eq!(&*spec.name, "train");
    assert_eq!(spec.launch.kind, LaunchKind::Task);
    assert_eq!(&*spec.launch.work_dir, "/data");
    assert_eq!(spec.launch.umask, 0o027);
    assert_eq!(spec.dstack_priority, Some(70));
    assert_eq!(spec.comment.as_deref(), Some("team=a,x=b"));
    assert!(spec.owner.name.is_empty(), "the server says who asks");
    let script = draft.submission.script.expect("a script");
    let script = script.shown();
    assert!(script.starts_with("#!/bin/bash\n") && script.contains("make test"), "{script}");

    let unnamed = drafted("");
    assert!(dstack::name::is_valid(&unnamed.submission.spec.name));
    assert_eq!(&*unnamed.submission.spec.launch.work_dir, "/home/ada/src");
}

#[test]
fn run_gets_its_env_and_five_variables_of_the_client() {
    let text = |lines| drafted(lines).submission.environment.expect("an environment");
    assert_eq!(text(""), "HOME=/home/ada\0PATH=/bin\0");
    let own = text("env: [TOKEN, A=b=c, PATH=/opt]");
    assert_eq!(own, "HOME=/home/ada\0TOKEN=of-the-client\0A=b=c\0PATH=/opt\0");
}

#[test]
fn request_that_cannot_be_made_is_refused_in_one_line() {
    let table = [
        ("env: [MISSING]", "`MISSING` is to be taken from the environment"),
        (
            "fleets: [other/a]",
            "fleet other/a: a fleet goes by its name in all projects: expected a",
        ),
    ];
    for (lines, expected) in table {
        let error = try_drafted(lines, Timestamp::default()).expect_err(lines).to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn property_that_is_not_applied_is_noticed() {
    let table = [
        ("registry_auth: {username: a, password: b}", "registry_auth"),
        ("resources: {disk: 10GB..50GB}", "maximum of 50GB is not applied"),
    ];
    for (lines, word) in table {
        let notices = drafted(lines).notices;
        assert!(notices.len() == 1 && notices[0].contains(word), "{lines}: {notices:?}");
    }
    for quiet in [
        "resources: {cpu: x86, gpu: {vendor: nvidia, compute_capability: 8.0}}",
        "resources: {gpu: 'H100:80GB:2', cpu: 2..}\nretry: {on_events: [no-capacity]}",
        "retry: true",
        "resources: {disk: 10GB}",
        "resources: {disk: 10GB..}",
        "resources: {gpu: {count: 1.., total_memory: 80GB}}",
    ] {
        assert_eq!(drafted(quiet).notices, [""; 0], "{quiet}");
    }
}

#[test]
fn processors_and_gpus_are_told_apart_by_their_makers() {
    let request = |lines| drafted(lines).submission.spec.request().clone();
    let asked = request("resources: {cpu: 'arm:4..', gpu: {vendor: amd, compute_capability: 8.6}}");
    assert_eq!(asked.architecture, Some(Architecture::Arm));
    let make = asked.gres[0].make;
    assert_eq!(make.vendor, Some(GpuVendor::Amd));
    assert_eq!(make.compute_capability, Some(ComputeCapability(8, 6)));
    let plain = request("image: lab\nresources: {gpu: 1}");
    assert!(plain.architecture.is_none() && plain.gres[0].make.is_any());
}

#[test]
fn entrypoint_runs_in_place_of_a_shell_with_the_commands_as_arguments() {
    let command = |lines| drafted(lines).submission.spec.launch.container.clone().unwrap().command;
    let lines = "image: app\nentrypoint: python -m 'my app'\ncommands: [\"a b\", c]";
    assert_eq!(command(lines), ["python", "-m", "my app", "a b", "c"]);
    let on_node = drafted("entrypoint: echo 'x y'\ncommands: [\"it's\"]").submission;
    let script = on_node.script.expect("a script");
    assert_eq!(script.shown(), "#!/bin/sh\n\nexec 'echo' 'x y' 'it'\\''s'\n");
}

#[test]
fn runtime_of_a_process_refuses_the_sites_container_and_is_kept_with_the_run() {
    for (lines, refuses) in [("runtime: process", true), ("", false), ("image: debian", false)] {
        assert_eq!(drafted(lines).submission.spec.launch.without_container, refuses, "{lines}");
    }
}

#[test]
fn docker_is_a_privileged_container_whose_daemon_starts_before_the_commands() {
    let submission = drafted("docker: true\ncommands: [docker ps]").submission;
    let container = submission.spec.launch.container.clone().expect("a container");
    assert!(container.docker && container.privileged && container.image.is_none());
    let script = submission.script.expect("a script");
    let script = script.shown();
    let starts = script.find("dockerd").expect("it starts the daemon");
    assert!(script.starts_with("#!/bin/bash\n") && starts < script.find("docker ps").unwrap());
    let plain = drafted("image: app").submission.spec.launch.container.clone().unwrap();
    assert!(!plain.privileged && plain.command.is_empty());
}

#[test]
fn instances_are_nodes_by_name_host_and_number_in_their_fleet() {
    let node = |name: &str, address: &str| {
        let config = NodeConfig::plain(name, 4, Bytes::from_gib(8));
        let facts = NodeFacts { hostname: format!("{name}.lab"), ..NodeFacts::default() };
        (NodeConfig { address: address.into(), ..config }, facts)
    };
    let nodes = [node("a1", "10.0.0.1"), node("a2", "10.0.0.2"), node("b1", "10.0.1.1")];
    let nodes: Vec<_> = nodes.iter().map(|(config, facts)| (config, facts)).collect();
    let partition = |name: &str, default: bool, members: &[&str]| -> Partition {
        let text =
            json!({"name": name, "nodes": members, "default": default, "max_time": "Unlimited"});
        serde_json::from_value(text).expect("a partition")
    };
    let partitions = [
        partition("main", true, &["a1", "a2", "b1"]),
        partition("b", false, &["b1"]),
        partition("lab", false, &["lab-1", "lab-10", "lab-2"]),
    ];
    let pool = |instances: &str| {
        let mut task = task(&format!("instances: {instances}"));
        let known = KnownInstances::new(&task, partitions.iter(), nodes.iter().copied());
        resolve_instances(&mut task, &known)?;
        Ok::<_, RequestError>(
            draft_of(&task, Timestamp::default())?.submission.spec.request().node_pool.clone(),
        )
    };
    let good = [
        ("[a2]", vec!["a2"]),
        ("[{name: b1}, a1]", vec!["a1", "b1"]),
        ("[a2, {hostname: 10.0.0.2}, a2]", vec!["a2"]),
        ("[{hostname: 10.0.0.2}]", vec!["a2"]),
        ("[{hostname: B1.lab}]", vec!["b1"]),
        ("[{fleet: main, instance: 1}]", vec!["a2"]),
        ("[{fleet: static, instance: 2}]", vec!["b1"]),
        ("[{fleet: b, instance: 0}]", vec!["b1"]),
        ("[{fleet: lab, instance: 2}]", vec!["lab-2"]),
    ];
    for (instances, expected) in good {
        assert_eq!(pool(instances).unwrap_or_else(|e| panic!("{e}")), expected, "{instances}");
    }
    let bad = [
        ("[{hostname: c1}]", "`instances`: there is no instance c1"),
        ("[{fleet: b, instance: 1}]", "`instances`: there is no instance 1 of fleet b"),
        ("[{fleet: x, instance: 0}]", "`instances`: there is no instance 0 of fleet x"),
    ];
    for (instances, expected) in bad {
        assert_eq!(pool(instances).expect_err(instances).to_string(), expected);
    }
}

#[test]
fn run_without_max_duration_gets_the_longest_limit_of_its_partitions() {
    let partition = |name: &str, default: bool, max_time: Value| -> Partition {
        let text = json!({"name": name, "nodes": [], "default": default, "max_time": max_time});
        serde_json::from_value(text).expect("a partition")
    };
    let partitions = [
        partition("main", true, json!({"Minutes": 60})),
        partition("long", false, json!({"Minutes": 600})),
        partition("free", false, json!("Unlimited")),
    ];
    let table = [
        ("", TimeLimit::Minutes(60), 1),
        ("max_duration: 2h", TimeLimit::Minutes(120), 0),
        ("fleets: [main, long]", TimeLimit::Minutes(600), 1),
        ("fleets: [main, free]", TimeLimit::Unlimited, 0),
        ("fleets: [unknown]", TimeLimit::Unlimited, 0),
    ];
    for (lines, limit, notices) in table {
        let mut draft = drafted(lines);
        draft.keep_within(partitions.iter());
        assert_eq!(draft.submission.spec.request().time_limit, Some(limit), "{lines}");
        assert_eq!(draft.notices.len(), notices, "{lines}");
    }
}

/// The script is what an active run is compared by: a line of ours in it would make every such run another after an upgrade.
#[test]
fn folder_of_the_node_without_an_image_is_told_of_and_leaves_the_script_alone() {
    let told = |lines: &str| drafted(lines).notices.len();
    assert_eq!(told("volumes: ['/data:/data', '/work:/work']"), 1);
    assert_eq!(told("volumes: [{instance_path: /data, path: /data, optional: true}]"), 0);
    assert_eq!(told("image: a\nvolumes: ['/data:/data']"), 0);
    assert_eq!(told("volumes: ['data:/data']"), 0);
    let script = |lines: &str| drafted(lines).submission.script;
    assert_eq!(script("volumes: ['/data:/data']"), script(""));
}

#[test]
fn shared_memory_beyond_the_memory_is_told_of() {
    let told = |memory: &str| drafted(&format!("resources: {{shm_size: 9GB{memory}}}")).notices;
    let notice = "`shm_size`: 9GB is more than the `memory` of 8GB, as which it counts";
    for memory in ["", ", memory: 8GB", ", memory: 1GB..8GB"] {
        assert_eq!(told(memory), [notice], "{memory}");
    }
    for memory in [", memory: 9GB", ", memory: 1GB..16GB", ", memory: 0.."] {
        assert_eq!(told(memory), Vec::<String>::new(), "{memory}");
    }
}

#[test]
fn what_chooses_among_machines_is_told_of_where_there_are_none() {
    let told = |lines: &str| {
        let mut draft = drafted(lines);
        draft.tell_of_machine_choice(&task(lines));
        draft.notices
    };
    let notice = |name: &str| {
        format!("`{name}`: has no effect: no node of this cluster is a machine of a cloud")
    };
    let all =
        "regions: [eu-west-1]\navailability_zones: [a]\ninstance_types: [t]\nspot_policy: spot";
    let names = ["regions", "availability_zones", "instance_types", "spot_policy"];
    assert_eq!(told(all), names.map(notice));
    assert_eq!(told("spot_policy: on-demand"), Vec::<String>::new(), "own nodes are that");
}

/// What its parent holds is not free at submit, whatever that says of the time when the parent has ended.
#[test]
fn run_that_depends_on_another_waits() {
    let until = WaitPolicy::Until(Timestamp::from_secs(1_000 + 7_200));
    let table = [
        ("", WaitPolicy::Now),
        ("depends_on: ['afterok:12']", WaitPolicy::Forever),
        ("depends_on: ['afterok:12']\nretry: {on_events: [error]}", WaitPolicy::Forever),
        ("depends_on: ['afterok:12']\nretry: {duration: 2h}", until),
        (
            "depends_on: ['afterok:12']\ngroups: [{nodes: 1, resources: {cpu: 1}}, {nodes: 1, resources: {cpu: 2}}]",
            WaitPolicy::Forever,
        ),
    ];
    for (lines, expected) in table {
        let submission = drafted(lines).submission;
        for spec in std::iter::once(&submission.spec).chain(&submission.het_components) {
            assert_eq!(spec.request().wait_policy, expected, "{lines}");
        }
    }
}

#[test]
fn names_of_runs_become_numbers_and_what_has_ended_is_met_or_refused() {
    let run_of = |name: &str| match name {
        "runs" => Some(NamedRun::Job(7)),
        "done" => Some(NamedRun::Ended(RunStatus::Done)),
        "failed" => Some(NamedRun::Ended(RunStatus::Failed)),
        _ => None,
    };
    let kept = |term: &str| Ok(vec![term.to_owned()]);
    let never = |term: &str, status| Err(RequestError::NeverMet { term: term.to_owned(), status });
    let table = [
        ("afterok:runs", kept("afterok:7")),
        ("afterany:12", kept("afterany:12")),
        ("afterok:done", Ok(vec![])),
        ("afterany:failed", Ok(vec![])),
        ("after:failed", Ok(vec![])),
        ("afternotok:failed", Ok(vec![])),
        ("afternotok:done", never("afternotok:done", RunStatus::Done)),
        ("afterok:failed", never("afterok:failed", RunStatus::Failed)),
        ("afterok:none", Err(RequestError::NoSuchRun("none".to_owned()))),
    ];
    for (term, expected) in table {
        let mut task = task(&format!("depends_on: ['{term}']"));
        let resolved = resolve_dependencies(&mut task, run_of);
        assert_eq!(resolved.map(|()| task.depends_on), expected, "{term}");
    }
}

/// The plan says `nvidia` where nothing else is said: so does the request.
#[test]
fn gpus_without_a_name_or_an_image_are_of_the_default_vendor() {
    let vendor = |lines: &str| {
        let submission = drafted(lines).submission;
        submission.spec.request().gres.first().and_then(|gpu| gpu.make.vendor)
    };
    let table = [
        ("resources: {gpu: '24GB..:2'}", Some(GpuVendor::Nvidia)),
        ("resources: {gpu: 'amd:24GB..:2'}", Some(GpuVendor::Amd)),
        ("resources: {gpu: 'MI300X:2'}", None),
        ("image: rocm\nresources: {gpu: '24GB..:2'}", None),
        ("docker: true\nresources: {gpu: '24GB..:2'}", None),
    ];
    for (lines, expected) in table {
        assert_eq!(vendor(lines), expected, "{lines}");
    }
}

#[test]
fn request_for_offers_may_wait() {
    let submission = drafted("").submission;
    assert_eq!(submission.spec.request().wait_policy, WaitPolicy::Now);
    assert_eq!(for_offers(&submission).spec.request().wait_policy, WaitPolicy::Forever);
}

#[test]
fn run_is_the_same_whoever_submits_it_and_whenever() {
    let spec = |lines, secs| {
        let draft = try_drafted(lines, Timestamp::from_secs(secs)).expect(lines);
        draft.submission.spec
    };
    let first = spec("name: train\nretry: true", 1_000);
    let mut later = spec("name: train\nretry: true", 2_000);
    std::sync::Arc::make_mut(&mut later.owner).name = "ada".into();
    later.submit_host = "elsewhere".into();
    assert!(is_same_run([&first], [&later]));
    for other in ["name: train\nretry: true\npriority: 1", "name: train\nretry: true\nnodes: 2"] {
        assert!(!is_same_run([&first], [&spec(other, 1_000)]), "{other}");
    }
    assert!(!is_same_run([&first], [&later, &later]) && !is_same_run([&first, &first], [&later]));
}

#[test]
fn run_of_a_build_that_kept_no_ports_of_the_client_is_the_same() {
    let spec = |lines| {
        let draft = try_drafted(lines, Timestamp::from_secs(1_000)).expect(lines);
        draft.submission.spec
    };
    let asked = spec("name: train\nports: ['8080:80']");
    let mut active = asked.clone();
    std::sync::Arc::make_mut(&mut active.launch).port_forwards = None;
    assert!(is_same_run([&active], [&asked]));
    let other = spec("name: train\nports: ['9090:80']");
    assert!(!is_same_run([&asked], [&other]), "the client has them elsewhere");
}

#[test]
fn priority_and_inactivity_are_updated_in_place_and_nothing_else() {
    let desk = |lines: &str| {
        let text = format!("type: dev-environment\nname: desk\nide: vscode\n{lines}\n");
        let loaded = parse("desk.yml", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let task = loaded.configuration.task().expect("a dev environment");
        draft_of(&task, Timestamp::from_secs(1_000)).expect("a draft").submission.spec
    };
    let active = desk("inactivity_duration: 2h");
    let update = |lines: &str| update_in_place(&[&active], &[desk(lines)]);
    assert_eq!(update("inactivity_duration: 2h"), None, "there is nothing to update");
    let (priority, off) = (JobField::RunPriority(7), JobField::RunInactivity(None));
    assert_eq!(
        update("inactivity_duration: 30m"),
        Some(vec![JobField::RunInactivity(Some(1_800))])
    );
    assert_eq!(update("inactivity_duration: off\npriority: 7"), Some(vec![priority, off]));
    assert_eq!(update("inactivity_duration: 30m\nmax_duration: 1h"), None);
}

#[test]
fn replicas_of_a_service_are_tasks_of_an_array() {
    let service = |lines: &str| {
        let text = format!("type: service\nname: web\nport: 8000\ncommands: [serve]\n{lines}\n");
        let loaded = parse("web.yml", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let applicable = loaded.applicable().unwrap_or_else(|e| panic!("{lines}: {e}"));
        let task = applicable.task().expect("a run");
        draft_of(&task, Timestamp::from_secs(1_000)).expect("a draft").submission
    };
    let one = service("");
    let of = |submission: &wire::client::Submission| submission.spec.launch.service.clone();
    assert_eq!((of(&one).as_deref(), one.array), (Some(&Service::at(8000)), None));
    let three = service("replicas: 3\nauth: false\nstrip_prefix: false");
    let said = Service { replicas: 3, auth: false, strip_prefix: false, ..Service::at(8000) };
    assert_eq!(of(&three).as_deref(), Some(&said));
    let indices = three.array.expect("an array").indices;
    assert_eq!(indices.iter().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(task("").service, None);
    for (lines, expected) in [
        ("gateway: true", GatewayChoice::Required),
        ("gateway: false", GatewayChoice::Off),
        ("gateway: edge1", GatewayChoice::Named("edge1".into())),
        ("gateway: other/edge1", GatewayChoice::Named("edge1".into())),
        ("gateway: {name: edge1}", GatewayChoice::Named("edge1".into())),
    ] {
        assert_eq!(of(&service(lines)).expect("a service").gateway, expected, "{lines}");
    }
    for (lines, expected) in [
        ("https: true", HttpsChoice::On),
        ("https: false", HttpsChoice::Off),
        ("https: auto", HttpsChoice::Auto),
        ("https: 'false'", HttpsChoice::Off),
    ] {
        assert_eq!(of(&service(lines)).expect("a service").https, expected, "{lines}");
    }
    let model = |lines: &str| of(&service(lines)).and_then(|service| service.model);
    let served = |prefix: &str, eos_token: Option<&str>| {
        let (name, prefix) = ("m".to_owned(), prefix.to_owned());
        Some(ServedModel { name, prefix, eos_token: eos_token.map(str::to_owned) })
    };
    assert_eq!(model("model: m"), served("/v1", None));
    assert_eq!(model("model: {name: m, format: openai, prefix: /api/}"), served("/api", None));
    assert_eq!(model("model: {name: m, format: tgi}"), served("/v1", None));
    let ending = model("model: {name: m, format: tgi, eos_token: '</s>'}");
    assert_eq!(ending, served("/v1", Some("</s>")));
    assert_eq!((three.hold, three.spec.launch.service.is_some()), (None, true));
    let scaled = service(
        "replicas: 0..2\nscaling: {metric: rps, target: 2.5, window: 30s, scale_up_delay: 5s}",
    );
    let of_load =
        Scaling { min: 0, target_milli: 2_500, window_s: 30, up_delay_s: 5, down_delay_s: 600 };
    assert_eq!(of(&scaled).expect("a service").scaling, Some(of_load));
    assert_eq!((of(&scaled).expect("a service").replicas, scaled.hold), (2, Some(Hold::User)));
    let limited = service(
        "rate_limits: [{rps: 10}, {prefix: /api, rps: 0.5, burst: 3, key: {type: header, header: A}}]",
    );
    let by_address =
        RateLimit { prefix: "/".into(), key: RateKey::IpAddress, rps_milli: 10_000, burst: 0 };
    let key = RateKey::Header("A".into());
    let by_header = RateLimit { prefix: "/api".into(), key, rps_milli: 500, burst: 3 };
    assert_eq!(of(&limited).expect("a service").rate_limits, [by_address, by_header]);
    let probed = service(
        "probes: [{type: http}, {type: http, url: /up, method: head, interval: 1m, timeout: 5s, \
         ready_after: 2, until_ready: true, headers: [{name: A, value: b}]}]",
    );
    let said = Probe {
        url: "/up".into(),
        method: ProbeMethod::Head,
        headers: vec![("A".into(), "b".into())],
        timeout_s: 5,
        interval_s: 60,
        ready_after: 2,
        until_ready: true,
        ..Probe::default()
    };
    assert_eq!(of(&probed).expect("a service").probes, [Probe::default(), said]);
}

#[test]
fn service_with_a_model_and_no_probes_is_asked_for_a_token_until_it_is_ready() {
    let probes = |lines: &str| {
        let text = format!("type: service\nname: web\nport: 8000\ncommands: [serve]\n{lines}\n");
        let loaded = parse("web.yml", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let applicable = loaded.applicable().unwrap_or_else(|e| panic!("{lines}: {e}"));
        let task = applicable.task().expect("a run");
        let submission = draft_of(&task, Timestamp::from_secs(1_000)).expect("a draft").submission;
        let probes_of = |spec: &model::run::JobSpec| {
            spec.launch.service.as_ref().expect("a service").probes.clone()
        };
        let found = probes_of(&submission.spec);
        for group in &submission.het_components {
            assert_eq!(probes_of(group), found, "{lines}: all groups alike");
        }
        found
    };
    let of_model = |url: &str| Probe {
        url: url.into(),
        method: ProbeMethod::Post,
        headers: vec![("Content-Type".into(), "application/json".into())],
        timeout_s: 30,
        interval_s: 2,
        until_ready: true,
        ..Probe::default()
    };
    for (lines, url) in [
        ("model: m", "/v1/chat/completions"),
        ("model: {name: m, format: openai, prefix: /api/}", "/api/chat/completions"),
        ("model: {name: m, format: openai, prefix: /}", "/chat/completions"),
        ("model: m\nprobes: null", "/v1/chat/completions"),
        ("model: m\ngroups: [{replicas: 1}, {replicas: 2}]", "/v1/chat/completions"),
    ] {
        let found = probes(lines);
        let [probe] = &found[..] else { panic!("{lines}: {found:?}") };
        assert_eq!(Probe { body: None, ..probe.clone() }, of_model(url), "{lines}");
        let body: Value = serde_json::from_str(probe.body.as_deref().unwrap_or("")).expect(lines);
        let messages = json!([{"role": "user", "content": "hi"}]);
        assert_eq!(body, json!({"model": "m", "messages": messages, "max_tokens": 1}), "{lines}");
    }
    for lines in [
        "",
        "model: m\nprobes: []",
        "model: {name: m, format: tgi}",
        "model: m\ngroups: [{replicas: 1, router: {type: sglang}}, {replicas: 2}]",
    ] {
        assert!(probes(lines).is_empty(), "{lines}");
    }
    assert_eq!(probes("model: m\nprobes: [{type: http}]"), [Probe::default()]);
}

#[test]
fn credentials_and_probes_take_values_of_the_runs_variables() {
    let submission = |lines: &str| {
        let text = format!("type: service\nname: web\nport: 8000\nimage: a\n{lines}\n");
        let loaded = parse("web.yml", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let task = loaded.applicable().expect("a service").task().expect("a run");
        draft_of(&task, Timestamp::from_secs(1_000)).map(|draft| draft.submission)
    };
    // The server replaces `$$` in credentials, and references to secrets.
    let cases = [
        ("env: [TOKEN]", "${{ env.TOKEN }}", "of-the-client"),
        ("env: [A=b]", "x-${{env.A}}-${{ secrets.s }}", "x-b-${{ secrets.s }}"),
        ("env: ['A=$$5']", "${{ env.A }}", "$$5"),
        ("env: ['A=${{ secrets.s }}']", "${{ env.A }}", "${{ secrets.s }}"),
        ("env: [A=b]", "$oauth $${{ env.A }}", "$oauth $${{ env.A }}"),
    ];
    for (env, password, expected) in cases {
        let lines = format!("{env}\nregistry_auth: {{username: u, password: '{password}'}}");
        let auth = submission(&lines).expect("a draft").registry_auth.expect("credentials");
        assert_eq!((&*auth.username.0, &*auth.password.0), ("u", expected), "{lines}");
    }
    let probed = "probes: [{type: http, url: '/up?k=${{ env.A }}', body: '${{ env.A }}', \
                  headers: [{name: X, value: 'Bearer ${{ env.A }}'}]}]";
    let found = submission(&format!("env: [A=b]\n{probed}")).expect("a draft");
    let service = found.spec.launch.service.clone().expect("a service");
    let expected = Probe {
        url: "/up?k=b".into(),
        body: Some("b".into()),
        headers: vec![("X".into(), "Bearer b".into())],
        ..Probe::default()
    };
    assert_eq!(service.probes, [expected]);
    let error = submission(&format!("env: ['A=${{{{ secrets.s }}}}']\n{probed}"));
    let error = error.expect_err("a probe has no secrets").to_string();
    assert!(error.starts_with("`probes`: `${{ env.A }}`: expected a variable"), "{error}");
}

#[test]
fn groups_of_replicas_have_their_own_requests_commands_and_scaling() {
    let text = "type: service\nname: web\nport: 8000\nenv: [A=b]\ngroups:\n\
        - {name: front, replicas: 1, commands: [route], router: {type: sglang}, resources: {cpu: 1}}\n\
        - {replicas: 0..3, scaling: {metric: rps, target: 2}, commands: [work], resources: {cpu: 4}}\n";
    let loaded = parse("web.yml", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    let task = loaded.applicable().expect("a service").task().expect("a run");
    let submission = draft_of(&task, Timestamp::from_secs(1_000)).expect("a draft").submission;
    assert_eq!((&submission.array, submission.hold), (&None, None));
    let [worker] = &submission.het_components[..] else { panic!("two groups") };
    let service = |spec: &model::run::JobSpec| spec.launch.service.clone().expect("a service");
    let (first, second) = (service(&submission.spec), service(worker));
    assert_eq!(first.role(), GroupRole::Router(RouterKind::Sglang));
    assert_eq!((second.role(), second.replicas), (GroupRole::Worker, 3));
    let place = second.group.expect("a group");
    assert_eq!((place.index, place.count, place.first_replica, &*place.name), (1, 2, 1, "1"));
    assert_eq!(second.scaling.map(|scaling| scaling.min), Some(0));
    let cpus = |spec: &model::run::JobSpec| spec.request().cpus_per_task.min;
    assert_eq!((cpus(&submission.spec), cpus(worker)), (1, 4));
    let alone = dstack::request::group_requests(&submission);
    for asked in alone.iter().chain([&submission]).map(for_offers) {
        assert!(service(&asked.spec).group.is_none(), "offers are asked for as for any service");
        assert!(asked.het_components.is_empty() && asked.group_texts.is_empty());
    }
    let [texts] = &submission.group_texts[..] else { panic!("a script of the second group") };
    assert!(submission.script.is_some_and(|script| script.shown().contains("route")));
    assert!(
        texts.script.shown().contains("work") && texts.environment.contains("A=b"),
        "{texts:?}"
    );
    assert_eq!(worker.name, submission.spec.name);
    assert_eq!((&submission.workspace, &texts.workspace), (&None, &None));
}

#[test]
fn workers_of_a_router_that_is_told_nothing_wait_for_it() {
    let waits = |kind: &str| {
        let text = format!(
            "type: service\nname: web\nport: 8000\ncommands: [serve]\ngroups:\n\
             - {{replicas: 1, router: {{type: {kind}}}}}\n- {{replicas: 2}}\n"
        );
        let loaded = parse("web.yml", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let task = loaded.applicable().expect("a service").task().expect("a run");
        let submission = draft_of(&task, Timestamp::from_secs(1_000)).expect("a draft").submission;
        let worker = &submission.het_components[0];
        let service = worker.launch.service.as_ref().expect("a service");
        (service.is_held_at_first(), worker.request().wait_policy == WaitPolicy::Forever)
    };
    assert_eq!((waits("dynamo"), waits("smg")), ((true, true), (false, false)));
}

#[test]
fn group_of_replicas_has_its_own_python_and_the_files_of_the_run() {
    let text = "type: service\nname: web\nport: 8000\ncommands: [serve]\nfiles: [a.txt]\ngroups:\n\
        - {replicas: 1}\n- {replicas: 1, python: '3.12'}\n";
    let loaded = parse("web.yml", text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    let task = loaded.applicable().expect("a service").task().expect("a run");
    let submission = draft_of(&task, Timestamp::from_secs(1_000)).expect("a draft").submission;
    let mut of_run = *submission.workspace.expect("a workspace");
    assert_eq!(of_run.python, None);
    let archive = wire::workspace::Blob(vec![1]);
    of_run.files = vec![wire::workspace::FileArchive { path: "a.txt".into(), archive }];
    let own = submission.group_texts[0].workspace_with(Some(&of_run)).expect("a workspace");
    assert_eq!((own.python.as_deref(), own.own_folder), (Some("3.12"), true));
    assert_eq!(own.files, of_run.files);
}
