//! `--json` of our own verbs: one object on standard output, and nothing else there.

use crate::harness::{Cluster, CommandOutput, TWO_NODES};
use serde_json::{Value, json};

fn object(said: CommandOutput) -> Value {
    let text = said.ok();
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

fn task(cluster: &Cluster, name: &str, commands: &str) {
    let rest = "resources: {cpu: 1, memory: 100MB}";
    let text = format!("type: task\nname: {name}\ncommands: [{commands}]\n{rest}\n");
    cluster.write("task.dstack.yml", &text);
}

const APPLY: [&str; 5] = ["apply", "-f", "task.dstack.yml", "-y", "--json"];

#[test]
fn up_apply_says_in_json_what_became_of_the_run() {
    let cluster = Cluster::up(TWO_NODES);
    task(&cluster, "short", "echo one, exit 3");
    let said = cluster.sluice(&APPLY);
    assert_eq!((said.code, said.stdout.lines().count()), (1, 1), "{said:?}");
    let ended: Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert_eq!((&ended["name"], &ended["result"]), (&json!("short"), &json!("submitted")));
    assert_eq!((&ended["status"], &ended["exit_status"]), (&json!("failed"), &json!(3)));
    assert!(ended["job_id"].is_u64() && ended["offers"][0].is_object(), "{ended}");
    task(&cluster, "long", "sleep 1000");
    let detached = [&APPLY[..], &["-d"]].concat();
    let begun = object(cluster.sluice(&detached));
    assert_eq!((&begun["result"], &begun["project"]), (&json!("submitted"), &json!("main")));
    assert_eq!(begun["status"], Value::Null, "it was not waited for");
    assert_eq!(object(cluster.sluice(&detached))["result"], "unchanged");
    // A question would stand among the JSON.
    let unasked = cluster.sluice(&["apply", "-f", "task.dstack.yml", "--json"]);
    assert!(unasked.code != 0 && unasked.stderr.contains("--yes"), "{unasked:?}");
    task(&cluster, "huge", "true");
    let file = std::fs::read_to_string(cluster.path("work/task.dstack.yml")).expect("the file");
    cluster.write("task.dstack.yml", &file.replace("cpu: 1", "cpu: 9000"));
    let refused = cluster.sluice(&APPLY);
    assert!(refused.code != 0 && refused.stdout.is_empty(), "{refused:?}");
    assert!(refused.stderr.contains("no node can ever satisfy the request"), "{refused:?}");
}

#[test]
fn up_stop_and_delete_name_each_run_in_json() {
    let cluster = Cluster::up(TWO_NODES);
    task(&cluster, "long", "sleep 1000");
    let begun = object(cluster.sluice(&[&APPLY[..], &["-d"]].concat()));
    let run = |result: &str| json!({"runs": [{"name": "long", "job_id": begun["job_id"], "result": result}]});
    assert_eq!(object(cluster.sluice(&["stop", "-y", "--json", "long"])), run("stopped"));
    let job = u32::try_from(begun["job_id"].as_u64().expect("a number")).expect("a number");
    cluster.await_state(job, "CANCELLED");
    assert_eq!(object(cluster.sluice(&["stop", "-y", "--json", "long"])), run("ended already"));
    assert_eq!(object(cluster.sluice(&["delete", "-y", "--json", "long"])), run("deleted"));
    let missing = cluster.sluice(&["delete", "-y", "--json", "long"]);
    assert!(missing.code != 0 && missing.stdout.is_empty(), "{missing:?}");
}

#[test]
fn up_logs_are_an_object_for_each_line() {
    let cluster = Cluster::up(TWO_NODES);
    task(&cluster, "talks", "\"printf 'one \\\"x\\\"\\\\ntwo'\"");
    let ended = object(cluster.sluice(&APPLY));
    let line = |text: &str| json!({"job_id": ended["job_id"], "node": 0, "message": text});
    for words in [&["logs", "--json", "talks"][..], &["logs", "-f", "--json", "talks"]] {
        let text = cluster.sluice(words).ok();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines, [line("one \"x\""), line("two")], "{text}");
    }
    // The output file of a batch job too.
    let job = cluster.submit(&["-o", "out", "--wrap", "echo batch"]);
    cluster.await_state(job, "COMPLETED");
    let said = object(cluster.sluice(&["logs", "--json", &job.to_string()]));
    assert_eq!(said, json!({"job_id": job, "node": 0, "message": "batch"}));
}

#[test]
fn up_secrets_volumes_and_projects_answer_in_json() {
    let cluster = Cluster::up(TWO_NODES);
    let done = json!({"project": "main", "result": "done"});
    assert_eq!(object(cluster.sluice(&["secret", "set", "a", "it's", "--json"])), done);
    let listed = object(cluster.sluice(&["secret", "list", "--json"]));
    assert_eq!(listed, json!({"project": "main", "secrets": [{"name": "a"}]}));
    let shown = object(cluster.sluice(&["secret", "get", "a", "--json"]));
    assert_eq!(shown, json!({"project": "main", "name": "a", "value": "it's"}));
    assert_eq!(object(cluster.sluice(&["secret", "delete", "-y", "a", "--json"])), done);
    let volumes = object(cluster.sluice(&["volume", "list", "--json"]));
    assert_eq!(volumes, json!({"project": "main", "volumes": []}));
    let made = object(cluster.sluice(&["project", "create", "team", "--json"]));
    assert_eq!(made, json!({"result": "done"}));
    let listed = cluster.sluice(&["project", "list", "--json"]).ok();
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let is_team = |project: &Value| project["name"] == "team";
    assert!(listed.as_array().is_some_and(|all| all.iter().any(is_team)), "{listed}");
}
