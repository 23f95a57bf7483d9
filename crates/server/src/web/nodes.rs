//! `GET /api/web/nodes`: the nodes, and for each GPU who holds it.

use crate::clock;
use crate::http::calls;
use crate::shared::Shared;
use crate::shared::long_calls::LongWork;
use crate::show::cluster_view;
use crate::web::answer::{WebResult, json_answer};
use axum::Extension;
use axum::extract::State;
use cluster::State as ClusterState;
use cluster::visibility::Viewer;
use model::allocation::GresShare;
use model::gpu_health::{GpuReading, Severity};
use model::gres::GPU;
use model::id::JobId;
use model::principal::Principal;
use model::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use slurm::words::node::{NodeState, reason_text};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::block_in_place;
use wire::diagnostics::CallKind;
use wire::view::NodeView;

/// The most GPUs of one node that are shown; slices of MIG may be many.
const GPUS_MAX: usize = 512;

#[derive(Serialize, JsonSchema)]
pub(super) struct Nodes {
    cluster: String,
    now: Timestamp,
    partitions: Vec<String>,
    nodes: Vec<NodeRow>,
}

#[derive(Serialize, JsonSchema)]
struct NodeRow {
    name: String,
    /// `sinfo`'s word.
    state: String,
    /// It takes new jobs.
    available: bool,
    reason: String,
    partitions: Vec<String>,
    cpus: u32,
    cpus_used: u32,
    memory: u64,
    memory_used: u64,
    /// Hundredths.
    load: u32,
    jobs: u32,
    gpus: Vec<GpuCell>,
}

/// One GPU of a node.
#[derive(Serialize, Clone, JsonSchema)]
struct GpuCell {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    used: bool,
    /// Who holds it, as far as the caller is shown that.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Holder>,
    /// What it says is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<GpuFault>,
}

#[derive(Serialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
struct GpuFault {
    /// It fails, and does not warn alone.
    failing: bool,
    text: String,
}

#[derive(Serialize, Clone, JsonSchema)]
struct Holder {
    job: JobId,
    /// As the queue names it, where that is not its number: `14_3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    shown: Option<Arc<str>>,
    user: Arc<str>,
}

pub async fn nodes(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
) -> WebResult {
    let _timer = shared.volatile.counters.begin_call(CallKind::Cluster, &by);
    // All jobs that hold something are looked through: that is as much work as a plan.
    let _long = calls::begin_long(&shared, &by, LongWork::Plan).await?;
    Ok(block_in_place(|| json_answer(&answer(&shared, &by))))
}

/// All of it as of one moment. The jobs that hold something are few of those that there are, and no view is made of them.
fn answer(shared: &Shared, by: &Principal) -> Nodes {
    let now = clock::now();
    let state = shared.read();
    let facts = shared.volatile.facts.read().expect("no panic while writing facts");
    let cluster = cluster_view::cluster_of(&state, &facts, by, now);
    drop(facts);
    let held = held(&state, &Viewer::new(&state, by));
    let nodes = cluster.nodes.iter().map(|node| row(node, held.get(node.config.name.as_str())));
    let nodes = nodes.collect();
    let partitions = cluster.partitions.iter().map(|known| known.name.clone()).collect();
    Nodes { cluster: cluster.name, now, partitions, nodes }
}

/// The shares of GPUs that jobs hold on a node.
type HeldGpus<'j> = Vec<(&'j GresShare, Holder)>;

fn held<'s>(state: &'s ClusterState, viewer: &Viewer<'_>) -> HashMap<&'s str, HeldGpus<'s>> {
    let mut held: HashMap<&str, HeldGpus<'_>> = HashMap::new();
    let active = state.active.iter().filter_map(|id| state.jobs.get(id));
    for job in active.filter(|job| viewer.job(job)) {
        let user: Arc<str> = job.spec.owner.name.as_str().into();
        let is_of_several = job.task.is_some() || job.het.is_some();
        let shown: Option<Arc<str>> = is_of_several.then(|| job.shown_id().into());
        for node in job.allocation().into_iter().flat_map(|allocation| &allocation.nodes) {
            for share in node.gres.iter().filter(|share| share.name == GPU) {
                let holder = Holder { job: job.id, shown: shown.clone(), user: user.clone() };
                held.entry(&node.node).or_default().push((share, holder));
            }
        }
    }
    held
}

fn row(node: &NodeView, held: Option<&HeldGpus<'_>>) -> NodeRow {
    let state = NodeState::of(node);
    NodeRow {
        name: node.config.name.clone(),
        state: state.compact(),
        available: state.is_available(),
        reason: node.reason.as_ref().map(|why| reason_text(why).to_owned()).unwrap_or_default(),
        partitions: node.partitions.clone(),
        cpus: node.config.usable_cpus().len(),
        cpus_used: node.cpus_allocated,
        memory: node.config.usable_memory().0,
        memory_used: node.memory_allocated.0,
        load: node.facts.cpu_load,
        jobs: node.job_count,
        gpus: gpu_cells(node, held.map_or(&[][..], Vec::as_slice)),
    }
}

fn gpu_cells(node: &NodeView, held: &[(&GresShare, Holder)]) -> Vec<GpuCell> {
    let mut cells: Vec<GpuCell> = Vec::new();
    for line in node.config.gres.iter().filter(|line| line.name == GPU) {
        let room = GPUS_MAX.saturating_sub(cells.len()).min(line.count as usize);
        let cell = GpuCell { kind: line.kind.clone(), used: false, holder: None, fault: None };
        cells.extend(std::iter::repeat_n(cell, room));
    }
    // What is used by jobs that the caller is not shown has no holder.
    for share in node.gres_used.iter().filter(|share| share.name == GPU) {
        occupy(&mut cells, share, None);
    }
    for (share, holder) in held {
        occupy(&mut cells, share, Some(holder));
    }
    mark_faults(&mut cells, &node.facts.gpus);
    cells
}

/// Marks the GPUs that report something of themselves.
fn mark_faults(cells: &mut [GpuCell], readings: &[GpuReading]) {
    for reading in readings {
        let findings = reading.findings();
        if let Some(cell) = cells.get_mut(reading.index as usize)
            && !findings.is_empty()
        {
            let failing = findings.iter().any(|finding| finding.severity == Severity::Failure);
            let texts: Vec<String> = findings.into_iter().map(|finding| finding.text).collect();
            cell.fault = Some(GpuFault { failing, text: texts.join("; ") });
        }
    }
}

/// Marks the units of a share; of units that are not told apart, the first that nobody is known to hold.
fn occupy(cells: &mut [GpuCell], share: &GresShare, holder: Option<&Holder>) {
    if share.indices.is_empty() {
        let is_free = |cell: &&mut GpuCell| match holder {
            Some(_) => cell.holder.is_none(),
            None => !cell.used,
        };
        let count = share.count as usize;
        for cell in cells.iter_mut().filter(is_free).take(count) {
            cell.used = true;
            cell.holder = holder.cloned();
        }
        return;
    }
    for index in &share.indices {
        if let Some(cell) = cells.get_mut(*index as usize) {
            cell.used = true;
            cell.holder = holder.cloned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free(count: usize) -> Vec<GpuCell> {
        vec![GpuCell { kind: None, used: false, holder: None, fault: None }; count]
    }

    fn share(count: u64, indices: &[u32]) -> GresShare {
        GresShare { name: GPU.into(), kind: None, count, indices: indices.to_vec() }
    }

    fn shown(cells: &[GpuCell]) -> Vec<Option<u32>> {
        cells.iter().map(|cell| cell.holder.as_ref().map(|holder| holder.job.0)).collect()
    }

    #[test]
    fn each_gpu_has_its_holder_and_others_stay_free() {
        let mut cells = free(4);
        let of = |job: u32| Holder { job: JobId(job), shown: None, user: "ann".into() };
        occupy(&mut cells, &share(2, &[1, 3]), Some(&of(7)));
        assert_eq!(shown(&cells), [None, Some(7), None, Some(7)]);
        assert!(!cells[0].used && cells[1].used);
        // An index that the node has no longer marks nothing.
        occupy(&mut cells, &share(1, &[99]), Some(&of(8)));
        assert_eq!(cells.iter().filter(|cell| cell.used).count(), 2);
    }

    #[test]
    fn gpu_that_reports_errors_is_marked_with_what_it_says() {
        let mut cells = free(2);
        let broken = GpuReading { index: 1, ecc_uncorrected: Some(9), ..GpuReading::default() };
        let unknown = GpuReading { index: 7, ..broken.clone() };
        let expected = broken.findings();
        assert!(!expected.is_empty(), "uncorrected errors are a finding");
        mark_faults(&mut cells, &[GpuReading::default(), broken, unknown]);
        assert_eq!(cells[0].fault, None);
        let fault = cells[1].fault.clone().expect("a fault");
        assert_eq!(fault.failing, expected[0].severity == Severity::Failure);
        assert!(fault.text.starts_with("GPU 1: "), "{}", fault.text);
    }

    #[test]
    fn units_without_numbers_fill_up_from_the_first() {
        let mut cells = free(3);
        let of = |job: u32| Holder { job: JobId(job), shown: None, user: "ann".into() };
        occupy(&mut cells, &share(2, &[]), None);
        assert_eq!(cells.iter().filter(|cell| cell.used).count(), 2);
        occupy(&mut cells, &share(1, &[]), Some(&of(5)));
        occupy(&mut cells, &share(1, &[]), Some(&of(6)));
        assert_eq!(shown(&cells), [Some(5), Some(6), None]);
        assert_eq!(cells.iter().filter(|cell| cell.used).count(), 2);
    }
}
