//! The calls about fleets over SSH. Private keys are sealed before they reach the writer, and are in no answer.

use crate::fleet::request;
use crate::shared::Shared;
use cluster::Command;
use cluster::authorise::{Act, authorise};
use cluster::visibility::Viewer;
use model::fleet::Blocks;
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
    state.fleets.values().filter(|fleet| viewer.fleet(&fleet.name)).map(view).collect()
}

fn view(fleet: &SshFleet) -> FleetView {
    let host = |(number, host): (&u32, &FleetHost)| FleetHostView {
        number: *number,
        node: fleet.node_name(*number),
        hostname: host.login.hostname.clone(),
        state: match (host.leaving, &host.machine) {
            (Some(_), _) => FleetHostState::Leaving,
            (None, None) => FleetHostState::Installing,
            (None, Some(_)) => FleetHostState::Joined,
        },
        blocks: match host.blocks {
            Blocks::Auto => None,
            Blocks::Count(count) => Some(count),
        },
        failure: host.failure.clone(),
    };
    FleetView {
        name: fleet.name.clone(),
        project: fleet.project.clone(),
        configuration: fleet.configuration.clone(),
        created: fleet.created,
        hosts: fleet.hosts.iter().map(host).collect(),
    }
}
