//! The published client attached to its runs, by the server's SSH endpoint.

use crate::dstack_client::DstackClient;
use crate::harness::ssh_client::{Held, Ssh, free_port};
use crate::harness::{Cluster, CommandOutput, TWO_NODES, program, until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

const RESOURCES: &str = "resources: {cpu: 1.., memory: 64MB.., disk: 0GB..}";

#[test]
fn up_attached_apply_shows_the_log_and_ends_with_the_runs_verdict() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    let apply = |name: &str, commands: &str| {
        let text = format!("type: task\nname: {name}\ncommands: {commands}\n{RESOURCES}\n");
        cluster.write(&format!("{name}.dstack.yml"), &text);
        client.run(&["apply", "-f", &format!("{name}.dstack.yml"), "-y"])
    };
    let good = apply("good", "[echo first words, sleep 6, echo last words]");
    assert!(good.stdout.contains("first words") && good.stdout.contains("last words"), "{good:?}");
    assert_eq!(good.code, 0, "{good:?}");
    let bad = apply("bad", "[echo some words, sleep 6, exit 3]");
    assert!(bad.stdout.contains("some words") && bad.code == 1, "{bad:?}");
    // One that has ended before the client attaches has its log all the same.
    let short = apply("short", "[echo quick words]");
    assert!(short.stdout.contains("quick words") && short.code == 0, "{short:?}");
}

#[test]
fn up_attached_client_forwards_ports_and_a_plain_ssh_comes_into_the_run() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let inside = listener.local_addr().unwrap().port();
    let local = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"from the port");
        }
    });
    let text = format!(
        "type: task\nname: held\ncommands: [echo some words, sleep 600]\nports: [{local}:{inside}]\n{RESOURCES}\n"
    );
    cluster.write("held.dstack.yml", &text);
    client.run(&["apply", "-f", "held.dstack.yml", "-y", "-d"]).ok();
    until("the run is running", || client.run(&["ps"]).stdout.contains("running").then_some(()));
    let mut attached = client.spawn(&["attach", "held", "--logs"]);
    let answer = until("the port is forwarded", || {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", local)).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok().filter(|_| !text.is_empty())?;
        Some(text)
    });
    assert_eq!(answer, "from the port");
    let mut ssh = Command::new("ssh");
    ssh.args(["-o", "LogLevel=ERROR", "-F"]).arg(client.home().join(".dstack/ssh/config"));
    let said: CommandOutput =
        ssh.args(["held", "echo in $DSTACK_RUN_NAME"]).output().expect("ssh runs").into();
    assert_eq!(said.ok(), "in held\n");
    client.run(&["stop", "-x", "held", "-y"]).ok();
    let ended = attached.wait().expect("the client ends with the run");
    assert!(!ended.success());
}

/// What a port of this machine answers.
fn answer_at(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok().filter(|_| !text.is_empty())?;
    Some(text)
}

/// A port of this machine that says so to everybody, as one of a run here would.
fn speaking_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(b"from the port");
        }
    });
    port
}

#[test]
fn up_ports_of_a_run_come_back_with_its_next_attempt_and_with_a_new_server() {
    let cluster = Cluster::up(TWO_NODES);
    let (inside, local, anywhere) = (speaking_port(), free_port(), speaking_port());
    let command = "echo x >> tries; n=$(wc -l < tries); \
                   until [ -e end$n ]; do sleep 0.1; done; [ $n = 2 ]";
    let text = format!(
        "type: task\nname: tried\ncommands: [{command:?}]\nports: ['{local}:{inside}', '*:{anywhere}']\n\
         retry: {{on_events: [error]}}\n{RESOURCES}\n"
    );
    cluster.write("task.dstack.yml", &text);
    let notes = std::fs::File::create(cluster.path("work/notes")).expect("a file");
    let mut attached = cluster.command(&["apply", "-y", "-f", "task.dstack.yml"]);
    attached.stdin(Stdio::null()).stdout(Stdio::null()).stderr(notes);
    let mut attached = Held(attached.spawn().expect("the program runs"));
    let line = format!("127.0.0.1:{local} leads to port {inside} of tried\n");
    let await_port = |times: usize| {
        assert_eq!(until("the port is here", || answer_at(local)), "from the port");
        until("it was said", || {
            (cluster.read("notes").matches(&line).count() >= times).then_some(())
        });
    };
    await_port(1);
    cluster.write("end1", "");
    let waits = until("it waits for its next attempt", || {
        Some(cluster.listed_run("tried")).filter(|run| run["status_message"] == "retrying")
    });
    // The next attempt may be on this very machine, and need the port itself.
    until("nothing listens meanwhile", || TcpStream::connect(("127.0.0.1", local)).err());
    // Nobody has to sit through the pause.
    let job = format!("JobId={}", waits["job_id"]);
    cluster.sluice(&["scontrol", "update", &job, "StartTime=now"]).ok();
    await_port(2);
    cluster.kill_alone("server");
    await_port(3);
    // A port that may be any of this machine's is the same one again. Between two attempts it is free, and another test may have it
    // once: not each time.
    let leads = format!(" leads to port {anywhere} of tried");
    let places = until("each attempt's was said", || {
        let notes = cluster.read("notes");
        let places = notes.lines().filter_map(|line| line.strip_suffix(leads.as_str()));
        let places: Vec<String> = places.map(str::to_owned).collect();
        (places.len() >= 3).then_some(places)
    });
    assert!(places[1..].contains(&places[0]), "{places:?}");
    cluster.write("end2", "");
    let ended = until("the client ends with the run", || attached.0.try_wait().expect("its state"));
    assert!(ended.success(), "{ended:?}: {}", cluster.read("notes"));
}

#[test]
fn up_our_client_brings_the_ports_that_a_configuration_names_here() {
    let cluster = Cluster::up(TWO_NODES);
    let (inside, local) = (speaking_port(), free_port());
    let task = |name: &str| {
        let wait = "until [ -e enough ]; do sleep 0.1; done";
        let ports = format!("ports: ['{local}:{inside}']");
        let text =
            format!("type: task\nname: {name}\ncommands: ['{wait}']\n{ports}\n{RESOURCES}\n");
        cluster.write("task.dstack.yml", &text);
    };
    task("held");
    let attached = cluster.spawn(&["apply", "-y", "-f", "task.dstack.yml"]);
    let answer = until("the port is here", || answer_at(local));
    assert_eq!(answer, "from the port");
    cluster.write("enough", "");
    let ended = attached.wait_with_output().expect("it ends with the run");
    assert!(ended.status.success(), "{ended:?}");
    until("the port goes with the run", || answer_at(local).is_none().then_some(()));

    std::fs::remove_file(cluster.path("work/enough")).expect("the file");
    task("again");
    let said = cluster.sluice(&["apply", "-y", "-d", "-f", "task.dstack.yml"]);
    assert!(!said.stderr.contains("ports"), "{said:?}");
    said.ok();
    until("it runs", || (cluster.listed_run("again")["status"] == "running").then_some(()));
    let inside = inside.to_string();
    for words in [&["port", "again"][..], &["port", "again", &inside]] {
        let held = Held(cluster.spawn(words));
        assert_eq!(until("the named port is here", || answer_at(local)), "from the port");
        drop(held);
        until("the port goes with the command", || answer_at(local).is_none().then_some(()));
    }
    cluster.write("enough", "");
    let job = cluster.submit_sleeper("-n1");
    cluster.await_state(job, "RUNNING");
    let said = cluster.sluice(&["port", &job.to_string()]);
    assert!(said.code != 0 && said.stderr.contains("names no `ports`"), "{said:?}");
}

/// The endpoint takes a task by its name and every job by its number, with a rank. Our client takes more, and asks by the number.
#[test]
fn up_attach_takes_a_job_by_each_of_its_names() {
    let cluster = Cluster::up(TWO_NODES);
    let said = |words: &[&str], variable: &str| {
        let command = format!("echo {variable}");
        let line = [&["attach"][..], words, &[&*command]].concat();
        cluster.sluice(&line).ok().trim().to_owned()
    };
    let wait = "until [ -e enough ]; do sleep 0.1; done";
    let text = format!("type: task\nname: pair\nnodes: 2\ncommands: ['{wait}']\n{RESOURCES}\n");
    cluster.write("task.dstack.yml", &text);
    cluster.sluice(&["apply", "-y", "-d", "-f", "task.dstack.yml"]).ok();
    until("it runs", || (cluster.listed_run("pair")["status"] == "running").then_some(()));
    for (words, rank) in [(&["pair"][..], "0"), (&["pair.1"], "1"), (&["pair", "--job", "1"], "1")]
    {
        assert_eq!(said(words, "$DSTACK_NODE_RANK"), rank, "{words:?}");
    }
    cluster.write("enough", "");
    until("it has ended", || (cluster.listed_run("pair")["status"] == "done").then_some(()));

    std::fs::remove_file(cluster.path("work/enough")).expect("the file");
    let group = |cpus: u32| {
        let resources = format!("{{cpu: {cpus}.., memory: 64MB.., disk: 0GB..}}");
        format!("  - resources: {resources}\n    commands: ['{wait}']\n")
    };
    let text = format!("type: task\nname: team\ngroups:\n{}{}", group(1), group(2));
    cluster.write("task.dstack.yml", &text);
    cluster.sluice(&["apply", "-y", "-d", "-f", "task.dstack.yml"]).ok();
    until("it runs", || (cluster.listed_run("team")["status"] == "running").then_some(()));
    for (words, rank) in [(&["team"][..], "0"), (&["team.1"], "1"), (&["team", "--job", "1"], "1")]
    {
        assert_eq!(said(words, "$DSTACK_NODE_RANK"), rank, "{words:?}");
    }
    if let Some(ssh) = Ssh::of_user(&cluster, "root") {
        let by_name = ssh.run("team", &["echo $DSTACK_NODE_RANK"]);
        assert_eq!(by_name.ok(), "0\n", "its first node");
    }
    cluster.write("enough", "");

    let job = cluster.submit_sleeper("-n1");
    cluster.await_state(job, "RUNNING");
    for word in [job.to_string(), "sleeper".to_owned(), format!("sleeper-{job}")] {
        assert_eq!(said(&[&word], "$SLURM_JOB_ID"), job.to_string(), "{word}");
    }
    let array = cluster.submit(&["--array=3-4", "-o", "/dev/null", "--wrap", "sleep 600"]);
    for task in [format!("{array}_3"), format!("{array}_4")] {
        cluster.await_state(&task, "RUNNING");
        let number = cluster.sluice(&["squeue", "-h", "-j", &task, "-o", "%A"]).ok();
        assert_eq!(said(&[&task], "$SLURM_JOB_ID"), number.trim(), "{task}");
    }
    // As dstack's client calls it, for the other verbs too.
    cluster.sluice(&["stop", "-y", &format!("sleeper-{job}")]).ok();
    assert!(cluster.await_end(job).starts_with("CANCELLED"));
}

/// `ssh` says of every name that it was denied: it is not started for a job that is not there or is over.
#[test]
fn up_attach_says_why_it_does_not_get_in() {
    let cluster = Cluster::up(&format!("{TWO_NODES}MinJobAge=2\n"));
    let job = cluster.submit(&["--wrap", "true"]);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    for (word, run) in [("nosuch", "nosuch"), ("99999", "99999"), ("nosuch.1", "nosuch")] {
        let line = format!("sluice: error: Run {run} not found\n");
        for command in [&["attach", word, "true"][..], &["port", word, "80"]] {
            let said = cluster.sluice(command);
            assert_eq!((said.code, said.stderr.as_str()), (1, line.as_str()), "{command:?}");
        }
    }
    // Nothing else is said of one that has ended.
    let job = job.to_string();
    let line = format!(
        "sluice: error: run {job} has ended (exited (0)): `sluice logs {job}` has its log\n"
    );
    let assert_told = || {
        for command in [&["attach", &*job][..], &["port", &job, "80"], &["metrics", &job]] {
            let said = cluster.sluice(command);
            assert_eq!((said.code, said.stderr.as_str()), (1, line.as_str()), "{command:?}");
        }
    };
    assert_told();
    until("only the books have it", || {
        cluster.sluice(&["squeue", "-h", "-t", "all"]).ok().is_empty().then_some(())
    });
    assert_told();
    let said = cluster.sluice(&["attach", &format!("wrap-{job}")]);
    assert!(said.stderr.contains(&format!("run wrap-{job} has ended")), "{said:?}");
}

/// As Airflow's and Prefect's operators do it: a shell script that ends with the first command that fails.
#[test]
fn up_chain_of_two_applies_stops_when_the_first_fails() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    let task = |name: &str, command: &str| {
        let text = format!("type: task\nname: {name}\ncommands: ['{command}']\n{RESOURCES}\n");
        cluster.write(&format!("{name}.dstack.yml"), &text);
    };
    let work = cluster.path("work");
    task("prepare", &format!("[ -e {}/input ]", work.display()));
    task("train", &format!("touch {}/trained", work.display()));
    let chain =
        "set -e\n\"$@\" apply -y -f prepare.dstack.yml\n\"$@\" apply -y -f train.dstack.yml\n";
    cluster.write("chain.sh", chain);
    let trained = work.join("trained");
    for program in [client.program(), std::path::Path::new(program())] {
        let run = || -> CommandOutput {
            let mut command = Command::new("sh");
            cluster.set_up(&mut command);
            command.arg("chain.sh").arg(program).env("HOME", client.home()).env("COLUMNS", "200");
            command.stdin(Stdio::null()).output().expect("a shell").into()
        };
        let stopped = run();
        assert!(stopped.code != 0 && !trained.exists(), "{}: {stopped:?}", program.display());
        std::fs::write(work.join("input"), "").expect("written");
        let whole = run();
        assert!(whole.code == 0 && trained.exists(), "{}: {whole:?}", program.display());
        std::fs::remove_file(work.join("input")).expect("removed");
        std::fs::remove_file(&trained).expect("removed");
    }
}

/// An allocation that somebody holds is what dstack calls a dev environment, and each language lists those of the other.
#[test]
fn up_salloc_and_a_dev_environment_are_in_the_lists_of_both_languages() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    cluster.sluice(&["salloc", "-n1", "-J", "bench", "--no-shell"]).ok();
    cluster.write(
        "desk.dstack.yml",
        &format!("type: dev-environment\nname: desk\nide: vscode\n{RESOURCES}\n"),
    );
    client.run(&["apply", "-f", "desk.dstack.yml", "-y", "-d"]).ok();
    until("both run in Slurm's list", || {
        let queue = cluster.sluice(&["squeue", "-h", "-o", "%j %t"]).ok();
        (queue.contains("bench R") && queue.contains("desk R")).then_some(())
    });
    for (whose, listed) in [
        ("the published client", client.run(&["ps"]).ok()),
        ("sluice", cluster.sluice(&["ps"]).ok()),
    ] {
        for name in ["bench", "desk"] {
            let is_there = |line: &str| line.contains(name) && line.contains("running");
            assert!(listed.lines().any(is_there), "{whose}, {name}: {listed}");
        }
    }
    // The one is ended by the other's command.
    client.run(&["stop", "bench-1", "-y"]).ok();
    cluster.sluice(&["scancel", "-n", "desk"]).ok();
    until("both are gone", || {
        cluster.sluice(&["squeue", "-h"]).ok().trim().is_empty().then_some(())
    });
}
