//! Agents and clients that reach their server through a proxy alone (`HTTPS_PROXY`).

use crate::harness::connect_proxy::ConnectProxy;
use crate::harness::hosts::Hosts;
use crate::harness::{Cluster, program, until};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const CONF: &str = "\
ClusterName=hosts
DefMemPerCPU=64
KillWait=1 AuthInfo=cred_expire=0
NodeName=inner CPUs=1 RealMemory=500
PartitionName=main Nodes=inner Default=YES State=UP
";

const PROXY: &str = "127.0.0.1:3128";
/// `ann:p@ss`, as `Basic` has it.
const LOGIN: &str = "YW5uOnBAc3M=";

/// A machine with no link to any other: what it reaches is behind the proxy.
struct Inner(String);

impl Inner {
    fn up() -> Self {
        let inner = Self(format!("i{}", std::process::id() % 10_000));
        inner.ip(&["netns", "add", &inner.0]);
        inner.ip(&["-n", &inner.0, "link", "set", "lo", "up"]);
        inner
    }

    fn ip(&self, args: &[&str]) {
        assert!(Command::new("ip").args(args).status().expect("ip runs").success(), "{args:?}");
    }

    fn namespace(&self) -> PathBuf {
        PathBuf::from(format!("/run/netns/{}", self.0))
    }

    fn command(&self, cluster: &Cluster, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace().display())).args(["sh", "-c", line]);
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", cluster.path("bin").display());
        command.env_clear().env("PATH", path).env("HOME", cluster.path("home"));
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        crate::harness::signal(self.0.id() as i32, "TERM");
        let _ = self.0.wait();
    }
}

#[test]
fn root_agent_and_client_reach_their_server_through_a_proxy() {
    let cluster = Cluster::folder(CONF);
    std::fs::create_dir(cluster.path("home")).unwrap();
    let mut hosts = Hosts::up(1);
    hosts.start_at(&cluster, "0.0.0.0:6830");
    let inner = Inner::up();
    let proxy = ConnectProxy::start(&inner.namespace(), PROXY, &hosts.namespace(1), LOGIN);
    let file = cluster.path("inner.join").display().to_string();
    hosts.in_hub(&cluster, &format!("{} token node inner --out {file}", program())).ok();
    let state = cluster.path("inner-agent").display().to_string();
    let agent =
        format!("exec {} agent --state {state} --join {file} --server 10.77.0.254:6831", program());
    let refused = |variable: &str, value: &str| {
        let mut command = inner.command(&cluster, &agent.replace("exec ", "exec timeout 60 "));
        let said = command.env(variable, value).output().unwrap();
        assert_eq!(said.status.code(), Some(1), "{said:?}");
        String::from_utf8(said.stderr).unwrap()
    };
    let said = refused("HTTPS_PROXY", &format!("http://{PROXY}"));
    assert!(said.contains(&format!("by proxy {PROXY}")) && said.contains("407"), "{said}");
    let said = refused("HTTPS_PROXY", "https://ann:hush@gate:1");
    assert!(said.contains("expected http://") && !said.contains("hush"), "{said}");
    assert!(
        proxy.targets().iter().all(|target| target == "10.77.0.254:6831"),
        "{:?}",
        proxy.targets()
    );

    let url = format!("http://ann:p%40ss@{PROXY}");
    let mut command = inner.command(&cluster, &agent);
    command.env("HTTPS_PROXY", &url).env("NO_PROXY", "example.org,10.78.0.0/16");
    let log = std::fs::File::create(cluster.path("inner.out")).unwrap();
    let _agent = Running(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
    until("the node is idle", || {
        let states = hosts.in_hub(&cluster, "sinfo -h -o '%D %t'").stdout;
        (states.trim() == "1 idle").then_some(())
    });
    let said = hosts.in_hub(&cluster, "srun hostname");
    assert_eq!(said.code, 0, "its output comes back: {said:?}");
    let kept = std::fs::read_to_string(cluster.path("inner.out")).unwrap();
    assert!(!kept.contains("p@ss") && !kept.contains("p%40ss") && !kept.contains(LOGIN), "{kept}");

    // A client is told its proxy the same way; `no_proxy` has it dial the server itself, which it cannot reach.
    let line = format!("{} token user root --unix-user root", program());
    let token = hosts.in_hub(&cluster, &line).ok();
    let authority = cluster.state().join("server/keys/authority.pem");
    let ask = |variables: &[(&str, &str)]| {
        let mut command = inner.command(&cluster, "sinfo -h -o %D");
        command.env("SLUICE_SERVER", "https://10.77.0.254:6830").env("SLUICE_TOKEN", token.trim());
        command.env("SLUICE_CA", &authority).envs(variables.iter().copied());
        command.output().unwrap()
    };
    // The agent may dial in the meantime too: what counts is who asked for the clients' port.
    let asked = || proxy.targets().iter().filter(|to| to.as_str() == "10.77.0.254:6830").count();
    let said = ask(&[("https_proxy", &url)]);
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "1", "{said:?}");
    let before = asked();
    assert!(before > 0, "{:?}", proxy.targets());
    let said = ask(&[("https_proxy", &url), ("no_proxy", "10.77.0.0/24")]);
    assert!(!said.status.success() && asked() == before, "{said:?}");
}
