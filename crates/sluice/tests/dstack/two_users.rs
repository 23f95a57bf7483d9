//! Users whose runs have the same name: each means his own.

use crate::harness::{Cluster, TWO_NODES, program, until};

const USER: &str = "games";

#[test]
fn root_each_user_means_his_own_run_of_a_name() {
    let cluster = Cluster::up(TWO_NODES);
    let as_user = |line: &str| cluster.shell_as(USER, &format!("{} {line}", program()));
    let task = |more: &str, command: &str| {
        format!(
            "type: task\nname: shared\n{more}commands: [{command:?}]\nresources: {{cpu: 1.., memory: 64MB.., disk: 0GB..}}\n"
        )
    };
    let running = |user: &str| {
        let listed = cluster.sluice(&["squeue", "-h", "-u", user, "-t", "R", "-o", "%i"]);
        listed.ok().trim().to_owned()
    };
    let has_run = |user: &str| {
        let named = format!("the run of {user} runs");
        until(&named, || Some(running(user)).filter(|number| !number.is_empty()))
    };
    let done = |name: &str| {
        until("it is done", || {
            let books = ["sacct", "-n", "-X", "-P", "--name", name, "-u", "root", "-o", "State"];
            cluster.sluice(&books).ok().contains("COMPLETED").then_some(())
        });
    };
    // root's own has ended when the other's begins.
    cluster.write("shared.dstack.yml", &task("", "echo of root"));
    let apply = ["apply", "-f", "shared.dstack.yml", "-y", "-d"];
    cluster.sluice(&apply).ok();
    done("shared");
    cluster.write("shared.dstack.yml", &task("", "echo of another; sleep 600"));
    as_user("apply -f shared.dstack.yml -y -d").ok();
    let theirs = has_run(USER);
    assert_eq!(cluster.sluice(&["logs", "shared"]).ok(), "of root\n");
    let said = cluster.sluice(&["stop", "shared", "-y"]).ok();
    assert!(said.contains("has ended already"), "{said}");

    // What has just completed can be depended on, and is one's own.
    let then =
        task("depends_on: ['afterok:shared']\n", "true").replace("name: shared", "name: then");
    cluster.write("then.dstack.yml", &then);
    cluster.sluice(&["apply", "-f", "then.dstack.yml", "-y", "-d"]).ok();
    done("then");

    // Applying one's own stops nobody else's.
    cluster.write("shared.dstack.yml", &task("", "sleep 601"));
    let said = cluster.sluice(&apply).ok();
    assert!(!said.contains("already exists"), "{said}");
    let own = has_run("root");
    assert_eq!(running(USER), theirs);
    as_user("stop shared -y").ok();
    until("theirs is stopped", || running(USER).is_empty().then_some(()));
    assert_eq!(running("root"), own);
    cluster.sluice(&["stop", "shared", "-y"]).ok();
    until("one's own is stopped", || running("root").is_empty().then_some(()));
}

#[test]
fn up_verbs_are_about_the_project_that_is_named() {
    let cluster = Cluster::up(TWO_NODES);
    let task = |name: &str| {
        format!(
            "type: task\nname: {name}\ncommands: ['echo words of {name}']\nresources: {{cpu: 1.., memory: 64MB.., disk: 0GB..}}\n"
        )
    };
    for (name, project) in [("here", "main"), ("there", "atlas")] {
        if project != "main" {
            cluster.sluice(&["project", "create", project]).ok();
        }
        cluster.write("it.dstack.yml", &task(name));
        cluster.sluice(&["apply", "-f", "it.dstack.yml", "-y", "-d", "--project", project]).ok();
        until("it is done", || {
            let books = cluster.sluice(&["sacct", "-nXP", "--name", name, "-o", "State"]).ok();
            books.contains("COMPLETED").then_some(())
        });
    }
    let listed = cluster.sluice(&["ps", "-a", "--json", "--project", "atlas"]).ok();
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let runs = listed["runs"].as_array().expect("runs");
    let names: Vec<_> = runs.iter().map(|run| &run["run_spec"]["run_name"]).collect();
    assert_eq!(names, ["there"]);
    assert_eq!((&listed["project"], &runs[0]["project_name"]), (&"atlas".into(), &"atlas".into()));
    let all = cluster.sluice(&["ps", "-a"]).ok();
    assert!(all.contains("here") && all.contains("there"), "{all}");
    let of = |verb: &[&str]| cluster.sluice(&[verb, &["--project", "atlas"]].concat());
    assert_eq!(of(&["logs", "there"]).ok(), "words of there\n");
    assert_eq!(of(&["logs", "there", "--since", "1d"]).ok(), "words of there\n");
    let missing = of(&["logs", "here"]);
    assert!(missing.stderr.contains("Run here not found"), "{missing:?}");
    let told = of(&["event"]).ok();
    assert!(told.contains("[run there]") && !told.contains("[run here]"), "{told}");
    assert!(of(&["offer"]).ok().contains("cpu="));
    assert_ne!(of(&["delete", "here", "-y"]).code, 0);
    of(&["delete", "there", "-y"]).ok();
    let unknown = cluster.sluice(&["ps", "--project", "nosuch"]);
    assert!(unknown.stderr.contains("project nosuch does not exist"), "{unknown:?}");
}
