//! `sluice apply` of a fleet over SSH: says what changes, brings the keys that it names, and follows its hosts.

use super::fleet::explain_denial;
use super::{PROGRESS_PAUSE, ask, confirm, fleet_changes, fleets, print};
use crate::client::Client;
use crate::command::program_name::program_name;
use crate::command::verb::{VerbError, VerbResult};
use ::dstack::configuration::fleet::Fleet;
use model::range::Range;
use model::ssh_fleet::PRIVATE_KEY_BYTES_MAX;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use wire::client::Call;
use wire::fleet::{FleetConfiguration, FleetHostState};

/// What was said on the command line.
pub struct FleetApply<'a> {
    pub project: &'a str,
    pub file: &'a str,
    pub name: Option<&'a str>,
    pub user: String,
    pub yes: bool,
    pub detach: bool,
}

/// Makes or changes a fleet, and follows its hosts until each is in service or has said why not.
pub fn apply(
    client: &mut Client,
    args: &FleetApply<'_>,
    fleet: &Fleet,
    mut configuration: Value,
) -> VerbResult {
    let name = args.name.map(str::to_owned).or_else(|| fleet.name.clone());
    let name =
        name.ok_or_else(|| VerbError::Message(format!("{}: a fleet needs a `name`", args.file)))?;
    configuration["name"] = Value::from(name.clone());
    if fleet.nodes.is_none() {
        bring_keys(&mut configuration["ssh_config"])?;
    }
    let kind = if fleet.nodes.is_some() { "cloud" } else { "ssh" };
    let placement = if fleet.is_cluster { "cluster" } else { "any" };
    let lines = [
        ("Project", args.project.to_owned()),
        ("User", args.user.clone()),
        ("Configuration", args.file.to_owned()),
        ("Type", "fleet".to_owned()),
        ("Fleet type", kind.to_owned()),
        ("Nodes", fleet.nodes.as_ref().map_or(fleet.hosts.len().to_string(), nodes_text)),
        ("Placement", placement.to_owned()),
    ];
    for (what, value) in lines {
        print(&format!(" {what:<14} {value}\n"))?;
    }
    let fleets = fleets(client)?;
    let known = fleets.iter().find(|known| known.name == name);
    let (question, said) = if known.is_some() {
        (format!("Update the fleet {name} in-place?"), "exists already")
    } else {
        (format!("Create the fleet {name}?"), "does not exist yet")
    };
    print(&format!("\nFleet {name} {said}.\n"))?;
    let before: Option<Value> =
        known.and_then(|known| serde_json::from_str(&known.configuration).ok());
    for line in before.iter().flat_map(|before| fleet_changes::lines(before, &configuration)) {
        print(&format!(" {line}\n"))?;
    }
    if !args.yes && !confirm(&question)? {
        print("Exiting...\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let (project, configuration) = (args.project.to_owned(), FleetConfiguration(configuration));
    ask(client, Call::ApplyFleet { project, configuration }).map_err(explain_denial)?;
    if args.detach {
        print(&format!("Fleet {name} submitted, detaching...\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    follow(client, &name)
}

/// `2`, `0..8`, `1..`
fn nodes_text(nodes: &Range<u32>) -> String {
    match nodes.max {
        Some(max) if max == nodes.min => max.to_string(),
        Some(max) => format!("{}..{max}", nodes.min),
        None => format!("{}..", nodes.min),
    }
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
            is_well &= host.failure.is_none() || host.state == FleetHostState::Leaving;
            if told.get(&host.node) != Some(&line) {
                print(&format!("{} {} {line}\n", host.node, host.hostname))?;
                told.insert(host.node.clone(), line);
            }
        }
        if is_settled && !is_well {
            let program = program_name();
            let look = format!("`{program} fleet {name} -v`");
            eprintln!("{program}: hosts with an error are tried again: {look}");
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
    // One byte more than may be: the server says that it is too long.
    opened
        .and_then(|file| file.take(PRIVATE_KEY_BYTES_MAX as u64 + 1).read_to_string(&mut private))
        .map_err(VerbError::file(&path))?;
    of["ssh_key"] = json!({"public": "", "private": private});
    Ok(())
}
