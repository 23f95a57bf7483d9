//! `sluice doctor`: what this machine can and cannot enforce, how to fix it, and whether the server and its nodes serve. The
//! exit code is 1 if the server does not answer or a node is out of service.

use super::daemon::local_cluster::LocalCluster;
use super::verb::{ServerLocationArgs, VerbError, VerbResult};
use crate::client::{ClientError, ServerLocation, server_lock};
use ::agent::cgroup::{Hierarchy, Plugin};
use ::agent::detect::{Machine, node_config_line};
use ::slurm::words::node::{NodeState, reason_text};
use clap::Args;
use model::hostlist;
use model::printable::printable;
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use wire::client::{Answer, Call, ServerView};
use wire::link::RefusedNode;
use wire::view::{ClusterView, NodeView};

#[derive(Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// All that was looked at.
#[derive(Serialize)]
struct Findings {
    /// As a line of slurm.conf.
    machine: String,
    root: bool,
    /// What this user could enforce here. Not there for the user of another's cluster, whose nodes say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Groups>,
    /// The cluster's name, if the server answers.
    cluster: Option<String>,
    /// Why a server that answers shows nothing: a node speaks for its users, and not for its root.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_shown: Option<String>,
    /// The servers, where there may be several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    servers: Vec<ServerView>,
    nodes: Vec<NodeFindings>,
    /// What is out of service; empty if all is well.
    problems: Vec<Problem>,
}

/// What is wrong, and the command that mends it, or that says more.
#[derive(Debug, Serialize, PartialEq, Eq)]
struct Problem {
    problem: String,
    remedy: String,
}

#[derive(Serialize)]
struct Groups {
    /// The kind of control groups.
    layout: Option<String>,
    /// Why none can be used.
    error: Option<String>,
    enforced: Vec<Enforced>,
    why_not: Vec<WhyNot>,
}

#[derive(Serialize)]
struct Enforced {
    what: &'static str,
    enforced: bool,
}

#[derive(Serialize)]
struct WhyNot {
    what: String,
    why: String,
}

/// Nodes of which the same is to be said.
#[derive(Serialize)]
struct NodeFindings {
    nodes: Vec<String>,
    #[serde(flatten)]
    said: NodeFinding,
}

#[derive(Clone, Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct NodeFinding {
    available: bool,
    /// In the words of `sinfo`.
    state: String,
    reason: Option<String>,
    declared: bool,
    not_enforced: Vec<String>,
    /// The command for it where it does not answer and `sluice up` started its agent on this machine.
    #[serde(skip)]
    agent_remedy: Option<&'static str>,
    /// No agent has spoken for it.
    #[serde(skip)]
    never_joined: bool,
}

pub fn run(args: DoctorArgs) -> VerbResult {
    let machine = Machine::detect().map_err(|e| VerbError::Message(e.to_string()))?;
    let mut found = Findings {
        machine: node_config_line(&machine),
        root: nix::unistd::geteuid().is_root(),
        groups: None,
        cluster: None,
        not_shown: None,
        servers: Vec::new(),
        nodes: Vec::new(),
        problems: Vec::new(),
    };
    let client = args.server.client();
    let socket = match client.as_ref().map(|client| client.location()) {
        Ok(ServerLocation::Socket(path)) => Some(path.clone()),
        _ => None,
    };
    let is_here = socket.is_some();
    match client.and_then(|mut client| client.call(Call::Cluster)) {
        Ok(Answer::Cluster(cluster)) => {
            let local = is_here.then(|| LocalCluster::find(&args.server.state_dir())).flatten();
            found.take_cluster(cluster, local.as_ref());
            let pong = args.server.client().and_then(|mut client| client.call(Call::Ping));
            if let Ok(Answer::Pong { servers, store_fault, .. }) = pong {
                found.take_servers(servers, store_fault);
            }
        }
        Ok(Answer::Refused(why)) => {
            found.problem(format!("the server refuses: {why}"), "sluice login https://HOST:PORT")
        }
        Ok(_) => found.problem("the server answered something else".into(), "sluice version"),
        Err(ClientError::Forbidden(why)) if is_here && found.root => found.not_shown = Some(why),
        Err(error) => {
            let is_down = is_here && matches!(error, ClientError::Unreachable { .. });
            let remedy = if !is_down {
                "sluice login https://HOST:PORT"
            } else if server_lock::is_managed(&args.server.state_dir()) {
                "systemctl start sluice-server"
            } else {
                "sluice up --detach"
            };
            found.problem(error.to_string(), remedy);
        }
    }
    found.take_refused(::agent::refused_nodes(&args.server.state_dir()));
    let is_anothers = found.cluster.is_some() && !found.root && !socket.is_some_and(is_own_file);
    if !is_anothers {
        found.groups = Some(groups());
    }
    if args.json {
        let text = serde_json::to_string_pretty(&found);
        println!("{}", text.map_err(|e| VerbError::Message(e.to_string()))?);
    } else {
        found.print();
    }
    Ok(if found.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether a file is this user's.
fn is_own_file(path: impl AsRef<Path>) -> bool {
    let owner = std::fs::metadata(path).map(|file| file.uid());
    owner.is_ok_and(|owner| owner == nix::unistd::geteuid().as_raw())
}

impl Findings {
    /// `local` is what `sluice up` started here, if it did.
    fn take_cluster(&mut self, cluster: ClusterView, local: Option<&LocalCluster>) {
        self.cluster = Some(cluster.name);
        cluster.notices.into_iter().for_each(|said| self.problem(said, "scontrol reconfigure"));
        let mut alike: BTreeMap<NodeFinding, usize> = BTreeMap::new();
        for node in &cluster.nodes {
            let said = NodeFinding::of(node, local);
            let at = *alike.entry(said.clone()).or_insert(self.nodes.len());
            if at == self.nodes.len() {
                self.nodes.push(NodeFindings { nodes: Vec::new(), said });
            }
            self.nodes[at].nodes.push(node.config.name.clone());
        }
        let out = self.nodes.iter().filter(|of| !of.said.available).map(|of| {
            let why = of.said.reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            let (word, names) = (of.word(), hostlist::compress(&of.nodes));
            let verb = if of.nodes.len() == 1 { "is" } else { "are" };
            let problem = format!("{word} {names} {verb} {}{why}", of.said.state);
            Problem { problem, remedy: of.said.remedy(&of.nodes) }
        });
        self.problems.extend(out.collect::<Vec<_>>());
    }

    /// `store_fault`: the server that was asked does not know how the others are.
    fn take_servers(&mut self, servers: Vec<ServerView>, store_fault: Option<String>) {
        if let Some(fault) = store_fault {
            self.problem(
                format!("the server that answers: {fault}"),
                "sluice store check --store URL",
            );
            self.servers = servers;
            return;
        }
        for server in servers.iter().filter(|server| !server.is_up()) {
            let (name, seconds) = (server.shown_among(&servers), server.seen_ms / 1000);
            let problem = format!("server {name} was not heard of for {seconds} seconds");
            self.problem(
                problem,
                &format!("systemctl restart sluice-server   # on {}", server.name),
            );
        }
        if !servers.is_empty() && !servers.iter().any(|server| server.is_leader) {
            self.problem("no server leads".into(), "scontrol ping");
        }
        self.servers = servers;
    }

    /// The nodes of this machine's agent that the server does not take from it.
    fn take_refused(&mut self, refused: Vec<RefusedNode>) {
        for RefusedNode { node, why } in refused {
            let problem = format!("the server refuses this machine's agent: {}", printable(&why));
            self.problem(problem, &format!("sluice node show {}", printable(&node)));
        }
    }

    fn problem(&mut self, problem: String, remedy: &str) {
        self.problems.push(Problem { problem, remedy: remedy.to_owned() });
    }

    fn print(&self) {
        println!("this machine: {}", self.machine);
        match &self.groups {
            _ if self.root => println!("user:         root: jobs run as their own users"),
            Some(_) => println!(
                "user:         not root: jobs run only as you; start as root to serve others"
            ),
            None => println!("user:         not root; the cluster is another user's"),
        }
        if let Some(groups) = &self.groups {
            groups.print();
        }
        if let Some(cluster) = &self.cluster {
            println!("server:       answers; cluster {cluster}");
        }
        if let Some(why) = &self.not_shown {
            println!("server:       answers, and shows this user nothing: {why}");
        }
        for server in &self.servers {
            let does = match (server.is_leader, server.is_up()) {
                (true, _) => format!("leads, in term {}", server.term),
                (false, true) => format!("follows, {} events behind", server.events_behind),
                (false, false) => format!("not heard of for {} seconds", server.seen_ms / 1000),
            };
            println!("server {}: {does}", server.shown_among(&self.servers));
        }
        for of in &self.nodes {
            let word = of.word();
            let names = hostlist::compress(&of.nodes);
            let of = &of.said;
            let declared = if of.declared { ", declared" } else { "" };
            let why = of.reason.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
            println!("{word} {names}: {}{declared}{why}", of.state);
            for gap in &of.not_enforced {
                println!("  not enforced: {gap}");
            }
        }
        match self.problems.as_slice() {
            [] => println!("nothing is out of service"),
            problems => problems.iter().for_each(|Problem { problem, remedy }| {
                println!("problem:      {problem}");
                println!("  remedy:     {remedy}");
            }),
        }
    }
}

impl NodeFindings {
    fn word(&self) -> &'static str {
        if self.nodes.len() == 1 { "node" } else { "nodes" }
    }
}

impl NodeFinding {
    /// The command for nodes that are out of service: the agent of one that does not answer is started as it was, or for the first
    /// time; any other is taken back by its administrator.
    fn remedy(&self, nodes: &[String]) -> String {
        let names = hostlist::compress(nodes);
        match (self.agent_remedy, nodes) {
            _ if !self.state.ends_with('*') => {
                format!("scontrol update NodeName={names} State=RESUME")
            }
            (Some(here), _) => here.to_owned(),
            (None, [one]) if self.never_joined => format!(
                "sluice token node {one} --out {one}.join   # then on {one}: sluice agent --join {one}.join"
            ),
            (None, _) if self.never_joined => format!(
                "sluice token node --pattern '{names}' --out nodes.join   # then on each: sluice agent --join nodes.join"
            ),
            (None, _) => format!("systemctl restart sluice-agent   # on {names}"),
        }
    }

    fn of(node: &NodeView, local: Option<&LocalCluster>) -> Self {
        let reason = node.reason.as_ref();
        let local = local.filter(|local| local.serves(&node.facts.hostname));
        Self {
            available: NodeState::of(node).is_available(),
            state: NodeState::of(node).compact(),
            reason: reason.map(|reason| printable(reason_text(reason)).into_owned()),
            declared: node.config.declared,
            not_enforced: node.facts.not_enforced.clone(),
            agent_remedy: local.map(LocalCluster::remedy),
            never_joined: node.facts.hostname.is_empty(),
        }
    }
}

impl Groups {
    fn print(&self) {
        if let Some(layout) = &self.layout {
            println!("groups:       {layout}");
        }
        if let Some(error) = &self.error {
            println!("groups:       none can be used: {error}");
        }
        for Enforced { what, enforced } in &self.enforced {
            println!("  {what:<14}{}", if *enforced { "enforced" } else { "NOT enforced" });
        }
        for WhyNot { what, why } in &self.why_not {
            println!("  {what}: {why}");
        }
    }
}

fn groups() -> Groups {
    let hierarchy = match Hierarchy::discover(Plugin::Auto, "sluice") {
        Ok(hierarchy) => hierarchy,
        Err(error) => {
            let error = Some(error.to_string());
            return Groups { layout: None, error, enforced: Vec::new(), why_not: Vec::new() };
        }
    };
    // The check leaves no group behind.
    let _ = hierarchy.remove_root();
    let can = hierarchy.capabilities();
    let enforced = [
        ("memory", can.memory_hard),
        ("swap", can.swap),
        ("cores", can.cpuset),
        ("freeze", can.freeze),
        ("kill by group", can.kill),
        ("processes", can.pids),
        ("devices", can.devices),
        ("CPU time", can.usage_cpu),
    ];
    let enforced = enforced.map(|(what, enforced)| Enforced { what, enforced });
    let why_not =
        can.why_not.iter().map(|(what, why)| WhyNot { what: (*what).to_owned(), why: why.clone() });
    Groups {
        layout: Some(format!("{:?}", can.layout)),
        error: None,
        enforced: enforced.into(),
        why_not: why_not.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_out_of_service_has_a_command() {
        let finding = |state: &str| NodeFinding {
            available: false,
            state: state.to_owned(),
            reason: None,
            declared: false,
            not_enforced: Vec::new(),
            agent_remedy: None,
            never_joined: false,
        };
        let [one, two] = [1, 2]
            .map(|most| -> Vec<String> { (1..=most).map(|number| format!("n{number}")).collect() });
        let resume = "scontrol update NodeName=n[1-2] State=RESUME";
        assert_eq!(finding("drain").remedy(&two), resume);
        assert_eq!(finding("down").remedy(&two), resume);
        assert!(finding("down*").remedy(&one).contains("restart sluice-agent"));
        let of_up = |state| NodeFinding { agent_remedy: Some("sluice up"), ..finding(state) };
        assert_eq!(of_up("down*").remedy(&one), "sluice up");
        assert!(of_up("drain").remedy(&one).ends_with("State=RESUME"));
        let new = |state| NodeFinding { never_joined: true, ..finding(state) };
        assert!(new("unk*").remedy(&one).starts_with("sluice token node n1 --out n1.join "));
        assert!(new("unk*").remedy(&two).starts_with("sluice token node --pattern 'n[1-2]' "));
        assert_eq!(new("drain").remedy(&two), resume);
    }
}
