//! Fleets: the partitions of the cluster, and its nodes as their instances.

use super::answer::{ApiResult, Json, Refused};
use super::run_body::whole_node;
use crate::http::calls;
use crate::shared::Shared;
use crate::show::dstack_id::uuid;
use axum::Extension;
use axum::extract::State;
use dstack::api::fleet::{DeleteFleetInstances, DeleteFleets, Fleet, FleetSpec, GetFleet};
use dstack::api::instance::{BACKEND, Instance, InstanceType, REGION};
use dstack::configuration::{default_profile, from_json};
use dstack::instance_state::InstanceState;
use dstack::status::FleetStatus;
use model::fleet::MAIN_PROJECT;
use model::principal::Principal;
use model::reason::Refusal;
use serde_json::{Value, json};
use std::sync::Arc;
use wire::client::{Answer, Call};
use wire::view::{ClusterView, NodeView};

async fn cluster(shared: &Arc<Shared>, by: Principal) -> Result<ClusterView, Refusal> {
    match calls::answer(shared, by, Call::Cluster).await? {
        Answer::Cluster(view) => Ok(view),
        _ => Err(Refusal::Other("the cluster was not shown".into())),
    }
}

pub async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
) -> ApiResult<Vec<Fleet>> {
    let view = cluster(&shared, by).await?;
    let names = view.partitions.iter().map(|partition| partition.name.as_str());
    Ok(Json(names.map(|name| fleet(&shared, &view, name)).collect()))
}

pub async fn get(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<GetFleet>,
) -> ApiResult<Fleet> {
    let view = cluster(&shared, by).await?;
    let found = view.partitions.iter().find(|partition| {
        wanted.name.as_ref() == Some(&partition.name)
            || wanted.id == Some(uuid("fleet", &partition.name))
    });
    let found = found.ok_or_else(|| Refused::not_found("Fleet not found"))?;
    Ok(Json(fleet(&shared, &view, &found.name)))
}

pub async fn instances(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
) -> ApiResult<Vec<Instance>> {
    let view = cluster(&shared, by).await?;
    let each = (0..).zip(&view.nodes);
    Ok(Json(each.map(|(number, node)| instance(&shared, node, None, number)).collect()))
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

const CONFIGURED: &str = "fleets are the partitions of slurm.conf: take it out there";

/// A fleet that is not there need not be deleted.
pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<DeleteFleets>,
) -> ApiResult<()> {
    let view = cluster(&shared, by).await?;
    let is_there = |name: &String| view.partitions.iter().any(|known| known.name == *name);
    match wanted.names.iter().find(|name| is_there(name)) {
        Some(name) => Err(Refused::because(format!("fleet {name}: {CONFIGURED}"))),
        None => Ok(Json(())),
    }
}

pub async fn delete_instances(Json(wanted): Json<DeleteFleetInstances>) -> ApiResult<()> {
    Err(Refused::because(format!("fleet {}: {CONFIGURED}", wanted.name)))
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
        project_name: MAIN_PROJECT.to_owned(),
        backend: Some(BACKEND.to_owned()),
        instance_type: Some(InstanceType {
            name: config.name.clone(),
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
        region: Some(REGION.to_owned()),
        availability_zone: None,
        price: Some(0.0),
        total_blocks: Some(state.total_blocks),
        busy_blocks: state.busy_blocks,
        gpu_driver: None,
    }
}
