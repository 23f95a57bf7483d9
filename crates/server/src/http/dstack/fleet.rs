//! Fleets: the partitions of slurm.conf and the fleets over SSH, and their nodes as instances.

use super::answer::{ApiResult, Json, Refused};
use super::machines;
use super::run_body::{backend, instance_name, instance_project, price, region, whole_node};
use crate::http::calls;
use crate::shared::Shared;
use crate::show::dstack_id::uuid;
use axum::Extension;
use axum::extract::{Path, State};
use dstack::api::fleet::{Fleet, FleetSpec, GetFleet};
use dstack::api::instance::{BACKEND, Disk, Instance, InstanceType, REGION, Resources};
use dstack::configuration::{default_profile, from_json};
use dstack::instance_state::InstanceState;
use dstack::status::{FleetStatus, HealthStatus, InstanceStatus};
use model::fleet::MAIN_PROJECT;
use model::principal::Principal;
use model::reason::Refusal;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use wire::client::{Answer, Call};
use wire::fleet::{FleetHostState, FleetHostView, FleetView};
use wire::view::{ClusterView, NodeView};

/// What the caller is shown of the cluster.
pub(super) struct Shown {
    cluster: ClusterView,
    pub(super) over_ssh: Vec<FleetView>,
}

impl Shown {
    pub(super) async fn to(shared: &Arc<Shared>, by: Principal) -> Result<Self, Refusal> {
        let missing = || Refusal::Other("the cluster was not shown".into());
        let Answer::Cluster(cluster) = calls::answer(shared, by.clone(), Call::Cluster).await?
        else {
            return Err(missing());
        };
        let Answer::Fleets(over_ssh) = calls::answer(shared, by, Call::Fleets).await? else {
            return Err(missing());
        };
        Ok(Self { cluster, over_ssh })
    }

    /// The partitions that are no fleets over SSH.
    pub(super) fn configured(&self) -> impl Iterator<Item = &str> {
        let names = self.cluster.partitions.iter().map(|partition| partition.name.as_str());
        names.filter(|name| self.over_ssh.iter().all(|fleet| fleet.name != **name))
    }

    /// All fleets of a project, or of all: the partitions of slurm.conf are every project's.
    fn fleets(&self, shared: &Shared, project: Option<&str>) -> Vec<Fleet> {
        let configured = self.configured().map(|name| fleet(shared, &self.cluster, name));
        let own = self.over_ssh.iter();
        let own = own.filter(|fleet| project.is_none_or(|project| fleet.project == project));
        configured.chain(own.map(|fleet| self.over_ssh(shared, fleet))).collect()
    }

    pub(super) fn over_ssh(&self, shared: &Shared, fleet: &FleetView) -> Fleet {
        let nodes: HashMap<&str, &NodeView> =
            self.cluster.nodes.iter().map(|node| (node.config.name.as_str(), node)).collect();
        let host = |host: &FleetHostView| {
            let node = nodes.get(host.node.as_str()).copied();
            let made = machines::named(shared, &host.node, host.number).filter(|_| node.is_none());
            let project_name = fleet.project.clone();
            match made {
                Some(made) => Instance { project_name, ..made },
                None => host_instance(shared, fleet, host, node),
            }
        };
        let is_leaving = |host: &FleetHostView| host.state == FleetHostState::Leaving;
        // A fleet of machines may have none at the moment.
        let status = if !fleet.hosts.is_empty() && fleet.hosts.iter().all(is_leaving) {
            FleetStatus::Terminating
        } else {
            FleetStatus::Active
        };
        Fleet {
            id: uuid("fleet", &fleet.name),
            name: fleet.name.clone(),
            project_name: fleet.project.clone(),
            spec: FleetSpec {
                configuration: serde_json::from_str(&fleet.configuration).unwrap_or_default(),
                configuration_path: None,
                profile: Some(default_profile()),
                autocreated: false,
            },
            created_at: fleet.created.into(),
            status,
            status_message: None,
            instances: fleet.hosts.iter().map(host).collect(),
        }
    }
}

/// A host as an instance: as its node is, once there is an agent.
fn host_instance(
    shared: &Shared,
    fleet: &FleetView,
    host: &FleetHostView,
    node: Option<&NodeView>,
) -> Instance {
    let joined = node.filter(|_| host.state == FleetHostState::Joined);
    let plain = Instance {
        id: uuid("instance", &host.node),
        project_name: fleet.project.clone(),
        backend: Some(BACKEND.to_owned()),
        instance_type: Some(InstanceType {
            name: "ssh".into(),
            // The client wants a disk, also of a machine that nothing is known of.
            resources: Resources { disk: Some(Disk { size_mib: 0 }), ..Resources::default() },
        }),
        name: host.node.clone(),
        fleet_id: Some(uuid("fleet", &fleet.name)),
        fleet_name: Some(fleet.name.clone()),
        instance_num: host.number,
        job_name: None,
        hostname: Some(host.hostname.clone()),
        status: match host.state {
            FleetHostState::Leaving => InstanceStatus::Terminating,
            _ => InstanceStatus::Pending,
        },
        unreachable: host.failure.is_some(),
        health_status: HealthStatus::Healthy,
        termination_reason: None,
        termination_reason_message: host.failure.clone(),
        created: fleet.created.into(),
        finished_at: None,
        region: Some(REGION.to_owned()),
        availability_zone: None,
        price: Some(0.0),
        total_blocks: host.blocks,
        busy_blocks: 0,
        gpu_driver: None,
    };
    let Some(node) = joined else { return plain };
    let as_node = instance(shared, node, Some(&fleet.name), host.number);
    let (busy, total) = match host.blocks {
        // A host of one block is free or is not.
        Some(1) => (u32::from(as_node.status == InstanceStatus::Busy), Some(1)),
        _ => (as_node.busy_blocks, as_node.total_blocks),
    };
    Instance {
        project_name: fleet.project.clone(),
        hostname: Some(host.hostname.clone()),
        created: fleet.created.into(),
        termination_reason_message: host.failure.clone(),
        busy_blocks: busy,
        total_blocks: total,
        ..as_node
    }
}

async fn cluster(shared: &Arc<Shared>, by: Principal) -> Result<ClusterView, Refusal> {
    Ok(Shown::to(shared, by).await?.cluster)
}

pub async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    project: Option<Path<String>>,
) -> ApiResult<Vec<Fleet>> {
    let shown = Shown::to(&shared, by).await?;
    Ok(Json(shown.fleets(&shared, project.as_ref().map(|Path(name)| name.as_str()))))
}

pub async fn get(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<GetFleet>,
) -> ApiResult<Fleet> {
    let shown = Shown::to(&shared, by).await?;
    let mut fleets = shown.fleets(&shared, Some(&project)).into_iter();
    let found = fleets.find(|fleet| {
        wanted.name.as_ref() == Some(&fleet.name) || wanted.id.as_ref() == Some(&fleet.id)
    });
    found.map(Json).ok_or_else(|| Refused::not_found("Fleet not found"))
}

pub async fn instances(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
) -> ApiResult<Vec<Instance>> {
    let view = cluster(&shared, by.clone()).await?;
    let each = (0..).zip(&view.nodes);
    let nodes = each.map(|(number, node)| instance(&shared, node, None, number));
    let machines = machines::instances(&shared, &by, view.nodes.len() as u32);
    Ok(Json(nodes.chain(machines).collect()))
}

pub async fn get_instance(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<GetFleet>,
) -> ApiResult<Instance> {
    let view = cluster(&shared, by).await?;
    let each = (0..).zip(&view.nodes);
    let mut each = each.map(|(number, node)| instance(&shared, node, None, number));
    let is_wanted = |found: &Instance| {
        wanted.name.as_ref() == Some(&found.name) || wanted.id.as_ref() == Some(&found.id)
    };
    let found = each.find(is_wanted);
    Ok(Json(found.ok_or_else(|| Refused::not_found("Instance not found"))?))
}

/// The checks of a node are in its state; there is no list of earlier ones.
pub async fn health_checks() -> Json<Value> {
    Json(json!({"health_checks": []}))
}

fn fleet(shared: &Shared, view: &ClusterView, name: &str) -> Fleet {
    let nodes = || view.nodes.iter().filter(|node| node.partitions.iter().any(|p| p == name));
    let hosts: Vec<&str> = nodes().map(|node| node.config.name.as_str()).collect();
    let each = (0..).zip(nodes());
    Fleet {
        id: uuid("fleet", name),
        name: name.to_owned(),
        project_name: MAIN_PROJECT.to_owned(),
        spec: FleetSpec {
            configuration: fleet_configuration(name, &hosts),
            configuration_path: None,
            profile: Some(default_profile()),
            autocreated: false,
        },
        created_at: shared.setup.started.into(),
        status: FleetStatus::Active,
        status_message: None,
        instances: each.map(|(number, node)| instance(shared, node, Some(name), number)).collect(),
    }
}

/// The configuration that dstack would have such a fleet from, with every property.
fn fleet_configuration(name: &str, hosts: &[&str]) -> Value {
    let hosts: Vec<Value> =
        hosts.iter().map(|host| json!({"hostname": host, "blocks": "auto"})).collect();
    let configuration = json!({
        "type": "fleet",
        "name": name,
        "blocks": "auto",
        "ssh_config": {"hosts": hosts},
    });
    // A partition may have a name that no fleet of dstack's could have.
    from_json(&configuration, None).map_or(configuration, |loaded| loaded.value.to_json())
}

fn instance(shared: &Shared, node: &NodeView, fleet: Option<&str>, number: u32) -> Instance {
    let config = &node.config;
    let state = InstanceState::of(node);
    Instance {
        id: uuid("instance", &config.name),
        project_name: instance_project(config).to_owned(),
        backend: Some(backend(Some(config)).to_owned()),
        instance_type: Some(InstanceType {
            name: instance_name(config).to_owned(),
            resources: whole_node(config),
        }),
        name: config.name.clone(),
        fleet_id: fleet.map(|name| uuid("fleet", name)),
        fleet_name: fleet.map(str::to_owned),
        instance_num: number,
        job_name: None,
        hostname: Some(config.address.clone()),
        status: state.status,
        unreachable: state.unreachable || !shared.agents.is_connected(&config.name),
        health_status: state.health,
        termination_reason: None,
        termination_reason_message: None,
        created: shared.setup.started.into(),
        finished_at: None,
        region: Some(region(Some(config)).to_owned()),
        availability_zone: None,
        price: Some(price(config)),
        total_blocks: Some(state.total_blocks),
        busy_blocks: state.busy_blocks,
        gpu_driver: None,
    }
}
