//! What an SSH client may take up of the endpoint: places while no key has let it in, and tunnels that nobody uses.

use crate::harness::{Cluster, TWO_NODES, skip, until};
use crate::ssh_endpoint::{Held, Ssh, free_port, running};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Connections that say nothing, from one address: more than it may have.
const HALF_OPEN: usize = 200;

#[test]
fn up_half_open_sessions_of_one_address_leave_room_for_others() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(ssh) = Ssh::of_user(&cluster, "root") else { return };
    let job = running(&cluster, "-n1");
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..HALF_OPEN {
        let mut stream = TcpStream::connect(("127.0.0.1", ssh.port())).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        // One that is let in is greeted; one too many is closed.
        match stream.read(&mut [0; 4]) {
            Ok(4) => open.push(stream),
            _ => refused += 1,
        }
    }
    assert!(!open.is_empty() && refused > 0, "{} are open, {refused} refused", open.len());
    let from = |address: &str| ssh.ssh(job, &[&format!("-b{address}"), "true"]);
    assert!(from("127.0.0.2").status().expect("ssh runs").success(), "another address comes in");
    assert!(!from("127.0.0.1").status().expect("ssh runs").success(), "this one has its part");
    drop(open);
    until("what was held is free", || from("127.0.0.1").status().ok()?.success().then_some(()));
}

#[test]
fn up_tunnel_that_nobody_uses_is_closed_and_one_in_use_is_not() {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.start_with(&[("SLUICE_DOORS", "tunnel_idle_ms=2000")]);
    let Some(ssh) = Ssh::of_user(&cluster, "root") else { return };
    let job = running(&cluster, "-n1");
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = echo.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = echo.accept() {
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    let port = free_port();
    let forward = format!("-L127.0.0.1:{port}:localhost:{there}");
    let mut command = ssh.ssh(job, &["-N", &forward]);
    let mut tunnel = Held(command.stderr(Stdio::null()).spawn().expect("ssh runs"));
    let connect = || {
        let mut stream = until("the port is forwarded", || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
            stream.write_all(b"x").ok()?;
            (stream.read(&mut [0; 1]).ok()? == 1).then_some(stream)
        });
        stream.set_nodelay(true).expect("set");
        stream.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
        let _ = stream.flush();
        stream
    };
    let (mut idle, mut used) = (connect(), connect());
    // The one in use outlives the one that is not.
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        used.write_all(b"y").expect("it is open");
        let mut byte = [0; 1];
        let back = until_some(&mut used, &mut byte);
        assert_eq!(back, 1, "a tunnel in use was closed");
        match idle.read(&mut byte) {
            Ok(0) => break,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            other => panic!("{other:?}"),
        }
        assert!(Instant::now() < until, "the idle one is never closed");
    }
    drop(used);
    // With nothing open in it, the connection itself goes too.
    crate::harness::until("the client is told to go", || tunnel.0.try_wait().expect("ssh"));
}

/// Reads a byte, however long it takes.
fn until_some(stream: &mut TcpStream, byte: &mut [u8]) -> usize {
    loop {
        match stream.read(byte) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Ok(length) => return length,
            Err(_) => return 0,
        }
    }
}

/// An agent of keys, until it is dropped.
struct Agent {
    process: Held,
    socket: String,
}

impl Agent {
    fn start(cluster: &Cluster) -> Option<Self> {
        let socket = cluster.path("agent.sock").display().to_string();
        let started =
            Command::new("ssh-agent").args(["-D", "-a", &socket]).stdout(Stdio::null()).spawn();
        let Ok(process) = started else {
            skip("ssh-client", "no ssh-agent");
            return None;
        };
        until("the agent listens", || std::fs::metadata(&socket).ok());
        Some(Self { process: Held(process), socket })
    }
}

#[test]
fn up_agent_of_keys_is_forwarded_where_it_is_asked_for_and_nowhere_else() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(ssh) = Ssh::of_user(&cluster, "root") else { return };
    let Some(agent) = Agent::start(&cluster) else { return };
    let job = running(&cluster, "-n1");
    let added = Command::new("ssh-add").arg(ssh.key()).env("SSH_AUTH_SOCK", &agent.socket).output();
    assert!(added.expect("ssh-add runs").status.success());
    let ask = |options: &[&str]| {
        let line = "echo socket=$SSH_AUTH_SOCK; ssh-add -L; ls -ld $(dirname ${SSH_AUTH_SOCK:-/})";
        let words: Vec<&str> = options.iter().copied().chain([line]).collect();
        let mut command = ssh.ssh(job, &words);
        command.env("SSH_AUTH_SOCK", &agent.socket).stdin(Stdio::null());
        let said: crate::harness::CommandOutput = command.output().expect("ssh runs").into();
        said.stdout
    };
    let public = std::fs::read_to_string(ssh.key().with_extension("pub")).unwrap();
    let public = public.split_whitespace().nth(1).expect("a key");
    let plain = ask(&[]);
    assert!(plain.starts_with("socket=\n") && !plain.contains(public), "{plain}");
    let forwarded = ask(&["-A"]);
    assert!(forwarded.starts_with("socket=/") && forwarded.contains(public), "{forwarded}");
    assert!(forwarded.contains("drwx------"), "others get to it: {forwarded}");
    let path = forwarded.lines().next().and_then(|line| line.strip_prefix("socket=")).unwrap();
    let folder = std::path::Path::new(path).parent().unwrap().to_owned();
    until("the socket is gone with its connection", || (!folder.exists()).then_some(()));
    drop(agent.process);
}
