//! The calls about fleets over SSH. Private keys are sealed before they reach the writer, and are in no answer.

use crate::fleet::request;
use crate::shared::Shared;
use cluster::authorise::{Act, authorise};
use cluster::visibility::Viewer;
use cluster::{Command, State};
use model::fleet::Blocks;
use model::machine::{Machine, MachinePhase};
use model::principal::Principal;
use model::reason::Refusal;
use model::ssh_fleet::{FleetHost, SshFleet};
use std::sync::Arc;
use tokio::task::block_in_place;
use wire::client::{Answer, Call};
use wire::fleet::{FleetHostState, FleetHostView, FleetView};

pub async fn answer(shared: &Arc<Shared>, by: Principal, call: Call) -> Result<Answer, Refusal> {
    let command = match call {
        Call::Fleets => return Ok(Answer::Fleets(fleets(shared, &by))),
        Call::ApplyFleet { project, configuration } => {
            authorise(&shared.read(), &by, Act::ManageFleets)?;
            let _sealing = shared.sealing.read().await;
            let set = block_in_place(|| request::read(shared, &project, &configuration.0))?;
            shared.writer.run(Command::SetFleet(Box::new(set)), by).await?;
            return Ok(Answer::Done);
        }
        Call::RemoveFleetHosts { project, name, numbers } => {
            Command::RemoveFleetHosts { project, name, numbers }
        }
        other => unreachable!("{other:?} is answered elsewhere"),
    };
    shared.writer.run(command, by).await?;
    Ok(Answer::Done)
}

/// The fleets of projects of which the caller is a member.
fn fleets(shared: &Shared, by: &Principal) -> Vec<FleetView> {
    let state = shared.read();
    let viewer = Viewer::new(&state, by);
    if !viewer.partitions() || !viewer.nodes() {
        return Vec::new();
    }
    let shown = state.fleets.values().filter(|fleet| viewer.fleet(&fleet.name));
    shown.map(|fleet| view(&state, fleet)).collect()
}

/// The machines of a fleet that sources make, as its hosts.
fn instances(state: &State, fleet: &SshFleet) -> Vec<FleetHostView> {
    let Some(cloud) = &fleet.cloud else { return Vec::new() };
    let of_fleet =
        |machine: &&Machine| machine.is_live() && machine.terms.fleet.as_ref() == Some(&fleet.name);
    let mut machines: Vec<&Machine> = state.machines.values().filter(of_fleet).collect();
    machines.sort_unstable_by_key(|machine| machine.number);
    let one = |machine: &Machine| {
        let node = state.nodes.get(&machine.node);
        FleetHostView {
            number: machine.number,
            node: machine.node.clone(),
            hostname: node.map_or_else(String::new, |node| node.config.address.clone()),
            state: match machine.phase {
                MachinePhase::Joined => FleetHostState::Joined,
                MachinePhase::Asked | MachinePhase::Made => FleetHostState::Installing,
                MachinePhase::Leaving | MachinePhase::Deleting | MachinePhase::Gone => {
                    FleetHostState::Leaving
                }
            },
            blocks: block_count(cloud.blocks),
            failure: machine.failure.as_ref().map(|failure| failure.text.clone()),
        }
    };
    machines.into_iter().map(one).collect()
}

fn block_count(blocks: Blocks) -> Option<u32> {
    match blocks {
        Blocks::Auto => None,
        Blocks::Count(count) => Some(count),
    }
}

fn view(state: &State, fleet: &SshFleet) -> FleetView {
    let host = |(number, host): (&u32, &FleetHost)| FleetHostView {
        number: *number,
        node: fleet.node_name(*number),
        hostname: host.login.hostname.clone(),
        state: match (host.leaving, &host.machine) {
            (Some(_), _) => FleetHostState::Leaving,
            (None, None) => FleetHostState::Installing,
            // It is asked for its address.
            (None, Some(_)) if host.lacks_address() && host.failure.is_none() => {
                FleetHostState::Installing
            }
            (None, Some(_)) => FleetHostState::Joined,
        },
        blocks: block_count(host.blocks),
        failure: host.failure.clone(),
    };
    FleetView {
        name: fleet.name.clone(),
        project: fleet.project.clone(),
        configuration: fleet.configuration.clone(),
        created: fleet.created,
        hosts: fleet.hosts.iter().map(host).chain(instances(state, fleet)).collect(),
    }
}
