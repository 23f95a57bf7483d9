//! Machines on demand that are no nodes, as instances: being made, or on their way out.

use super::run_body::{backend, instance_name, instance_project, price, region, whole_node};
use crate::shared::Shared;
use crate::show::dstack_id::uuid;
use cluster::State;
use cluster::visibility::Viewer;
use dstack::api::instance::{Instance, InstanceType};
use dstack::status::{HealthStatus, InstanceStatus};
use model::machine::{Machine, MachinePhase};
use model::principal::Principal;

/// The machines that have no node yet, or none any more. They are numbered from `first` on.
pub fn instances(shared: &Shared, by: &Principal, first: u32) -> Vec<Instance> {
    let state = shared.read();
    if !Viewer::new(&state, by).nodes() {
        return Vec::new();
    }
    let is_shown =
        |machine: &&Machine| machine.is_live() && !state.nodes.contains_key(&machine.node);
    let mut machines: Vec<&Machine> = state.machines.values().filter(is_shown).collect();
    machines.sort_unstable_by_key(|machine| machine.number);
    let one = |(number, machine): (u32, &Machine)| instance(&state, machine, number);
    (first..).zip(machines).map(one).collect()
}

/// The machine that is to be this node, or was.
pub fn named(shared: &Shared, node: &str, number: u32) -> Option<Instance> {
    let state = shared.read();
    let mut machines = state.machines.values();
    let machine = machines.find(|machine| machine.is_live() && machine.node == node)?;
    Some(instance(&state, machine, number))
}

fn instance(state: &State, machine: &Machine, number: u32) -> Instance {
    let source = state.source_ref(&machine.source);
    let node = machine.offer.node_of(source, &machine.node, &[]);
    let fleet = machine.terms.fleet.as_ref();
    Instance {
        id: uuid("instance", &machine.node),
        project_name: instance_project(&node).to_owned(),
        backend: Some(backend(Some(&node)).to_owned()),
        instance_type: Some(InstanceType {
            name: instance_name(&node).to_owned(),
            resources: whole_node(&node),
        }),
        name: machine.node.clone(),
        fleet_id: fleet.map(|name| uuid("fleet", name)),
        fleet_name: fleet.cloned(),
        instance_num: number,
        job_name: None,
        hostname: None,
        status: match machine.phase {
            MachinePhase::Asked => InstanceStatus::Pending,
            MachinePhase::Made | MachinePhase::Joined => InstanceStatus::Provisioning,
            MachinePhase::Leaving | MachinePhase::Deleting => InstanceStatus::Terminating,
            MachinePhase::Gone => InstanceStatus::Terminated,
        },
        unreachable: false,
        health_status: HealthStatus::Healthy,
        termination_reason: None,
        termination_reason_message: machine.failure.as_ref().map(|failure| failure.text.clone()),
        created: machine.asked.into(),
        finished_at: None,
        region: Some(region(Some(&node)).to_owned()),
        availability_zone: None,
        price: Some(price(&node)),
        total_blocks: None,
        busy_blocks: 0,
        gpu_driver: None,
    }
}
