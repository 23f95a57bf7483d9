//! A list of pods onto a cluster that fills: pods come one at a time, are placed or dropped, and never leave.
//!
//! The pods of the list come in random order, with more of them drawn at random until they ask for 1.3 times the cluster's GPUs.
//! What is told is how much of the GPUs is allocated when a given part has been asked for.

use crate::error::SimError;
use crate::job_specs::PodSpecs;
use crate::machine::pod_nodes;
use crate::trace::pods::{GPU_MILLI, Pod, PodNode};
use crate::virtual_cluster::VirtualCluster;
use cluster::Event;
use model::time::Timestamp;
use serde::Serialize;
use std::time::Duration;

/// The pods ask for so many tenths of the cluster's GPUs in all.
const DEMAND_TENTHS: u64 = 13;

/// The most pods that may come: of pods that ask for next to nothing there would be hundreds of millions.
const PODS_MAX: usize = 20_000_000;

/// Pods between two counts of what is typical, and how long that takes on the virtual clock: the cluster counts anew at the end of
/// each period.
const COUNT_STEP: usize = 128;
const COUNT_PERIOD: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PodSummary {
    /// Pods that came.
    #[serde(rename = "jobs")]
    pub pods: usize,
    pub placed: usize,
    /// Allocated GPUs in per cent of all GPUs of the cluster; a part of a GPU counts as its part.
    pub gpu_allocated_percent: f64,
}

/// How many pods come, and in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrivals {
    /// Pods come until they have asked for so much of the cluster's GPUs.
    pub percent: u32,
    pub seed: u64,
}

/// Places the pods. `progress` is told how many came, and of how many.
pub fn replay_pods(
    nodes: &[PodNode],
    pods: &[Pod],
    arrivals: Arrivals,
    mut progress: impl FnMut(usize, usize),
) -> Result<PodSummary, SimError> {
    let gpus: u64 = nodes.iter().map(|node| u64::from(node.gpus)).sum();
    let capacity = gpus * u64::from(GPU_MILLI);
    if capacity == 0 {
        return Err(SimError::NoGpus);
    }
    let order = order_of(pods, capacity, arrivals.seed, PODS_MAX)?;
    let mut cluster =
        VirtualCluster::new(pod_nodes(nodes), Timestamp(0)).map_err(SimError::configuration)?;
    let mut specs = PodSpecs::default();
    let mut summary = PodSummary { pods: 0, placed: 0, gpu_allocated_percent: 0.0 };
    let (mut asked, mut allocated) = (0, 0);
    for pod in order.iter().map(|at| &pods[*at]) {
        if asked * 100 >= capacity * u64::from(arrivals.percent) {
            break;
        }
        if summary.pods.is_multiple_of(COUNT_STEP) {
            progress(summary.pods, order.len());
            cluster.advance_to(cluster.now() + COUNT_PERIOD);
            cluster.tick().map_err(SimError::plan)?;
        }
        summary.pods += 1;
        asked += pod.gpu_demand();
        if is_placed(&mut cluster, &mut specs, pod)? {
            summary.placed += 1;
            allocated += pod.gpu_demand();
        }
    }
    summary.gpu_allocated_percent = 100.0 * allocated as f64 / capacity as f64;
    Ok(summary)
}

/// Submits the pod, and takes it back unless it starts at once. A pod that no node could hold is refused.
fn is_placed(
    cluster: &mut VirtualCluster,
    specs: &mut PodSpecs,
    pod: &Pod,
) -> Result<bool, SimError> {
    let Ok(job) = cluster.submit(specs.submit(pod)) else { return Ok(false) };
    let happened = cluster.plan().map_err(SimError::plan)?;
    let starts = |event: &Event| matches!(event, Event::Started(s) if s.attempt.job == job);
    let is_placed = happened.iter().any(starts);
    if !is_placed {
        cluster.cancel(job).map_err(SimError::plan)?;
    }
    Ok(is_placed)
}

/// The positions of the pods in the order in which they come, at most so many.
fn order_of(pods: &[Pod], capacity: u64, seed: u64, most: usize) -> Result<Vec<usize>, SimError> {
    let mut sequence = Sequence(seed);
    let mut order: Vec<usize> = (0..pods.len()).collect();
    let mut asked: u64 = pods.iter().map(Pod::gpu_demand).sum();
    // Without a pod that asks for GPUs there would be no end.
    while asked > 0 && asked * 10 < capacity * DEMAND_TENTHS {
        if order.len() >= most {
            return Err(SimError::TooManyPods { most, gpus: capacity / u64::from(GPU_MILLI) });
        }
        let drawn = sequence.below(pods.len());
        asked += pods[drawn].gpu_demand();
        order.push(drawn);
    }
    for last in (1..order.len()).rev() {
        order.swap(last, sequence.below(last + 1));
    }
    Ok(order)
}

/// Random numbers, the same for the same seed (SplitMix64).
struct Sequence(u64);

impl Sequence {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.draw() % count as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, cpu_milli: u32, gpus: u32, model: &str) -> PodNode {
        let model = model.to_owned();
        PodNode { name: name.to_owned(), cpu_milli, memory_mib: 65_536, gpus, model }
    }

    fn pod(cpu_milli: u32, gpus: u32, gpu_milli: u32) -> Pod {
        Pod { cpu_milli, memory_mib: 1_024, gpus, gpu_milli, models: Vec::new() }
    }

    /// Whether each of these pods is placed, in this order.
    fn placed(nodes: &[PodNode], pods: &[Pod]) -> Vec<bool> {
        let mut cluster = VirtualCluster::new(pod_nodes(nodes), Timestamp(0)).expect("a cluster");
        let mut specs = PodSpecs::default();
        let placed = |pod| is_placed(&mut cluster, &mut specs, pod).expect("a pod");
        pods.iter().map(placed).collect()
    }

    /// One node with two GPUs and ten CPUs, and five pods; what follows is worked out by hand.
    ///
    /// 1. Six tenths of a GPU and four CPUs: on the first GPU.
    /// 2. A whole GPU and four CPUs: the second.
    /// 3. Half a GPU: four tenths are left of the first, and nothing of the second.
    /// 4. Four tenths and two CPUs: the rest of the first.
    /// 5. One CPU: there is none left.
    #[test]
    fn five_pods_are_placed_or_dropped_as_worked_out_by_hand() {
        let pods = [
            pod(4_000, 1, 600),
            pod(4_000, 1, 1_000),
            pod(1_000, 1, 500),
            pod(2_000, 1, 400),
            pod(1_000, 0, 0),
        ];
        let nodes = [node("a", 10_000, 2, "T4")];
        assert_eq!(placed(&nodes, &pods), [true, true, false, true, false]);
    }

    #[test]
    fn pod_goes_to_the_models_that_it_names() {
        let nodes = [node("a", 64_000, 1, "T4"), node("b", 64_000, 1, "P100")];
        let of = |model: &str| Pod { models: vec![model.to_owned()], ..pod(1_000, 1, 1_000) };
        assert_eq!(placed(&nodes, &[of("P100"), of("P100"), of("T4")]), [true, false, true]);
    }

    #[test]
    fn pods_come_until_they_asked_for_the_given_part_and_equal_seeds_give_equal_answers() {
        let nodes = [node("a", 64_000, 4, "T4"), node("b", 64_000, 4, "T4")];
        let pods = [pod(1_000, 1, 1_000), pod(1_000, 1, 1_000), pod(1_000, 0, 0)];
        let run = |percent, seed| {
            replay_pods(&nodes, &pods, Arrivals { percent, seed }, |_, _| {}).expect("a replay")
        };
        assert_eq!(run(50, 1).gpu_allocated_percent, 50.0);
        let all = run(100, 1);
        assert_eq!((all.gpu_allocated_percent, all.placed), (100.0, all.pods));
        assert_eq!(run(100, 1), all);
        // Eleven pods of a GPU are 1.3 times the eight there are.
        let order = order_of(&pods, 8_000, 1, 100).expect("an order");
        assert_eq!(order.iter().filter(|at| **at < 2).count(), 11);
        let said = order_of(&pods, 8_000, 1, 10).expect_err("eleven pods").to_string();
        assert_eq!(said, "the pods ask for so little of 8 GPUs that more than 10 would come");
    }
}
