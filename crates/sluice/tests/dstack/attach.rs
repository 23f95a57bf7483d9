//! The published client attached to its runs, by the server's SSH endpoint.

use crate::dstack_client::DstackClient;
use crate::harness::{Cluster, CommandOutput, TWO_NODES, until};
use std::io::{Read, Write};
use std::process::Command;

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

/// `ssh` says of every name that it was denied.
#[test]
fn up_attach_says_why_it_does_not_get_in() {
    let cluster = Cluster::up(TWO_NODES);
    let job = cluster.submit(&["--wrap", "true"]);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    let reasons = [
        ("nosuch", "Run nosuch not found".to_owned()),
        (&job.to_string(), format!("run {job} has ended")),
    ];
    for (name, reason) in reasons {
        let said = cluster.sluice(&["attach", name, "true"]);
        assert_ne!(said.code, 0, "{name}");
        assert!(said.stderr.contains(&reason), "{name}: {}", said.stderr);
    }
}
