//! Fleets: the partitions of the cluster, and its nodes as their instances.

use super::error::{ApiError, ApiResult};
use super::run_body::whole_node;
use super::{time, uuid};
use crate::clock;
use crate::http::calls;
use crate::shared::Shared;
use axum::extract::State;
use axum::{Extension, Json};
use model::fleet::MAIN_PROJECT;
use model::principal::Principal;
use model::reason::Refusal;
use serde::Deserialize;
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
) -> ApiResult {
    let view = cluster(&shared, by).await?;
    let names: Vec<String> = view.partitions.iter().map(|p| p.name.clone()).collect();
    Ok(Json(names.iter().map(|name| fleet(&shared, &view, name)).collect()))
}

#[derive(Deserialize)]
pub struct GetRequest {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    id: Option<String>,
}

pub async fn get(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<GetRequest>,
) -> ApiResult {
    let view = cluster(&shared, by).await?;
    let found = view.partitions.iter().find(|p| {
        wanted.name.as_ref() == Some(&p.name) || wanted.id == Some(uuid("fleet", &p.name))
    });
    let found = found.ok_or_else(|| ApiError::missing("Fleet not found"))?;
    Ok(Json(fleet(&shared, &view, &found.name)))
}

pub async fn instances(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
) -> ApiResult {
    let view = cluster(&shared, by).await?;
    let each = view.nodes.iter().enumerate();
    Ok(Json(each.map(|(number, node)| instance(&shared, node, None, number)).collect()))
}

fn fleet(shared: &Shared, view: &ClusterView, name: &str) -> Value {
    let nodes = view.nodes.iter().filter(|node| node.partitions.iter().any(|p| p == name));
    let instances: Vec<Value> = nodes
        .enumerate()
        .map(|(number, node)| instance(shared, node, Some(name), number))
        .collect();
    let hosts: Vec<&str> = view
        .nodes
        .iter()
        .filter(|node| node.partitions.iter().any(|p| p == name))
        .map(|node| node.config.name.as_str())
        .collect();
    json!({
        "id": uuid("fleet", name),
        "name": name,
        "project_name": MAIN_PROJECT,
        "spec": {
            "configuration": {
                "type": "fleet",
                "name": name,
                "blocks": "auto",
                "ssh_config": {"hosts": hosts},
            },
            "configuration_path": null,
            "profile": {"name": "default", "default": false},
            "autocreated": false,
        },
        "created_at": time(shared.setup.started),
        "status": "active",
        "status_message": null,
        "instances": instances,
    })
}

fn instance(shared: &Shared, node: &NodeView, fleet: Option<&str>, number: usize) -> Value {
    let config = &node.config;
    let unreachable = !shared.agents.is_connected(&config.name);
    let gpus = config.gres_total("gpu");
    let used: u64 = node.gres_used.iter().filter(|gres| gres.name == "gpu").map(|g| g.count).sum();
    let (busy, total) = match gpus {
        0 => (u64::from(node.cpus_allocated), u64::from(config.cpus)),
        gpus => (used, gpus),
    };
    json!({
        "id": uuid("instance", &config.name),
        "project_name": MAIN_PROJECT,
        "backend": "remote",
        "instance_type": {"name": config.name, "resources": whole_node(config)},
        "name": config.name,
        "fleet_id": fleet.map(|name| uuid("fleet", name)),
        "fleet_name": fleet,
        "instance_num": number,
        "job_name": null,
        "hostname": config.address,
        "status": if node.job_count > 0 { "busy" } else { "idle" },
        "unreachable": unreachable,
        "health_status": "healthy",
        "termination_reason": null,
        "termination_reason_message": node.reason.as_ref().map(ToString::to_string),
        "created": time(shared.setup.started.min(clock::now())),
        "finished_at": null,
        "region": "remote",
        "availability_zone": null,
        "price": 0.0,
        "total_blocks": total,
        "busy_blocks": busy,
        "gpu_driver": null,
    })
}
