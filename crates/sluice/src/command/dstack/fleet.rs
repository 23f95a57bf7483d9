//! `sluice fleet`: the partitions of the cluster as fleets, and their nodes as instances.

use super::{cluster, watch};
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::instance_state::InstanceState;
use ::dstack::node_offer;
use ::dstack::table::{self, FleetRow};
use clap::Args;
use serde_json::{Value, json};
use std::process::ExitCode;
use wire::view::{ClusterView, NodeView};

#[derive(Args)]
pub struct FleetArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// Only this fleet; `list` is all of them, as for dstack's client
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Show more of each instance
    #[arg(short, long)]
    verbose: bool,
    /// Show again and again, until interrupted
    #[arg(short, long, conflicts_with = "json")]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: FleetArgs) -> VerbResult {
    let mut client = args.server.client()?;
    watch(args.watch, || show(&cluster(&mut client)?, &args))?;
    Ok(ExitCode::SUCCESS)
}

fn show(cluster: &ClusterView, args: &FleetArgs) -> Result<String, VerbError> {
    let names: Vec<&str> = cluster.partitions.iter().map(|found| found.name.as_str()).collect();
    let is_all = |word: &&String| *word == "list" && !names.contains(&"list");
    let wanted = args.name.as_ref().filter(|word| !is_all(word));
    let names: Vec<&str> =
        names.into_iter().filter(|name| wanted.is_none_or(|wanted| wanted == name)).collect();
    if let (Some(wanted), true) = (wanted, names.is_empty()) {
        return Err(VerbError::Message(format!("fleet {wanted} does not exist")));
    }
    let nodes = |fleet: &str| -> Vec<&NodeView> {
        let is_of = |node: &&NodeView| node.partitions.iter().any(|name| name == fleet);
        cluster.nodes.iter().filter(is_of).collect()
    };
    if args.json {
        let fleets = names.iter().map(|name| {
            let instances: Vec<Value> = nodes(name).into_iter().map(to_json).collect();
            json!({"name": name, "instances": instances})
        });
        return Ok(format!("{}\n", json!({"fleets": fleets.collect::<Vec<_>>()})));
    }
    let mut rows = Vec::new();
    for name in names {
        let nodes = nodes(name);
        rows.push(FleetRow {
            name: name.to_owned(),
            nodes: nodes.len().to_string(),
            backend: "ssh".to_owned(),
            status: "active".to_owned(),
            ..FleetRow::default()
        });
        rows.extend(nodes.into_iter().map(|node| row(node, args.verbose)));
    }
    Ok(table::fleets(&rows, args.verbose))
}

fn row(node: &NodeView, verbose: bool) -> FleetRow {
    let state = InstanceState::of(node);
    let resources = node_offer::whole(&node.config).resources;
    let gpu = resources.gpu.as_ref().map(ToString::to_string).unwrap_or_default();
    FleetRow {
        name: format!("   {}", node.config.name),
        resources: if verbose { resources.to_string() } else { gpu },
        backend: node_offer::BACKEND.to_owned(),
        status: state.words(),
        error: state.findings.unwrap_or_default(),
        ..FleetRow::default()
    }
}

fn to_json(node: &NodeView) -> Value {
    let state = InstanceState::of(node);
    json!({
        "name": node.config.name,
        "status": state.status,
        "unreachable": state.unreachable,
        "health_status": state.health,
        "findings": state.findings,
        "busy_blocks": state.busy_blocks,
        "total_blocks": state.total_blocks,
        "resources": node_offer::whole(&node.config).resources.to_string(),
    })
}
