//! `sluice fleet`: the fleets over SSH and the partitions of the cluster, and their nodes as instances; and `sluice apply` of
//! a fleet.

use super::apply::{ApplyArgs, user_name};
use super::{ask, cluster, confirm, print, unexpected, watch};
use crate::client::Client;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::configuration::fleet::Fleet;
use ::dstack::instance_state::InstanceState;
use ::dstack::node_offer;
use ::dstack::table::{self, FleetRow};
use clap::Args;
use model::fleet::MAIN_PROJECT;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use wire::client::{Answer, Call};
use wire::fleet::{FleetConfiguration, FleetHostState, FleetHostView, FleetView};
use wire::view::{ClusterView, NodeView};

/// The most bytes of a private key.
const KEY_BYTES_MAX: u64 = 16 << 10;

/// How often the hosts that are being installed are looked at.
const PROGRESS_PAUSE: Duration = Duration::from_millis(300);

#[derive(Args)]
pub struct FleetArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// Only this fleet; `list` is all of them, and `delete` deletes the one that is named next, as for dstack's client
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The fleet to delete
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
    match (args.name.as_deref(), &args.fleet) {
        (Some("delete"), Some(fleet)) => return delete(&mut client, fleet.clone(), &args),
        (_, None) => {}
        (_, Some(word)) => {
            let text = format!("{word}: expected `list`, `delete FLEET`, or the name of one fleet");
            return Err(VerbError::Message(text));
        }
    }
    watch(args.watch, || show(&cluster(&mut client)?, &fleets(&mut client)?, &args))?;
    Ok(ExitCode::SUCCESS)
}

/// The fleets over SSH.
fn fleets(client: &mut Client) -> Result<Vec<FleetView>, VerbError> {
    match ask(client, Call::Fleets)? {
        Answer::Fleets(fleets) => Ok(fleets),
        other => Err(unexpected(&other)),
    }
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
    ask(client, Call::RemoveFleetHosts { project, name: name.clone(), numbers })?;
    // It is deleted once nothing of it is left on its hosts.
    let mut told: Vec<String> = Vec::new();
    loop {
        let all = fleets(client)?;
        let hosts = all.iter().filter(|fleet| fleet.name == name).flat_map(|fleet| &fleet.hosts);
        let mut leaving = hosts.filter(|host| host.state == FleetHostState::Leaving).peekable();
        if leaving.peek().is_none() {
            break;
        }
        let lines = leaving.filter_map(|h| Some(format!("{}: {}", h.node, h.failure.as_ref()?)));
        for line in lines {
            if !told.contains(&line) {
                eprintln!("sluice: {line}; it is tried again");
                told.push(line);
            }
        }
        std::thread::sleep(PROGRESS_PAUSE);
    }
    let done = if args.instances.is_empty() { "Fleet" } else { "Instances of" };
    print(&format!("{done} {name} deleted\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes or changes a fleet, and follows its hosts until each is in service or has said why not.
pub(super) fn apply(
    client: &mut Client,
    args: &ApplyArgs,
    fleet: &Fleet,
    mut configuration: Value,
) -> VerbResult {
    let name = args.name.clone().or_else(|| fleet.name.clone());
    let name = name.ok_or_else(|| {
        VerbError::Message(format!("{}: a fleet needs a `name`", args.file))
    })?;
    configuration["name"] = Value::from(name.clone());
    bring_keys(&mut configuration["ssh_config"])?;
    let placement = if fleet.is_cluster { "cluster" } else { "any" };
    let lines = [
        ("Project", args.project.clone()),
        ("User", user_name()),
        ("Configuration", args.file.clone()),
        ("Type", "fleet".to_owned()),
        ("Fleet type", "ssh".to_owned()),
        ("Nodes", fleet.hosts.len().to_string()),
        ("Placement", placement.to_owned()),
    ];
    for (what, value) in lines {
        print(&format!(" {what:<14} {value}\n"))?;
    }
    let is_known = fleets(client)?.iter().any(|known| known.name == name);
    let (question, said) = match is_known {
        true => (format!("Update the fleet {name} in-place?"), "exists already"),
        false => (format!("Create the fleet {name}?"), "does not exist yet"),
    };
    print(&format!("\nFleet {name} {said}.\n"))?;
    if !args.yes && !confirm(&question)? {
        print("Exiting...\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let (project, configuration) = (args.project.clone(), FleetConfiguration(configuration));
    ask(client, Call::ApplyFleet { project, configuration })?;
    if args.detach {
        print(&format!("Fleet {name} submitted, detaching...\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    follow(client, &name)
}

fn follow(client: &mut Client, name: &str) -> VerbResult {
    let mut told: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let all = fleets(client)?;
        let Some(fleet) = all.iter().find(|fleet| fleet.name == name) else {
            return Err(VerbError::Message(format!("fleet {name} was deleted meanwhile")));
        };
        let mut is_settled = true;
        let mut is_well = true;
        for host in &fleet.hosts {
            let line = match (host.state, &host.failure) {
                (FleetHostState::Leaving, _) => "terminating".to_owned(),
                (_, Some(why)) => format!("error: {why}"),
                (FleetHostState::Installing, None) => "provisioning".to_owned(),
                (FleetHostState::Joined, None) => "idle".to_owned(),
            };
            is_settled &= host.failure.is_some() || host.state != FleetHostState::Installing;
            is_well &= host.failure.is_none();
            if told.get(&host.node) != Some(&line) {
                print(&format!("{} {} {line}\n", host.node, host.hostname))?;
                told.insert(host.node.clone(), line);
            }
        }
        if is_settled && !is_well {
            eprintln!("sluice: hosts with an error are tried again: `sluice fleet {name} -v`");
            return Ok(ExitCode::FAILURE);
        }
        if is_settled {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(PROGRESS_PAUSE);
    }
}

/// Puts the keys that the configuration names by their files into it: the server has no part in this machine's files.
fn bring_keys(ssh: &mut Value) -> Result<(), VerbError> {
    bring_key(ssh)?;
    bring_key(&mut ssh["proxy_jump"])?;
    let hosts = ssh["hosts"].as_array_mut();
    for host in hosts.into_iter().flatten().filter(|host| host.is_object()) {
        bring_key(host)?;
        bring_key(&mut host["proxy_jump"])?;
    }
    Ok(())
}

fn bring_key(of: &mut Value) -> Result<(), VerbError> {
    let Some(file) = of.get("identity_file").and_then(Value::as_str) else { return Ok(()) };
    if !of["ssh_key"].is_null() {
        return Ok(());
    }
    let path = match (file.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(file),
    };
    let mut private = String::new();
    let opened = std::fs::File::open(&path);
    opened
        .and_then(|file| file.take(KEY_BYTES_MAX).read_to_string(&mut private))
        .map_err(VerbError::file(&path))?;
    of["ssh_key"] = json!({"public": "", "private": private});
    Ok(())
}

fn show(
    cluster: &ClusterView,
    over_ssh: &[FleetView],
    args: &FleetArgs,
) -> Result<String, VerbError> {
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
