//! Options that our verbs share with dstack's client, through the program: each acts, or is named where it has no meaning.

use crate::harness::{Cluster, CommandOutput, TWO_NODES};
use serde_json::{Value, json};

fn object(said: CommandOutput) -> Value {
    let text = said.ok();
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

/// Applies a task of this name, and waits for its end.
fn run_to_its_end(cluster: &Cluster, name: &str, commands: &str) {
    let resources = "resources: {cpu: 1.., memory: 64MB.., disk: 0GB..}";
    let text = format!("type: task\nname: {name}\ncommands: [{commands}]\n{resources}\n");
    cluster.write("task.dstack.yml", &text);
    cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y"]);
}

#[test]
fn up_a_run_is_shown_by_name_and_id_and_diagnosed() {
    let cluster = Cluster::up(TWO_NODES);
    run_to_its_end(&cluster, "fails", "echo said, exit 3");
    let listed = object(cluster.sluice(&["ps", "-n", "1", "--format", "json"]));
    assert_eq!(listed, object(cluster.sluice(&["ps", "-n", "1", "--json"])));
    let run = &listed["runs"][0];
    assert_eq!((&run["run_spec"]["run_name"], &run["exit_status"]), (&json!("fails"), &json!(3)));
    let plain = cluster.sluice(&["ps", "-n", "1", "--format", "plain"]).ok();
    assert!(plain.contains("exited (3)"), "{plain}");
    let id = run["id"].as_str().expect("an id");
    for words in [&["fails"][..], &["--id", id]] {
        let found = object(cluster.sluice(&[&["run", "get", "--json"], words].concat()));
        assert_eq!(&found, run, "{words:?}");
    }
    let other = "00000000-0000-4000-8000-000000000000";
    for words in [&["nosuch"][..], &["--id", other]] {
        let missing = cluster.sluice(&[&["run", "get", "--json"], words].concat());
        assert!(missing.code != 0 && missing.stderr.contains("not found"), "{missing:?}");
    }
    let told = cluster.sluice(&["logs", "-d", "fails"]).ok();
    for part in ["Job created on run submission", "Job assigned to instance", "RUNNING ->"] {
        assert!(told.contains(part) && !told.contains("said\n"), "{part}: {told}");
    }
    // Both forms of a time.
    let since = |time: &str| cluster.sluice(&["logs", "fails", "--since", time]);
    assert_eq!(since("2001-01-01T00:00:00Z").ok(), "said\n");
    assert_eq!(since("2199-01-01T00:00:00Z").ok(), "");
    assert_eq!(since("1d").ok(), "said\n");
    let wrong = since("yesterday");
    assert!(wrong.code != 0 && wrong.stderr.contains("expected a duration"), "{wrong:?}");
    for verb in ["logs", "metrics"] {
        let other = cluster.sluice(&[verb, "fails", "--replica", "1"]);
        assert!(other.code != 0 && other.stderr.contains("expected 0"), "{other:?}");
    }
}

#[test]
fn up_offers_are_grouped_whole_and_free_as_the_options_say() {
    let cluster = Cluster::up(TWO_NODES);
    let offers = |words: &[&str]| {
        let gpus = ["offer", "--format", "json", "--gpu", "1.."];
        object(cluster.sluice(&[&gpus[..], words].concat()))
    };
    let grouped = offers(&["--group-by", "gpu,count"]);
    assert_eq!(grouped["groups"][0]["gpu"]["name"], "h100", "{grouped}");
    let text = cluster.sluice(&["offer", "--gpu", "1..", "--group-by", "gpu"]).ok();
    assert!(text.contains("$/GPU") && text.contains("h100"), "{text}");
    let whole = offers(&["--full-offers"]);
    assert_eq!(whole["offers"].as_array().map(Vec::len), Some(2), "{whole}");
    assert!(whole["offers"].as_array().expect("offers").iter().all(|one| one["gpu"]["count"] == 8));
    // One node is taken whole, and a part of the other.
    let sleeper = ["-o", "/dev/null", "--wrap", "sleep 600"];
    for place in
        [["-w", "node1", "--gres=gpu:8", "--exclusive"], ["-w", "node2", "--gres=gpu:2", "-n1"]]
    {
        cluster.await_state(cluster.submit(&[place, sleeper].concat()), "RUNNING");
    }
    let free = offers(&["--full-offers", "--unallocated"]);
    let found: Vec<_> = free["offers"].as_array().expect("offers").iter().collect();
    let named: Vec<_> = found.iter().map(|one| (&one["node"], &one["gpu"]["count"])).collect();
    assert_eq!(named, [(&json!("node2"), &json!(6))], "{free}");
    // Own nodes are in every region, and of no cloud.
    assert!(cluster.sluice(&["offer", "--spot", "-r", "eu-west-1"]).ok().contains("node2"));
    let none = cluster.sluice(&["offer", "--backend", "aws"]).ok();
    assert!(none.contains("no node is of the backends") && !none.contains("node2"), "{none}");
    let table: [(&[&str], &str); 3] = [
        (&["offer", "--group-by", "backend"], "expected gpu among the fields"),
        (&["offer", "--profile", "none"], "profile none"),
        (&["offer", "--spot", "--on-demand"], "cannot be used with"),
    ];
    for (command, why) in table {
        let refused = cluster.sluice(command);
        assert!(refused.code != 0 && refused.stderr.contains(why), "{refused:?}");
    }
}

#[test]
fn up_events_of_volumes_and_single_fleets_are_shown() {
    let cluster = Cluster::up(TWO_NODES);
    for name in ["data", "more"] {
        cluster.sluice(&["volume", "create", name, "--node", "node1"]).ok();
    }
    cluster.sluice(&["volume", "delete", "data", "-y"]).ok();
    let events = |words: &[&str]| cluster.sluice(&[&["event", "list"], words].concat()).ok();
    let told = events(&["--target-volume", "data"]);
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("[volume data] Volume created"), "{told}");
    assert!(lines[1].contains("[volume data] Volume deleted"), "{told}");
    let both = events(&["--target-volume", "data", "--target-volume", "more"]);
    assert_eq!(both.lines().count(), 3, "{both}");
    assert_eq!(events(&["--include-target-type", "volume", "--since", "2199-01-01T00:00:00Z"]), "");
    let none = cluster.sluice(&["event", "--within-gateway", "front"]);
    assert!(none.stderr.contains("there are no gateways here") && none.ok().is_empty());
    let wrong = cluster.sluice(&["event", "--target-run", "a", "--target-volume", "b"]);
    assert!(wrong.code != 0 && wrong.stderr.contains("cannot be used with"), "{wrong:?}");
    let fleet = object(cluster.sluice(&["fleet", "get", "gpu", "--json"]));
    assert_eq!(fleet["fleets"].as_array().map(Vec::len), Some(1), "{fleet}");
    assert_eq!(fleet["fleets"][0]["name"], "gpu");
    let missing = cluster.sluice(&["fleet", "get", "none", "--json"]);
    assert!(missing.code != 0 && missing.stderr.contains("fleet none does not exist"));
    for (words, why) in [
        (
            &["gateway", "list"][..],
            "sluice: error: gateway list: a gateway is a process, which `sluice gateway` starts; \
             dstack's own client lists those that run\n",
        ),
        (&["fleet", "get", "--id", "x"], "sluice: error: fleet: --id: fleets go by their names\n"),
    ] {
        let refused = cluster.sluice(words);
        assert_eq!((refused.code, refused.stderr.as_str()), (2, why));
    }
}

#[test]
fn up_attach_prints_the_log_of_a_run_until_its_end() {
    let cluster = Cluster::up(TWO_NODES);
    // A variable of the command line comes before the file's.
    let resources = "resources: {cpu: 1.., memory: 64MB.., disk: 0GB..}";
    let text = format!(
        "type: task\nname: told\nenv: [A=old, B=kept]\ncommands: [echo $A $B $C]\n{resources}\n"
    );
    cluster.write("told.dstack.yml", &text);
    let mut told = cluster.command(&["apply", "-y", "-f", "told.dstack.yml", "-e", "A=new"]);
    let told: CommandOutput =
        told.args(["--env", "C"]).env("C", "here").output().expect("the program runs").into();
    assert!(told.stdout.contains("\nnew kept here\n"), "{told:?}");
    let unset = cluster.sluice(&["apply", "-y", "-f", "told.dstack.yml", "-e", "NOT_SET_HERE"]);
    let words = "told.dstack.yml: `NOT_SET_HERE` is to be taken from the environment";
    assert!(unset.code != 0 && unset.stderr.contains(words), "{unset:?}");
    run_to_its_end(&cluster, "talks", "echo one, echo two");
    assert_eq!(cluster.sluice(&["attach", "talks", "--logs", "--job", "0"]).ok(), "one\ntwo\n");
    let refused = cluster.sluice(&["attach", "talks", "--logs", "--since", "5m"]);
    assert!(refused.code != 0 && refused.stderr.contains("sluice logs JOB --since"), "{refused:?}");
    let refused = cluster.sluice(&["attach", "talks", "--replica", "2"]);
    assert!(refused.code != 0 && refused.stderr.contains("expected 0"), "{refused:?}");
}
