//! `sluice fleet`: the fleets over SSH and the partitions of the cluster, and their nodes as instances.

use super::{PROGRESS_PAUSE, ask, cluster, confirm, fleets, print, watch};
use crate::client::Client;
use crate::command::program_name::program_name;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::instance_state::InstanceState;
use ::dstack::node_offer;
use ::dstack::offer;
use ::dstack::table::{self, FleetRow};
use clap::Args;
use model::fleet::MAIN_PROJECT;
use model::reason::Refusal;
use serde_json::{Value, json};
use std::process::ExitCode;
use wire::client::Call;
use wire::fleet::{FleetHostState, FleetHostView, FleetView};
use wire::view::{ClusterView, NodeView};

/// How many fleets are named where one does not exist.
const NAMED_MAX: usize = 12;

#[derive(Args)]
pub struct FleetArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// Only this fleet; `list` is all of them, and `show` (or `get`) shows and `delete` deletes the one that is named next, as
    /// for dstack's client
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The fleet to show or to delete
    #[arg(value_name = "FLEET")]
    fleet: Option<String>,
    /// Delete only the instance of this number; may be given several times
    #[arg(short, long = "instance", value_name = "NUMBER")]
    instances: Vec<u32>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// The project that the fleet belongs to
    #[arg(long, env = "DSTACK_PROJECT", default_value = MAIN_PROJECT, value_name = "NAME")]
    project: String,
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
    let only = match (args.name.as_deref(), args.fleet.as_deref()) {
        (Some("delete"), Some(fleet)) => return delete(&mut client, fleet.to_owned(), &args),
        (Some("get" | "show"), Some(fleet)) => Some(fleet),
        (name, None) => name,
        (word, Some(_)) => {
            let text = format!(
                "fleet {}: expected `list`, `show FLEET`, `delete FLEET`, or the name of one fleet",
                word.unwrap_or_default()
            );
            return Err(VerbError::Message(text));
        }
    };
    watch(args.watch, || {
        let cluster = cluster(&mut client)?;
        let over_ssh = fleets(&mut client)?;
        show(&cluster, &over_ssh, only, &args)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn delete(client: &mut Client, name: String, args: &FleetArgs) -> VerbResult {
    let what = match &args.instances[..] {
        [] => format!("the fleet {name}"),
        numbers => {
            let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
            format!("instances {} of the fleet {name}", numbers.join(", "))
        }
    };
    if !args.yes && !confirm(&format!("Delete {what}?"))? {
        print("Exiting...\n")?;
        return Ok(ExitCode::FAILURE);
    }
    let numbers = (!args.instances.is_empty()).then(|| args.instances.clone());
    let project = args.project.clone();
    let call = Call::RemoveFleetHosts { project, name: name.clone(), numbers };
    ask(client, call).map_err(explain_denial)?;
    // It is deleted once nothing of it is left on its hosts.
    let mut told: Vec<String> = Vec::new();
    loop {
        let all = fleets(client)?;
        let leaving = leaving(&all, &name, &args.instances);
        if leaving.is_empty() {
            break;
        }
        let lines =
            leaving.iter().filter_map(|h| Some(format!("{}: {}", h.node, h.failure.as_ref()?)));
        for line in lines {
            if !told.contains(&line) {
                eprintln!("{}: {line}; it is tried again", program_name());
                told.push(line);
            }
        }
        std::thread::sleep(PROGRESS_PAUSE);
    }
    let done = if args.instances.is_empty() { "Fleet" } else { "Instances of" };
    print(&format!("{done} {name} deleted\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// The hosts of a fleet that are on their way out: of these numbers, or all of them. Others may be leaving since before.
fn leaving<'a>(fleets: &'a [FleetView], name: &str, numbers: &[u32]) -> Vec<&'a FleetHostView> {
    let hosts = fleets.iter().filter(|fleet| fleet.name == name).flat_map(|fleet| &fleet.hosts);
    let is_meant = |host: &&FleetHostView| {
        host.state == FleetHostState::Leaving
            && (numbers.is_empty() || numbers.contains(&host.number))
    };
    hosts.filter(is_meant).collect()
}

/// Says who manages fleets, where whoever asks does not.
pub(super) fn explain_denial(error: VerbError) -> VerbError {
    match error {
        VerbError::Refused(Refusal::AccessDenied) => VerbError::Message(
            "access denied: administrators of the cluster make, change and delete fleets, for any project"
                .to_owned(),
        ),
        other => other,
    }
}

fn show(
    cluster: &ClusterView,
    over_ssh: &[FleetView],
    only: Option<&str>,
    args: &FleetArgs,
) -> Result<String, VerbError> {
    let names: Vec<&str> = cluster.partitions.iter().map(|found| found.name.as_str()).collect();
    let is_all = |word: &str| word == "list" && !names.contains(&"list");
    let wanted = only.filter(|word| !is_all(word));
    if let Some(wanted) = wanted.filter(|wanted| !names.contains(wanted)) {
        return Err(VerbError::Message(unknown(wanted, &names)));
    }
    let names: Vec<&str> =
        names.into_iter().filter(|name| wanted.is_none_or(|wanted| wanted == *name)).collect();
    let nodes = |fleet: &str| -> Vec<&NodeView> {
        let is_of = |node: &&NodeView| node.partitions.iter().any(|name| name == fleet);
        cluster.nodes.iter().filter(is_of).collect()
    };
    let of_name = |name: &str| over_ssh.iter().find(|fleet| fleet.name == name);
    if args.json {
        let fleets = names.iter().map(|name| {
            let nodes = nodes(name);
            let instances: Vec<Value> = match of_name(name) {
                Some(fleet) => fleet.hosts.iter().map(|host| host_json(host, &nodes)).collect(),
                None => nodes.into_iter().map(to_json).collect(),
            };
            json!({"name": name, "instances": instances})
        });
        return Ok(format!("{}\n", json!({"fleets": fleets.collect::<Vec<_>>()})));
    }
    let mut rows = Vec::new();
    for name in names {
        let nodes = nodes(name);
        let hosts = of_name(name).map(|fleet| &fleet.hosts[..]);
        rows.push(FleetRow {
            name: name.to_owned(),
            nodes: hosts.map_or(nodes.len(), <[FleetHostView]>::len).to_string(),
            backend: "ssh".to_owned(),
            status: "active".to_owned(),
            ..FleetRow::default()
        });
        match hosts {
            Some(hosts) => {
                rows.extend(hosts.iter().map(|host| host_row(host, &nodes, args.verbose)));
            }
            None => rows.extend(nodes.into_iter().map(|node| row(node, args.verbose))),
        }
    }
    Ok(table::fleets(&rows, args.verbose))
}

/// That there is no such fleet, with the first of those that there are.
fn unknown(wanted: &str, names: &[&str]) -> String {
    let listed = names[..names.len().min(NAMED_MAX)].join(", ");
    match names.len() {
        0 => format!("fleet {wanted} does not exist: there is none"),
        count if count > NAMED_MAX => format!(
            "fleet {wanted} does not exist: there are {listed} and {} more",
            count - NAMED_MAX
        ),
        _ => format!("fleet {wanted} does not exist: there are {listed}"),
    }
}

/// The node of a host whose agent has answered.
fn node_of<'a>(host: &FleetHostView, nodes: &[&'a NodeView]) -> Option<&'a NodeView> {
    let is_it = |node: &&&NodeView| node.config.name == host.node;
    nodes.iter().find(is_it).copied().filter(|_| host.state == FleetHostState::Joined)
}

fn host_row(host: &FleetHostView, nodes: &[&NodeView], verbose: bool) -> FleetRow {
    let error = host.failure.clone().unwrap_or_default();
    match node_of(host, nodes) {
        Some(node) => {
            let known = row(node, verbose);
            let error = if error.is_empty() { known.error.clone() } else { error };
            FleetRow { error, ..known }
        }
        None => FleetRow {
            name: format!("   {}", host.node),
            backend: node_offer::BACKEND.to_owned(),
            price: offer::price(0.0),
            status: host_status(host).to_owned(),
            error,
            ..FleetRow::default()
        },
    }
}

fn host_status(host: &FleetHostView) -> &'static str {
    match host.state {
        FleetHostState::Leaving => "terminating",
        _ if host.failure.is_some() => "pending (error)",
        _ => "provisioning",
    }
}

fn host_json(host: &FleetHostView, nodes: &[&NodeView]) -> Value {
    let mut shown = match node_of(host, nodes) {
        Some(node) => to_json(node),
        None => json!({"name": host.node, "status": host_status(host), "unreachable": true}),
    };
    shown["hostname"] = Value::from(host.hostname.clone());
    shown["error"] = json!(host.failure);
    shown
}

fn row(node: &NodeView, verbose: bool) -> FleetRow {
    let state = InstanceState::of(node);
    let whole = node_offer::whole(&node.config);
    let (price, resources) = (whole.price_text(), whole.resources);
    let gpu = resources.gpu.as_ref().map(ToString::to_string).unwrap_or_default();
    FleetRow {
        name: format!("   {}", node.config.name),
        resources: if verbose { resources.to_string() } else { gpu },
        backend: node_offer::backend(Some(&node.config)),
        price,
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
        "price": node_offer::dollars_per_hour(&node.config),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::time::Timestamp;

    #[test]
    fn deletion_of_an_instance_awaits_that_one_alone() {
        let host = |number, state| FleetHostView {
            number,
            node: format!("lab-{number}"),
            hostname: "10.0.0.1".into(),
            state,
            blocks: None,
            failure: None,
        };
        let fleet = |name: &str| FleetView {
            name: name.into(),
            project: MAIN_PROJECT.into(),
            configuration: String::new(),
            created: Timestamp::default(),
            hosts: vec![
                host(0, FleetHostState::Joined),
                host(1, FleetHostState::Leaving),
                host(2, FleetHostState::Leaving),
            ],
        };
        let fleets = [fleet("lab"), fleet("other")];
        let awaited = |numbers: &[u32]| -> Vec<u32> {
            leaving(&fleets, "lab", numbers).iter().map(|host| host.number).collect()
        };
        assert_eq!(awaited(&[1]), [1]);
        assert!(awaited(&[0]).is_empty());
        assert_eq!(awaited(&[]), [1, 2]);
    }
}
