//! Attacks on the links of steps: by a user of a node who holds the ports that a supervisor dials, and by a relay between
//! node and `srun` that reads and changes what goes through it.

use crate::harness::hosts::Hosts;
use crate::harness::{Cluster, CommandOutput, until};
use nix::sched::{CloneFlags, setns};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const CONF: &str = "\
ClusterName=hosts
KillWait=1 AuthInfo=cred_expire=0
DefMemPerCPU=64
NodeName=node01 CPUs=2 CoresPerSocket=2 RealMemory=1000
PartitionName=main Nodes=node01 Default=YES State=UP
";

/// Where the kernel puts an `srun`, so that the attacker knows the ports to hold.
const FIRST_PORT: u16 = 40_000;
const PORTS: u16 = 60;
/// An address that every host has, like that of `docker0`.
const SHARED: &str = "192.168.99.1";
/// The longest that a supervisor says to somebody who has proven nothing: magic and public key.
const GREETING_BYTES: usize = 40;
/// How long an end may take that is expected to speak.
const SPEAK_TIMEOUT: Duration = Duration::from_secs(20);

/// Enters a host's network in this thread; sockets that it makes are there for good.
fn enter(namespace: &Path) {
    let file = std::fs::File::open(namespace).expect("a network namespace");
    setns(file, CloneFlags::CLONE_NEWNET).expect("root may enter it");
}

/// Runs something in a host's network, on a thread of its own.
fn inside<T: Send + 'static>(namespace: PathBuf, run: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        enter(&namespace);
        run()
    });
    thread.join().expect("no panic")
}

/// Somebody who holds ports of a host. Each connection is handed to `serve` with its port.
struct PortHolder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PortHolder {
    fn hold(
        namespace: PathBuf,
        address: &'static str,
        serve: impl Fn(TcpStream, u16) + Send + Sync + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let listeners: Vec<TcpListener> = inside(namespace, move || {
            let ports = FIRST_PORT..FIRST_PORT + PORTS;
            ports.map(|port| TcpListener::bind((address, port)).expect("a free port")).collect()
        });
        let (until_stopped, serve) = (stop.clone(), Arc::new(serve));
        let thread = std::thread::spawn(move || {
            listeners.iter().for_each(|one| one.set_nonblocking(true).expect("set"));
            while !until_stopped.load(Ordering::Relaxed) {
                for listener in &listeners {
                    let Ok((stream, _)) = listener.accept() else { continue };
                    stream.set_nonblocking(false).expect("set");
                    let port = listener.local_addr().expect("bound").port();
                    let serve = serve.clone();
                    std::thread::spawn(move || serve(stream, port));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for PortHolder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Two hosts with the shared address: node01 runs tasks, and `srun` runs on the other.
fn up() -> (Cluster, Hosts) {
    let cluster = Cluster::folder(CONF);
    let mut hosts = Hosts::up(2);
    hosts.start(&cluster);
    hosts.join(&cluster, 1);
    let range = format!("{FIRST_PORT} {}", FIRST_PORT + PORTS - 1);
    for host in ["1", "2"] {
        let line = format!(
            "ip link add br9 type bridge && ip addr add {SHARED}/24 dev br9 && ip link set br9 up; \
             [ {host} = 1 ] || echo {range} > /proc/sys/net/ipv4/ip_local_port_range"
        );
        let said = hosts.tool(&["exec", host, "sh", "-c", &line]);
        assert_eq!(said.code, 0, "{}", said.stderr);
    }
    until("the node is idle", || {
        let states = hosts.in_hub(&cluster, "sinfo -h -o %t").stdout;
        (states.trim() == "idle").then_some(())
    });
    (cluster, hosts)
}

/// A shell line on the second host, which reaches the server by its local socket.
fn on_second(hosts: &Hosts, cluster: &Cluster, line: &str) -> CommandOutput {
    hosts.tool(&["exec", "2", "sh", "-c", &hosts.line(cluster, line)])
}

/// Frames of a step as they were before links were encrypted: input for the shell that the tasks are.
fn typed(line: &str) -> Vec<u8> {
    let mut frame = (line.len() as u32).to_le_bytes().to_vec();
    frame.push(1);
    frame.extend(line.as_bytes());
    frame
}

#[test]
fn root_a_user_who_holds_the_ports_of_a_node_cannot_take_over_an_srun() {
    let (cluster, hosts) = up();
    for address in ["127.0.0.1", SHARED] {
        let heard: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let sink = heard.clone();
        let pwned = cluster.path("work").join("pwned");
        let command = format!("touch {}; exit\n", pwned.display());
        let holder = PortHolder::hold(hosts.namespace(1), address, move |mut stream, _| {
            // An answer of the right length and a wrong proof, then input.
            let _ = stream.write_all(&[9; 64]);
            let _ = stream.write_all(&typed(&command));
            let _ = stream.set_read_timeout(Some(SPEAK_TIMEOUT));
            let mut bytes = Vec::new();
            let _ = stream.read_to_end(&mut bytes);
            sink.lock().expect("no panic").push(bytes);
        });
        let line = "echo 'echo mine on $(hostname)' | timeout 60 srun -n1 bash";
        let said = on_second(&hosts, &cluster, line);
        assert_eq!((said.code, said.stdout.as_str()), (0, "mine on node01\n"), "{}", said.stderr);
        assert!(!pwned.exists(), "somebody else's input ran by way of {address}");
        drop(holder);
        let heard = heard.lock().expect("no panic");
        assert!(heard.iter().all(|bytes| bytes.len() <= GREETING_BYTES), "{address}: {heard:?}");
        assert!(address == SHARED || heard.is_empty(), "loopback of another host was dialled");
    }
}

/// What a relay does to the bytes from `srun` to the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tampering {
    None,
    /// Changes a bit of each piece after the handshake.
    Flip,
    /// Sends each piece after the handshake twice.
    Repeat,
    /// Adds input in plain text after the handshake.
    Inject,
}

/// Relays one connection of a supervisor to the real `srun`; everything that went by is kept.
fn relay(node: TcpStream, srun: TcpStream, how: Tampering, seen: &Arc<Mutex<Vec<u8>>>) {
    let copy = |mut from: TcpStream, mut to: TcpStream, how: Tampering| {
        let seen = seen.clone();
        std::thread::spawn(move || {
            let (mut buffer, mut passed) = ([0; 8192], 0);
            while let Ok(length) = from.read(&mut buffer) {
                let mut piece = buffer[..length].to_vec();
                seen.lock().expect("no panic").extend_from_slice(&piece);
                // The first 64 bytes are the answer of the handshake.
                match how {
                    Tampering::Flip if passed >= 64 && length > 0 => piece[length / 2] ^= 1,
                    Tampering::Repeat if passed >= 64 => piece.extend(piece.clone()),
                    Tampering::Inject if passed >= 64 => piece = typed("touch pwned; exit\n"),
                    _ => {}
                }
                passed += length;
                if length == 0 || to.write_all(&piece).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        })
    };
    let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
    let there = copy(clone(&node), clone(&srun), Tampering::None);
    let back = copy(srun, node, how);
    there.join().expect("no panic");
    back.join().expect("no panic");
}

#[test]
fn root_a_relay_sees_no_plain_text_and_cannot_change_what_a_task_reads() {
    let (cluster, hosts) = up();
    // The node cannot reach the host of the `srun`, so that the link by the relay is the only direct one.
    let said = hosts.tool(&["exec", "1", "ip", "route", "add", "blackhole", "10.77.0.2/32"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    for how in [Tampering::None, Tampering::Flip, Tampering::Repeat, Tampering::Inject] {
        let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (sink, hub) = (seen.clone(), hosts.hub_namespace());
        let holder = PortHolder::hold(hosts.namespace(1), SHARED, move |node, port| {
            let srun = inside(hub.clone(), move || TcpStream::connect(("10.77.0.2", port)));
            if let Ok(srun) = srun {
                relay(node, srun, how, &sink);
            }
        });
        let line = "echo 'echo sesame-$((1+1))-$(hostname)' | timeout 60 srun -n1 bash";
        let said = on_second(&hosts, &cluster, line);
        drop(holder);
        let seen = seen.lock().expect("no panic");
        assert!(seen.len() > GREETING_BYTES, "the step went by the relay: {}", said.stderr);
        for word in ["sesame", "hostname", "node01", "hello", "exited"] {
            let found = seen.windows(word.len()).any(|part| part == word.as_bytes());
            assert!(!found, "{how:?}: {word} is on the wire");
        }
        assert!(!cluster.path("work").join("pwned").exists(), "{how:?}");
        match how {
            Tampering::None => assert_eq!(said.stdout, "sesame-2-node01\n", "{}", said.stderr),
            // The link is closed at the first record that was touched, and the step fails.
            _ => assert!(said.code != 0 && said.stdout.is_empty(), "{how:?}: {}", said.stdout),
        }
    }
}
