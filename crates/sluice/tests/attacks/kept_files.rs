//! What a job leaves on its node and in the server, its script, its folders and its logs, also of earlier attempts: its owner
//! and root read it, and nobody else.

use crate::floods::connect_as;
use crate::harness::{Cluster, TWO_NODES, program, until};
use serde_json::Value;
use std::io::{Read, Write};

const OWNER: &str = "man";
const OTHER: &str = "games";
const COORDINATOR: &str = "mail";
const OPERATOR: &str = "lp";

#[test]
fn root_the_nodes_folders_are_passed_through_and_neither_listed_nor_read() {
    let cluster = Cluster::up(TWO_NODES);
    let script = "#!/bin/sh\ngrep -c own.read $0 > own.read\necho $0 > victim\nsleep 600\n";
    cluster.write("victim.sh", script);
    cluster.submit_as(OWNER, "-w node1 -o /dev/null victim.sh");
    let victim = cluster.await_file("victim", |text| text.ends_with('\n'));
    let nodes = cluster.state().join("nodes");
    let (nodes, victim) = (nodes.display(), victim.trim());
    let folder = victim.rsplit_once('/').expect("a path").0;
    assert!(folder.starts_with(&format!("{nodes}/node1/spool/")), "{folder}");
    assert_eq!(cluster.read("own.read"), "1\n", "the owner's own script");
    let attacks = [
        format!("ls {nodes}"),
        format!("ls {nodes}/node1"),
        format!("ls {nodes}/node1/spool"),
        format!("ls {folder}"),
        format!("cat {victim}"),
        format!("cat {folder}/launch.json"),
        format!("touch {folder}/planted"),
        format!("find {nodes} -type f -readable 2>/dev/null | grep ."),
    ];
    // From a job, whose own script lies in the same folder, and from outside.
    let lines: String = attacks
        .iter()
        .map(|line| format!("{line} > /dev/null 2>&1 && echo got: {line}\n"))
        .collect();
    cluster.write("attack.sh", &format!("#!/bin/sh\n{lines}echo over\n"));
    let job = cluster.submit_as(OTHER, "-w node1 -o attack.out attack.sh");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    assert_eq!(cluster.read("attack.out"), "over\n");
    assert_eq!(cluster.shell_as(OTHER, "sh attack.sh").ok(), "over\n");
    // They are there: root is shown each.
    for line in &attacks[..6] {
        cluster.shell(line).ok();
    }
}

/// One request on the local socket as this user; everything that was answered.
fn ask(cluster: &Cluster, user: &str, first: &str, body: &str) -> String {
    let user = nix::unistd::User::from_name(user).unwrap().expect("a user of this machine");
    let mut stream = connect_as(user.uid.as_raw(), &cluster.state().join("sluice.sock"));
    let head = "host: x\r\nconnection: close\r\ncontent-type: application/json";
    let length = body.len();
    write!(stream, "{first} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn root_logs_of_earlier_attempts_are_their_owners_alone() {
    let cluster = Cluster::up(TWO_NODES);
    for line in [
        "add account lab".to_owned(),
        format!("add user {OWNER},{COORDINATOR},{OTHER} account=lab"),
        format!("add coordinator account=lab names={COORDINATOR}"),
        format!("add user {OPERATOR} account=lab adminlevel=operator"),
    ] {
        cluster.shell(&format!("sacctmgr -i {line}")).ok();
    }
    let work = cluster.path("work");
    let task = format!(
        "type: task\nname: task\nretry: true\nresources: {{cpu: 1, memory: 64MB}}\n\
         commands: [echo of-the-owner, mktemp {}/began.XXXX, sleep 600]\n",
        work.display()
    );
    cluster.write("task.dstack.yml", &task);
    cluster.shell_as(OWNER, &format!("{} apply -y -d -f task.dstack.yml", program())).ok();
    let job = cluster.shell("squeue -h -n task -o %i").ok().trim().to_owned();
    let attempts = |wanted: usize| {
        until("the attempt has begun", || {
            let files = std::fs::read_dir(&work).unwrap().flatten();
            let began = files.filter(|f| f.file_name().to_string_lossy().starts_with("began."));
            (began.count() == wanted).then_some(())
        });
    };
    // dstack's client is told the id of the newest attempt, and keeps those of earlier ones.
    let submission = || {
        let run = "POST /api/project/main/runs/get";
        let run = ask(&cluster, OWNER, run, r#"{"run_name": "task"}"#);
        let run: Value =
            serde_json::from_str(run.split("\r\n\r\n").nth(1).unwrap()).expect("a run");
        run["jobs"][0]["job_submissions"][0]["id"].as_str().expect("an id").to_owned()
    };
    attempts(1);
    let first = submission();
    cluster.shell(&format!("scontrol requeue {job}")).ok();
    attempts(2);
    let second = submission();
    assert_ne!(first, second);
    let poll = |id: &str| format!(r#"{{"run_name": "task", "job_submission_id": "{id}"}}"#);
    // In base 64 the log is `b2YtdGhlLW93bmVy`.
    let secrets = ["of-the-owner", "b2YtdGhlLW93bmVy"];
    let questions = [
        (format!("GET /api/v1/logs?job={job}&attempt=1"), String::new()),
        (format!("GET /api/v1/logs?job={job}&attempt=2"), String::new()),
        ("POST /api/project/main/logs/poll".to_owned(), poll(&first)),
        ("POST /api/project/main/logs/poll".to_owned(), poll(&second)),
    ];
    for (first, body) in &questions {
        for user in [OWNER, "root"] {
            until(&format!("{user} reads the log: {first} {body}"), || {
                let said = ask(&cluster, user, first, body);
                secrets.iter().any(|secret| said.contains(secret)).then_some(())
            });
        }
        for user in [OTHER, COORDINATOR, OPERATOR] {
            let said = ask(&cluster, user, first, body);
            let shown = secrets.iter().any(|secret| said.contains(secret));
            assert!(!shown, "{user}: {first} {body}: {said}");
            let denied = said.contains("access_denied") || said.starts_with("HTTP/1.1 403");
            assert!(denied, "{user}: {first} {body}: {said}");
        }
    }
    let kept = format!("grep -rl of-the-owner {}", cluster.state().display());
    assert_ne!(cluster.shell(&kept).stdout, "", "the server keeps the log");
    for user in [OTHER, COORDINATOR, OPERATOR] {
        assert_eq!(cluster.shell_as(user, &kept).stdout, "", "{user}");
    }
}
