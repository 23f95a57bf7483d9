//! Properties beside each other, and those that are read and not for every run.

use crate::{load, refusal, refusal_with, task_with};
use dstack::configuration::Configuration;
use dstack::configuration::policy::{SpotPolicy, StopCriteria};
use dstack::configuration::task::{Mount, Port};

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
