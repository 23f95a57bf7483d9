//! Networks as they are: NAT, a server that moves, names that resolve late, connections whose other end vanished, packets that are
//! swallowed, and somebody in between.

use crate::harness::hosts::Hosts;
use crate::harness::laptop::Laptop;
use crate::harness::nat::PrivateNetwork;
use crate::harness::relay::{Interceptor, Relay};
use crate::harness::{Cluster, CommandOutput, program, skip, sorted_lines, until};
use std::process::{Child, Command, Stdio};

const CONF: &str = "\
ClusterName=hosts
SlurmdTimeout=300
ReturnToService=2
KillWait=1 AuthInfo=cred_expire=0
DefMemPerCPU=64
NodeName=node[01-02],inner[1-2] CPUs=2 CoresPerSocket=2 RealMemory=500
PartitionName=main Nodes=ALL Default=YES State=UP
";
const USER: &str = "games";
const ANYWHERE: &str = "0.0.0.0:6830";
/// Where the server moves to.
const SECOND: &str = "10.77.0.253";

/// Waits until these nodes are connected and idle.
fn await_idle(hosts: &Hosts, cluster: &Cluster, nodes: &str) {
    until(&format!("{nodes} are idle"), || {
        let line = format!("sinfo -h -N -n {nodes} -o %t");
        let states = hosts.in_hub(cluster, &line).stdout;
        (!states.is_empty() && states.lines().all(|state| state.trim() == "idle")).then_some(())
    });
}

/// The fingerprint of the authority, as the administrator reads it in the log.
fn fingerprint(cluster: &Cluster) -> String {
    let log = std::fs::read_to_string(cluster.path("server.out")).unwrap();
    let found = log.split("the authority is ").nth(1).expect("the log has it");
    found.split_whitespace().next().unwrap().to_owned()
}

/// A token of the user, in a file that anybody reads.
fn token(hosts: &Hosts, cluster: &Cluster) -> String {
    let file = cluster.path("work").join("token").display().to_string();
    let line = format!("{} token user {USER} --unix-user {USER} > {file}", program());
    hosts.in_hub(cluster, &line).ok();
    file
}

/// A line for a machine that is no host of the cluster, with a home of its own.
fn as_laptop(cluster: &Cluster, line: &str) -> String {
    let home = cluster.path("home").display().to_string();
    let path = cluster.path("bin").display().to_string();
    format!("unset SLUICE_STATE; export HOME={home} PATH={path}:$PATH; cd {home}; {line}")
}

fn on_host(hosts: &Hosts, cluster: &Cluster, host: u32, line: &str) -> CommandOutput {
    hosts.tool(&["exec", &host.to_string(), "sh", "-c", &as_laptop(cluster, line)])
}

#[test]
fn root_machines_behind_nat_need_connections_outward_alone() {
    let cluster = Cluster::folder(CONF);
    std::fs::create_dir(cluster.path("home")).unwrap();
    let mut hosts = Hosts::up(2);
    hosts.start_at(&cluster, ANYWHERE);
    hosts.join(&cluster, 1);
    let Some(mut inside) = PrivateNetwork::up(&hosts, 2, 3) else {
        return skip("nat", "this machine cannot translate addresses (iptables, MASQUERADE)");
    };
    for machine in [1, 2] {
        let name = format!("inner{machine}");
        let file = cluster.path(&format!("{name}.join")).display().to_string();
        hosts.in_hub(&cluster, &format!("{} token node {name} --out {file}", program())).ok();
        let state = cluster.path(&format!("{name}-agent")).display().to_string();
        let agent = format!("{} agent --state {state} --join {file}", program());
        inside.spawn(&cluster, machine, &agent, &format!("{name}.out"));
    }
    await_idle(&hosts, &cluster, "node01,inner1,inner2");
    for name in ["inner1", "inner2"] {
        let line = format!("{} node show {name} --json", program());
        let shown: serde_json::Value =
            serde_json::from_str(&hosts.in_hub(&cluster, &line).ok()).unwrap();
        assert_eq!(shown["address"], "10.77.0.2", "both come from the router: {shown}");
    }
    let echo = "-N3 -n3 sh -c 'read x; echo $x $SLURMD_NODENAME'";
    let expected = ["typed inner1", "typed inner2", "typed node01"];
    let nodes = "-w node01,inner1,inner2";
    let said = hosts.in_hub(&cluster, &format!("echo typed | srun {nodes} {echo}"));
    assert_eq!(sorted_lines(&said.stdout), expected, "{}", said.stderr);

    // A step from a node behind NAT, which the other node cannot dial: its bytes go through the server.
    let bin = cluster.path("bin").display().to_string();
    cluster.write("step.sh", &format!("#!/bin/sh\nPATH={bin}:$PATH\necho typed | srun {echo}\n"));
    let line = format!("sbatch --parsable {nodes} -N3 -o out step.sh");
    hosts.in_hub_as(USER, &cluster, &line).ok();
    let written = cluster.await_file("out", |text| text.lines().count() >= 3);
    assert_eq!(sorted_lines(&written), expected);

    // A laptop on the same network.
    let file = token(&hosts, &cluster);
    let login = format!(
        "{} login https://10.77.0.254:6830 --fingerprint {} < {file}",
        program(),
        fingerprint(&cluster)
    );
    let line = as_laptop(&cluster, &format!("{login} && echo typed | srun {nodes} {echo}"));
    let said = inside.run(&cluster, 3, &line);
    let last: Vec<&str> = said.stdout.lines().filter(|line| line.starts_with("typed")).collect();
    assert_eq!(sorted_lines(&last.join("\n")), expected, "{said:?}");
}

/// The server's machine gets another address. Agents have a list, or a name that is another address from then on; a laptop has a
/// list. Nobody is told.
#[test]
fn root_server_that_moves_is_found_by_list_and_by_name() {
    let conf = format!("SlurmctldHost=ctl\nSlurmctldHost=second({SECOND})\n{CONF}");
    let cluster = Cluster::folder(&conf);
    std::fs::create_dir(cluster.path("home")).unwrap();
    let mut hosts = Hosts::up(3);
    let server = hosts.start_at(&cluster, ANYWHERE);
    hosts.join(&cluster, 1);
    let join = std::fs::read_to_string(cluster.path("node01.join")).unwrap();
    let join: serde_json::Value = serde_json::from_str(&join).unwrap();
    let servers: Vec<&str> =
        join["servers"].as_array().unwrap().iter().filter_map(|one| one.as_str()).collect();
    assert_eq!(servers.first(), Some(&"10.77.0.254:6831"), "{servers:?}");
    for wanted in ["ctl:6831", "10.77.0.253:6831"] {
        assert!(servers.contains(&wanted), "{wanted}: {servers:?}");
    }

    // The second agent knows a name alone, which nobody can resolve when it is to join, nor when it is started again.
    let file = cluster.path("node02.join").display().to_string();
    hosts.in_hub(&cluster, &format!("{} token node node02 --out {file}", program())).ok();
    let log = || std::fs::read_to_string(cluster.path("two.out")).unwrap_or_default();
    let joining = hosts.agent(&cluster, 2, "two", &["--join", &file, "--server", "late:6831"]);
    until("it says that it waits", || log().contains("not joined yet").then_some(()));
    hosts.set_name("late", Some("10.77.0.254"));
    await_idle(&hosts, &cluster, "node[01-02]");
    hosts.stop(joining);
    hosts.set_name("late", None);
    hosts.agent(&cluster, 2, "two", &["--server", "late:6831"]);
    until("it says that it cannot reach it", || log().contains("late:6831").then_some(()));
    hosts.set_name("late", Some("10.77.0.254"));
    await_idle(&hosts, &cluster, "node[01-02]");

    let file = token(&hosts, &cluster);
    let login = format!(
        "{} login https://10.77.0.254:6830 https://{SECOND}:6830 --fingerprint {} < {file}",
        program(),
        fingerprint(&cluster)
    );
    on_host(&hosts, &cluster, 3, &login).ok();
    let wait = "until [ -e go ]; do sleep 0.05; done; echo ended";
    let mut jobs = Vec::new();
    for node in ["node01", "node02"] {
        let line = format!("sbatch --parsable -w {node} -o {node}.job --wrap '{wait}'");
        jobs.push(hosts.in_hub(&cluster, &line).ok().trim().to_owned());
    }
    let states = |jobs: &[String]| {
        let line = format!("squeue -h -j {} -o %T", jobs.join(","));
        hosts_states(&hosts, &cluster, &line)
    };
    until("both run", || (states(&jobs) == ["RUNNING", "RUNNING"]).then_some(()));

    hosts.stop(server);
    // In this order: an address takes those with it that were added to its network after it.
    hosts.ip_in_hub("addr del 10.77.0.254/24 dev br0");
    hosts.ip_in_hub(&format!("addr add {SECOND}/24 dev br0"));
    hosts.set_name("late", Some(SECOND));
    hosts.start_at(&cluster, ANYWHERE);
    until("both agents have found it", || {
        let states = hosts_states(&hosts, &cluster, "sinfo -h -N -n node[01-02] -o '%N %t'");
        (states == ["node01 mix", "node02 mix"]).then_some(())
    });
    let said = on_host(&hosts, &cluster, 3, "squeue -h -o '%i %T'");
    let listed = sorted_lines(&said.stdout).join("\n");
    for job in &jobs {
        assert!(listed.contains(&format!("{job} RUNNING")), "the laptop's list: {said:?}");
    }
    let said = on_host(&hosts, &cluster, 3, "srun -N2 -n2 sh -c 'echo $SLURMD_NODENAME'");
    assert_eq!(sorted_lines(&said.stdout), ["node01", "node02"], "{}", said.stderr);
    cluster.write("go", "");
    for node in ["node01", "node02"] {
        cluster.await_file(&format!("{node}.job"), |text| text == "ended\n");
    }
}

fn hosts_states(hosts: &Hosts, cluster: &Cluster, line: &str) -> Vec<String> {
    hosts.in_hub(cluster, line).stdout.lines().map(|state| state.trim().to_owned()).collect()
}

/// The server ends while a laptop is cut off from it, and another begins: the laptop's connection leads to nobody, and nothing ever
/// comes by it that says so.
#[test]
fn root_srun_on_a_connection_that_leads_to_nobody_finds_its_server_again() {
    let cluster = Cluster::folder(CONF);
    std::fs::create_dir(cluster.path("home")).unwrap();
    let mut hosts = Hosts::up(2);
    let server = hosts.start_at(&cluster, ANYWHERE);
    hosts.join(&cluster, 1);
    await_idle(&hosts, &cluster, "node01");
    let file = token(&hosts, &cluster);
    let login = format!(
        "{} login https://10.77.0.254:6830 --fingerprint {} < {file}",
        program(),
        fingerprint(&cluster)
    );
    on_host(&hosts, &cluster, 2, &login).ok();
    let work = cluster.path("work").display().to_string();
    let task =
        format!("echo begun; until [ -e {work}/go ]; do sleep 0.05; done; echo ended; exit 7");
    let line = as_laptop(&cluster, &format!("exec srun sh -c '{task}' > {work}/out"));
    let mut srun = on_host_started(&hosts, 2, &line);
    cluster.await_file("out", |text| text == "begun\n");

    hosts.set_link(2, "down");
    hosts.kill(server);
    hosts.start_at(&cluster, ANYWHERE);
    let said = on_host(&hosts, &cluster, 2, "squeue");
    assert_ne!(said.code, 0);
    assert_eq!(said.stderr.lines().count(), 1, "one line says that nobody is there: {said:?}");
    hosts.set_link(2, "up");
    cluster.write("go", "");
    let ended = srun.wait().unwrap();
    assert_eq!((cluster.read("out").as_str(), ended.code()), ("begun\nended\n", Some(7)));
}

/// Starts a line on a host, without waiting for it.
fn on_host_started(hosts: &Hosts, host: u32, line: &str) -> Child {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", hosts.namespace(host).display()));
    command.args(["sh", "-c", line]).stdin(Stdio::null());
    command.spawn().expect("it starts")
}

/// Short packets arrive and long ones do not, as behind a router with a smaller MTU whose word is lost. The heartbeats of an agent
/// are short.
#[test]
fn root_network_that_swallows_long_packets_is_noticed_and_nothing_is_lost() {
    let cluster = Cluster::folder(CONF);
    let mut hosts = Hosts::up(1);
    hosts.start(&cluster);
    hosts.join(&cluster, 1);
    await_idle(&hosts, &cluster, "node01");
    let rule = |hosts: &Hosts, what: &str, chain: &str, whose: &str| {
        let words =
            format!("{what} {chain} {whose} 10.77.0.1 -m length --length 500:65535 -j DROP");
        hosts.tool(&["ctl", "sh", "-c", &format!("iptables {words}")]).code == 0
    };
    if !rule(&hosts, "-A", "INPUT", "-s") || !rule(&hosts, "-A", "OUTPUT", "-d") {
        return skip("nat", "this machine cannot drop packets by their length (iptables)");
    }
    // The order is longer than a packet may be.
    let script = format!("#!/bin/sh\n# {}\necho ran >> ran\n", "x".repeat(20_000));
    cluster.write("long.sh", &script);
    let job = hosts.in_hub(&cluster, "sbatch --parsable -o none long.sh").ok().trim().to_owned();
    until("the link is given up", || {
        let log = std::fs::read_to_string(cluster.path("node01.out")).unwrap_or_default();
        log.contains("not connected").then_some(())
    });
    until("the server has noticed too", || {
        let state = hosts.in_hub(&cluster, "sinfo -h -n node01 -o %t").stdout;
        state.trim().ends_with('*').then_some(())
    });
    assert_eq!(cluster.read("ran"), "");
    assert!(rule(&hosts, "-D", "INPUT", "-s") && rule(&hosts, "-D", "OUTPUT", "-d"));
    cluster.await_file("ran", |text| !text.is_empty());
    until("it ends", || {
        let line = format!("sacct -n -X -P -j {job} -o State");
        (hosts.in_hub(&cluster, &line).stdout.trim() == "COMPLETED").then_some(())
    });
    assert_eq!(cluster.read("ran"), "ran\n", "once");
}

/// Somebody between an agent and the server has a certificate for the server's name, of another authority.
#[test]
fn root_man_in_the_middle_gets_no_join_token() {
    let cluster = Cluster::folder(CONF);
    let mut hosts = Hosts::up(1);
    hosts.start_at(&cluster, ANYWHERE);
    let machine = Laptop::up(&cluster, &hosts, 1);
    let at = "10.77.0.254:6831";
    let relay = Relay::start(&machine.namespace(), at, &hosts.namespace(1), at);
    let interceptor = Interceptor::new(&[wire::link::SERVER_NAME]);
    relay.intercept(&interceptor);
    let file = cluster.path("inner1.join").display().to_string();
    hosts.in_hub(&cluster, &format!("{} token node inner1 --out {file}", program())).ok();
    let state = cluster.path("inner").display().to_string();
    let agent = format!("timeout 30 {} agent --state {state} --join {file}", program());
    let run = |agent: &str| {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", machine.namespace().display())).args(["sh", "-c", agent]);
        CommandOutput::from(command.stdin(Stdio::null()).output().unwrap())
    };
    let said = run(&agent);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("is of another cluster than the join file"), "{said:?}");
    let (connections, bytes) = interceptor.seen.lock().unwrap().clone();
    assert!(connections >= 1);
    assert_eq!(String::from_utf8_lossy(&bytes), "", "nothing was sent to him");
}
