//! What an SSH client may take up of the endpoint: places while no key has let it in, and tunnels that nobody uses.

use crate::harness::ssh_client::{Held, Ssh, free_port};
use crate::harness::{Cluster, TWO_NODES, skip, until};
use crate::ssh_endpoint::running;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Connections that say nothing, from one address: more than it may have.
const HALF_OPEN: usize = 200;
/// The same from many addresses, where this machine lets a process have so many descriptors: far more than there are places.
const FROM_MANY: usize = 10_000;
/// What a flood of them holds at once.
const FLOOD: usize = 1000;
/// Descriptors of the test that are no such connections.
const OTHER_DESCRIPTORS: usize = 512;
/// How many connections without a proven key the server keeps open (`LoginPlaces`).
const PLACES: usize = 128;

/// A connection from this address of this machine.
fn connection(from: Ipv4Addr, port: u16) -> TcpStream {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("a socket");
    let address = |ip: Ipv4Addr, port: u16| SockaddrIn::from(SocketAddrV4::new(ip, port));
    bind(socket.as_raw_fd(), &address(from, 0)).expect("an own address");
    connect(socket.as_raw_fd(), &address(Ipv4Addr::LOCALHOST, port)).expect("a connection");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream
}

/// Whether the endpoint has closed the connection, once its greeting is read.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("set");
    loop {
        match stream.read(&mut [0; 256]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

fn await_closed(open: &mut [TcpStream], least: usize) {
    until("the oldest are closed", || {
        (open.iter_mut().filter_map(|stream| is_closed(stream).then_some(())).count() >= least)
            .then_some(())
    });
}

#[test]
fn up_half_open_sessions_of_one_address_shut_nobody_out() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(ssh) = Ssh::of_user(&cluster, "root") else { return };
    let job = running(&cluster, "-n1");
    let mut open: Vec<TcpStream> =
        (0..HALF_OPEN).map(|_| connection(Ipv4Addr::LOCALHOST, ssh.port())).collect();
    let last = open.last_mut().expect("one");
    assert_eq!(last.read(&mut [0; 4]).expect("a greeting"), 4, "a new one always has a place");
    await_closed(&mut open, HALF_OPEN - PLACES / 4);
    for address in ["127.0.0.2", "127.0.0.1"] {
        let said = ssh.ssh(job, &[&format!("-b{address}"), "true"]).status().expect("ssh runs");
        assert!(said.success(), "{address} does not come in");
    }
}

#[test]
fn up_ten_thousand_half_open_sessions_of_many_addresses_let_a_real_one_in() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("a higher limit");
    let count = FROM_MANY.min((most as usize).saturating_sub(OTHER_DESCRIPTORS));
    if count < FROM_MANY {
        skip("descriptors", &format!("a process may have {most}: {count} half-open sessions"));
    }
    let cluster = Cluster::up(TWO_NODES);
    let Some(ssh) = Ssh::of_user(&cluster, "root") else { return };
    let job = running(&cluster, "-n1");
    let from = |at: usize| Ipv4Addr::new(127, 1, (at / 250) as u8, (at % 250 + 1) as u8);
    let mut open: Vec<TcpStream> = (0..count).map(|at| connection(from(at), ssh.port())).collect();
    let last = open.last_mut().expect("one");
    assert_eq!(last.read(&mut [0; 4]).expect("a greeting"), 4, "all of them were taken in");
    assert!(ssh.ssh(job, &["true"]).status().expect("ssh runs").success(), "a real one comes in");
    await_closed(&mut open, count - PLACES);
    drop(open);
    // While others keep coming, too.
    let port = ssh.port();
    let (stop, flood) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let flooding = std::thread::spawn({
        let (stop, flood) = (stop.clone(), flood.clone());
        move || {
            let mut held = std::collections::VecDeque::new();
            while !stop.load(Ordering::Relaxed) {
                let at = flood.fetch_add(1, Ordering::Relaxed) % FLOOD;
                held.push_back(connection(from(at), port));
                if held.len() > FLOOD {
                    held.pop_front();
                }
            }
        }
    });
    until("the flood is under way", || (flood.load(Ordering::Relaxed) > PLACES).then_some(()));
    for _ in 0..3 {
        assert!(ssh.ssh(job, &["true"]).status().expect("ssh runs").success(), "amid the flood");
    }
    stop.store(true, Ordering::Relaxed);
    flooding.join().expect("the flood");
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
