//! dstack's containers on a shared node: a network of their own with a way out, and ports of the node that lead in. The
//! node is a network namespace of the test's own, beside which another is the outside.

use super::containers::{USER, assert_nothing_is_left, make_rootfs};
use crate::harness::hosts::Hosts;
use crate::harness::{Cluster, program, signal, until};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

/// The node's address, and that of the outside.
const NODE: &str = "10.77.0.1";
const OUTSIDE: &str = "10.77.0.254";
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";

/// A cluster whose node, and this thread with it, is in a network namespace of its own.
struct Node {
    cluster: Cluster,
    hosts: Hosts,
    /// Where this thread was before.
    machine: File,
}

impl Drop for Node {
    /// The tool that removes the hosts ends what is in their namespaces, and must not be there itself.
    fn drop(&mut self) {
        let _ = setns(&self.machine, CloneFlags::CLONE_NEWNET);
    }
}

impl Node {
    fn up(forwards: bool, toml: &str) -> Node {
        let machine = File::open("/proc/thread-self/ns/net").expect("a namespace");
        let hosts = Hosts::up(1);
        enter(&hosts.namespace(1));
        std::fs::write(FORWARDING, if forwards { "1" } else { "0" }).expect("the namespace's own");
        let cluster = Cluster::folder(
            "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=200\nKillWait=8 AuthInfo=cred_expire=0\n\
             NodeName=node1 CPUs=4 RealMemory=2000\nPartitionName=main Nodes=node1 Default=YES State=UP\n",
        );
        cluster.write_conf("sluice.toml", toml);
        let rootfs = cluster.path("work/rootfs");
        make_rootfs(&rootfs);
        for tool in ["httpd", "ip", "nc", "wget"] {
            symlink("busybox", rootfs.join("bin").join(tool)).expect("a link");
        }
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/from_port.c");
        let program = rootfs.join("bin/from_port");
        let made = Command::new("cc").arg("-static").arg("-o").arg(program).arg(source).status();
        assert!(made.expect("a compiler").success());
        cluster.start();
        Node { cluster, hosts, machine }
    }

    /// Starts a run with this name in a container, as a user that is not root.
    fn apply(&self, name: &str, rest: &str) {
        let image = self.cluster.path("work/rootfs");
        let text = format!("type: task\nname: {name}\nimage: {}\n{rest}", image.display());
        let usual = "resources: {cpu: 1, memory: 100MB}\n";
        let text = if rest.contains("resources:") { text } else { text + usual };
        self.cluster.write(&format!("{name}.dstack.yml"), &text);
        let line = format!("{} apply -y -d -f {name}.dstack.yml", program());
        self.cluster.shell_as(USER, &line).ok();
    }

    /// What a run has printed when it has ended.
    fn output(&self, name: &str) -> String {
        until("the run ends", || {
            let data = self.runtime_data(name);
            data["status"].as_str().filter(|word| ["done", "failed"].contains(word)).map(drop)
        });
        self.cluster.sluice(&["logs", name]).ok()
    }

    /// The status and what dstack's API says of the job's place.
    fn runtime_data(&self, name: &str) -> Value {
        let body = format!(r#"{{"run_name": "{name}"}}"#);
        let socket = self.cluster.state().join("sluice.sock");
        let mut stream = UnixStream::connect(socket).expect("the server");
        let head = "POST /api/project/main/runs/get HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json";
        write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let run: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).expect("a body"))
            .unwrap_or_else(|e| panic!("{e}: {answer}"));
        let mut data = run["jobs"][0]["job_submissions"][0]["job_runtime_data"].clone();
        data["status"] = run["status"].clone();
        data
    }

    /// The port of the node that leads to one of a run.
    fn port(&self, name: &str, port: u16) -> u16 {
        until("the port is mapped", || {
            let data = self.runtime_data(name);
            u16::try_from(data["ports"][port.to_string()].as_u64()?).ok()
        })
    }

    fn has_links(&self) -> bool {
        self.cluster.shell("ip -o link show type veth").ok().contains("sluice")
    }

    fn assert_nothing_is_left(&self) {
        assert_nothing_is_left(&self.cluster);
        until("the links are gone", || (!self.has_links()).then_some(()));
        assert!(!has_rules());
    }
}

/// Makes this thread, and what it starts, a part of a network namespace.
fn enter(namespace: &Path) {
    setns(File::open(namespace).expect("it is there"), CloneFlags::CLONE_NEWNET).expect("entered");
}

/// Whether nftables has tables of ours in this namespace, by what the kernel answers.
fn has_rules() -> bool {
    let tables_of_all_families = 10u16 << 8 | 1;
    let whole_list = (nix::libc::NLM_F_REQUEST | nix::libc::NLM_F_DUMP) as u16;
    let mut question = vec![20, 0, 0, 0];
    question.extend(tables_of_all_families.to_ne_bytes());
    question.extend(whole_list.to_ne_bytes());
    question.resize(20, 0);
    let flags = SockFlag::SOCK_CLOEXEC;
    let protocol = SockProtocol::NetlinkNetFilter;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol).expect("a socket");
    send(socket.as_raw_fd(), &question, MsgFlags::empty()).expect("asked");
    let mut answer = vec![0; 64 << 10];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()).expect("answered");
    answer[..length].windows(6).any(|word| word == b"sluice")
}

/// What somebody says to who connects.
fn get(address: &str, port: u16) -> Option<String> {
    let mut stream = TcpStream::connect((address, port)).ok()?;
    write!(stream, "GET /index.html HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.split("\r\n\r\n").nth(1).map(str::to_owned).filter(|text| !text.is_empty())
}

/// Answers one connection from the outside's namespace, and says who came.
fn answer_outside(hosts: &Hosts, port: u16) -> JoinHandle<String> {
    let namespace = hosts.hub_namespace();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let answer = std::thread::spawn(move || {
        enter(&namespace);
        let listener = TcpListener::bind((OUTSIDE, port)).expect("a port");
        ready.send(()).expect("somebody waits");
        let (mut stream, from) = listener.accept().expect("a connection");
        stream.write_all(b"from outside\n").expect("written");
        from.ip().to_string()
    });
    is_ready.recv().expect("it listens");
    answer
}

const SERVE: &str = "httpd -f -p 127.0.0.1:8000 -h /tmp";

#[test]
fn root_two_containers_with_the_same_port_share_a_node_and_reach_the_outside() {
    let node = Node::up(true, "");
    for name in ["one", "two"] {
        let rest = format!(
            "ports: [8000, '9000:8001']\ncommands: [echo of-{name} > /tmp/index.html, {SERVE}]\n"
        );
        node.apply(name, &rest);
    }
    let ports = ["one", "two"].map(|name| node.port(name, 8000));
    assert_ne!(ports[0], ports[1]);
    let listed = node.cluster.sluice(&["ps", "--json"]).ok();
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    for (name, port) in ["one", "two"].into_iter().zip(ports) {
        let runs = listed["runs"].as_array().expect("runs");
        let run = runs.iter().find(|run| run["run_spec"]["run_name"] == name).expect("the run");
        assert_eq!(run["ports"][0], serde_json::json!({ "container": 8000, "node": port }));
        assert!((20_000..=29_999).contains(&port), "{port}");
        assert_eq!(node.runtime_data(name)["network_mode"], "bridge");
        let expected = format!("of-{name}\n");
        let on_node = until("it serves", || get("127.0.0.1", port));
        assert_eq!(on_node, expected);
        // And from the outside.
        let namespace = node.hosts.hub_namespace();
        let from_outside = std::thread::spawn(move || {
            enter(&namespace);
            get(NODE, port)
        });
        assert_eq!(from_outside.join().expect("it ran"), Some(expected));
    }
    // A way out, with the node's address, but not with a port that is root's on the node.
    let outside = answer_outside(&node.hosts, 9100);
    let tried = |port| format!("from_port {port} {OUTSIDE} 9101 2> /dev/null; echo {port} $?");
    let also = answer_outside(&node.hosts, 9101);
    let commands = format!("{}; {}; nc {OUTSIDE} 9100 < /dev/null", tried(700), tried(7000));
    node.apply("out", &format!("commands: ['{commands}']\n"));
    let output = node.output("out");
    let lines: Vec<&str> = output.lines().collect();
    // The alarm ends the first: its packets go nowhere.
    assert_eq!(lines, ["700 142", "7000 0", "from outside"], "{output}");
    assert_eq!(also.join().expect("it ran"), NODE);
    assert_eq!(outside.join().expect("it ran"), NODE);
    assert!(node.has_links() && has_rules());
    for name in ["one", "two"] {
        node.cluster.sluice(&["stop", "-y", name]).ok();
    }
    until("the ports are free", || {
        ports.iter().all(|p| TcpListener::bind(("0.0.0.0", *p)).is_ok()).then_some(())
    });
    node.assert_nothing_is_left();
}

#[test]
fn root_a_container_reaches_neither_its_nodes_loopback_services_nor_its_neighbours() {
    let node = Node::up(true, "");
    let private = TcpListener::bind("127.0.0.1:9200").expect("a port");
    // As nodes of other systems have it: loopback addresses are routed.
    std::fs::write("/proc/sys/net/ipv4/conf/all/route_localnet", "1").expect("the namespace's own");
    node.apply(
        "neighbour",
        "ports: [8000]\ncommands: [echo secret > /tmp/index.html, httpd -f -p 8000 -h /tmp]\n",
    );
    let port = node.port("neighbour", 8000);
    until("it serves", || get("127.0.0.1", port));
    let within = SocketAddr::from(([10, 213, 0, 2], 8000));
    let by_its_address = TcpStream::connect_timeout(&within, Duration::from_secs(1));
    assert!(by_its_address.is_err(), "the node's own processes come by mapped ports alone too");
    let look = "commands:\n  - ip -o -4 address show eth0 | grep -o '10[0-9.]*/30'\n  \
                - for host in 127.0.0.1 10.213.0.1 10.213.0.5; do nc -w 2 $host 9200 < /dev/null && echo reached $host; done; true\n  \
                - ip route add 127.0.0.0/8 dev eth0 2>/dev/null && echo routed; ip link set eth0 down 2>/dev/null && echo switched; true\n  \
                - wget -T 2 -qO- http://10.213.0.2:8000/index.html; true\n  \
                - grep CapBnd /proc/self/status\n";
    node.apply("curious", look);
    let output = node.output("curious");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[0], "10.213.0.6/30", "{output}");
    assert!(!output.contains("reached") && !output.contains("secret"), "{output}");
    assert!(!output.contains("routed") && !output.contains("switched"), "{output}");
    // What the commands print as errors comes by a pipe of its own, so the line may not be the last.
    let rights = lines.iter().find_map(|line| line.strip_prefix("CapBnd:")).expect("its rights");
    let rights = u64::from_str_radix(rights.trim(), 16).expect("a mask");
    let (administers_networks, opens_raw_sockets) = (1 << 12, 1 << 13);
    assert_eq!(rights & (administers_networks | opens_raw_sockets), 0, "{output}");
    private.set_nonblocking(true).expect("set");
    assert!(private.accept().is_err(), "nobody came");
    node.cluster.sluice(&["stop", "-y", "neighbour"]).ok();
    node.assert_nothing_is_left();
}

#[test]
fn root_a_privileged_container_rules_its_own_network_and_speaks_for_nobody_else() {
    let node = Node::up(true, "[containers]\nprivileged = true\n");
    let outside = answer_outside(&node.hosts, 9100);
    let free = format!(
        "privileged: true\ncommands:\n  \
         - ip address add 10.99.0.5/32 dev eth0 && echo changed\n  \
         - ip route del default; ip route add default via 10.213.0.1 src 10.99.0.5\n  \
         - nc -w 2 {OUTSIDE} 9100 < /dev/null 2>/dev/null || echo unheard\n  \
         - ip route del default; ip route add default via 10.213.0.1\n  \
         - nc {OUTSIDE} 9100 < /dev/null\n\
         resources: {{cpu: 4, memory: 400MB}}\n"
    );
    // It has the whole node, and a network of its own nevertheless.
    node.apply("free", &free);
    let output = node.output("free");
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines, ["changed", "unheard", "from outside"], "{output}");
    assert_eq!(outside.join().expect("it ran"), NODE);
    node.assert_nothing_is_left();
}

#[test]
fn root_a_whole_node_has_its_own_network_and_a_step_that_of_its_script() {
    let node = Node::up(true, "");
    let look = format!("ip -o -4 address | grep -c {NODE}/; true");
    node.apply("whole", &format!("commands: ['{look}']\nresources: {{cpu: 4, memory: 100MB}}\n"));
    assert_eq!(node.output("whole"), "1\n");
    assert_eq!(node.runtime_data("whole")["network_mode"], "host");
    // A step is in the network of its job's script.
    node.apply("steps", "commands: ['ip -o -4 address show eth0 | grep -o 10[0-9.]*/30; srun ip -o -4 address show eth0 | grep -o 10[0-9.]*/30']\n");
    assert_eq!(node.output("steps"), "10.213.0.2/30\n10.213.0.2/30\n");
    node.assert_nothing_is_left();
}

#[test]
fn root_a_containers_network_outlives_the_agent_and_ends_with_the_job_and_its_supervisor() {
    let node = Node::up(true, "");
    // The agent is killed meanwhile: the network stays for as long as the job does.
    node.apply(
        "stays",
        &format!("ports: [8000]\ncommands: [echo still > /tmp/index.html, {SERVE}]\n"),
    );
    let port = node.port("stays", 8000);
    until("it serves", || get("127.0.0.1", port));
    node.cluster.kill_alone("agent");
    assert_eq!(get("127.0.0.1", port).as_deref(), Some("still\n"));
    node.cluster.sluice(&["stop", "-y", "stays"]).ok();
    node.assert_nothing_is_left();
    // The supervisor is killed: nothing is left either.
    node.apply("lost", &format!("ports: [8000]\ncommands: [{SERVE}]\n"));
    node.port("lost", 8000);
    for supervisor in crate::harness::processes::supervisors(&node.cluster.state()) {
        signal(supervisor, "KILL");
    }
    node.assert_nothing_is_left();
}

#[test]
fn root_a_node_that_passes_no_packets_on_says_so_where_ports_are_named() {
    let node = Node::up(false, "");
    let look = format!("commands: ['ip -o -4 address | grep -c {NODE}/; true']\n");
    node.apply("plain", &look);
    assert_eq!(node.output("plain"), "1\n");
    assert_eq!(node.runtime_data("plain")["network_mode"], "host");
    node.apply("ports", &format!("ports: [8000]\n{look}"));
    let line = "sluice: the container has the node's network and ports: this node passes no packets on (net.ipv4.ip_forward is not 1)\n";
    assert_eq!(node.output("ports"), format!("{line}1\n"));
    drop(node);
    // A site that wants them apart in any case.
    let node = Node::up(false, "[containers]\nnetwork = 'bridge'\nports = '5000-5000'\n");
    node.apply(
        "apart",
        &format!("ports: [8000]\ncommands: [ip -o -4 address > /tmp/index.html, {SERVE}]\n"),
    );
    assert_eq!(node.port("apart", 8000), 5000);
    let addresses = until("it serves", || get("127.0.0.1", 5000));
    assert!(!addresses.contains("10.") && addresses.contains("127.0.0.1/8"), "{addresses}");
    // The only port of the range is in use.
    node.apply("late", "ports: [8000]\ncommands: [true]\n");
    let said = node.output("late");
    assert!(said.contains("no port of this node from 5000 to 5000 is free\n"), "{said}");
    let listed = node.cluster.sluice(&["ps", "-a", "--json"]).ok();
    assert!(listed.contains("\"ports_binding_failed\""), "{listed}");
    node.cluster.sluice(&["stop", "-y", "apart"]).ok();
    node.assert_nothing_is_left();
}
