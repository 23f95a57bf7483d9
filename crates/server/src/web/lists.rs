//! `GET /api/web/lists/{list}`: what else a cluster has, each list as the call that commands make for it answers; and the partitions.

use crate::clock;
use crate::http::calls;
use crate::shared::Shared;
use crate::shared::long_calls::LongWork;
use crate::show::cluster_view;
use crate::web::answer::{WebRefusal, WebResult, json_answer};
use crate::web::ask::ask_held;
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use model::activity::ActivityFilter;
use model::fleet::MAIN_PROJECT;
use model::gres::GPU;
use model::hostlist;
use model::partition::Partition;
use model::principal::Principal;
use serde::{Deserialize, Serialize};
use slurm::words;
use slurm::words::node::NodeState;
use std::sync::Arc;
use tokio::task::block_in_place;
use wire::client::Call;
use wire::diagnostics::CallKind;
use wire::view::NodeView;

/// Makes the call for a list, of this project where a list is of one.
type ListCall = fn(project: String) -> Call;

const LISTS: &[(&str, ListCall)] = &[
    ("accounts", |_| Call::Accounts),
    ("shares", |_| Call::Shares),
    ("projects", |_| Call::Projects),
    ("reservations", |_| Call::Reservations),
    ("licenses", |_| Call::Licenses),
    ("fleets", |_| Call::Fleets),
    ("backends", |_| Call::Machines),
    ("tokens", |_| Call::Tokens),
    ("events", |_| Call::Activities),
    ("audit", |_| Call::ActivityHistory(ActivityFilter::default())),
    ("agents", |_| Call::Agents),
    ("secrets", |project| Call::Secrets { project }),
    ("volumes", |project| Call::Volumes { project }),
];

/// The partitions are fleets too; no call lists them without their nodes.
const PARTITIONS: &str = "partitions";

#[derive(Serialize)]
struct Partitions {
    partitions: Vec<PartitionRow>,
}

#[derive(Serialize)]
struct PartitionRow {
    name: String,
    default: bool,
    state: &'static str,
    nodes: String,
    node_count: usize,
    nodes_in_service: usize,
    cpus: u64,
    cpus_in_use: u64,
    gpus: u64,
    gpus_in_use: u64,
    /// Seconds; nothing for one that has no end.
    longest_s: Option<u64>,
    qos: Option<String>,
}

fn partitions(shared: &Shared, by: &Principal) -> Partitions {
    let cluster = cluster_view::cluster(shared, by, clock::now());
    let row = |partition: Partition| {
        let is_of = |node: &&NodeView| node.partitions.contains(&partition.name);
        let nodes: Vec<&NodeView> = cluster.nodes.iter().filter(is_of).collect();
        let names: Vec<String> = nodes.iter().map(|node| node.config.name.clone()).collect();
        let sum = |of: &dyn Fn(&NodeView) -> u64| nodes.iter().map(|node| of(node)).sum::<u64>();
        PartitionRow {
            default: partition.default,
            state: words::partition::long(partition.state),
            node_count: nodes.len(),
            nodes: hostlist::compress(&names),
            nodes_in_service: nodes.iter().filter(|n| NodeState::of(n).is_available()).count(),
            cpus: sum(&|node| u64::from(node.config.usable_cpus().len())),
            cpus_in_use: sum(&|node| u64::from(node.cpus_allocated)),
            gpus: sum(&|n| n.config.gres.iter().filter(|g| g.name == GPU).map(|g| g.count).sum()),
            gpus_in_use: sum(&|n| {
                n.gres_used.iter().filter(|g| g.name == GPU).map(|g| g.count).sum()
            }),
            longest_s: partition.max_time.secs(),
            qos: partition.qos,
            name: partition.name,
        }
    };
    let partitions = cluster.partitions.into_iter().map(row).collect();
    Partitions { partitions }
}

#[derive(Deserialize)]
pub struct ListQuery {
    project: Option<String>,
}

pub async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(name): Path<String>,
    Query(query): Query<ListQuery>,
) -> WebResult {
    if name == PARTITIONS {
        let _timer = shared.volatile.counters.begin_call(CallKind::Cluster, &by);
        // All nodes are looked through for each partition: that is as much work as a plan.
        let _long = calls::begin_long(&shared, &by, LongWork::Plan).await?;
        return Ok(block_in_place(|| json_answer(&partitions(&shared, &by))));
    }
    let Some((_, call)) = LISTS.iter().find(|(known, _)| *known == name) else {
        let known = LISTS.iter().map(|(known, _)| *known).chain([PARTITIONS]);
        let known: Vec<&str> = known.collect();
        let text = format!("{name}: expected one of {}", known.join(", "));
        return Err(WebRefusal::new(StatusCode::NOT_FOUND, text));
    };
    let project = query.project.unwrap_or_else(|| MAIN_PROJECT.to_owned());
    let found = ask_held(&shared, &by, None, call(project)).await?;
    Ok(found.make(|answer| json_answer(&answer)))
}
