//! `sluice doctor`: what this machine can and cannot enforce, how to fix it, and whether the server and its nodes serve. The
//! exit code is 1 if the server does not answer or a node is out of service.

use super::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::agent::cgroup::{Hierarchy, Plugin};
use ::agent::detect::{Machine, node_config_line};
use ::slurm::words::node::{NodeState, reason_text};
use clap::Args;
use model::hostlist;
use model::printable::printable;
use serde::Serialize;
use std::process::ExitCode;
use wire::client::{Answer, Call};
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
    groups: Groups,
    /// The cluster's name, if the server answers.
    cluster: Option<String>,
    nodes: Vec<NodeFindings>,
    /// What is out of service; empty if all is well.
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Groups {
    /// The kind of control groups; none: why none can be used.
    layout: Result<String, String>,
    enforced: Vec<(&'static str, bool)>,
    why_not: Vec<(String, String)>,
}

/// Nodes of which the same is to be said.
#[derive(Clone, Serialize, PartialEq)]
struct NodeFindings {
    nodes: Vec<String>,
    /// In the words of `sinfo`.
    state: String,
    reason: Option<String>,
    declared: bool,
    not_enforced: Vec<String>,
}

pub fn run(args: DoctorArgs) -> VerbResult {
    let machine = Machine::detect().map_err(|e| VerbError::Message(e.to_string()))?;
    let mut found = Findings {
        machine: node_config_line(&machine),
        root: nix::unistd::geteuid().is_root(),
        groups: groups(),
        cluster: None,
        nodes: Vec::new(),
        problems: Vec::new(),
    };
    match args.server.client().and_then(|mut client| client.call(Call::Cluster)) {
        Ok(Answer::Cluster(cluster)) => found.take_cluster(cluster),
        Ok(Answer::Refused(why)) => found.problems.push(format!("the server refuses: {why}")),
        Ok(_) => found.problems.push("the server answered something else".to_owned()),
        Err(error) => found.problems.push(format!("{error}; start one with `sluice up`")),
    }
    if args.json {
        let text = serde_json::to_string_pretty(&found);
        println!("{}", text.map_err(|e| VerbError::Message(e.to_string()))?);
    } else {
        found.print();
    }
    Ok(if found.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Findings {
    fn take_cluster(&mut self, cluster: ClusterView) {
        self.cluster = Some(cluster.name);
        for node in &cluster.nodes {
            let of_node = NodeFindings::of(node);
            if !NodeState::of(node).is_available() {
                let name = &node.config.name;
                let why = of_node.reason.as_deref().map(|why| format!(": {why}"));
                let why = why.unwrap_or_default();
                self.problems.push(format!("node {name} is {}{why}", of_node.state));
            }
            let is_alike = |known: &&mut NodeFindings| {
                NodeFindings { nodes: known.nodes.clone(), ..of_node.clone() } == **known
            };
            match self.nodes.iter_mut().find(is_alike) {
                Some(known) => known.nodes.push(node.config.name.clone()),
                None => self.nodes.push(of_node),
            }
        }
    }

    fn print(&self) {
        println!("this machine: {}", self.machine);
        if self.root {
            println!("user:         root: jobs run as their own users")
        } else {
            println!("user:         not root: jobs run only as you; start as root to serve others")
        }
        self.groups.print();
        if let Some(cluster) = &self.cluster {
            println!("server:       answers; cluster {cluster}");
        }
        for of in &self.nodes {
            let word = if of.nodes.len() == 1 { "node" } else { "nodes" };
            let declared = if of.declared { ", declared" } else { "" };
            let why = of.reason.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
            println!("{word} {}: {}{declared}{why}", hostlist::compress(&of.nodes), of.state);
            for gap in &of.not_enforced {
                println!("  not enforced: {gap}");
            }
        }
        match self.problems.as_slice() {
            [] => println!("nothing is out of service"),
            problems => problems.iter().for_each(|problem| println!("problem:      {problem}")),
        }
    }
}

impl NodeFindings {
    fn of(node: &NodeView) -> Self {
        let reason = node.reason.as_ref();
        Self {
            nodes: vec![node.config.name.clone()],
            state: NodeState::of(node).compact(),
            reason: reason.map(|reason| printable(reason_text(reason)).into_owned()),
            declared: node.config.declared,
            not_enforced: node.facts.not_enforced.clone(),
        }
    }
}

impl Groups {
    fn print(&self) {
        match &self.layout {
            Ok(layout) => println!("groups:       {layout}"),
            Err(error) => println!("groups:       none can be used: {error}"),
        }
        for (what, yes) in &self.enforced {
            println!("  {what:<14}{}", if *yes { "enforced" } else { "NOT enforced" });
        }
        for (what, why) in &self.why_not {
            println!("  {what}: {why}");
        }
    }
}

fn groups() -> Groups {
    let hierarchy = match Hierarchy::discover(Plugin::Auto, "sluice") {
        Ok(hierarchy) => hierarchy,
        Err(error) => {
            let layout = Err(error.to_string());
            return Groups { layout, enforced: Vec::new(), why_not: Vec::new() };
        }
    };
    // The check leaves no group behind.
    let _ = hierarchy.remove_root();
    let can = hierarchy.capabilities();
    let enforced = vec![
        ("memory", can.memory_hard),
        ("swap", can.swap),
        ("cores", can.cpuset),
        ("freeze", can.freeze),
        ("kill by group", can.kill),
        ("processes", can.pids),
        ("devices", can.devices),
        ("CPU time", can.usage_cpu),
    ];
    let why_not = can.why_not.iter().map(|(what, why)| (what.to_string(), why.to_string()));
    Groups { layout: Ok(format!("{:?}", can.layout)), enforced, why_not: why_not.collect() }
}
